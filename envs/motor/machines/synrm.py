"""The synchronous reluctance machine: a rotor that prefers a direction, without magnets, on its own axes.

    l_d di_d/dt = u_d - r_s i_d + p w l_q i_q
    l_q di_q/dt = u_q - r_s i_q - p w l_d i_d                 d epsilon/dt = p w
    torque = 3/2 p (l_d - l_q) i_d i_q

State: i_sd, i_sq [A], epsilon [rad, electrical]; inputs u_sd, u_sq [V]; w is the mechanical speed [rad/s]. Defaults:
gym-electric-motor's.
"""

from __future__ import annotations

from typing import Any

import jax

from jaxrl.environment import pytree

from .machine import Ratings, rpm
from .pmsm import Synchronous, corner


@pytree
class SynRM(Synchronous):
    """Parameters of the machine."""

    p: jax.Array = 4.0  # pole pairs
    l_d: jax.Array = 10.1e-3  # H
    l_q: jax.Array = 4.1e-3  # H
    r_s: jax.Array = 0.57  # ohm
    j_rotor: jax.Array = 0.8e-3  # kg m^2

    positive = ("p", "l_d", "l_q", "r_s", "j_rotor")

    def ratings(self) -> tuple[Ratings, Ratings]:
        torque = float(self.torque((18.0 / 2**0.5, 18.0 / 2**0.5)))  # at the limit current, at 45 degrees
        return Ratings(rpm(4300), torque, 18.0, 40.0), Ratings(rpm(3000), torque, 10.0, 40.0)

    def derivative(self, state: Any, inputs: Any, omega: Any) -> tuple:
        (i_d, i_q, _), (u_d, u_q) = state, inputs
        speed = self.p * omega
        return (
            (u_d - self.r_s * i_d + speed * self.l_q * i_q) / self.l_d,
            (u_q - self.r_s * i_q - speed * self.l_d * i_d) / self.l_q,
            speed,
        )

    def torque(self, state: Any) -> Any:
        return 1.5 * self.p * (self.l_d - self.l_q) * state[0] * state[1]

    def stator_flux(self, state: Any) -> tuple[Any, Any]:
        return self.l_d * state[0], self.l_q * state[1]

    def flux_limit(self, ratings: Ratings) -> Any:
        return self.l_d * ratings.i

    def base_point(self, ratings: Ratings) -> tuple[Any, Any]:
        return corner(self, 0.0, ratings)

    def power(self, state: Any, inputs: Any) -> Any:
        return 1.5 * (inputs[0] * state[0] + inputs[1] * state[1])

    def loss(self, state: Any) -> Any:
        return 1.5 * self.r_s * (state[0] ** 2 + state[1] ** 2)

    def energy(self, state: Any) -> Any:
        return 0.75 * (self.l_d * state[0] ** 2 + self.l_q * state[1] ** 2)
