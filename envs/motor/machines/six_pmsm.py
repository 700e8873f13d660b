"""The six-phase permanent-magnet synchronous machine: two three-phase windings, 30 degrees apart, on rotor axes.

    l_d di_d/dt = u_d - r_s i_d + p w l_q i_q          l_x di_x/dt = u_x - r_s i_x - p w l_y i_y
    l_q di_q/dt = u_q - r_s i_q - p w (l_d i_d + psi)  l_y di_y/dt = u_y - r_s i_y + p w l_x i_x
    torque = 3 p ((psi + (l_d - l_q) i_d) i_q + (l_y - l_x) i_x i_y)             d epsilon/dt = p w

State: i_sd, i_sq, i_sx, i_sy [A], epsilon [rad, electrical]; inputs u_sd, u_sq, u_sx, u_sy [V]; w is the mechanical
speed [rad/s]. (x, y) are the part of the vector space decomposition that makes hardly any torque, on axes that turn
backwards. Amplitudes are invariant, so the power of six phases is 3 (u_d i_d + ...), and what is neither lost nor
stored of it is the torque's. gym-electric-motor has w in place of p w in the first four equations, and
3/2 p (psi + (l_d - l_q) i_d) i_q for the torque, with which half of the power is lost (`SixPMSM.upstream()`). Defaults:
its.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from jaxrl.environment import pytree
from jaxrl.math import sincos

from .machine import Machine, Ratings, rpm
from .pmsm import corner
from .transforms import inverse_vsd, turn, unturn, vsd


@pytree(static=("slow",))
class SixPMSM(Machine):
    """Parameters of the machine."""

    p: jax.Array = 5.0  # pole pairs
    l_d: jax.Array = 125e-6  # H
    l_q: jax.Array = 126e-6  # H
    l_x: jax.Array = 39e-6  # H
    l_y: jax.Array = 35e-6  # H
    r_s: jax.Array = 64.3e-3  # ohm
    psi_PM: jax.Array = 4.7e-3  # V s, of the magnets
    j_rotor: jax.Array = 0.011  # kg m^2
    slow: bool = False  # gym-electric-motor's equations

    states = ("i_sd", "i_sq", "i_sx", "i_sy", "epsilon")
    currents = ("i_a1", "i_b1", "i_c1", "i_a2", "i_b2", "i_c2", "i_sd", "i_sq", "i_sx", "i_sy")
    voltages = ("u_a1", "u_b1", "u_c1", "u_a2", "u_b2", "u_c2", "u_sd", "u_sq", "u_sx", "u_sy")
    terminals = 6
    axes = ("i_sd", "i_sq", "i_sx", "i_sy", "u_sd", "u_sq", "u_sx", "u_sy")
    dq_actions = ("u_sd", "u_sq", "u_sx", "u_sy")
    vector_reach = (math.sqrt(6) + math.sqrt(2)) / 6
    stator = ("i_sd", "i_sq", "i_sx", "i_sy")
    turning = True
    positive = ("p", "l_d", "l_q", "l_x", "l_y", "r_s", "j_rotor")

    @classmethod
    def upstream(cls) -> SixPMSM:
        """gym-electric-motor's equations."""
        return cls(slow=True)

    def ratings(self) -> tuple[Ratings, Ratings]:
        return Ratings(rpm(4000), 10.0, 400.0, 150.0), Ratings(rpm(3000), 10.0, 240.0, 150.0)

    def frame(self, state: Any) -> tuple:
        return sincos(jnp.asarray(state[-1]))

    def inputs(self, phases: Any, frame: Any) -> tuple:
        alpha, beta, x, y = vsd(phases)
        return *unturn((alpha, beta), frame), *turn((x, y), frame)

    def phases(self, dq: Any, frame: Any) -> tuple:
        return inverse_vsd((*turn(dq[:2], frame), *unturn(dq[2:4], frame)))

    def phase_currents(self, state: Any, frame: Any, upstream: bool = False) -> tuple:
        return self.phases(state[:4], frame)

    def measured_currents(self, state: Any, frame: Any) -> tuple:
        return *self.phases(state[:4], frame), *state[:4]

    def measured_voltages(self, phases: Any, frame: Any) -> tuple:
        return *phases, *self.inputs(phases, frame)

    def action_frame(self, state: Any, flux: Any, omega: Any, ahead: Any, upstream: bool) -> Any:
        return sincos(jnp.asarray(state[-1] + ahead * self.p * omega))

    def derivative(self, state: Any, inputs: Any, omega: Any) -> tuple:
        (i_d, i_q, i_x, i_y, _), (u_d, u_q, u_x, u_y) = state, inputs
        speed = omega if self.slow else self.p * omega
        return (
            (u_d - self.r_s * i_d + speed * self.l_q * i_q) / self.l_d,
            (u_q - self.r_s * i_q - speed * (self.l_d * i_d + self.psi_PM)) / self.l_q,
            (u_x - self.r_s * i_x - speed * self.l_y * i_y) / self.l_x,
            (u_y - self.r_s * i_y + speed * self.l_x * i_x) / self.l_y,
            self.p * omega,
        )

    def torque(self, state: Any) -> Any:
        i_d, i_q, i_x, i_y = state[:4]
        main = (self.psi_PM + (self.l_d - self.l_q) * i_d) * i_q
        return 1.5 * self.p * main if self.slow else 3 * self.p * (main + (self.l_y - self.l_x) * i_x * i_y)

    def base_point(self, ratings: Ratings) -> tuple[Any, Any]:
        torque, speed = corner(self, self.psi_PM, ratings)
        return 2 * torque, speed

    def power(self, state: Any, inputs: Any) -> Any:
        return 3 * sum(u * i for u, i in zip(inputs, state, strict=False))

    def loss(self, state: Any) -> Any:
        return 3 * self.r_s * sum(i**2 for i in state[:4])

    def energy(self, state: Any) -> Any:
        inductances = (self.l_d, self.l_q, self.l_x, self.l_y)
        return 1.5 * sum(h * i**2 for h, i in zip(inductances, state, strict=False))
