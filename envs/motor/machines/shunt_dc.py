"""The shunt direct-current machine: armature and field on one voltage.

    l_a di_a/dt = u - r_a i_a - l_e' w i_e
    l_e di_e/dt = u - r_e i_e                                 torque = l_e' i_a i_e

State: i_a, i_e [A]; input u [V]; the converter delivers i_a + i_e; w is the speed [rad/s]. Defaults:
gym-electric-motor's.
"""

from __future__ import annotations

from typing import Any

import jax

from jaxrl.environment import pytree

from .ext_ex_dc import TwoWindings
from .machine import Ratings


@pytree
class ShuntDc(TwoWindings):
    """Parameters of the machine."""

    r_a: jax.Array = 16e-3  # ohm, armature
    r_e: jax.Array = 0.4  # ohm, excitation
    l_a: jax.Array = 19e-6  # H
    l_e: jax.Array = 5.4e-3  # H
    l_e_prime: jax.Array = 1.7e-3  # H, of the flux that the armature turns in
    j_rotor: jax.Array = 0.0025  # kg m^2

    voltages = ("u",)
    terminals = 1
    one_sided = ("omega",)

    def ratings(self) -> tuple[Ratings, Ratings]:
        return Ratings(400.0, 38.0, 210.0, 60.0, 210.0, 60.0), Ratings(300.0, 16.0, 97.0, 60.0, 97.0, 60.0)

    def inputs(self, phases: Any, frame: Any) -> tuple:
        return phases[0], phases[0]

    def phase_currents(self, state: Any, frame: Any, upstream: bool = False) -> tuple:
        return (state[0] + state[1],)
