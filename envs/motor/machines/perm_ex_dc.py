"""The permanently excited direct-current machine.

    l_a di/dt = u - r_a i - psi_e w          torque = psi_e i

State: i [A]; input u [V]; w is the speed [rad/s]. Defaults: gym-electric-motor's.
"""

from __future__ import annotations

from typing import Any

import jax

from jaxrl.environment import pytree

from .machine import Machine, Ratings


@pytree
class PermExDc(Machine):
    """Parameters of the machine."""

    r_a: jax.Array = 16e-3  # ohm
    l_a: jax.Array = 19e-6  # H
    psi_e: jax.Array = 0.165  # V s
    j_rotor: jax.Array = 0.025  # kg m^2

    states = ("i",)
    currents = ("i",)
    voltages = ("u",)
    terminals = 1
    positive = ("r_a", "l_a", "psi_e", "j_rotor")

    def ratings(self) -> tuple[Ratings, Ratings]:
        return Ratings(400.0, 38.0, 210.0, 60.0), Ratings(300.0, 16.0, 97.0, 60.0)

    def derivative(self, state: Any, inputs: Any, omega: Any) -> tuple:
        return ((inputs[0] - self.r_a * state[0] - self.psi_e * omega) / self.l_a,)

    def torque(self, state: Any) -> Any:
        return self.psi_e * state[0]

    def base_point(self, ratings: Ratings) -> tuple[Any, Any]:
        return self.psi_e * ratings.i, ratings.u / self.psi_e

    def power(self, state: Any, inputs: Any) -> Any:
        return inputs[0] * state[0]

    def loss(self, state: Any) -> Any:
        return self.r_a * state[0] ** 2

    def energy(self, state: Any) -> Any:
        return 0.5 * self.l_a * state[0] ** 2
