"""A step of a planar model: accelerations, an integrator, and where a point of a link is."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxrl.math import on_cpu

from .compile import Plan
from .equations import bias, frames, inertia, masses, multiply, solve
from .newton import Problem, contacts, least, limits
from .scalars import Matrix, Numbers, Pair, Scalar, Vector, add, differentiated, once, plus, sub, turned


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
    at = once(lambda: frames(plan, model, q))
    centers = once(lambda: masses(plan, model, at))

    def free() -> tuple[Matrix, Vector]:
        pull, force = bias(plan, model, at, rates, centers), []
        for i in range(plan.num_dofs):
            spring = model["jnt_stiffness"][i] * (q[i] - model["qpos_spring"][i])
            force.append(torques[i] - pull[i] - spring - model["dof_damping"][i] * rates[i])
        return inertia(plan, model, at, centers), force

    m, force = once(free)
    problem = Problem(m, force, at.motions, *contacts(plan, model, at, rates), limits(plan, model, q, rates))
    if not (problem.contacts or problem.meetings or problem.limits):
        return m, solve(plan, m, force), [jnp.zeros_like(x) for x in q]
    a = least(plan, problem, guess, iterations)
    return problem.m, a, [sub(x, f) for x, f in zip(multiply(problem.m, a), problem.force, strict=True)]


def substep(plan: Plan, model: Numbers, motion: Motion, torques: Vector, iterations: int) -> Motion:
    """`timestep` on."""
    dt = model["timestep"]
    q, rates, guess, *_ = motion

    def shifted(x: Vector, way: Vector, time: Scalar) -> Vector:
        return [a + time * b for a, b in zip(x, way, strict=True)]

    if plan.integrator == "Euler":  # with the joints' damping at its end
        m, a, held = accelerations(plan, model, q, rates, guess, torques, iterations)
        damped = {(i, j): x + dt * model["dof_damping"][i] if i == j else x for (i, j), x in m.items()}
        push = once(lambda: multiply(m, a))
        change = once(lambda: solve(plan, damped, push))
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


CHUNK = 256
"""So many at a time on a CPU: the numbers of a step of more do not fit its nearer cache."""


def advance(
    plan: Plan,
    model: Numbers,
    qpos: Float[Array, "n"],
    qvel: Float[Array, "n"],
    qacc: Float[Array, "n"],
    control: Float[Array, "m"],
    substeps: int = 1,
    iterations: int = 20,
) -> Moved:
    """`substeps` steps on under one control, from MuJoCo's qpos, qvel and qacc (the last only a first guess).

    Newton's method takes at most `iterations` steps for the forces, and stops where they are exact.
    """
    # A batch is the last axis within, so that the numbers of many contacts lie one after another. Derivatives are
    # those of the same program, without that rule for batches.
    run = functools.partial(_advance, plan, substeps, iterations)
    batched = jax.custom_batching.custom_vmap(run)

    @batched.def_vmap
    def _(size: int, in_batched: Any, model: Numbers, *motion: Any) -> tuple[Moved, Moved]:
        along, every = in_batched[0], [jnp.broadcast_to(x, (size, *x.shape)) for x in motion]
        every = [x if is_batched else y for x, y, is_batched in zip(motion, every, in_batched[1:], strict=True)]
        shared = {name: x for name, x in model.items() if not along[name]}
        own = {name: x for name, x in model.items() if along[name]}

        def some(own: Numbers, motion: list[Array]) -> Moved:
            last = {name: jnp.moveaxis(x, 0, -1) for name, x in own.items()}
            first = {name: x[..., None] for name, x in shared.items()}
            moved = run({**first, **last}, *(jnp.moveaxis(x, 0, -1) for x in motion))
            return Moved(*(jnp.moveaxis(x, -1, 0) for x in moved))

        def chunks(own: Numbers, motion: list[Array]) -> Moved:
            count = -(-size // CHUNK)
            each = -(-size // count)
            rows = np.minimum(np.arange(count * each), size - 1).reshape(count, each)
            moved = jax.lax.map(lambda args: some(*args), jax.tree.map(lambda x: x[rows], (own, motion)))
            return Moved(*(x.reshape(-1, *x.shape[2:])[:size] for x in moved))

        moved = some(own, every) if size <= CHUNK else on_cpu(chunks, some, own, every)
        return moved, jax.tree.map(lambda _: True, moved)

    @jax.custom_jvp
    def whole(model: Numbers, *motion: Any) -> Moved:
        return batched(model, *motion)

    @whole.defjvp
    def _(primals: Any, tangents: Any) -> tuple[Moved, Moved]:
        with differentiated():
            return jax.jvp(run, primals, tangents)

    return whole(model, qpos, qvel, qacc, control)


def _advance(
    plan: Plan,
    substeps: int,
    iterations: int,
    model: Numbers,
    qpos: Array,
    qvel: Array,
    qacc: Array,
    control: Array,
) -> Moved:
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
    return Moved(*(jnp.stack(x) for x in motion))


def place(plan: Plan, model: Numbers, qpos: Float[Array, "n"], link: int, point: Pair) -> Float[Array, "2"]:
    """Where a point of a link, given in its own axes, is in the world [m]."""
    at = frames(plan, model, [qpos[i] for i in range(plan.num_dofs)])
    here = plus(plus(at.origins[link], at.places[link]), turned(at.turns[link], point))
    return jnp.stack([jnp.asarray(x, qpos.dtype) for x in here])
