"""The externally excited synchronous machine: a rotor winding in place of magnets, on rotor axes.

With the rotor referred to the stator by the winding ratio k: l_M = 3/2 k l_m, l_E = 3/2 k^2 l_e, r_E = 3/2 k^2 r_e,
i_E = 2 / (3 k) i_e, u_E = k u_e, and sigma = 1 - l_M^2 / (l_d l_E), the share of leakage,

    v_d = u_d - r_s i_d + p w l_q i_q                         v_E = u_E - r_E i_E
    di_d/dt = (v_d - l_M / l_E v_E) / (sigma l_d)             di_E/dt = (v_E - l_M / l_d v_d) / (sigma l_E)
    di_q/dt = (u_q - r_s i_q - p w (l_d i_d + l_M i_E)) / l_q           d epsilon/dt = p w
    torque = 3/2 p (l_M i_E + (l_d - l_q) i_d) i_q

State: i_sd, i_sq, i_e [A, of the rotor winding itself], epsilon [rad, electrical]; inputs u_sd, u_sq, u_e [V]; w is the
mechanical speed [rad/s]. Defaults: gym-electric-motor's, but for l_m = 1.1 mH: its 1.589 mH has sigma = -0.31, windings
that are coupled more than wholly, whose currents grow without bound (`EESM.upstream()`).
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from jaxrl.environment import pytree

from .machine import Ratings, rpm
from .pmsm import Synchronous, corner


@pytree
class EESM(Synchronous):
    """Parameters of the machine."""

    p: jax.Array = 3.0  # pole pairs
    l_d: jax.Array = 1.66e-3  # H
    l_q: jax.Array = 0.35e-3  # H
    l_m: jax.Array = 1.1e-3  # H, mutual, of the rotor winding
    l_e: jax.Array = 1.74e-3  # H, rotor
    r_s: jax.Array = 15.55e-3  # ohm
    r_e: jax.Array = 7.2e-3  # ohm, rotor
    k: jax.Array = 65.21  # winding ratio
    j_rotor: jax.Array = 0.3883  # kg m^2

    states = ("i_sd", "i_sq", "i_e", "epsilon")
    currents = ("i_a", "i_b", "i_c", "i_sd", "i_sq", "i_e")
    voltages = ("u_a", "u_b", "u_c", "u_sd", "u_sq", "u_e")
    terminals = 4
    dq_actions = ("u_sd", "u_sq", "u_e")
    positive = ("p", "l_d", "l_q", "l_m", "l_e", "r_s", "r_e", "k", "j_rotor")

    @classmethod
    def upstream(cls) -> EESM:
        """gym-electric-motor's parameters, which are unstable."""
        return cls(l_m=1.589e-3)  # pyright: ignore[reportArgumentType]

    @property
    def sigma(self) -> Any:
        """The share of leakage: 1 minus the square of the coupling."""
        return 1 - 1.5 * self.l_m**2 / (self.l_d * self.l_e)

    def ratings(self) -> tuple[Ratings, Ratings]:
        nominal, excitation = 120.0, 150.0
        l_d, l_q, l_m = float(self.l_d), float(self.l_q), 1.5 * float(self.k) * float(self.l_m)
        if l_d == l_q:
            torque = float(self.torque((0.0, 150.0, excitation)))
        else:
            half = l_m * nominal / (4 * (l_d - l_q))
            i_d = -half + np.sign(l_d - l_q) * np.sqrt(half**2 + nominal**2 / 2)
            torque = float(self.torque((i_d, np.sqrt(nominal**2 - i_d**2), excitation)))
        high = Ratings(rpm(12000), torque, 150.0, 160.0, excitation, 160.0)
        return high, Ratings(rpm(4300), torque, nominal, 160.0, excitation, 160.0)

    def inputs(self, phases: Any, frame: Any) -> tuple:
        return *super().inputs(phases[:3], frame), phases[3]

    def phases(self, dq: Any, frame: Any) -> tuple:
        return *super().phases(dq[:2], frame), dq[2]

    def phase_currents(self, state: Any, frame: Any, upstream: bool = False) -> tuple:
        return self.phases(state[:3], frame)

    def measured_currents(self, state: Any, frame: Any) -> tuple:
        return *super().phases(state[:2], frame), *state[:3]

    def measured_voltages(self, phases: Any, frame: Any) -> tuple:
        return *phases[:3], *self.inputs(phases, frame)

    def derivative(self, state: Any, inputs: Any, omega: Any) -> tuple:
        (i_d, i_q, i_e, _), (u_d, u_q, u_e) = state, inputs
        speed = self.p * omega
        l_m, l_e, ratio = 1.5 * self.k * self.l_m, 1.5 * self.k**2 * self.l_e, 2 / (3 * self.k)
        v_d = u_d - self.r_s * i_d + speed * self.l_q * i_q
        v_e = self.k * (u_e - self.r_e * i_e)  # r_E i_E = k r_e i_e
        sigma = self.sigma
        return (
            (v_d - l_m / l_e * v_e) / (sigma * self.l_d),
            (u_q - self.r_s * i_q - speed * (self.l_d * i_d + l_m * ratio * i_e)) / self.l_q,
            (v_e - l_m / self.l_d * v_d) / (sigma * l_e * ratio),
            speed,
        )

    def torque(self, state: Any) -> Any:
        i_d, i_q, i_e = state[:3]
        return 1.5 * self.p * (self.l_m * i_e + (self.l_d - self.l_q) * i_d) * i_q  # l_M i_E = l_m i_e

    def stator_flux(self, state: Any) -> tuple[Any, Any]:
        return self.l_d * state[0] + self.l_m * state[2], self.l_q * state[1]

    def flux_limit(self, ratings: Ratings) -> Any:
        return self.l_m * ratings.i_e + self.l_d * ratings.i

    def base_point(self, ratings: Ratings) -> tuple[Any, Any]:
        return corner(self, self.l_m * ratings.i_e, ratings)

    def power(self, state: Any, inputs: Any) -> Any:
        return 1.5 * (inputs[0] * state[0] + inputs[1] * state[1]) + inputs[2] * state[2]

    def loss(self, state: Any) -> Any:
        return 1.5 * self.r_s * (state[0] ** 2 + state[1] ** 2) + self.r_e * state[2] ** 2

    def energy(self, state: Any) -> Any:
        i_d, i_q, i_e = state[:3]
        own = 0.75 * (self.l_d * i_d**2 + self.l_q * i_q**2) + 0.5 * self.l_e * i_e**2
        return own + 1.5 * self.l_m * i_d * i_e

    def validate(self, who: str, upstream: bool = False) -> None:
        super().validate(who, upstream)
        l_m, l_d, l_e = (np.asarray(x, np.float64) for x in (self.l_m, self.l_d, self.l_e))
        coupling, most = l_m * np.sqrt(1.5 / (l_d * l_e)), np.sqrt(l_d * l_e / 1.5)
        if np.any(coupling >= 1) and not upstream:
            raise ValueError(
                f"{who}: l_m={l_m} couples rotor and stator by {coupling}, which must be below 1: l_m below {most}."
            )
