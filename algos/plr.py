"""Prioritised level replay, and its robust form.

Jiang, Grefenstette and Rocktaeschel (2021), "Prioritized level replay" (arXiv:2010.03934); robust: Jiang et al. (2021),
"Replay-guided adversarial environment design" (arXiv:2110.02439), which looks at new levels without learning from them.

With probability `replay_prob`, once the buffer is `min_fill` full, a batch of levels comes from the buffer, else new
ones from the level function; either way they are scored after the rollout. Replay-or-new is a mask and not a branch, so
that it costs the same under `vmap`. Deviation: slots of a batch are drawn without repetition at once, not one after
another. Use:

    student = ppo.make(vectorize(env, 32, batched_params=True), ppo.Config(num_envs=32))
    algo = jaxrl.curriculum.attach(student, plr.make(level_fn))
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxrl.curriculum import (
    Curriculum,
    LevelBatch,
    LevelBuffer,
    Outcomes,
    buffer_draw,
    buffer_init,
    buffer_insert,
    buffer_weights,
)
from jaxrl.environment import pytree, strongly_typed


@dataclasses.dataclass(frozen=True)
class Config:
    """Static settings."""

    buffer_size: int = 4000  # levels kept
    robust: bool = True  # do not learn from new levels

    def __post_init__(self) -> None:
        if self.buffer_size < 1:
            raise ValueError(f"buffer_size={self.buffer_size}: it must be at least 1.")


@pytree
class Hyper:
    """Dynamic settings, the ones of Jiang et al. (2021b) for mazes."""

    replay_prob: jax.Array = 0.5
    min_fill: jax.Array = 0.5  # share of the buffer that must be filled before any replay
    temperature: jax.Array = 0.3  # of the rank prioritisation
    staleness: jax.Array = 0.3  # weight of the levels' age


@pytree
class PLRState:
    buffer: LevelBuffer
    params: Any  # of the level distribution
    hyper: Hyper


def make(level_fn: Callable[[Array, Any], Any], config: Config = Config(), hyper: Hyper | None = None) -> Curriculum:
    """PLR over the levels that `level_fn(key, params)` draws."""
    start = strongly_typed(Hyper() if hyper is None else hyper)

    def init(key: Array, params: Any) -> PLRState:
        params = strongly_typed(params)
        return PLRState(buffer_init(jax.eval_shape(level_fn, key, params), config.buffer_size), params, start)

    def sample(key: Array, state: PLRState, n: int) -> tuple[LevelBatch, PLRState]:
        if n > config.buffer_size:
            raise ValueError(f"buffer_size={config.buffer_size} cannot fill a batch of {n} levels; make it larger.")
        buffer, hyper = state.buffer, state.hyper
        choice_key, slot_key, level_key = jax.random.split(key, 3)
        filled = jnp.isfinite(buffer.score).sum()
        ready = (filled >= hyper.min_fill * config.buffer_size) & (filled >= n)
        replay = ready & jax.random.bernoulli(choice_key, hyper.replay_prob)
        slots = buffer_draw(slot_key, buffer_weights(buffer, hyper.temperature, hyper.staleness), n)
        new = jax.vmap(level_fn, (0, None))(jax.random.split(level_key, n), state.params)
        levels = jax.tree.map(lambda old, new: jnp.where(replay, old[slots], new), buffer.levels, new)
        clock = buffer.clock + 1
        sampled_at = jnp.where(replay, buffer.sampled_at.at[slots].set(clock), buffer.sampled_at)
        batch = LevelBatch(
            params=levels,
            slot=jnp.where(replay, slots, -1),
            learn_mask=jnp.broadcast_to(replay | (not config.robust), (n,)),
            parent=jnp.full(n, -1),
            max_return=jnp.where(replay, buffer.max_return[slots], -jnp.inf),
        )
        return batch, state.replace(buffer=buffer.replace(clock=clock, sampled_at=sampled_at))

    def update(key: Array, state: PLRState, batch: LevelBatch, outcomes: Outcomes) -> PLRState:
        buffer = state.buffer
        # A replayed level without a finished episode or a finite score keeps what was known of it.
        known = (batch.slot >= 0) & jnp.isfinite(outcomes.score)
        rows = jnp.where(known, batch.slot, config.buffer_size)
        buffer = buffer.replace(
            score=buffer.score.at[rows].set(outcomes.score, mode="drop"),
            max_return=buffer.max_return.at[rows].max(outcomes.max_return, mode="drop"),
        )
        new = jnp.where(batch.slot < 0, outcomes.score, -jnp.inf)
        usefulness = buffer_weights(buffer, state.hyper.temperature, state.hyper.staleness)
        return state.replace(buffer=buffer_insert(buffer, batch.params, new, outcomes.max_return, usefulness))

    return Curriculum(init, sample, update)
