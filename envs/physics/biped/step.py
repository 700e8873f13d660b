"""A step of the biped: motors, forces of constraints, semi-implicit Euler."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxrl.math import fence, sincos

from ..planar.scalars import Vector
from .arrow import multiply, over_legs, solve
from .body import Physics, Track, absolute, bias, inertia, relative
from .newton import Problem, contacts, limits, newton


def substep(
    motion: tuple[Vector, Vector, Vector],
    drive: tuple[Any, Any],
    brake: tuple[Any, Any],
    track: Track,
    physics: Physics,
    dt: Any,
    iterations: int,
) -> tuple[Vector, Vector, Vector]:
    """`dt` on: coordinates, rates and accelerations, all absolute. A joint is turned by drive - brake * rate."""
    q, rates, guess = motion
    turns = fence([sincos(x) for x in q[2:]])
    m = inertia(turns)
    force = [-x for x in bias(turns, rates, physics.gravity)]
    damped = dict(m)
    for n, (push, damping) in enumerate(zip(drive, brake, strict=True)):
        i, above = 3 + n, 2 + n
        torque = push - damping * (rates[i] - rates[above])
        force[i], force[above] = force[i] + torque, force[above] - over_legs(torque, above, i)
        damped[i, i], damped[i, above] = damped[i, i] + dt * damping, damped[i, above] - dt * damping
        damped[above, above] = damped[above, above] + dt * over_legs(damping, above, i)
    ends = limits(q, rates, 0), limits(q, rates, 1)
    problem = Problem(m, force, contacts(q, rates, turns, track, physics.friction), ends)
    problem, m, damped = fence((problem, m, damped))

    def improve(a: Vector, _: None) -> tuple[Vector, None]:
        return newton(problem, a), None

    a, _ = jax.lax.scan(improve, guess, None, length=iterations)
    change = solve(damped, multiply(m, a))  # Euler's step with the joints' damping at its end
    rates = [v + dt * x for v, x in zip(rates, change, strict=True)]
    return [x + dt * v for x, v in zip(q, rates, strict=True)], rates, a


def motors(action: Float[Array, "4"], physics: Physics) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    """drive [N m] and brake [N m s] of hips and knees: |action| `torque` at rest, falling to 0 at full speed."""
    drive = physics.torque * action[0::2], physics.torque * action[1::2]
    return drive, (jnp.abs(drive[0]) / physics.hip_speed, jnp.abs(drive[1]) / physics.knee_speed)


def advance(
    qpos: Float[Array, "7"],
    qvel: Float[Array, "7"],
    qacc: Float[Array, "7"],
    action: Float[Array, "4"],
    track: Track,
    physics: Physics,
    dt: float | Float[Array, ""] = 0.02,
    substeps: int = 4,
    iterations: int = 6,
) -> tuple[Float[Array, "7"], Float[Array, "7"], Float[Array, "7"]]:
    """`dt` seconds on under one action in [-1, 1]: MuJoCo's qpos, qvel and qacc (the last only a first guess)."""
    drive, brake = motors(action, physics)

    def body(motion: Any, _: None) -> tuple[Any, None]:
        moved = substep(motion, drive, brake, track, physics, dt / substeps, iterations)
        return jax.tree.map(lambda new, old: new.astype(old.dtype), moved, motion), None

    motion, _ = jax.lax.scan(body, (absolute(qpos), absolute(qvel), absolute(qacc)), None, length=substeps)
    q, rates, a = motion
    return relative(q), relative(rates), relative(a)
