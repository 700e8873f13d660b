"""The series direct-current machine: one current through armature and field winding.

    (l_a + l_e) di/dt = u - (r_a + r_e) i - l_e' w i          torque = l_e' i^2

State: i [A]; input u [V]; w is the speed [rad/s]. Torque has no sign: it drives forward only. Defaults:
gym-electric-motor's.
"""

from __future__ import annotations

from typing import Any

import jax

from jaxrl.environment import pytree

from .machine import Machine, Ratings


@pytree
class SeriesDc(Machine):
    """Parameters of the machine."""

    r_a: jax.Array = 16e-3  # ohm, armature
    r_e: jax.Array = 48e-3  # ohm, excitation
    l_a: jax.Array = 19e-6  # H
    l_e: jax.Array = 5.4e-3  # H
    l_e_prime: jax.Array = 1.7e-3  # H, of the flux that the armature turns in
    j_rotor: jax.Array = 0.0025  # kg m^2

    states = ("i",)
    currents = ("i",)
    voltages = ("u",)
    terminals = 1
    one_sided = ("omega", "torque")
    positive = ("r_a", "r_e", "l_a", "l_e", "l_e_prime", "j_rotor")

    def ratings(self) -> tuple[Ratings, Ratings]:
        return Ratings(400.0, 38.0, 210.0, 60.0), Ratings(300.0, 16.0, 97.0, 60.0)

    def derivative(self, state: Any, inputs: Any, omega: Any) -> tuple:
        (i,), (u,) = state, inputs
        return ((u - (self.r_a + self.r_e + self.l_e_prime * omega) * i) / (self.l_a + self.l_e),)

    def torque(self, state: Any) -> Any:
        return self.l_e_prime * state[0] ** 2

    def base_point(self, ratings: Ratings) -> tuple[Any, Any]:
        return self.l_e_prime * ratings.i**2, ratings.u / (self.l_e_prime * ratings.i)

    def power(self, state: Any, inputs: Any) -> Any:
        return inputs[0] * state[0]

    def loss(self, state: Any) -> Any:
        return (self.r_a + self.r_e) * state[0] ** 2

    def energy(self, state: Any) -> Any:
        return 0.5 * (self.l_a + self.l_e) * state[0] ** 2
