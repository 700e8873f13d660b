"""Prioritised level replay, and its robust and parallel forms.

Jiang, Grefenstette and Rocktaeschel (2021a), "Prioritized level replay" (arXiv:2010.03934); robust: Jiang et al.
(2021b), "Replay-guided adversarial environment design" (arXiv:2110.02439), which looks at new levels without learning
from them; parallel: Jiang et al. (2023), "minimax" (arXiv:2311.12716).

    sample   with probability replay_prob, once the buffer is min_fill full: levels of the buffer, drawn by score and
             staleness; the student learns from them
             else: new levels from `level_fn`; the student learns from them unless `robust`
    score    by `score` of the student's rollout on the level (`jaxrl.curriculum.scores`)
    update   a replayed level gets its new score; a new level enters the buffer if it scores higher than the least
             useful level there

A level is kept for the whole rollout, for as many episodes as there are, and until one has ended. With `parallel`, one
half of each batch is new and the other half is replayed, and only the latter is learned from. Whether a level is
replayed or new is a mask and not a branch, so it costs the same under `vmap`.

Deviations from minimax and JaxUED: the new levels of a batch enter the buffer together (`level_buffer.insert`), not one
after another, and a level that is several times in a batch gets the mean of its scores, not the last. A replayed level
on which no episode finished keeps its score, as in minimax. Usage:

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

from jaxrl.calls import recorded
from jaxrl.curriculum import level_buffer
from jaxrl.curriculum.level_buffer import LevelBuffer
from jaxrl.curriculum.protocol import Curriculum, LevelBatch, Outcomes, new_levels
from jaxrl.curriculum.scores import max_mc
from jaxrl.curriculum.teaching import drawing
from jaxrl.environment import is_concrete, pytree, strongly_typed
from jaxrl.vector_env import rows_where


@dataclasses.dataclass(frozen=True)
class Config:
    """Static settings."""

    buffer_size: int = 4000  # levels kept
    robust: bool = True  # do not learn from new levels
    prioritization: str = "rank"  # or "proportional" to scores that are not negative; or "topk", the top_k best
    top_k: int = 4  # levels among which "topk" draws, in proportion to exp(score); 4 in JaxUED; not read otherwise
    parallel: bool = False  # half of every batch is replayed; False: whole batches, at random

    def __post_init__(self) -> None:
        if self.buffer_size < 1:
            raise ValueError(f"buffer_size={self.buffer_size}: it must be at least 1.")
        if self.prioritization not in ("rank", "proportional", "topk"):
            raise ValueError(f"prioritization={self.prioritization!r}: it is 'rank', 'proportional' or 'topk'.")
        if not 1 <= self.top_k <= self.buffer_size and self.prioritization == "topk":
            raise ValueError(f"top_k={self.top_k}: it is at least 1 and at most buffer_size={self.buffer_size}.")


@pytree
class Hyper:
    """Dynamic settings, the ones of Jiang et al. (2021b) for mazes."""

    replay_prob: jax.Array = 0.5  # probability that a batch is replayed; not read with Config.parallel
    min_fill: jax.Array = 0.5  # share of the buffer that must be filled before any replay
    temperature: jax.Array = 0.3  # of the prioritisation: the lower, the more the best scores are replayed
    staleness: jax.Array = 0.3  # weight of the levels' age in the probability of replay


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
    """`(batch, buffer)`: the levels `new`, of which the last `num_replay` are replaced if this batch is replayed.

    It is replayed if `may_replay`, the buffer is filled enough and, unless parallel, with probability `replay_prob`.
    Replayed levels are drawn from the buffer, whose clock and ages count the levels that are `wanted`, as the others
    are not played.
    """
    batch = new_levels(new)
    n = batch.slot.shape[0]
    choice_key, slot_key = jax.random.split(key)
    filled = jnp.isfinite(buffer.score).sum()
    ready = may_replay & (filled >= hyper.min_fill * config.buffer_size) & (filled > 0)
    replay = ready if config.parallel else ready & jax.random.bernoulli(choice_key, hyper.replay_prob)
    of_replay = jnp.arange(n) >= n - num_replay
    drawn = wanted & of_replay & replay
    slots, buffer = level_buffer.draw(
        slot_key, buffer, drawn, hyper.temperature, hyper.staleness, config.prioritization, config.top_k
    )
    slots = jnp.where(of_replay & replay, slots, -1)
    batch = batch._replace(
        params=rows_where(slots >= 0, jax.tree.map(lambda x: x[slots], buffer.levels), new),
        slot=slots,
        learn_mask=of_replay & replay if config.robust else jnp.ones(n, bool),
        max_return=jnp.where(slots >= 0, buffer.max_return[slots], -jnp.inf),
    )
    return batch, buffer.replace(clock=buffer.clock + jnp.sum(wanted & ~drawn))


def updated(
    buffer: LevelBuffer, batch: LevelBatch, outcomes: Outcomes, hyper: Any, config: Config, extras: Any = ()
) -> LevelBuffer:
    """The buffer after a rollout: replayed levels get new scores, then new levels replace less useful ones.

    A replayed level counts as new if its slot of the buffer was given to another level in the meantime.
    """
    slot = jnp.where(level_buffer.holds(buffer, batch.slot, batch.params), batch.slot, -1)
    buffer = level_buffer.update(buffer, slot, outcomes.score, outcomes.max_return)
    score = jnp.where(slot < 0, outcomes.score, -jnp.inf)
    usefulness = level_buffer.weights(buffer, hyper.temperature, hyper.staleness, config.prioritization, config.top_k)
    return level_buffer.insert(buffer, batch.params, score, outcomes.max_return, usefulness, extras)


def report(state: Any) -> dict[str, Array]:
    """Metrics: the filled share of the buffer, and the mean score and mean age of its levels.

    Age is the number of levels drawn since.
    """
    buffer = state.buffer
    filled = jnp.isfinite(buffer.score)

    def mean(x):
        return jnp.where(filled.any(), jnp.where(filled, x, 0).sum() / jnp.maximum(filled.sum(), 1), jnp.nan)

    age = (buffer.clock - buffer.sampled_at).astype(buffer.score.dtype)
    return {"buffer_filled": filled.mean(), "buffer_score": mean(buffer.score), "buffer_age": mean(age)}


@recorded
def make(
    level_fn: Callable[[Array, Any], Any],
    config: Config = Config(),
    hyper: Hyper | None = None,
    score: Callable[..., Array] = max_mc,
) -> Curriculum:
    """PLR over the levels that `level_fn(key, params)` draws.

    Args:
        score: `(rollout, batch, outcomes, hyper) -> (N,)`, one of `jaxrl.curriculum.scores` or your own.

    Raises ValueError for settings out of range.
    """
    level_fn = drawing(level_fn)
    defaults = strongly_typed(Hyper() if hyper is None else hyper)
    check_hyper(defaults)

    def init(key: Array, hyper: Hyper, params: Any) -> PLRState:
        check_hyper(hyper)
        params = strongly_typed(params)
        return PLRState(level_buffer.init(jax.eval_shape(level_fn, key, params), config.buffer_size), params, hyper)

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
        return state.replace(buffer=updated(state.buffer, batch, outcomes, state.hyper, config))

    return Curriculum(init, sample, update, "plr", (level_fn, config), defaults, score, report)


def check_hyper(hyper: Any) -> None:
    """Raise ValueError for a probability or share outside [0, 1], or a temperature that is not above 0."""
    if not is_concrete(hyper):
        return
    for name in ("replay_prob", "min_fill", "staleness"):
        value = np.asarray(getattr(hyper, name))
        if not np.all((value >= 0) & (value <= 1)):
            raise ValueError(f"{name}={value}: it must be in [0, 1].")
    if not np.all(np.asarray(hyper.temperature) > 0):
        raise ValueError(f"temperature={hyper.temperature}: it must be above 0.")
