"""GROOVE: a curriculum for meta-learned update rules, of levels on which agents learn worse by the rule than by A2C.

Jackson et al. (2023), "Discovering General Reinforcement Learning Algorithms with Adversarial Environment Design",
NeurIPS, arXiv:2310.02782. The student is a learner of update rules (`jaxrl.meta.lifetimes`); each of its agents spends
one life on a level, which states the length of that life.

    sample   for an agent whose life begins: with probability replay_prob the level of highest score in the buffer that
             no agent is on, else a new level of `level_fn`
    score    from the student, when a life is over: the algorithmic regret of the level, which is the final return of an
             agent that learned by A2C there, from scratch and for as long, minus that of the agent of the rule
    update   a replayed level gets its new score; a new level enters the buffer if it scores higher than the lowest
             score there of a level that no agent is on

Where the best return of a level is known, it may stand in A2C's place (`antagonist=env.levels.optimal_value`).

Deviations from the authors' code: new levels enter the buffer only once they have been scored (there, slots that are
filled beforehand and were never evaluated count as levels of score 0); the agent of A2C is trained only where a life is
over. Usage:

    meta = lifetimes.learner(lpg.rule(), env, groove.make(generate), antagonist=policy_gradients.a2c_rule())
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from jaxrl.algorithm import check_at_least_one
from jaxrl.calls import recorded
from jaxrl.curriculum import level_buffer
from jaxrl.curriculum.level_buffer import LevelBuffer
from jaxrl.curriculum.protocol import Curriculum, LevelBatch, Outcomes, new_levels
from jaxrl.curriculum.teaching import drawing
from jaxrl.environment import is_concrete, pytree, strongly_typed
from jaxrl.vector_env import rows_where


@dataclasses.dataclass(frozen=True)
class Config:
    """Static settings."""

    buffer_size: int = 4000  # levels kept

    def __post_init__(self) -> None:
        check_at_least_one(self, "buffer_size")


@pytree
class Hyper:
    """Dynamic settings."""

    replay_prob: jax.Array = 0.5  # probability that an agent's next level is one of the buffer


@pytree
class GrooveState:
    buffer: LevelBuffer
    active: jax.Array  # (buffer_size,) bool: an agent is on the level
    params: Any  # of the level distribution
    hyper: Hyper


def best_free(buffer: LevelBuffer, active: Bool[Array, " C"], asking: Bool[Array, " n"]) -> Int[Array, " n"]:
    """The buffer's slots of levels that no agent is on, the highest score first, one for each row of `asking`.

    Rows that are not asking, and rows for which no level is left, get -1.
    """
    free = jnp.isfinite(buffer.score) & ~active
    ranked = jnp.argsort(jnp.where(free, -buffer.score, jnp.inf))
    turn = jnp.cumsum(asking) - 1
    return jnp.where(asking & (turn < jnp.sum(free)), ranked[jnp.clip(turn, 0, len(active) - 1)], -1)


@recorded
def make(level_fn: Callable[[Array, Any], Any], config: Config = Config(), hyper: Hyper | None = None) -> Curriculum:
    """GROOVE's curriculum over the levels that `level_fn(key, params)` draws.

    Raises ValueError for settings out of range.
    """
    level_fn = drawing(level_fn)
    defaults = strongly_typed(Hyper() if hyper is None else hyper)
    _check(defaults)
    C = config.buffer_size

    def init(key: Array, hyper: Hyper, params: Any) -> GrooveState:
        _check(hyper)
        params = strongly_typed(params)
        buffer = level_buffer.init(jax.eval_shape(level_fn, key, params), C)
        return GrooveState(buffer, jnp.zeros(C, bool), params, strongly_typed(hyper))

    def sample(key: Array, state: GrooveState, wanted: Bool[Array, " n"]) -> tuple[LevelBatch, GrooveState]:
        n = len(wanted)
        level_key, choice_key = jax.random.split(key)
        new = jax.vmap(level_fn, (0, None))(jax.random.split(level_key, n), state.params)
        replay = wanted & jax.random.bernoulli(choice_key, state.hyper.replay_prob, (n,))
        slot = best_free(state.buffer, state.active, replay)
        replayed = slot >= 0
        batch = new_levels(new)._replace(
            params=rows_where(replayed, jax.tree.map(lambda x: x[slot], state.buffer.levels), new),
            slot=slot,
            max_return=jnp.where(replayed, state.buffer.max_return[slot], -jnp.inf),
        )
        active = state.active.at[jnp.where(replayed, slot, C)].set(True, mode="drop")
        return batch, state.replace(active=active)

    def update(key: Array, state: GrooveState, batch: LevelBatch, outcomes: Outcomes) -> GrooveState:
        over = outcomes.episodes > 0
        slot = jnp.where(over, batch.slot, -1)
        active = state.active.at[jnp.where(slot >= 0, slot, C)].set(False, mode="drop")
        buffer = level_buffer.update(state.buffer, slot, outcomes.score, outcomes.max_return)
        score_of_new = jnp.where(over & (batch.slot < 0), outcomes.score, -jnp.inf)
        # The level of lowest score is replaced first; levels that an agent is on are kept.
        usefulness = jnp.where(active, jnp.inf, buffer.score)
        buffer = level_buffer.insert(buffer, batch.params, score_of_new, outcomes.max_return, usefulness)
        return state.replace(buffer=buffer, active=active)

    def metrics(state: GrooveState) -> dict[str, Array]:
        filled = jnp.isfinite(state.buffer.score)
        mean = jnp.where(filled, state.buffer.score, 0).sum() / jnp.maximum(filled.sum(), 1)
        return {"filled": filled.mean(), "regret": mean}

    return Curriculum(init, sample, update, "groove", (level_fn, config), defaults, metrics=metrics)


def _check(hyper: Hyper) -> None:
    if is_concrete(hyper) and not np.all((np.asarray(hyper.replay_prob) >= 0) & (np.asarray(hyper.replay_prob) <= 1)):
        raise ValueError(f"replay_prob={hyper.replay_prob}: it must be in [0, 1].")
