"""The permanent-magnet synchronous machine on rotor axes.

    l_d di_d/dt = u_d - r_s i_d + p w l_q i_q
    l_q di_q/dt = u_q - r_s i_q - p w (l_d i_d + psi_p)           d epsilon/dt = p w
    torque = 3/2 p (psi_p + (l_d - l_q) i_d) i_q

State: i_sd, i_sq [A], epsilon [rad, electrical]; inputs u_sd, u_sq [V]; w is the mechanical speed [rad/s]. Defaults:
gym-electric-motor's (a BRUSA HSM1 traction drive). `SaturatedPMSM` takes flux linkages from maps instead:

    d psi_d/dt = u_d - r_s i_d + p w psi_q,   d psi_q/dt = u_q - r_s i_q - p w psi_d
    torque = 3/2 p (psi_d i_q - psi_q i_d),   psi(i) bilinear between the points of a grid
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
from .transforms import clarke, inverse_clarke, turn, unturn


class Synchronous(Machine):
    """What three-phase machines on rotor axes share: one angle, three phases."""

    states = ("i_sd", "i_sq", "epsilon")
    currents = ("i_a", "i_b", "i_c", "i_sd", "i_sq")
    voltages = ("u_a", "u_b", "u_c", "u_sd", "u_sq")
    axes = ("i_sd", "i_sq", "u_sd", "u_sq")
    dq_actions = ("u_sd", "u_sq")
    stator = ("i_sd", "i_sq")
    turning = True
    upstream_swap = True

    def frame(self, state: Any) -> tuple:
        return sincos(jnp.asarray(state[-1]))

    def inputs(self, phases: Any, frame: Any) -> tuple:
        return unturn(clarke(phases), frame)

    def phases(self, dq: Any, frame: Any) -> tuple:
        return inverse_clarke(turn(dq, frame))

    def stator_flux(self, state: Any) -> tuple[Any, Any]:
        """On rotor axes [V s]."""
        raise NotImplementedError

    def flux_limit(self, ratings: Ratings) -> Any:
        """The stator's flux linkage of the whole current on the d axis [V s]."""
        raise NotImplementedError

    def phase_currents(self, state: Any, frame: Any, upstream: bool = False) -> tuple:
        return self.phases(state[:2], frame)

    def measured_currents(self, state: Any, frame: Any) -> tuple:
        return *self.phases(state[:2], frame), *state[:2]

    def measured_voltages(self, phases: Any, frame: Any) -> tuple:
        return *phases, *self.inputs(phases, frame)

    def action_frame(self, state: Any, flux: Any, omega: Any, ahead: Any, upstream: bool) -> Any:
        return sincos(jnp.asarray(state[-1] + ahead * self.p * omega))  # pyright: ignore[reportAttributeAccessIssue]


@pytree
class PMSM(Synchronous):
    """Parameters of the machine."""

    p: jax.Array = 3.0  # pole pairs
    l_d: jax.Array = 0.37e-3  # H
    l_q: jax.Array = 1.2e-3  # H
    r_s: jax.Array = 18e-3  # ohm
    psi_p: jax.Array = 66e-3  # V s, of the magnets
    j_rotor: jax.Array = 0.03883  # kg m^2

    positive = ("p", "l_d", "l_q", "r_s", "j_rotor")

    def ratings(self) -> tuple[Ratings, Ratings]:
        torque = best_torque(self, 240.0, 400.0)
        return Ratings(rpm(4000), torque, 400.0, 150.0), Ratings(rpm(3000), torque, 240.0, 150.0)

    def derivative(self, state: Any, inputs: Any, omega: Any) -> tuple:
        (i_d, i_q, _), (u_d, u_q) = state, inputs
        speed = self.p * omega
        return (
            (u_d - self.r_s * i_d + speed * self.l_q * i_q) / self.l_d,
            (u_q - self.r_s * i_q - speed * (self.l_d * i_d + self.psi_p)) / self.l_q,
            speed,
        )

    def torque(self, state: Any) -> Any:
        return 1.5 * self.p * (self.psi_p + (self.l_d - self.l_q) * state[0]) * state[1]

    def stator_flux(self, state: Any) -> tuple[Any, Any]:
        return self.l_d * state[0] + self.psi_p, self.l_q * state[1]

    def flux_limit(self, ratings: Ratings) -> Any:
        return self.l_d * ratings.i + self.psi_p

    def flux_range(self, ratings: Ratings) -> tuple[Any, Any]:
        """Stator fluxes [V s] in which torque can be asked for: what 0.9 of the rated current leaves and makes of the
        magnets' on the d axis, where there is no torque; no less than half of the magnets'.

        And below psi_p l_q / (l_q - l_d), from where on a small load angle turns the torque around (Zhong et al. 1997).
        """
        change = 0.9 * self.l_d * ratings.i
        low = jnp.maximum(self.psi_p - change, 0.5 * self.psi_p)
        turns = self.l_q > self.l_d
        most = 0.95 * self.psi_p * self.l_q / jnp.where(turns, self.l_q - self.l_d, 1)
        high = self.psi_p + change
        return low, jnp.maximum(jnp.where(turns, jnp.minimum(high, most), high), low)

    def most_torque(self, psi: Any, current: Any) -> Any:
        """Torque [N m] of a stator flux of length `psi` [V s] within a stator current of length `current` [A].

        Torque rises with the load angle until 3/2 p psi / l_q sin (a + b cos) has its summit (Zhong, Rahman, Hu and Lim
        1997, "Analysis of direct torque control in permanent magnet synchronous motor drives"), or the current is used
        up.
        """
        a, b = self.psi_p * self.l_q / self.l_d, (1 - self.l_q / self.l_d) * psi
        summit = 2 * b / (a + jnp.sqrt(a * a + 8 * b * b))
        # Where |i| = current on the circle of one flux: a quadratic equation in i_d.
        rest = self.psi_p**2 + (self.l_q * current) ** 2 - psi**2
        half = self.psi_p * self.l_d
        root = jnp.sqrt(jnp.maximum(half * half - (self.l_d**2 - self.l_q**2) * rest, 0))
        used_up = (self.psi_p - self.l_d * rest / (half + root)) / psi

        def square(cosine):
            d = (psi * cosine - self.psi_p) / self.l_d
            return d * d + (psi / self.l_q) ** 2 * (1 - cosine**2)

        cosine = jnp.clip(jnp.where(square(summit) > current**2, jnp.maximum(summit, used_up), summit), -1, 1)
        return 1.5 * self.p * psi / self.l_q * jnp.sqrt(jnp.maximum(1 - cosine**2, 1e-12)) * (a + b * cosine)

    def base_point(self, ratings: Ratings) -> tuple[Any, Any]:
        return corner(self, self.psi_p, ratings)

    def power(self, state: Any, inputs: Any) -> Any:
        return 1.5 * (inputs[0] * state[0] + inputs[1] * state[1])

    def loss(self, state: Any) -> Any:
        return 1.5 * self.r_s * (state[0] ** 2 + state[1] ** 2)

    def energy(self, state: Any) -> Any:
        return 0.75 * (self.l_d * state[0] ** 2 + self.l_q * state[1] ** 2)


def corner(machine: Any, psi: Any, ratings: Ratings) -> tuple[Any, Any]:
    """`Machine.base_point` of a machine with l_d, l_q [H] and a flux linkage `psi` [V s] of magnets or excitation."""
    saliency, i = machine.l_d - machine.l_q, ratings.i
    i_d = 2 * saliency * i**2 / (psi + (psi**2 + 8 * (saliency * i) ** 2) ** 0.5)
    i_q = (i**2 - i_d**2) ** 0.5
    flux = ((psi + machine.l_d * i_d) ** 2 + (machine.l_q * i_q) ** 2) ** 0.5
    return 1.5 * machine.p * (psi + saliency * i_d) * i_q, 2 / math.sqrt(3) * ratings.u / (machine.p * flux)


def best_torque(machine: Any, nominal: float, limit: float) -> float:
    """The torque limit: at the current of magnitude `nominal` that gives most torque [N m]; of `limit` on the q axis
    alone where l_d = l_q, as gym-electric-motor."""
    l_d, l_q, psi = (float(x) for x in (machine.l_d, machine.l_q, machine.psi_p))
    if l_d == l_q:
        return 1.5 * float(machine.p) * psi * limit
    half = psi / (4 * (l_d - l_q))
    i_d = -half - np.sqrt(half**2 + nominal**2 / 2)
    return 1.5 * float(machine.p) * (psi + (l_d - l_q) * i_d) * float(np.sqrt(nominal**2 - i_d**2))


@pytree
class SaturatedPMSM(Synchronous):
    """A machine whose flux linkages are maps of both currents, so that iron saturates and the axes couple."""

    psi_d: jax.Array  # (D, Q) V s, on the grid of currents
    psi_q: jax.Array  # (D, Q) V s
    i_d_low: jax.Array  # A, the grid's first and last d current
    i_d_high: jax.Array
    i_q_low: jax.Array  # A
    i_q_high: jax.Array
    p: jax.Array = 3.0  # pole pairs
    r_s: jax.Array = 18e-3  # ohm
    j_rotor: jax.Array = 0.03883  # kg m^2

    positive = ("p", "r_s", "j_rotor")

    def ratings(self) -> tuple[Ratings, Ratings]:
        return PMSM().ratings()

    def flux(self, i_d: Any, i_q: Any) -> tuple[Any, Any, Any]:
        """psi_d, psi_q [V s], and their derivatives (l_dd, l_dq, l_qd, l_qq) [H] in the current's cell of the grid.

        Beyond the grid the outermost cells go on.
        """
        d, q = self.psi_d.shape[-2:]
        step_d = (self.i_d_high - self.i_d_low) / (d - 1)
        step_q = (self.i_q_high - self.i_q_low) / (q - 1)
        x, y = (i_d - self.i_d_low) / step_d, (i_q - self.i_q_low) / step_q
        row = jnp.clip(jnp.floor(x), 0, d - 2).astype(jnp.int32)
        column = jnp.clip(jnp.floor(y), 0, q - 2).astype(jnp.int32)
        x, y = x - row, y - column

        def bilinear(table):
            low_low, low_high = table[row, column], table[row, column + 1]
            high_low, high_high = table[row + 1, column], table[row + 1, column + 1]
            low, high = low_low + y * (low_high - low_low), high_low + y * (high_high - high_low)
            left, right = low_low + x * (high_low - low_low), low_high + x * (high_high - low_high)
            return low + x * (high - low), (high - low) / step_d, (right - left) / step_q

        (psi_d, l_dd, l_dq), (psi_q, l_qd, l_qq) = bilinear(self.psi_d), bilinear(self.psi_q)
        return psi_d, psi_q, (l_dd, l_dq, l_qd, l_qq)

    def derivative(self, state: Any, inputs: Any, omega: Any) -> tuple:
        (i_d, i_q, _), (u_d, u_q) = state, inputs
        psi_d, psi_q, (l_dd, l_dq, l_qd, l_qq) = self.flux(i_d, i_q)
        speed = self.p * omega
        v_d = u_d - self.r_s * i_d + speed * psi_q
        v_q = u_q - self.r_s * i_q - speed * psi_d
        determinant = l_dd * l_qq - l_dq * l_qd
        return (l_qq * v_d - l_dq * v_q) / determinant, (l_dd * v_q - l_qd * v_d) / determinant, speed

    def torque(self, state: Any) -> Any:
        psi_d, psi_q, _ = self.flux(state[0], state[1])
        return 1.5 * self.p * (psi_d * state[1] - psi_q * state[0])

    def stator_flux(self, state: Any) -> tuple[Any, Any]:
        return self.flux(state[0], state[1])[:2]

    def flux_limit(self, ratings: Ratings) -> Any:
        return self.flux(ratings.i, 0.0)[0]

    def energy(self, state: Any) -> Any:
        """Of the linkages less the coenergy, along i_d, then along i_q.

        Another way has the same result where d psi_d / d i_q = d psi_q / d i_d, which maps of a machine have up to
        the lines between their points.
        """
        i_d, i_q = state[0], state[1]
        d = jnp.linspace(self.i_d_low, self.i_d_high, self.psi_d.shape[-2])
        q = jnp.linspace(self.i_q_low, self.i_q_high, self.psi_d.shape[-1])
        zero = jnp.zeros_like(i_d)
        along_d, along_q = self.flux(d, zero)[0], self.flux(i_d, q)[1]
        coenergy = _area(d, along_d, zero, i_d) + _area(q, along_q, zero, i_q)
        psi_d, psi_q, _ = self.flux(i_d, i_q)
        return 1.5 * (psi_d * i_d + psi_q * i_q - coenergy)

    def base_point(self, ratings: Ratings) -> tuple[Any, Any]:
        """Of the machine linearised about no current."""
        psi, _, (l_d, _, _, l_q) = self.flux(0.0, 0.0)
        return corner(PMSM(self.p, l_d, l_q, self.r_s, psi), psi, ratings)

    def power(self, state: Any, inputs: Any) -> Any:
        return 1.5 * (inputs[0] * state[0] + inputs[1] * state[1])

    def loss(self, state: Any) -> Any:
        return 1.5 * self.r_s * (state[0] ** 2 + state[1] ** 2)

    def validate(self, who: str, upstream: bool = False) -> None:
        super().validate(who, upstream)
        for low, high in (("i_d_low", "i_d_high"), ("i_q_low", "i_q_high")):
            if not np.all(np.asarray(getattr(self, low)) < np.asarray(getattr(self, high))):
                raise ValueError(f"{who}: {low}={getattr(self, low)} must be below {high}={getattr(self, high)}.")
        psi_d, psi_q = np.asarray(self.psi_d), np.asarray(self.psi_q)
        if psi_d.shape != psi_q.shape or psi_d.ndim < 2 or min(psi_d.shape[-2:]) < 2:
            raise ValueError(
                f"{who}: psi_d has shape {psi_d.shape} and psi_q {psi_q.shape}; both need one shape (D, Q), at least 2."
            )
        if not (np.all(np.diff(psi_d, axis=-2) > 0) and np.all(np.diff(psi_q, axis=-1) > 0)):
            raise ValueError(f"{who}: psi_d must rise with i_d and psi_q with i_q, or an inductance is not positive.")


def _area(grid: Any, values: Any, begin: Any, end: Any) -> Any:
    """Integral from `begin` to `end` of the lines between `values` at equally spaced points, the outermost going on."""
    step = grid[1] - grid[0]
    whole = jnp.concatenate([jnp.zeros(1), jnp.cumsum(0.5 * (values[1:] + values[:-1]))])

    def up_to(x):
        place = (x - grid[0]) / step
        cell = jnp.clip(jnp.floor(place), 0, grid.size - 2).astype(jnp.int32)
        part = place - cell
        return step * (whole[cell] + part * values[cell] + 0.5 * part**2 * (values[cell + 1] - values[cell]))

    return up_to(end) - up_to(begin)


def flux_maps(machine: PMSM, i_d: tuple[Any, Any], i_q: tuple[Any, Any], points: int = 21) -> SaturatedPMSM:
    """`machine` with its flux linkages as maps over the given currents [A]: what measured maps are put in place of."""
    d = jnp.linspace(*i_d, points)[:, None]
    q = jnp.linspace(*i_q, points)[None, :]
    psi_d = machine.l_d * d + machine.psi_p + 0 * q
    return SaturatedPMSM(
        psi_d, machine.l_q * q + 0 * d, i_d[0], i_d[1], i_q[0], i_q[1], machine.p, machine.r_s, machine.j_rotor
    )
