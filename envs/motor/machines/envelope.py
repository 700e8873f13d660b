"""The envelope of a machine: the most torque that it can hold at each speed, within its current and its voltage.

Currents and voltages are those of the steady state, so each machine's border is a search along one line: its current
limit is a circle, its voltage limit an ellipse that shrinks as the speed grows, which is what field weakening is about.
Host only.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from ..plant import Params
from .dfim import DFIM
from .eesm import EESM
from .ext_ex_dc import ExtExDc
from .machine import Ratings
from .perm_ex_dc import PermExDc
from .pmsm import PMSM, SaturatedPMSM
from .scim import Induction
from .series_dc import SeriesDc
from .shunt_dc import ShuntDc
from .six_pmsm import SixPMSM
from .synrm import SynRM

GRID = 501
"""Directions of the current, or its parts, among which the most torque is searched."""


def most_torque(
    params: Params,
    omega: Float[np.ndarray, " K"],
    radius: float,
    ratings: Ratings | None = None,
    sign: int = 1,
) -> Float[np.ndarray, " K"]:
    """The most steady torque [N m] at each speed [rad/s] within the current of `ratings` (default: the limits) and the
    voltage of supply and converter; of the other sign with `sign=-1`. NaN where no current is within both.

    `radius` is the longest voltage vector in every direction that a three-phase converter makes, of the supply's
    voltage (`MotorDrive.voltage_radius`); machines without turning axes have the supply's voltage itself.

    From the steady equations with all resistances, not by a controller's rule: what is found is the machine. Magnetic
    saturation is linearised about no current, and a converter is taken to have all four quadrants: where it has one or
    two (1QC, 2QC), those of a current or a voltage that it cannot reverse are not there. Raises TypeError for a machine
    whose envelope is unknown.
    """
    if sign not in (1, -1):
        raise ValueError(f"sign={sign}; it is 1 or -1.")
    rated: Any = params.limits if ratings is None else ratings
    machine = jax.tree.map(lambda x: np.asarray(x, float), params.machine)
    reach = radius if machine.dq else 1.0
    i_max = tuple(float(x) for x in (rated.i, rated.i if rated.i_e is None else rated.i_e))
    found = _border(machine, np.asarray(omega, float), i_max, reach * float(params.supply.u_nominal), sign)
    return np.where(np.isfinite(found), found, np.nan)


@functools.singledispatch
def _border(machine: Any, omega: Any, i_max: Any, u_max: Any, sign: int) -> Any:
    raise TypeError(f"the envelope of {type(machine).__name__} is unknown")


@_border.register(PMSM)
@_border.register(SynRM)
def _(machine: Any, omega: Any, i_max: Any, u_max: Any, sign: int) -> Any:
    axes = (machine.l_d, machine.l_q, getattr(machine, "psi_p", 0.0), machine.r_s)
    return _synchronous(*axes, 1.5 * machine.p, machine.p * omega, i_max[0], u_max, sign)


@_border.register(SaturatedPMSM)
def _(machine: Any, omega: Any, i_max: Any, u_max: Any, sign: int) -> Any:
    psi, _, (l_d, _, _, l_q) = (jax.tree.map(np.asarray, x) for x in machine.flux(0.0, 0.0))
    return _synchronous(l_d, l_q, psi, machine.r_s, 1.5 * machine.p, machine.p * omega, i_max[0], u_max, sign)


@_border.register(SixPMSM)
def _(machine: Any, omega: Any, i_max: Any, u_max: Any, sign: int) -> Any:
    pairs, speed = (1.5 * machine.p, omega) if machine.slow else (3 * machine.p, machine.p * omega)
    axes = (machine.l_d, machine.l_q, machine.psi_PM, machine.r_s)
    return _synchronous(*axes, pairs, speed, i_max[0], u_max, sign)


@_border.register(EESM)
def _(machine: Any, omega: Any, i_max: Any, u_max: Any, sign: int) -> Any:
    given = (1.5 * machine.p, machine.p * omega, i_max[0], u_max, sign)
    fluxes = machine.l_m * np.linspace(0, i_max[1], 51)
    torques = [_synchronous(machine.l_d, machine.l_q, psi, machine.r_s, *given) for psi in fluxes]
    return sign * np.max(sign * np.array(torques), 0)


def _synchronous(
    l_d: Any, l_q: Any, psi: Any, r_s: Any, constant: Any, speed: Any, i_max: Any, u_max: Any, sign: int
) -> Any:
    """On rotor axes torque is linear in i_q, so for every i_d it is most where i_q meets the circle of currents or of
    voltages; the latter, |u|^2 = u_max^2, is a quadratic equation in i_q."""
    i_d = np.linspace(-i_max, i_max, GRID)[:, None]
    flux = l_d * i_d + psi
    a = r_s**2 + (speed * l_q) ** 2
    half = r_s * speed * (flux - l_q * i_d)
    square = half**2 - a * ((r_s * i_d) ** 2 + (speed * flux) ** 2 - u_max**2)
    root, room = np.sqrt(np.maximum(square, 0)), np.sqrt(i_max**2 - i_d**2)
    low, high = np.maximum(-room, (-half - root) / a), np.minimum(room, (root - half) / a)
    torque = sign * constant * (psi + (l_d - l_q) * i_d) * np.stack([low, high])
    return sign * np.where((square >= 0) & (low <= high), torque, -np.inf).max((0, 1))


@_border.register(Induction)
def _(machine: Any, omega: Any, i_max: Any, u_max: Any, sign: int) -> Any:
    """On axes of the rotor's flux l_m i_d, where the slip is r_r / l_r i_q / i_d: voltage and current grow alike along
    each direction of the current."""
    angle = sign * np.linspace(0, np.pi / 2, GRID)[1:-1, None]
    d, q = np.cos(angle), np.sin(angle)
    speed = machine.p * omega + machine.r_r / machine.l_r * q / d
    u_d = machine.r_s * d - speed * machine.sigma * machine.l_s * q
    u_q = machine.r_s * q + speed * machine.l_s * d
    current = np.minimum(i_max[0], u_max / np.hypot(u_d, u_q))
    return sign * (1.5 * machine.p * machine.l_m**2 / machine.l_r * current**2 * np.abs(d * q)).max(0)


@_border.register(DFIM)
def _(machine: Any, omega: Any, i_max: Any, u_max: Any, sign: int) -> Any:
    """Both windings are fed, so any two currents last over a range of speeds: as fast as the stator's voltage lets the
    field turn and the rotor's lets it turn against the rotor. Complex numbers, the stator's current ahead."""
    lengths = np.linspace(0, i_max[0], 31)[1:, None]
    stator, rotor = lengths[:, None], lengths * np.exp(-1j * sign * np.linspace(0, np.pi, 241))
    torque = 1.5 * machine.p * machine.l_m * (stator * np.conj(rotor)).imag
    back, ahead = _turns(machine.r_s * stator, machine.l_s * stator + machine.l_m * rotor, u_max)
    slip_back, slip_ahead = _turns(machine.r_r * rotor, machine.l_r * rotor + machine.l_m * stator, u_max)
    low, high = back - slip_ahead, ahead - slip_back
    held = [np.where((low <= w) & (w <= high), sign * torque, -np.inf).max() for w in machine.p * omega]
    return sign * np.array(held)


def _turns(drop: Any, flux: Any, u_max: Any) -> tuple[Any, Any]:
    """The least and the largest speed w at which |drop + j w flux| <= u_max; swapped where there is none."""
    square = np.maximum(np.abs(flux) ** 2, 1e-12)
    middle = -(np.conj(drop) * 1j * flux).real / square
    rest = middle**2 - (np.abs(drop) ** 2 - u_max**2) / square
    half = np.where(rest >= 0, np.sqrt(np.abs(rest)), -np.inf)
    return middle - half, middle + half


@_border.register(PermExDc)
def _(machine: Any, omega: Any, i_max: Any, u_max: Any, sign: int) -> Any:
    low = np.maximum((-u_max - machine.psi_e * omega) / machine.r_a, -i_max[0])
    high = np.minimum((u_max - machine.psi_e * omega) / machine.r_a, i_max[0])
    return np.where(low <= high, machine.psi_e * (high if sign > 0 else low), np.nan)


@_border.register(SeriesDc)
def _(machine: Any, omega: Any, i_max: Any, u_max: Any, sign: int) -> Any:
    """Its torque has one sign."""
    resistance = np.abs(machine.r_a + machine.r_e + machine.l_e_prime * omega)
    return machine.l_e_prime * np.minimum(i_max[0], u_max / np.maximum(resistance, 1e-9)) ** 2 * (sign > 0)


@_border.register(ExtExDc)
def _(machine: Any, omega: Any, i_max: Any, u_max: Any, sign: int) -> Any:
    armature = sign * np.linspace(0, i_max[0], GRID)[:, None]
    left = np.maximum(u_max - np.sign(omega) * machine.r_a * armature, 0)
    by_voltage = left / np.maximum(np.abs(machine.l_e_prime * omega), 1e-9)
    excitation = np.minimum(np.minimum(i_max[1], u_max / machine.r_e), by_voltage)
    return sign * (sign * machine.l_e_prime * excitation * armature).max(0)


@_border.register(ShuntDc)
def _(machine: Any, omega: Any, i_max: Any, u_max: Any, sign: int) -> Any:
    """One voltage makes field and armature current, so the speed alone decides the torque's sign."""
    share = 1 - machine.l_e_prime * omega / machine.r_e
    by_armature = i_max[0] * machine.r_a / np.maximum(np.abs(share), 1e-9)
    voltage = np.minimum(min(u_max, i_max[1] * machine.r_e), by_armature)
    torque = machine.l_e_prime * voltage**2 * share / (machine.r_e * machine.r_a)
    return np.where(np.sign(share) == sign, torque, 0.0)
