"""The externally excited direct-current machine: armature and field on converters of their own.

    l_a di_a/dt = u_a - r_a i_a - l_e' w i_e
    l_e di_e/dt = u_e - r_e i_e                               torque = l_e' i_a i_e

State: i_a, i_e [A]; inputs u_a, u_e [V]; w is the speed [rad/s]. Defaults: gym-electric-motor's.
"""

from __future__ import annotations

from typing import Any

import jax

from jaxrl.environment import pytree

from .machine import Machine, Ratings


class TwoWindings(Machine):
    """What the externally excited and the shunt machine share."""

    r_a: Any
    r_e: Any
    l_a: Any
    l_e: Any
    l_e_prime: Any

    states = ("i_a", "i_e")
    currents = ("i_a", "i_e")
    positive = ("r_a", "r_e", "l_a", "l_e", "l_e_prime", "j_rotor")

    def derivative(self, state: Any, inputs: Any, omega: Any) -> tuple:
        i_a, i_e = state
        u_a, u_e = inputs
        return (
            (u_a - self.r_a * i_a - self.l_e_prime * omega * i_e) / self.l_a,
            (u_e - self.r_e * i_e) / self.l_e,
        )

    def torque(self, state: Any) -> Any:
        return self.l_e_prime * state[0] * state[1]

    def base_point(self, ratings: Ratings) -> tuple[Any, Any]:
        excitation = ratings.i if ratings.i_e is None else ratings.i_e
        return self.l_e_prime * ratings.i * excitation, ratings.u / (self.l_e_prime * excitation)

    def power(self, state: Any, inputs: Any) -> Any:
        return inputs[0] * state[0] + inputs[1] * state[1]

    def loss(self, state: Any) -> Any:
        return self.r_a * state[0] ** 2 + self.r_e * state[1] ** 2

    def energy(self, state: Any) -> Any:
        return 0.5 * (self.l_a * state[0] ** 2 + self.l_e * state[1] ** 2)


@pytree
class ExtExDc(TwoWindings):
    """Parameters of the machine."""

    r_a: jax.Array = 16e-3  # ohm, armature
    r_e: jax.Array = 0.16  # ohm, excitation
    l_a: jax.Array = 19e-6  # H
    l_e: jax.Array = 5.4e-3  # H
    l_e_prime: jax.Array = 1.7e-3  # H, of the flux that the armature turns in
    j_rotor: jax.Array = 0.0025  # kg m^2

    voltages = ("u_a", "u_e")
    terminals = 2

    def ratings(self) -> tuple[Ratings, Ratings]:
        return Ratings(400.0, 38.0, 210.0, 60.0, 210.0, 60.0), Ratings(300.0, 16.0, 97.0, 60.0, 97.0, 60.0)
