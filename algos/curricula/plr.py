"""Prioritised level replay, and its robust and parallel forms.

Jiang, Grefenstette and Rocktaeschel (2021a), "Prioritized level replay" (arXiv:2010.03934); robust: Jiang et al.
(2021b), "Replay-guided adversarial environment design" (arXiv:2110.02439), which looks at new levels without learning
from them; parallel: Jiang et al. (2023), "minimax" (arXiv:2311.12716).

    with probability replay_prob, once      levels from the buffer, by score and staleness; learn; new scores
    the buffer is min_fill full
    else                                    new levels of the level function; learn unless robust; those that score
                                            better than the least useful ones enter the buffer

A level is kept for the whole rollout, for as many episodes as there are, and until one has ended. In parallel, one half
of each batch is new and the other half replayed, and only the latter is learned from. Replay-or-new is a mask and not a
branch, so that it costs the same under `vmap`.

Deviations from minimax and JaxUED: new levels enter the buffer at once (`buffer_insert`), not one after another, and a
level that is several times in a batch gets the mean of its scores, not the last. A replayed level of which no episode
finished keeps its score, as in minimax. Use:

    student = ppo.make(vectorize(env, 32, batched_params=True), ppo.Config(num_envs=32))
    algo = jaxrl.curriculum.attach(student, plr.make(level_fn))
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from jaxrl.curriculum.level_buffer import (
    LevelBuffer,
    buffer_draw,
    buffer_holds,
    buffer_init,
    buffer_insert,
    buffer_update,
    buffer_weights,
)
from jaxrl.curriculum.protocol import Curriculum, LevelBatch, Outcomes, new_levels
from jaxrl.curriculum.scores import max_mc
from jaxrl.curriculum.teaching import drawing
from jaxrl.environment import is_concrete, pytree, strongly_typed
from jaxrl.vectorize import rows_where


@dataclasses.dataclass(frozen=True)
class Config:
    """Static settings."""

    buffer_size: int = 4000  # levels kept
    robust: bool = True  # do not learn from new levels
    prioritization: str = "rank"  # or "proportional" to scores that are not negative
    parallel: bool = False  # replay with a share of each batch, always, and not with whole batches at random

    def __post_init__(self) -> None:
        if self.buffer_size < 1:
            raise ValueError(f"buffer_size={self.buffer_size}: it must be at least 1.")
        if self.prioritization not in ("rank", "proportional"):
            raise ValueError(f"prioritization={self.prioritization!r}: it is 'rank' or 'proportional'.")


@pytree
class Hyper:
    """Dynamic settings, the ones of Jiang et al. (2021b) for mazes."""

    replay_prob: jax.Array = 0.5  # not read in parallel
    min_fill: jax.Array = 0.5  # share of the buffer that must be filled before any replay
    temperature: jax.Array = 0.3  # of the prioritisation
    staleness: jax.Array = 0.3  # weight of the levels' age


@pytree
class PLRState:
    buffer: LevelBuffer
    params: Any  # of the level distribution
    hyper: Hyper


def choose(
    key: Array,
    buffer: LevelBuffer,
    new: Any,
    wanted: Bool[Array, " n"],
    hyper: Any,
    config: Config,
    num_replay: int,
    may_replay: Bool[Array, ""] | bool = True,
) -> tuple[LevelBatch, LevelBuffer]:
    """The batch `new`, whose last `num_replay` levels are, if it is a time for that, replaced by ones of the buffer.

    Of these, the ones that are `wanted` are acted on now.
    """
    batch = new_levels(new)
    n = batch.slot.shape[0]
    choice_key, slot_key = jax.random.split(key)
    filled = jnp.isfinite(buffer.score).sum()
    ready = may_replay & (filled >= hyper.min_fill * config.buffer_size) & (filled > 0)
    replay = ready if config.parallel else ready & jax.random.bernoulli(choice_key, hyper.replay_prob)
    of_replay = jnp.arange(n) >= n - num_replay
    drawn = wanted & of_replay & replay
    weighing = hyper.temperature, hyper.staleness, config.prioritization
    slots, buffer = buffer_draw(slot_key, buffer, drawn, *weighing)
    slots = jnp.where(of_replay & replay, slots, -1)
    batch = batch._replace(
        params=rows_where(slots >= 0, jax.tree.map(lambda x: x[slots], buffer.levels), new),
        slot=slots,
        learn_mask=of_replay & replay if config.robust else jnp.ones(n, bool),
        max_return=jnp.where(slots >= 0, buffer.max_return[slots], -jnp.inf),
    )
    return batch, buffer.replace(clock=buffer.clock + jnp.sum(wanted & ~drawn))


def learned(
    buffer: LevelBuffer, batch: LevelBatch, outcomes: Outcomes, hyper: Any, config: Config, extras: Any = ()
) -> LevelBuffer:
    """The buffer after a rollout: new scores of replayed levels, then what is worth it of the others.

    A replayed level whose slot went to another one meanwhile is one of the others.
    """
    slot = jnp.where(buffer_holds(buffer, batch.slot, batch.params), batch.slot, -1)
    buffer = buffer_update(buffer, slot, outcomes.score, outcomes.max_return)
    score = jnp.where(slot < 0, outcomes.score, -jnp.inf)
    usefulness = buffer_weights(buffer, hyper.temperature, hyper.staleness, config.prioritization)
    return buffer_insert(buffer, batch.params, score, outcomes.max_return, usefulness, extras)


def report(state: Any) -> dict[str, Array]:
    """What the buffer holds: its filled share, the mean score and how many levels ago one was drawn or made."""
    buffer = state.buffer
    filled = jnp.isfinite(buffer.score)

    def mean(x):
        return jnp.where(filled.any(), jnp.where(filled, x, 0).sum() / jnp.maximum(filled.sum(), 1), jnp.nan)

    age = (buffer.clock - buffer.sampled_at).astype(buffer.score.dtype)
    return {"buffer_filled": filled.mean(), "buffer_score": mean(buffer.score), "buffer_age": mean(age)}


def make(
    level_fn: Callable[[Array, Any], Any],
    config: Config = Config(),
    hyper: Hyper | None = None,
    score: Callable[..., Array] = max_mc,
) -> Curriculum:
    """PLR over the levels that `level_fn(key, params)` draws, by a score of `jaxrl.curriculum`.

    Raises ValueError for settings that cannot be.
    """
    level_fn = drawing(level_fn)
    defaults = strongly_typed(Hyper() if hyper is None else hyper)
    check_hyper(defaults)

    def init(key: Array, hyper: Hyper, params: Any) -> PLRState:
        check_hyper(hyper)
        params = strongly_typed(params)
        return PLRState(buffer_init(jax.eval_shape(level_fn, key, params), config.buffer_size), params, hyper)

    def sample(key: Array, state: PLRState, wanted: Bool[Array, " n"]) -> tuple[LevelBatch, PLRState]:
        n = len(wanted)
        if config.parallel and n % 2:
            raise ValueError(f"parallel: half of a batch is replayed, and {n} levels cannot be halved.")
        key, level_key = jax.random.split(key)
        new = jax.vmap(level_fn, (0, None))(jax.random.split(level_key, n), state.params)
        part = n // 2 if config.parallel else n
        batch, buffer = choose(key, state.buffer, new, wanted, state.hyper, config, part)
        return batch, state.replace(buffer=buffer)

    def update(key: Array, state: PLRState, batch: LevelBatch, outcomes: Outcomes) -> PLRState:
        return state.replace(buffer=learned(state.buffer, batch, outcomes, state.hyper, config))

    return Curriculum(init, sample, update, "plr", (level_fn, config), defaults, score, report)


def check_hyper(hyper: Any) -> None:
    """Raise ValueError for a share that is none, or a temperature of 0."""
    if not is_concrete(hyper):
        return
    for name in ("replay_prob", "min_fill", "staleness"):
        value = np.asarray(getattr(hyper, name))
        if not np.all((value >= 0) & (value <= 1)):
            raise ValueError(f"{name}={value}: it must be in [0, 1].")
    if not np.all(np.asarray(hyper.temperature) > 0):
        raise ValueError(f"temperature={hyper.temperature}: it must be above 0.")
