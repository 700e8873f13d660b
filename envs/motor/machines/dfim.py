"""The doubly fed induction machine on stator axes: `scim.py` with a rotor whose windings have a converter of their own.

    dpsi/dt = l_m r_r / l_r i - (r_r / l_r - j p w) psi + u_r

u_r is on stator axes; the rotor's converter makes it on rotor axes, u_r = exp(j epsilon) (u_ra, u_rb, u_rc). State as
there; inputs u_salpha, u_sbeta, u_ralpha, u_rbeta [V]. i_rd, i_rq, u_rd, u_rq are on axes of the rotor's flux, phases
ra, rb, rc on rotor axes. Defaults: gym-electric-motor's.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from jaxrl.environment import pytree
from jaxrl.math import sincos

from .machine import Ratings, rpm
from .scim import Induction
from .transforms import clarke, flux_frame, inverse_clarke, turn, unturn


@pytree
class DFIM(Induction):
    """Parameters of the machine."""

    p: jax.Array = 2.0  # pole pairs
    l_m: jax.Array = 297.5e-3  # H, mutual
    l_sigs: jax.Array = 25.71e-3  # H, leakage of the stator
    l_sigr: jax.Array = 25.71e-3  # H, of the rotor
    r_s: jax.Array = 4.42  # ohm, stator
    r_r: jax.Array = 3.51  # ohm, rotor
    j_rotor: jax.Array = 13.695e-3  # kg m^2

    currents = ("i_sa", "i_sb", "i_sc", "i_sd", "i_sq", "i_ra", "i_rb", "i_rc", "i_rd", "i_rq")
    voltages = ("u_sa", "u_sb", "u_sc", "u_sd", "u_sq", "u_ra", "u_rb", "u_rc", "u_rd", "u_rq")
    terminals = 6
    axes = ("i_sd", "i_sq", "i_rd", "i_rq", "u_sd", "u_sq", "u_rd", "u_rq")
    dq_actions = ("u_sd", "u_sq", "u_rd", "u_rq")

    def ratings(self) -> tuple[Ratings, Ratings]:
        torque = self.torque_limit(9.0)
        return Ratings(rpm(1800), torque, 9.0, 360.0), Ratings(rpm(1650), torque, 7.5, 360.0)

    def frame(self, state: Any) -> tuple:
        """Of the flux, then of the rotor."""
        return *flux_frame(state[2:4]), *sincos(jnp.asarray(state[4]))

    def upstream_first(self, state: Any) -> tuple:
        """The axes of the stator's current, of the rotor's phases, and of i_rd and i_rq.

        Before the first step gym-electric-motor takes the rotor's current on stator axes for that on rotor axes: phases
        show it as it is, and i_rd, i_rq are turned back by the rotor's angle once more.
        """
        sin, cos, *rotor = self.frame(state)
        slip = unturn((cos, sin), rotor)
        return sin, cos, jnp.zeros_like(sin), jnp.ones_like(cos), slip[1], slip[0]

    def upstream_later(self, frame: tuple) -> tuple:
        return *frame, *frame[:2]

    def inputs(self, phases: Any, frame: Any) -> tuple:
        return *clarke(phases[:3]), *turn(clarke(phases[3:]), frame[2:])

    def phases(self, dq: Any, frame: Any) -> tuple:
        return *inverse_clarke(turn(dq[:2], frame[:2])), *inverse_clarke(turn(dq[2:], frame[2:]))

    def phase_currents(self, state: Any, frame: Any, upstream: bool = False) -> tuple:
        rotor = self.rotor_current(state)
        # gym-electric-motor's converter sees the rotor's current on stator axes.
        return *inverse_clarke(state[:2]), *inverse_clarke(rotor if upstream else unturn(rotor, frame[2:]))

    def measured_currents(self, state: Any, frame: Any) -> tuple:
        stator, rotor = state[:2], self.rotor_current(state)
        return (
            *inverse_clarke(stator),
            *unturn(stator, frame[:2]),
            *inverse_clarke(unturn(rotor, frame[2:4])),
            *unturn(rotor, frame[4:] or frame[:2]),  # of six numbers: `upstream_first`
        )

    def measured_voltages(self, phases: Any, frame: Any) -> tuple:
        stator, rotor = clarke(phases[:3]), turn(clarke(phases[3:]), frame[2:])
        return *phases[:3], *unturn(stator, frame[:2]), *phases[3:], *unturn(rotor, frame[:2])

    def action_frame(self, state: Any, flux: Any, omega: Any, ahead: Any, upstream: bool) -> Any:
        """Of the flux against the stator, then against the rotor. gym-electric-motor has the rotor's angle in place of
        the first, and the flux less that in place of the second."""
        sin, cos = flux_frame(state[2:4] if flux is None else flux)
        rotor = sincos(jnp.asarray(state[4] + ahead * self.p * omega))
        if upstream:
            slip = unturn((cos, sin), rotor)
            return *rotor, slip[1], slip[0]
        slip = unturn((cos, sin), sincos(jnp.asarray(state[4])))
        ahead = turn((cos, sin), sincos(jnp.asarray(ahead * self.p * omega)))
        return ahead[1], ahead[0], slip[1], slip[0]
