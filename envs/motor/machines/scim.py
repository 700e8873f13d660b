"""The squirrel-cage induction machine on stator axes.

With l_s = l_m + l_sigs, l_r = l_m + l_sigr and sigma = 1 - l_m^2 / (l_s l_r), as complex numbers alpha + j beta:

    dpsi/dt = l_m r_r / l_r i - (r_r / l_r - j p w) psi
    sigma l_s di/dt = u - r_s i - l_m / l_r dpsi/dt                     d epsilon/dt = p w
    torque = 3/2 p l_m / l_r (psi_alpha i_beta - psi_beta i_alpha)

State: stator current i_salpha, i_sbeta [A], rotor flux psi_ralpha, psi_rbeta [V s], epsilon [rad, electrical]; inputs
u_salpha, u_sbeta [V]; w is the mechanical speed [rad/s]. i_sd, i_sq, u_sd, u_sq are on axes of the rotor's flux.
Defaults: gym-electric-motor's (Wallscheid, Schenke and Boecker 2018).
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.environment import pytree
from jaxrl.math import sincos

from .machine import Machine, Ratings, rpm
from .transforms import clarke, flux_frame, inverse_clarke, turn, unturn


class Induction(Machine):
    """What the squirrel-cage and the doubly fed machine share."""

    p: Any
    l_m: Any
    l_sigs: Any
    l_sigr: Any
    r_s: Any
    r_r: Any

    states = ("i_salpha", "i_sbeta", "psi_ralpha", "psi_rbeta", "epsilon")
    stator = ("i_salpha", "i_sbeta", "i_sa", "i_sb", "i_sc", "i_sd", "i_sq")
    fluxes = ("psi_ralpha", "psi_rbeta")
    positive = ("p", "l_m", "l_sigs", "l_sigr", "r_s", "r_r", "j_rotor")

    @property
    def l_s(self) -> Any:
        """Stator inductance [H]."""
        return self.l_m + self.l_sigs

    @property
    def l_r(self) -> Any:
        """Rotor inductance [H]."""
        return self.l_m + self.l_sigr

    @property
    def sigma(self) -> Any:
        """The share of leakage."""
        return 1 - self.l_m**2 / (self.l_s * self.l_r)

    def torque_limit(self, current: float) -> float:
        """gym-electric-motor's: flux and torque currents half of `current` squared together [N m]."""
        l_m = float(self.l_m)
        return 1.5 * float(self.p) * l_m**2 / (l_m + float(self.l_sigr)) * current**2 / 2

    def derivative(self, state: Any, inputs: Any, omega: Any) -> tuple:
        """`inputs`: of the stator, and where there are two more, of the rotor, all on stator axes."""
        i_a, i_b, psi_a, psi_b, _ = state
        u_a, u_b, *rotor = inputs
        speed = self.p * omega
        rate, share = self.r_r / self.l_r, self.l_m / self.l_r
        flux_a = rate * (self.l_m * i_a - psi_a) - speed * psi_b
        flux_b = rate * (self.l_m * i_b - psi_b) + speed * psi_a
        if rotor:
            flux_a, flux_b = flux_a + rotor[0], flux_b + rotor[1]
        leakage = self.sigma * self.l_s
        return (
            (u_a - self.r_s * i_a - share * flux_a) / leakage,
            (u_b - self.r_s * i_b - share * flux_b) / leakage,
            flux_a,
            flux_b,
            speed,
        )

    def torque(self, state: Any) -> Any:
        i_a, i_b, psi_a, psi_b = state[:4]
        return 1.5 * self.p * self.l_m / self.l_r * (psi_a * i_b - psi_b * i_a)

    def stator_flux(self, state: Any) -> tuple[Any, Any]:
        """On stator axes [V s]."""
        share = self.l_m / self.l_r
        return tuple(self.sigma * self.l_s * state[k] + share * state[2 + k] for k in range(2))  # pyright: ignore

    def flux_limit(self, ratings: Ratings) -> Any:
        """The stator's flux linkage of the whole current on the axis of the rotor's flux [V s]."""
        return self.l_s * ratings.i

    def flux_range(self, ratings: Ratings) -> tuple[Any, Any]:
        """Stator fluxes [V s] in which torque can be asked for: up to that of most torque of the rated current, where
        half of its square magnetises; a third of it is little enough to be slow."""
        most = self.l_s * ratings.i / math.sqrt(2)
        return most / 3, most

    def most_torque(self, psi: Any, current: Any) -> Any:
        """Steady torque [N m] of a stator flux of length `psi` [V s] within a stator current of length `current` [A].

        On axes of the rotor's flux psi^2 = (l_s i_d)^2 + (sigma l_s i_q)^2, torque = 3/2 p l_m^2 / l_r i_d i_q; the
        current is used up, unless the pull-out torque, where both parts of the flux are equal, comes first.
        """
        constant = 1.5 * self.p * self.l_m**2 / self.l_r
        flux, sigma = (psi / self.l_s) ** 2, self.sigma
        d = jnp.clip((flux - (sigma * current) ** 2) / (1 - sigma**2), 0.5 * flux, flux)
        return constant * jnp.sqrt(d * (flux - d)) / sigma

    def base_point(self, ratings: Ratings) -> tuple[Any, Any]:
        part = ratings.i / math.sqrt(2)
        flux = self.l_s * part * (1 + self.sigma**2) ** 0.5
        return 1.5 * self.p * self.l_m**2 / self.l_r * part**2, 2 / math.sqrt(3) * ratings.u / (self.p * flux)

    def rotor_current(self, state: Any) -> tuple[Any, Any]:
        """On stator axes [A]."""
        i_a, i_b, psi_a, psi_b = state[:4]
        return (psi_a - self.l_m * i_a) / self.l_r, (psi_b - self.l_m * i_b) / self.l_r

    def observe_flux(self, flux: Any, state: Any, omega: Any, tau: Any) -> tuple[Any, Any]:
        """gym-electric-motor's observer: the rotor flux `tau` seconds on, by one Euler step with `state` after it."""
        alpha, beta = flux
        rate, speed = self.r_r / self.l_r, self.p * omega
        return (
            alpha + tau * (rate * (self.l_m * state[0] - alpha) - speed * beta),
            beta + tau * (rate * (self.l_m * state[1] - beta) + speed * alpha),
        )

    def power(self, state: Any, inputs: Any) -> Any:
        stator = inputs[0] * state[0] + inputs[1] * state[1]
        if len(inputs) == 2:
            return 1.5 * stator
        i_a, i_b = self.rotor_current(state)
        return 1.5 * (stator + inputs[2] * i_a + inputs[3] * i_b)

    def loss(self, state: Any) -> Any:
        i_a, i_b = self.rotor_current(state)
        return 1.5 * (self.r_s * (state[0] ** 2 + state[1] ** 2) + self.r_r * (i_a**2 + i_b**2))

    def energy(self, state: Any) -> Any:
        i_a, i_b, psi_a, psi_b = state[:4]
        leakage = self.sigma * self.l_s
        return 0.75 * (leakage * (i_a**2 + i_b**2) + (psi_a**2 + psi_b**2) / self.l_r)

    def validate(self, who: str, upstream: bool = False) -> None:
        for name in ("l_sigs", "l_sigr"):
            value = np.asarray(getattr(self, name))
            if not np.all(value > 0):
                raise ValueError(
                    f"{who}: {name}={value} must be positive, or stator and rotor are coupled by 1 or more."
                )
        super().validate(who, upstream)


@pytree
class SCIM(Induction):
    """Parameters of the machine."""

    p: jax.Array = 2.0  # pole pairs
    l_m: jax.Array = 143.75e-3  # H, mutual
    l_sigs: jax.Array = 5.87e-3  # H, leakage of the stator
    l_sigr: jax.Array = 5.87e-3  # H, of the rotor
    r_s: jax.Array = 2.9338  # ohm, stator
    r_r: jax.Array = 1.355  # ohm, rotor
    j_rotor: jax.Array = 1.1e-3  # kg m^2

    currents = ("i_sa", "i_sb", "i_sc", "i_sd", "i_sq")
    voltages = ("u_sa", "u_sb", "u_sc", "u_sd", "u_sq")
    axes = ("i_sd", "i_sq", "u_sd", "u_sq")
    dq_actions = ("u_sd", "u_sq")

    def ratings(self) -> tuple[Ratings, Ratings]:
        torque = self.torque_limit(5.5)
        return Ratings(rpm(4000), torque, 5.5, 280.0), Ratings(rpm(3000), torque, 3.9, 280.0)

    def frame(self, state: Any) -> tuple:
        return flux_frame(state[2:4])

    def inputs(self, phases: Any, frame: Any) -> tuple:
        return clarke(phases)

    def phases(self, dq: Any, frame: Any) -> tuple:
        return inverse_clarke(turn(dq, frame))

    def phase_currents(self, state: Any, frame: Any, upstream: bool = False) -> tuple:
        return inverse_clarke(state[:2])

    def measured_currents(self, state: Any, frame: Any) -> tuple:
        return *inverse_clarke(state[:2]), *unturn(state[:2], frame)

    def measured_voltages(self, phases: Any, frame: Any) -> tuple:
        return *phases, *unturn(clarke(phases), frame)

    def action_frame(self, state: Any, flux: Any, omega: Any, ahead: Any, upstream: bool) -> Any:
        sin, cos = flux_frame(state[2:4] if flux is None else flux)
        cos, sin = turn((cos, sin), sincos(jnp.asarray(ahead * self.p * omega)))
        return sin, cos
