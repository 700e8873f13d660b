"""A step of a planar model: accelerations, an integrator, and where a point of a link is."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .compile import Plan
from .equations import bias, frames, inertia, multiply, solve
from .newton import Problem, contacts, limits, newton
from .scalars import Matrix, Numbers, Pair, Scalar, Vector, add, plus, settle, sub, turned


class Motion(NamedTuple):
    q: Vector
    rates: Vector
    a: Vector  # accelerations, the first guess of the next
    seen: Vector  # the coordinates at which forces were last computed, which MuJoCo's sensors report
    held: Vector  # the forces of constraints there


def accelerations(
    plan: Plan, model: Numbers, q: Vector, rates: Vector, guess: Vector, torques: Vector, iterations: int
) -> tuple[Matrix, Vector, Vector]:
    """M, the accelerations, and the forces of constraints."""
    at = settle(frames(plan, model, q))
    m, pull = inertia(plan, model, at), bias(plan, model, at, rates)
    force = []
    for i in range(plan.num_dofs):
        spring = model["jnt_stiffness"][i] * (q[i] - model["qpos_spring"][i])
        force.append(torques[i] - pull[i] - spring - model["dof_damping"][i] * rates[i])
    problem = Problem(m, force, contacts(plan, model, at, rates), limits(plan, model, q, rates))
    problem = settle(problem)
    if not problem.contacts and not problem.limits:
        return m, solve(plan, m, force), [jnp.zeros_like(x) for x in q]

    def improve(a: Vector, _: None) -> tuple[Vector, None]:
        return newton(plan, problem, a), None

    a, _ = jax.lax.scan(improve, guess, None, length=iterations)
    return problem.m, a, [sub(x, f) for x, f in zip(multiply(problem.m, a), problem.force, strict=True)]


def substep(plan: Plan, model: Numbers, motion: Motion, torques: Vector, iterations: int) -> Motion:
    """`timestep` on."""
    dt = model["timestep"]
    q, rates, guess, *_ = motion

    def shifted(x: Vector, way: Vector, time: Scalar) -> Vector:
        return [a + time * b for a, b in zip(x, way, strict=True)]

    if plan.integrator == "Euler":  # with the joints' damping at its end
        m, a, held = accelerations(plan, model, q, rates, guess, torques, iterations)
        damped = dict(m)
        for i in range(plan.num_dofs):
            damped[i, i] = damped[i, i] + dt * model["dof_damping"][i]
        change = solve(plan, damped, multiply(m, a))
        rates = shifted(rates, change, dt)
        return Motion(shifted(q, rates, dt), rates, a, q, held)

    def stage(before: Any, time: Scalar) -> tuple[Any, Any]:
        rate, a = before
        here, there = shifted(q, rate, time * dt), shifted(rates, a, time * dt)
        _, a, held = accelerations(plan, model, here, there, a, torques, iterations)
        return (there, a), (there, a, here, held)

    # One program for all four stages; the first goes no way from here.
    _, (slopes, found, seen, held) = jax.lax.scan(stage, (rates, guess), jnp.asarray([0.0, 0.5, 0.5, 1.0], q[0].dtype))

    def average(stages: Scalar) -> Scalar:
        return (stages[0] + 2 * stages[1] + 2 * stages[2] + stages[3]) / 6

    moved, changed = jax.tree.map(average, (slopes, found))
    first = [x[0] for x in found]
    return Motion(
        shifted(q, moved, dt), shifted(rates, changed, dt), first, *([x[-1] for x in y] for y in (seen, held))
    )


class Moved(NamedTuple):
    """After a step of the task."""

    qpos: Float[Array, "n"]
    qvel: Float[Array, "n"]
    qacc: Float[Array, "n"]  # a first guess of the next
    seen: Float[Array, "n"]  # the coordinates of which MuJoCo's sensors tell: those of the last forces computed
    held: Float[Array, "n"]  # the forces of constraints there, MuJoCo's qfrc_constraint


def advance(
    plan: Plan,
    model: Numbers,
    qpos: Float[Array, "n"],
    qvel: Float[Array, "n"],
    qacc: Float[Array, "n"],
    control: Float[Array, "m"],
    substeps: int = 1,
    iterations: int = 4,
) -> Moved:
    """`substeps` steps on under one control, from MuJoCo's qpos, qvel and qacc (the last only a first guess)."""
    torques: Vector = [0.0] * plan.num_dofs
    for n, (dof, limited) in enumerate(plan.motors):
        low, high = model["actuator_ctrlrange"][n, 0], model["actuator_ctrlrange"][n, 1]
        held = jnp.clip(control[n], low, high) if limited else control[n]
        torques[dof] = add(torques[dof], model["actuator_gear"][n, 0] * held)

    def body(motion: Motion, _: None) -> tuple[Motion, None]:
        moved = substep(plan, model, motion, torques, iterations)
        return jax.tree.map(lambda new, old: jnp.asarray(new, old.dtype), moved, motion), None

    q, rates, a = ([x[i] for i in range(plan.num_dofs)] for x in (qpos, qvel, qacc))
    still = [jnp.zeros_like(x) for x in q]
    motion, _ = jax.lax.scan(body, Motion(q, rates, a, q, still), None, length=substeps)
    return Moved(*(jnp.stack(x) for x in settle(motion)))


def place(plan: Plan, model: Numbers, qpos: Float[Array, "n"], link: int, point: Pair) -> Float[Array, "2"]:
    """Where a point of a link, given in its own axes, is in the world [m]."""
    at = frames(plan, model, [qpos[i] for i in range(plan.num_dofs)])
    here = plus(plus(at.origins[link], at.places[link]), turned(at.turns[link], point))
    return jnp.stack([jnp.asarray(x, qpos.dtype) for x in here])
