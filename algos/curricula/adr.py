"""Automatic domain randomisation: ranges of parameters that widen as the student succeeds.

OpenAI et al. (2019), "Solving Rubik's cube with a robot hand" (arXiv:1910.07113), section 5.2 and algorithm 1. A level
is made of a point x of the unit box, and the levels of now are those of a smaller box [low, high] in it, which begins
as a point:

    with probability boundary_prob   one coordinate of x, drawn uniformly, is put on one of its two boundaries, the
                                     other coordinates are uniform in the box; the return that follows is this
                                     boundary's
    otherwise                        x is uniform in the box

Whenever a boundary has `num_returns` returns, it moves out by `step` if their mean is at least `widen_at`, in by `step`
if it is at most `narrow_at`, and forgets them. The metric of the paper is the boundaries' entropy, `entropy(state)`.

Deviations: levels are drawn by the batch, so that a boundary may have somewhat more than `num_returns` returns when it
moves; returns of a batch count for the boundary on which the level was drawn, even if it has moved since. Use:

    level_fn = jaxrl.curriculum.teaching.ranges(env_params, {"length": (0.2, 3.0)})
    student = ppo.make(vectorize(env, 32, batched_params=True), ppo.Config(num_envs=32))
    algo = jaxrl.curriculum.attach(student, adr.make(level_fn, adr.Config(), adr.Hyper(widen_at=400.0)))
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxrl.curriculum.protocol import Curriculum, LevelBatch, Outcomes
from jaxrl.curriculum.teaching import dimensions_of, levels_at
from jaxrl.environment import is_concrete, pytree, strongly_typed


@dataclasses.dataclass(frozen=True)
class Config:
    """Static settings."""

    dimensions: int | None = None  # D, of the box; None: what the level function says


@pytree
class Hyper:
    """Dynamic settings. Those of Cube are 240 returns, a boundary every second time and steps of 0.02 of a range."""

    widen_at: jax.Array  # mean return from which a boundary moves out
    start: jax.Array = 0.5  # where the box begins, of the unit box; a number or (D,)
    narrow_at: jax.Array = -jnp.inf  # and to which it moves in
    step: jax.Array = 0.05  # by which a boundary moves, of the unit box
    num_returns: jax.Array = 240.0  # returns at a boundary before it is judged
    boundary_prob: jax.Array = 0.5  # probability that a level is put on a boundary


@pytree
class ADRState:
    low: jax.Array  # (D,) the box of now
    high: jax.Array  # (D,)
    total: jax.Array  # (2, D) of returns at low and high boundaries since they moved
    count: jax.Array  # (2, D)
    params: Any  # of the level distribution
    hyper: Hyper


def entropy(state: ADRState) -> Float[Array, ""]:
    """Of the uniform distribution over the box, a dimension, in nats; 0 for the whole box (eq. 1 of the paper)."""
    return jnp.mean(jnp.log(state.high - state.low))


def moved(state: ADRState) -> ADRState:
    """Boundaries with enough returns take a step, within the unit box and on their side of the start."""
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


def make(level_fn: Callable[[Any, Array], Any], config: Config, hyper: Hyper) -> Curriculum:
    """ADR over the levels `level_fn(params, x)`, x (D,) in the unit box.

    Raises ValueError for settings that cannot be.
    """
    defaults = strongly_typed(hyper)
    D = dimensions_of(level_fn, config.dimensions)
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
        on = jax.random.bernoulli(rare_key, state.hyper.boundary_prob, (n,))
        value = jnp.concatenate([state.low, state.high])[boundary]
        chosen = (jnp.arange(D) == (boundary % D)[:, None]) & on[:, None]
        x = jnp.where(chosen, value[:, None], x)
        batch = levels_at(level_fn, state.params, x)._replace(note=jnp.where(on, boundary, 2 * D))  # past the end: none
        return batch, state

    def update(key: Array, state: ADRState, batch: LevelBatch, outcomes: Outcomes) -> ADRState:
        finished = outcomes.episodes > 0
        rows = jnp.where(finished, batch.note, 2 * D)

        def add(total, values):
            return total.reshape(-1).at[rows].add(values, mode="drop").reshape(2, D)

        total = add(state.total, outcomes.episode_return)
        return moved(state.replace(total=total, count=add(state.count, finished.astype(total.dtype))))

    return Curriculum(
        init, sample, update, "adr", (level_fn, config), defaults, metrics=lambda state: {"entropy": entropy(state)}
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
