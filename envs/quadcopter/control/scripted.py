"""A controller as a policy of a task: what `jaxrl dataset make ... --recipe scripted` flies with.

It reads the true state and flies to the task's target: through `ctbr` where an action is thrust and body rates, through
`position_loop` where it is rotor speeds, and by a share of the distance where it is a velocity. It knows the velocity
and acceleration of a path, but nothing of latency or disturbances; actions are cut to [-1, 1].
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jaxrl.environment import strongly_typed

from .. import dynamics, rotations
from ..courses import paths
from .actions import collective, default_scales
from .cascade import CascadeGains, cascade_init, position_loop
from .ctbr import CTBRGains, ctbr, ctbr_init
from .setpoints import Setpoint

TASKS = ("GpdHover", "Hover", "Landing", "Reach", "Recover", "TrajectoryTracking", "VelocityTracking")
"""Tasks whose target is where the drone should be."""

IDS = tuple(f"Quadcopter-{task}-v0" for task in TASKS)

LEVELS = ("rpm", "rpm_band", "thrust", "body_rates", "velocity")
"""Levels of action that it knows."""


def scripted(env: Any) -> tuple[Any, Callable[..., tuple[Any, Any]]]:
    """`(carry, act)` with `act(params, state, carry) -> (action, carry)`, of one drone.

    Raises ValueError for a task or a level of action that it does not know.
    """
    if type(env).__name__ not in TASKS:
        raise ValueError(f"{env.id}: no controller flies it; those of {', '.join(IDS)} have one.")
    if env.action not in LEVELS:
        raise ValueError(f"{env.id}: no controller for action={env.action!r}; it is one of {', '.join(LEVELS)}.")
    gains = strongly_typed(CascadeGains())
    to_position, to_velocity = env.aims

    def setpoint(params: Any, state: Any) -> Setpoint:
        if hasattr(env, "flown"):  # along a path, whose bends are known
            path, time = env.flown(state, params), env.now(state, params)
            found = (f(path, time) for f in (paths.position, paths.velocity, paths.acceleration))
            return Setpoint(*(tuple(x[i] for i in range(3)) for x in found))
        position, velocity = env.target(state, params)
        position = position if to_position else state.drone.position
        return Setpoint(position, velocity if to_velocity else (0.0, 0.0, 0.0))

    def by_rates(params: Any, state: Any, carry: Any) -> tuple[Any, Any]:
        wanted, carry = ctbr(carry, state.drone, setpoint(params, state), CTBRGains(), params.model, params.dt)
        scales = default_scales(env.action) if params.scales is None else params.scales
        least, most = (collective(params.model, end) for end in (-1.0, 1.0))
        rates = [rate / scales.body_rates[i] for i, rate in enumerate(wanted.body_rates)]
        return [2 * (wanted.thrust - least) / (most - least) - 1, *rates], carry

    def by_rotors(params: Any, state: Any, carry: Any) -> tuple[Any, Any]:
        model, period = params.model, env.substeps * params.dt
        rpm, carry = position_loop(carry, state.drone, setpoint(params, state), gains, model, period)
        if env.action == "rpm":
            return [2 * n / model.max_rpm - 1 for n in rpm], carry
        if env.action == "rpm_band":
            return [(n / model.hover_rpm - 1) / 0.05 for n in rpm], carry
        return [8 * thrust / model.max_thrust - 1 for thrust in dynamics.rotor_thrusts(model, rpm)], carry

    def by_velocity(params: Any, state: Any, carry: Any) -> tuple[Any, Any]:
        to = setpoint(params, state)
        scales = default_scales(env.action) if params.scales is None else params.scales
        way = rotations.add(to.position, state.drone.position, -1)
        velocity = [v + scales.gains.position[i] * x for i, (v, x) in enumerate(zip(to.velocity, way, strict=True))]
        return [*(v / scales.speed for v in velocity), jnp.zeros_like(velocity[0])], carry

    ways = {"body_rates": (ctbr_init(), by_rates), "velocity": ((), by_velocity)}
    carry, way = ways.get(env.action, (cascade_init(), by_rotors))

    def act(params: Any, state: Any, carry: Any) -> tuple[jax.Array, Any]:
        action, carry = way(params, state, carry)
        return jnp.clip(jnp.stack(action), -1, 1), carry

    return jax.tree.map(jnp.asarray, carry), act
