"""The loops before the currents': references of position, speed, torque or flux to references of currents."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from ..drive import MotorDrive
from ..plant import Params, Plant, State
from .gains import OUTER, Carry, Gains, controlled_currents
from .operating_points import flux_point, operating_point, within


def measured(env: MotorDrive, params: Params, plant: Plant) -> tuple:
    """The controlled currents [A]."""
    machine = params.machine
    currents = machine.measured_currents(plant.motor, machine.frame(plant.motor))
    by_name = dict(zip(machine.currents, currents, strict=True))
    return tuple(by_name[name] for name in controlled_currents(env))


def signals_wanted(env: MotorDrive, params: Params, state: State) -> dict[str, Any]:
    """What measured quantities should be, in SI units."""
    targets = env.targets(state.references, params)
    return {name: x * env.limit(name, params) for name, x in zip(env.referenced or (), targets, strict=True)}


def currents_wanted(
    env: MotorDrive, params: Params, gains: Gains, state: State, plant: Plant, carry: Carry
) -> tuple[tuple, Carry]:
    """The outer loops: references of the controlled currents [A] for those of the task."""
    wanted = signals_wanted(env, params, state)
    if env.referenced not in OUTER:
        wanted = _allowed(env, params, gains, wanted)
        if env.motor == "SCIM" and not env.upstream:
            wanted = (jnp.maximum(wanted[0], _magnetising(params, plant, wanted[1])), wanted[1])
        return wanted, carry
    limits, u_sup = params.limits, plant.u_sup[0]
    i_max = tuple((1 - gains.margin) * x for x in (limits.i, limits.i if limits.i_e is None else limits.i_e))
    u_max = gains.voltage * u_sup * (env.voltage_radius if params.machine.dq else 1.0)
    if "psi_s" in wanted:
        return flux_point(params.machine, plant, wanted["torque"], wanted["psi_s"], i_max[0]), carry
    if "position" in wanted:
        wanted["omega"] = speed_wanted(params, gains, state, plant, wanted["position"], carry)
        carry = carry._replace(position=wanted["position"])
    if "torque" in wanted:
        return operating_point(params.machine, plant, wanted["torque"], i_max, u_max, gains)[0], carry
    error = wanted["omega"] - plant.load[0]
    asked = gains.speed_p * error + gains.speed_i * carry.speed
    torque = within(asked, limits.torque)
    currents, made = operating_point(params.machine, plant, torque, i_max, u_max, gains)
    stuck = (jnp.abs(asked - made) > 1e-3 * limits.torque) & ((asked - made) * error > 0)
    return currents, carry._replace(speed=carry.speed + jnp.where(stuck, 0, params.tau * error))


def speed_wanted(params: Params, gains: Gains, state: State, plant: Plant, position: Any, carry: Carry) -> Any:
    """The position loop's speed [rad/s] towards `position` [rad].

    Proportional to the way that is left, w = k x, as long as braking along it takes no more than the deceleration d
    that is meant; beyond, w^2 = 2 d x with the x that makes both meet smoothly.
    """
    limit = params.limits.omega
    slowing = gains.brake * params.limits.torque / (params.machine.j_rotor + params.load.j_load)
    left = position - plant.load[1]
    near = slowing / gains.position_p**2
    far = jnp.sqrt(2 * slowing * jnp.maximum(jnp.abs(left) - 0.5 * near, 0.5 * near))
    towards = jnp.where(jnp.abs(left) < near, gains.position_p * left, jnp.sign(left) * far)
    before = jnp.where(state.time == 0, position, carry.position)
    moving = (position - before) / params.tau
    moving = jnp.where(jnp.abs(moving) < limit, moving, 0)  # faster is a jump, not a speed
    return within(towards + moving, limit)


def _allowed(env: MotorDrive, params: Params, gains: Gains, wanted: dict[str, Any]) -> tuple:
    """References of currents within the constraints: each, or together where it is their squares that count."""
    for kind, names in env.constraints or ():
        if kind == "squared" and set(names) <= set(wanted):
            length = jnp.sqrt(sum((wanted[name] / env.limit(name, params)) ** 2 for name in names) + 1e-12)
            shrink = jnp.minimum((1 - gains.margin) / length, 1)
            wanted = {name: x * shrink if name in names else x for name, x in wanted.items()}
        elif kind == "limit":
            most = {name: (1 - gains.margin) * env.limit(name, params) for name in names if name in wanted}
            wanted = {name: within(x, most[name]) if name in most else x for name, x in wanted.items()}
    return tuple(wanted[name] for name in controlled_currents(env))


def _magnetising(params: Params, plant: Plant, i_q: Any) -> Any:
    """The least d current [A] that leaves an induction machine a flux.

    Against its flux it only gets rid of that, and what comes then has the new direction. Better none, and so much flux
    that its axes do not turn faster than the current can follow: 3e3 rad/s of slip.
    """
    machine = params.machine
    gain = machine.r_r * machine.l_m / machine.l_r
    flux = jnp.sqrt(plant.motor[2] ** 2 + plant.motor[3] ** 2 + 1e-12)
    return (gain * jnp.abs(i_q) / 3e3 - flux) / (5 * params.tau * gain)
