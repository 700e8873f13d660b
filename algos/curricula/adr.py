"""Automatic domain randomisation: ranges of parameters that widen as the student succeeds.

OpenAI et al. (2019), "Solving Rubik's cube with a robot hand" (arXiv:1910.07113), section 5.2 and algorithm 1. A level
is made of a point x of the unit box. Levels are drawn from a smaller box [low, high] inside it, which begins as one
point and has two boundaries in each coordinate:

    sample   with probability boundary_prob: one coordinate of x, drawn uniformly, is put on one of its two boundaries,
             and the other coordinates are uniform in [low, high]; the return on this level is stored for the boundary
             else: x is uniform in [low, high]
    update   a boundary with `num_returns` returns moves out by `step` if their mean is at least `widen_at`, moves in by
             `step` if it is at most `narrow_at`, and forgets the returns

The paper's measure of progress is `entropy(state)`.

Deviations: levels are drawn in batches, so a boundary may have somewhat more than `num_returns` returns when it moves.
A return counts for the boundary that its level was drawn on, even if the boundary has moved since. Usage:

    level_at = jaxrl.curriculum.teaching.ranges(env_params, {"length": (0.2, 3.0)})
    student = ppo.make(vectorize(env, 32, batched_params=True), ppo.Config(num_envs=32))
    algo = jaxrl.curriculum.attach(student, adr.make(level_at, adr.Config(), adr.Hyper(widen_at=400.0)))
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxrl.calls import recorded
from jaxrl.curriculum.protocol import Curriculum, LevelBatch, Outcomes
from jaxrl.curriculum.teaching import dimensions_of, new_levels_at
from jaxrl.environment import is_concrete, pytree, strongly_typed


@dataclasses.dataclass(frozen=True)
class Config:
    """Static settings."""

    dimensions: int | None = None  # D of the box; None: `level_at.dimensions`, which `Ranges` have


@pytree
class Hyper:
    """Dynamic settings. Those of Cube are 240 returns, a boundary every second time and steps of 0.02 of a range."""

    widen_at: jax.Array  # a boundary moves out if its mean return is at least this
    start: jax.Array = 0.5  # the point of the unit box from which [low, high] grows; a number or (D,)
    narrow_at: jax.Array = -jnp.inf  # a boundary moves in if its mean return is at most this
    step: jax.Array = 0.05  # how far a boundary moves, in the unit box
    num_returns: jax.Array = 240.0  # returns that a boundary needs before it moves
    boundary_prob: jax.Array = 0.5  # probability that a level is put on a boundary


@pytree
class ADRState:
    low: jax.Array  # (D,) the box from which levels are drawn now
    high: jax.Array  # (D,)
    total: jax.Array  # (2, D) sums of the returns at the low and at the high boundaries since each moved
    count: jax.Array  # (2, D) how many returns these are
    params: Any  # of the level distribution
    hyper: Hyper


def entropy(state: ADRState) -> Float[Array, ""]:
    """Entropy of a uniform point in [low, high], per dimension, in nats (eq. 1 of the paper); 0 for the unit box."""
    return jnp.mean(jnp.log(state.high - state.low))


def moved(state: ADRState) -> ADRState:
    """The state after every boundary with enough returns has moved or stayed, and has forgotten its returns.

    A boundary stays in the unit box and on its side of the start.
    """
    hyper = state.hyper
    mean = state.total / jnp.maximum(state.count, 1)
    enough = state.count >= hyper.num_returns
    out = jnp.where(mean >= hyper.widen_at, hyper.step, jnp.where(mean <= hyper.narrow_at, -hyper.step, 0))
    out = jnp.where(enough, out, 0)
    return state.replace(
        low=jnp.clip(state.low - out[0], 0, hyper.start),
        high=jnp.clip(state.high + out[1], hyper.start, 1),
        total=jnp.where(enough, 0, state.total),
        count=jnp.where(enough, 0, state.count),
    )


@recorded
def make(level_at: Callable[[Any, Array], Any], config: Config, hyper: Hyper) -> Curriculum:
    """ADR over the levels `level_at(params, x)`, x (D,) in the unit box.

    Raises ValueError for settings out of range.
    """
    defaults = strongly_typed(hyper)
    D = dimensions_of(level_at, config.dimensions)
    _check(defaults, D)

    def init(key: Array, hyper: Hyper, params: Any) -> ADRState:
        _check(hyper, D)
        point = jnp.broadcast_to(hyper.start, (D,))
        none = jnp.zeros((2, D))
        return ADRState(point, point, none, none, strongly_typed(params), hyper)

    def sample(key: Array, state: ADRState, wanted: Bool[Array, " n"]) -> tuple[LevelBatch, ADRState]:
        n = len(wanted)
        inside_key, which_key, rare_key = jax.random.split(key, 3)
        x = jax.random.uniform(inside_key, (n, D), minval=state.low, maxval=state.high)
        boundary = jax.random.randint(which_key, (n,), 0, 2 * D)  # d: low of coordinate d, D + d: high
        on_boundary = jax.random.bernoulli(rare_key, state.hyper.boundary_prob, (n,))
        value = jnp.concatenate([state.low, state.high])[boundary]
        chosen = (jnp.arange(D) == (boundary % D)[:, None]) & on_boundary[:, None]
        x = jnp.where(chosen, value[:, None], x)
        note = jnp.where(on_boundary, boundary, 2 * D)  # 2 D is past the end: no boundary
        return new_levels_at(level_at, state.params, x)._replace(note=note), state

    def update(key: Array, state: ADRState, batch: LevelBatch, outcomes: Outcomes) -> ADRState:
        finished = outcomes.episodes > 0
        rows = jnp.where(finished, batch.note, 2 * D)

        def add(total, values):
            return total.reshape(-1).at[rows].add(values, mode="drop").reshape(2, D)

        total = add(state.total, outcomes.episode_return)
        return moved(state.replace(total=total, count=add(state.count, finished.astype(total.dtype))))

    return Curriculum(
        init, sample, update, "adr", (level_at, config), defaults, metrics=lambda state: {"entropy": entropy(state)}
    )


def _check(hyper: Hyper, D: int) -> None:
    if not is_concrete(hyper):
        return
    at = np.asarray(hyper.start)
    if at.shape not in ((), (D,)) or np.any((at < 0) | (at > 1)):
        raise ValueError(f"start={at}: a number or {D} of them, each in [0, 1].")
    if not np.all(np.asarray(hyper.step) > 0) or not np.all(np.asarray(hyper.num_returns) >= 1):
        raise ValueError(f"step={hyper.step} must be above 0, num_returns={hyper.num_returns} at least 1.")
    if not np.all(np.asarray(hyper.narrow_at) < np.asarray(hyper.widen_at)):
        raise ValueError(f"narrow_at={hyper.narrow_at} must be below widen_at={hyper.widen_at}.")
    prob = np.asarray(hyper.boundary_prob)
    if np.any((prob <= 0) | (prob > 1)):
        raise ValueError(f"boundary_prob={hyper.boundary_prob} must be in (0, 1].")
