"""`mpc`: model-predictive control of currents through the drive's own equations.

Of continuous actions a plan improved by gradients, of a finite control set every switching state one step ahead.
"""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp

from ..drive import MotorDrive
from ..plant import Params, Plant, State
from .gains import Carry, Gains, controlled_currents
from .operating_points import alike, inductances
from .outer_loops import measured
from .pi import current_loops, rotor_flux
from .prediction import plant_after, prompt
from .voltages import to_action

HORIZON, ITERATIONS = 3, 8
"""Steps of a gradient plan, and how often it is improved."""


def _cost(env: MotorDrive, params: Params, plant: Plant, wanted: tuple) -> Any:
    """Squared errors of the currents, of their limits, and what is near the limits; much more for what is beyond."""
    now = measured(env, params, plant)
    sizes = [env.limit(name, params) for name in controlled_currents(env)]
    cost = sum(((i - goal) / size) ** 2 for i, goal, size in zip(now, wanted, sizes, strict=True))
    values = {name: x / env.limit(name, params) for name, x in env.signals(plant, params).items()}
    for kind, names in env.constraints or ():
        squares = [values[name] ** 2 for name in names] if isinstance(kind, str) else []
        for square in [sum(squares)] if kind == "squared" else squares:
            cost = cost + 10 * jnp.maximum(square - 0.9, 0) ** 2 + 10 * (square > 1)
    return cost


def gradient_mpc(
    env: MotorDrive, params: Params, gains: Gains, state: State, plant: Plant, wanted: tuple, carry: Carry
) -> tuple[Any, Carry]:
    """A plan of `HORIZON` steps by gradients through the plant, of which the first is done.

    The plan says where the currents should be after each step; each step's voltage is the one that would bring them
    there if nothing but the winding's inductance stood in the way, within limits. So the squared error's second
    derivative is about one for each unknown, and plain gradient steps are Newton's.
    """
    sharp = gains.replace(
        current_p=tuple(h / params.tau for h in inductances(params.machine)), current_i=(0.0,) * len(wanted)
    )

    def decide(plant, goals):
        volts, _ = current_loops(env, params, sharp, plant, goals, carry)
        return to_action(prompt(env), params, state, plant, volts), volts

    def total(plan):
        def step(inner, goals):
            plant, k = inner
            action, _ = decide(plant, goals)
            plant = plant_after(env, params, plant, action, state.time + env.dead_time + k)
            return (plant, k + 1), _cost(env, params, plant, wanted)

        start = jax.tree.map(jnp.asarray, plant.replace(pending=()))
        return jnp.sum(jax.lax.scan(step, (start, jnp.int32(0)), plan)[1])

    scale = tuple(0.5 * env.limit(name, params) ** 2 * gains.rate for name in controlled_currents(env))

    def improve(_, plan):
        slope = jax.grad(total)(plan)
        return tuple(x - s * jnp.nan_to_num(g) for x, s, g in zip(plan, scale, slope, strict=True))

    goals = tuple(jnp.broadcast_to(x, (HORIZON,)) for x in alike(*wanted))
    plan = jax.lax.fori_loop(0, ITERATIONS, improve, goals)
    _, volts = decide(plant, tuple(x[0] for x in plan))
    return to_action(env, params, state, plant, volts), carry


def candidates(env: MotorDrive) -> list[tuple[int, ...]]:
    """Actions of a finite control set, each voltage once."""
    last = {2: 2, 3: 3, 4: 3, 8: 7}  # the last short-circuits as the first does
    return list(itertools.product(*(range(last[n]) for n in env.converter.sizes)))


def finite_mpc(
    env: MotorDrive, params: Params, gains: Gains, state: State, plant: Plant, wanted: tuple, carry: Carry
) -> tuple[Any, Carry]:
    """Every switching state, one step through the plant; the least cost."""
    table = jnp.asarray(candidates(env), jnp.int32)
    actions = table[:, 0] if table.shape[1] == 1 else table

    def judge(action):
        after = plant_after(env, params, plant, action, state.time + env.dead_time)
        cost = _cost(env, params, after, wanted)
        if env.motor == "DFIM":  # without a goal its flux would go anywhere
            goal, _ = rotor_flux(env, params, gains, plant)
            rated = params.machine.l_m * params.limits.i
            cost += sum(((x - y) / rated) ** 2 for x, y in zip(after.motor[2:4], goal, strict=True))
        return cost

    return actions[jnp.argmin(jax.vmap(judge)(actions))], carry
