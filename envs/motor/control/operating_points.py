"""What controllers need to know of each machine, by its class: what a voltage meets, and which currents make a torque.

| function | of each controlled current |
|---|---|
| `inductances`, `resistances` | what a voltage meets |
| `back_emf` | the voltage of rotation |
| `operating_point` | for a torque, within limits of current and voltage |
| `flux_point` | for a torque and a stator flux |

Of a machine of one's own, register each: `@operating_point.register(MyMachine)`.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp

from ..machines.dfim import DFIM
from ..machines.eesm import EESM
from ..machines.ext_ex_dc import ExtExDc
from ..machines.perm_ex_dc import PermExDc
from ..machines.pmsm import PMSM, SaturatedPMSM
from ..machines.scim import Induction
from ..machines.series_dc import SeriesDc
from ..machines.shunt_dc import ShuntDc
from ..machines.six_pmsm import SixPMSM
from ..machines.synrm import SynRM
from ..plant import Plant

SEARCH = 24
"""Halvings of an interval in search for an operating point: to 1e-7 of the current."""


@functools.singledispatch
def inductances(machine: Any, upstream: bool = False) -> tuple:
    """What a voltage meets at each controlled current [H]."""
    raise TypeError(f"no controller knows {type(machine).__name__}")


@functools.singledispatch
def resistances(machine: Any) -> tuple:
    """In the path of each controlled current [ohm]."""
    raise TypeError(f"no controller knows {type(machine).__name__}")


@functools.singledispatch
def back_emf(machine: Any, state: Any, omega: Any) -> tuple:
    """Voltage of rotation on the axis of each controlled current [V]: what decoupling feeds forward."""
    raise TypeError(f"no controller knows {type(machine).__name__}")


@functools.singledispatch
def operating_point(machine: Any, plant: Plant, torque: Any, i_max: Any, u_max: Any, gains: Any) -> tuple[tuple, Any]:
    """Controlled currents [A] for a torque [N m], and the torque that lasts: less where a limit does not allow more.

    `i_max` [A]: (of armature or stator, of the excitation); `u_max` [V]: of the armature or of a stator vector.
    `gains`: `gains.Gains`.
    """
    raise TypeError(f"no controller knows {type(machine).__name__}")


@functools.singledispatch
def flux_point(machine: Any, plant: Plant, torque: Any, psi: Any, i_max: Any) -> tuple:
    """Controlled currents [A], together at most `i_max`, for a torque [N m] and a stator flux of length `psi` [V s]."""
    raise TypeError(f"no controller knows {type(machine).__name__}")


@inductances.register(PermExDc)
@inductances.register(ShuntDc)
def _(machine: Any, upstream: bool = False) -> tuple:
    return (machine.l_a,)


@resistances.register(PermExDc)
@resistances.register(ShuntDc)
def _(machine: Any) -> tuple:
    return (machine.r_a,)


@back_emf.register(PermExDc)
def _(machine: Any, state: Any, omega: Any) -> tuple:
    return (machine.psi_e * omega,)


def within(value: Any, most: Any) -> Any:
    return jnp.clip(value, -most, most)


@operating_point.register(PermExDc)
def _(machine: Any, plant: Plant, torque: Any, i_max: Any, u_max: Any, gains: Any) -> tuple[tuple, Any]:
    """A current that the voltage cannot hold is asked for all the same.

    This machine has no field to weaken, and a smaller current would only make it slower.
    """
    emf = machine.psi_e * plant.load[0]
    current = within(torque / machine.psi_e, i_max[0])
    low, high = jnp.minimum((-u_max - emf) / machine.r_a, 0), jnp.maximum((u_max - emf) / machine.r_a, 0)
    return (current,), machine.psi_e * jnp.clip(current, low, high)


@inductances.register(SeriesDc)
def _(machine: Any, upstream: bool = False) -> tuple:
    return (machine.l_a + machine.l_e,)


@resistances.register(SeriesDc)
def _(machine: Any) -> tuple:
    return (machine.r_a + machine.r_e,)


@back_emf.register(SeriesDc)
def _(machine: Any, state: Any, omega: Any) -> tuple:
    return (machine.l_e_prime * state[0] * omega,)


@operating_point.register(SeriesDc)
def _(machine: Any, plant: Plant, torque: Any, i_max: Any, u_max: Any, gains: Any) -> tuple[tuple, Any]:
    """As of the permanently excited machine."""
    current = jnp.minimum(jnp.sqrt(jnp.maximum(torque, 0) / machine.l_e_prime), i_max[0])
    held = u_max / (machine.r_a + machine.r_e + machine.l_e_prime * jnp.abs(plant.load[0]))
    return (current,), machine.l_e_prime * jnp.minimum(current, held) ** 2


@back_emf.register(ShuntDc)
def _(machine: Any, state: Any, omega: Any) -> tuple:
    return (machine.l_e_prime * state[1] * omega,)


def _armature(machine: Any, excitation: Any, torque: Any, most: Any) -> tuple[Any, Any]:
    """Current of an armature in a field [A], and its torque."""
    floor = 1e-4
    field = jnp.where(excitation < 0, -1, 1) * jnp.maximum(jnp.abs(excitation), floor)
    current = within(torque / (machine.l_e_prime * field), most)
    return current, machine.l_e_prime * excitation * current


@operating_point.register(ShuntDc)
def _(machine: Any, plant: Plant, torque: Any, i_max: Any, u_max: Any, gains: Any) -> tuple[tuple, Any]:
    excitation = plant.motor[1]
    current, made = _armature(machine, excitation, torque, i_max[0])
    # The field follows the armature's voltage: too much of it is driven back by the armature's current.
    current = jnp.where(jnp.abs(excitation) > i_max[1], -jnp.sign(excitation) * i_max[0], current)
    return (current,), made


@inductances.register(ExtExDc)
def _(machine: Any, upstream: bool = False) -> tuple:
    return machine.l_a, machine.l_e


@resistances.register(ExtExDc)
def _(machine: Any) -> tuple:
    return machine.r_a, machine.r_e


@back_emf.register(ExtExDc)
def _(machine: Any, state: Any, omega: Any) -> tuple:
    return machine.l_e_prime * state[1] * omega, 0 * omega


@operating_point.register(ExtExDc)
def _(machine: Any, plant: Plant, torque: Any, i_max: Any, u_max: Any, gains: Any) -> tuple[tuple, Any]:
    share = jnp.sqrt(machine.r_a / machine.r_e)  # of least loss: r_a i_a^2 = r_e i_e^2
    excitation = jnp.sqrt(jnp.abs(torque) * share / machine.l_e_prime)
    least = jnp.abs(torque) / (machine.l_e_prime * i_max[0])
    most = u_max / (machine.l_e_prime * jnp.maximum(jnp.abs(plant.load[0]), 1e-3))
    excitation = jnp.minimum(jnp.maximum(excitation, least), jnp.minimum(most, i_max[1]))
    current, made = _armature(machine, plant.motor[1], torque, i_max[0])
    return (current, excitation), made


@inductances.register(PMSM)
@inductances.register(SynRM)
def _(machine: Any, upstream: bool = False) -> tuple:
    return machine.l_d, machine.l_q


@resistances.register(PMSM)
@resistances.register(SynRM)
@resistances.register(SaturatedPMSM)
@resistances.register(Induction)
def _(machine: Any) -> tuple:
    return machine.r_s, machine.r_s


def _magnets(machine: Any) -> Any:
    return getattr(machine, "psi_p", 0.0)


@back_emf.register(PMSM)
@back_emf.register(SynRM)
def _(machine: Any, state: Any, omega: Any) -> tuple:
    speed = machine.p * omega
    return -speed * machine.l_q * state[1], speed * (machine.l_d * state[0] + _magnets(machine))


@operating_point.register(PMSM)
@operating_point.register(SynRM)
def _(machine: Any, plant: Plant, torque: Any, i_max: Any, u_max: Any, gains: Any) -> tuple[tuple, Any]:
    psi_max = flux_of_voltage(machine.p * plant.load[0], u_max, machine.r_s * i_max[0])
    axes = (machine.l_d, machine.l_q, _magnets(machine))
    i_d, i_q, made = synchronous_point(*axes, 1.5 * machine.p, torque, i_max[0], psi_max)
    return (i_d, i_q), made


@flux_point.register(PMSM)
def _(machine: Any, plant: Plant, torque: Any, psi: Any, i_max: Any) -> tuple:
    """By halving the load angle, with which torque rises as far as `PMSM.most_torque` says."""
    a, b = machine.psi_p * machine.l_q / machine.l_d, (1 - machine.l_q / machine.l_d) * psi
    summit = jnp.arccos(jnp.clip(2 * b / (a + jnp.sqrt(a * a + 8 * b * b)), -1, 1))
    wanted = jnp.abs(torque) * machine.l_q / (1.5 * machine.p * psi)

    def halve(_, ends):
        low, high = ends
        middle = 0.5 * (low + high)
        enough = jnp.sin(middle) * (a + b * jnp.cos(middle)) > wanted
        return jnp.where(enough, low, middle), jnp.where(enough, middle, high)

    low, high = jax.lax.fori_loop(0, SEARCH, halve, alike(0 * summit, summit))
    angle = 0.5 * (low + high)
    i_d = (psi * jnp.cos(angle) - machine.psi_p) / machine.l_d
    i_q = jnp.where(torque < 0, -1, 1) * psi * jnp.sin(angle) / machine.l_q
    shorter = jnp.minimum(i_max / jnp.sqrt(i_d**2 + i_q**2 + 1e-12), 1)
    return i_d * shorter, i_q * shorter


@inductances.register(SaturatedPMSM)
def _(machine: Any, upstream: bool = False) -> tuple:
    _, _, (l_dd, _, _, l_qq) = machine.flux(0.0, 0.0)
    return l_dd, l_qq


@back_emf.register(SaturatedPMSM)
def _(machine: Any, state: Any, omega: Any) -> tuple:
    psi_d, psi_q, _ = machine.flux(state[0], state[1])
    return -machine.p * omega * psi_q, machine.p * omega * psi_d


@operating_point.register(SaturatedPMSM)
def _(machine: Any, plant: Plant, torque: Any, i_max: Any, u_max: Any, gains: Any) -> tuple[tuple, Any]:
    """Of the machine whose inductances are secants of the maps at the current that flows, of each axis from where the
    other's current is alone. What lasts has the torque of the maps; its current is the least for that of the secants.
    """
    psi_max = flux_of_voltage(machine.p * plant.load[0], u_max, machine.r_s * i_max[0])
    least = 0.01 * i_max[0]
    d, q = (jnp.where(i < 0, -1, 1) * jnp.maximum(jnp.abs(i), least) for i in plant.motor[:2])
    magnets, alone = machine.flux(0 * d, q)[0], machine.flux(d, 0 * q)[1]
    psi_d, psi_q, _ = machine.flux(d, q)
    l_d, l_q = (psi_d - magnets) / d, (psi_q - alone) / q
    i_d, i_q, made = synchronous_point(l_d, l_q, magnets, 1.5 * machine.p, torque, i_max[0], psi_max)
    return (i_d, i_q), made


@inductances.register(EESM)
def _(machine: Any, upstream: bool = False) -> tuple:
    return machine.l_d, machine.l_q, machine.l_e


@resistances.register(EESM)
def _(machine: Any) -> tuple:
    return machine.r_s, machine.r_s, machine.r_e


@back_emf.register(EESM)
def _(machine: Any, state: Any, omega: Any) -> tuple:
    i_d, i_q, i_e = state[:3]
    speed = machine.p * omega
    return -speed * machine.l_q * i_q, speed * (machine.l_d * i_d + machine.l_m * i_e), 0 * speed


@operating_point.register(EESM)
def _(machine: Any, plant: Plant, torque: Any, i_max: Any, u_max: Any, gains: Any) -> tuple[tuple, Any]:
    """The excitation of least loss 3/2 r_s (i_d^2 + i_q^2) + r_e i_e^2, weakened where its flux alone is too much; the
    rest as if it were a magnet."""
    speed = machine.p * plant.load[0]
    psi_max = flux_of_voltage(speed, u_max, machine.r_s * i_max[0])
    saliency = machine.l_d - machine.l_q
    heat = 1.5 * machine.r_s
    gain = machine.l_m**2 / machine.r_e + saliency**2 / heat
    wanted = jnp.abs(torque) / (1.5 * machine.p)
    i_q = (wanted**2 / (gain * heat)) ** 0.25
    flux = jnp.where(i_q > 0, wanted / jnp.where(i_q > 0, i_q, 1), 0)
    least = wanted / (machine.l_m * i_max[0])  # what half the stator current would do without saliency
    excitation = jnp.maximum(flux * machine.l_m / (machine.r_e * gain), 0.5 * least)
    excitation = jnp.minimum(excitation, jnp.minimum(i_max[1], psi_max / machine.l_m))
    axes = (machine.l_d, machine.l_q, machine.l_m * plant.motor[2])
    i_d, i_q, made = synchronous_point(*axes, 1.5 * machine.p, torque, i_max[0], psi_max)
    return (i_d, i_q, excitation), made


@inductances.register(SixPMSM)
def _(machine: Any, upstream: bool = False) -> tuple:
    return machine.l_d, machine.l_q, machine.l_x, machine.l_y


@resistances.register(SixPMSM)
def _(machine: Any) -> tuple:
    return (machine.r_s,) * 4


@back_emf.register(SixPMSM)
def _(machine: Any, state: Any, omega: Any) -> tuple:
    i_d, i_q, i_x, i_y = state[:4]
    speed = omega if machine.slow else machine.p * omega
    return (
        -speed * machine.l_q * i_q,
        speed * (machine.l_d * i_d + machine.psi_PM),
        speed * machine.l_y * i_y,
        -speed * machine.l_x * i_x,
    )


@operating_point.register(SixPMSM)
def _(machine: Any, plant: Plant, torque: Any, i_max: Any, u_max: Any, gains: Any) -> tuple[tuple, Any]:
    speed = plant.load[0] if machine.slow else machine.p * plant.load[0]
    psi_max = flux_of_voltage(speed, u_max, machine.r_s * i_max[0])
    pairs = (1.5 if machine.slow else 3) * machine.p
    axes = (machine.l_d, machine.l_q, machine.psi_PM)
    i_d, i_q, made = synchronous_point(*axes, pairs, torque, i_max[0], psi_max)
    return (i_d, i_q, 0 * i_d, 0 * i_d), made


@inductances.register(Induction)
def _(machine: Any, upstream: bool = False) -> tuple:
    return (machine.l_r / machine.r_r if upstream else machine.sigma * machine.l_s,) * 2


@operating_point.register(Induction)
def _(machine: Any, plant: Plant, torque: Any, i_max: Any, u_max: Any, gains: Any) -> tuple[tuple, Any]:
    """A flux, followed by i_d, and i_q for the torque in the flux that there is."""
    alpha, beta = plant.motor[2:4]
    flux = jnp.sqrt(jnp.maximum(alpha**2 + beta**2, 1e-12))
    constant = 1.5 * machine.p * machine.l_m / machine.l_r
    heat_q = machine.r_s + machine.r_r * (machine.l_m / machine.l_r) ** 2
    best = jnp.sqrt(jnp.abs(torque) * machine.l_m / constant * jnp.sqrt(heat_q / machine.r_s))
    rated = machine.l_m * i_max[0] / math.sqrt(2)
    psi_max = flux_of_voltage(machine.p * plant.load[0], u_max, machine.r_s * i_max[0]) * machine.l_m / machine.l_s
    wanted = jnp.minimum(jnp.clip(best, gains.flux * rated, rated), psi_max)
    i_d = jnp.clip((wanted + gains.flux_p * (wanted - flux)) / machine.l_m, -0.8 * i_max[0], 0.8 * i_max[0])
    i_q = within(torque / (constant * flux), jnp.sqrt(i_max[0] ** 2 - i_d**2))
    i_q = within(i_q, 3e3 * flux * machine.l_r / (machine.r_r * machine.l_m))  # a slip of 3e3 rad/s: hardly any flux
    return (i_d, i_q), constant * flux * i_q


@operating_point.register(DFIM)
def _(machine: Any, plant: Plant, torque: Any, i_max: Any, u_max: Any, gains: Any) -> tuple[tuple, Any]:
    """i_q alone: the rotor's converter makes the flux."""
    constant = 1.5 * machine.p * machine.l_m / machine.l_r
    flux = jnp.sqrt(jnp.maximum(plant.motor[2] ** 2 + plant.motor[3] ** 2, 1e-12))
    i_q = within(torque / (constant * flux), i_max[0])
    return (0 * i_q, i_q), constant * flux * i_q


@flux_point.register(Induction)
def _(machine: Any, plant: Plant, torque: Any, psi: Any, i_max: Any) -> tuple:
    """On axes of the rotor's flux as it is: the rest of the stator's is leakage, which currents change at once."""
    alpha, beta = plant.motor[2:4]
    share, leakage = machine.l_m / machine.l_r, machine.sigma * machine.l_s
    flux = jnp.sqrt(jnp.maximum(alpha**2 + beta**2, 1e-12))
    i_q = within(torque / (1.5 * machine.p * share * flux), i_max)
    d = jnp.sqrt(jnp.maximum(psi**2 - (leakage * i_q) ** 2, 0))
    i_d = within((d - share * flux) / leakage, jnp.sqrt(i_max**2 - i_q**2))
    return i_d, i_q


def flux_of_voltage(speed: Any, u_max: Any, drop: Any) -> Any:
    """Flux linkage that the voltage can turn at an electrical speed [V s]."""
    return jnp.maximum(u_max - drop, 0.1 * u_max) / jnp.maximum(jnp.abs(speed), 1e-3)


def synchronous_point(
    l_d: Any, l_q: Any, psi: Any, constant: Any, torque: Any, i_max: Any, psi_max: Any
) -> tuple[Any, Any, Any]:
    """i_d, i_q [A] of the least current with torque = constant (psi + (l_d - l_q) i_d) i_q, within |i| <= i_max and
    |flux| <= psi_max; and that torque. Where the torque is too much, of the most torque instead.

    The most i_q that an i_d leaves is concave, so the most torque has one summit, to whose sides it falls; i_d^2 +
    i_q^2 on a line of one torque is convex. So halvings find the summit, the valley of the latter (MTPA), and, where
    that is beyond the limits, the limit on the way to the summit (field weakening).
    """
    saliency = l_d - l_q
    sign = jnp.where(torque < 0, -1, 1)
    # psi + saliency i_d > 0: elsewhere torque only turns.
    edge = jnp.where(saliency == 0, jnp.inf, -psi / jnp.where(saliency == 0, 1, saliency))
    least = jnp.where(saliency > 0, jnp.clip(edge, -i_max, i_max), -i_max)
    most = jnp.where(saliency < 0, jnp.clip(edge, -i_max, i_max), i_max)
    least = jnp.maximum(least, jnp.minimum((-psi_max - psi) / l_d, most))
    most = jnp.minimum(most, jnp.maximum((psi_max - psi) / l_d, least))

    def room(i_d):  # the most i_q
        by_current = i_max**2 - i_d**2
        by_voltage = (psi_max**2 - (psi + l_d * i_d) ** 2) / l_q**2
        return jnp.sqrt(jnp.maximum(jnp.minimum(by_current, by_voltage), 0))

    def reach(i_d):  # the most torque, over the constant
        return (psi + saliency * i_d) * room(i_d)

    def climb(_, ends):
        low, high = ends
        left, right = low + 0.382 * (high - low), low + 0.618 * (high - low)
        up = reach(right) > reach(left)
        return jnp.where(up, left, low), jnp.where(up, high, right)

    ends = jax.lax.fori_loop(0, 2 * SEARCH, climb, alike(least, most))
    summit = 0.5 * (ends[0] + ends[1])
    wanted = jnp.minimum(jnp.abs(torque) / constant, reach(summit))

    def halve(_, ends):  # derivative of i_d^2 + (wanted / (psi + saliency i_d))^2, which rises
        low, high = ends
        middle = 0.5 * (low + high)
        factor = psi + saliency * middle
        steep = middle * factor**3 - saliency * wanted**2 > 0
        return jnp.where(steep, low, middle), jnp.where(steep, middle, high)

    best = sum(jax.lax.fori_loop(0, SEARCH, halve, alike(least, most))) / 2

    def approach(_, ends):
        out, inside = ends
        middle = 0.5 * (out + inside)
        fine = reach(middle) >= wanted
        return jnp.where(fine, out, middle), jnp.where(fine, middle, inside)

    i_d = jax.lax.fori_loop(0, SEARCH, approach, alike(best, summit))[1]
    i_d = jnp.where(reach(best) >= wanted, best, i_d)
    factor = psi + saliency * i_d
    i_q = jnp.where(factor > 0, jnp.minimum(wanted / jnp.where(factor > 0, factor, 1), room(i_d)), 0)
    return i_d, sign * i_q, sign * constant * factor * i_q


def alike(*values: Any) -> tuple:
    """Of one shape and dtype, as a loop needs."""
    return tuple(jnp.broadcast_arrays(*(jnp.asarray(v, jnp.result_type(float, *values)) for v in values)))
