"""GROOVE: which levels, and how long a life on each, teach an update rule most.

Jackson et al. (2023), "Discovering General Reinforcement Learning Algorithms with Adversarial Environment Design",
NeurIPS, arXiv:2310.02782. A level's worth is its algorithmic regret: what an agent that A2C taught on it, from nothing
and for as long, got more than the one that the rule taught. Levels, with their lifetimes, are kept in a buffer; when a
life is over its level gets that score, and

    with probability replay_prob      the highest-scoring level that no agent is on
    else                              a new one

is the next agent's. Use:

    meta = lifetimes.learner(lpg.rule(), env, groove.make(generate), antagonist=policy_gradients.a2c_rule())

Deviations from GROOVE's code: new levels enter the buffer when they have been scored, and not before (there, pre-filled
slots that were never evaluated count as ones of score 0); the antagonist lives only where a life is over.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

from jaxrl.curriculum.level_buffer import LevelBuffer, buffer_init, buffer_insert, buffer_update
from jaxrl.curriculum.protocol import Curriculum, LevelBatch, Outcomes, new_levels
from jaxrl.curriculum.teaching import drawing
from jaxrl.environment import pytree, strongly_typed
from jaxrl.vectorize import rows_where


@dataclasses.dataclass(frozen=True)
class Config:
    """Static settings."""

    buffer_size: int = 4000  # levels kept

    def __post_init__(self) -> None:
        if self.buffer_size < 1:
            raise ValueError(f"buffer_size={self.buffer_size}: it must be at least 1.")


@pytree
class Hyper:
    """Dynamic settings."""

    replay_prob: jax.Array = 0.5


@pytree
class GrooveState:
    buffer: LevelBuffer
    active: jax.Array  # (buffer_size,) bool, an agent is on it
    params: Any  # of the level distribution
    hyper: Hyper


def make(level_fn: Callable[[Array, Any], Any], config: Config = Config()) -> Curriculum:
    """Levels that `level_fn(key, params)` draws, replayed by their algorithmic regret."""
    level_fn = drawing(level_fn)

    def init(key: Array, hyper: Any, params: Any) -> GrooveState:
        params = strongly_typed(params)
        example = jax.eval_shape(level_fn, key, params)
        buffer = buffer_init(example, config.buffer_size)
        return GrooveState(buffer, jnp.zeros(config.buffer_size, bool), params, strongly_typed(hyper))

    def sample(key: Array, state: GrooveState, wanted: Bool[Array, " n"]) -> tuple[LevelBatch, GrooveState]:
        n = len(wanted)
        level_key, choice_key = jax.random.split(key)
        new = jax.vmap(level_fn, (0, None))(jax.random.split(level_key, n), state.params)
        # The best that nobody is on, best first, each to one of those that want and may replay.
        free = jnp.isfinite(state.buffer.score) & ~state.active
        ranked = jnp.argsort(jnp.where(free, -state.buffer.score, jnp.inf))
        may = wanted & jax.random.bernoulli(choice_key, state.hyper.replay_prob, (n,))
        turn = jnp.cumsum(may) - 1
        drawn = may & (turn < jnp.sum(free))
        slot = jnp.where(drawn, ranked[jnp.clip(turn, 0, config.buffer_size - 1)], -1)
        batch = new_levels(new)
        held = jax.tree.map(lambda x: x[slot], state.buffer.levels)
        batch = batch._replace(
            params=rows_where(drawn, held, new),
            slot=slot,
            max_return=jnp.where(drawn, state.buffer.max_return[slot], -jnp.inf),
        )
        active = state.active.at[jnp.where(drawn, slot, config.buffer_size)].set(True, mode="drop")
        return batch, state.replace(active=active)

    def update(key: Array, state: GrooveState, batch: LevelBatch, outcomes: Outcomes) -> GrooveState:
        over = outcomes.episodes > 0
        left = jnp.where(over & (batch.slot >= 0), batch.slot, config.buffer_size)
        active = state.active.at[left].set(False, mode="drop")
        slot = jnp.where(over, batch.slot, -1)
        buffer = buffer_update(state.buffer, slot, outcomes.score, outcomes.max_return)
        score = jnp.where(over & (batch.slot < 0), outcomes.score, -jnp.inf)
        # The least useful goes first: what has the lowest score; what an agent is on stays.
        usefulness = jnp.where(active, jnp.inf, buffer.score)
        buffer = buffer_insert(buffer, batch.params, score, outcomes.max_return, usefulness)
        return state.replace(buffer=buffer, active=active)

    def report(state: GrooveState) -> dict[str, Array]:
        filled = jnp.isfinite(state.buffer.score)
        mean = jnp.where(filled, state.buffer.score, 0).sum() / jnp.maximum(filled.sum(), 1)
        return {"filled": filled.mean(), "regret": mean}

    return Curriculum(init, sample, update, "groove", (level_fn, config), Hyper(), metrics=report)
