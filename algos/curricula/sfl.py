"""Sampling for learnability (SFL): a student trains on those of many random levels that it solves about half the time.

Rutherford et al. (2024), "No Regrets: Investigating and Improving Regret Approximations for Curriculum Discovery"
(arXiv:2408.15099), in the form of the authors' code (github.com/amacrutherford/sampling-for-learnability):

    refresh   every refresh_every updates: the student's policy acts, without learning, num_steps steps on each of
              num_levels new levels; the score of a level is its learnability p (1 - p), p the share of its finished
              episodes that succeed; the buffer_size levels of highest score become the buffer
    sample    for each rollout: a share replay_share of its levels is drawn from the buffer, uniformly with replacement,
              the others are new; the student learns from all
    update    nothing: levels are scored in a refresh only, and the next one replaces the whole buffer

`state.step` and `steps_per_update` count the steps learned from, as the authors' logs do. The steps of a refresh come
on top. They are the metric `refresh_steps`: num_levels * num_steps in an update that begins with one, else 0. With the
authors' settings for MiniGrid, the defaults here (256 environments x 256 steps, a refresh every 100 updates), that is
7.6 times the steps learned from; with those for Kinetix (12,288 levels x 512 steps every 128 updates of 2048 x 512) it
is a twentieth.

Deviations: all finished episodes count, the authors take ten at most. A level without a finished episode never enters
the buffer (the authors' mean over none is NaN, which sorts last, where the best levels are taken from; but their 2,000
steps always finish some). p and 1 - p have the same score to the last bit. Under `vmap` all runs refresh together.
Usage:

    env = make("Maze-v0")[0].as_levels()
    student = ppo_rnn.make(vectorize(env, 256, batched_params=True), ppo_rnn.Config(num_envs=256, num_steps=256))
    algo = jaxrl.curriculum.attach(student, sfl.make(make("Maze-v0")[0].generate))
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxrl.algorithm import check_at_least_one
from jaxrl.calls import recorded
from jaxrl.curriculum import level_buffer
from jaxrl.curriculum.protocol import Curriculum, LevelBatch, Look, Outcomes, new_levels
from jaxrl.curriculum.scores import l1_value_loss, learnability, max_mc, positive_value_loss
from jaxrl.curriculum.teaching import drawing
from jaxrl.environment import is_concrete, pytree, strongly_typed
from jaxrl.math import rarely
from jaxrl.vector_env import rows_where


@dataclasses.dataclass(frozen=True)
class Config:
    """Static settings, the ones of the authors for MiniGrid's mazes."""

    buffer_size: int = 1000  # levels kept
    num_levels: int = 25_000  # new levels in a refresh, of which the best become the buffer
    num_steps: int = 2000  # steps on each of them; with fewer than two episodes no level is learnable
    chunk: int = 5000  # of these levels are played at once; divides num_levels
    refresh_every: int = 100  # updates from one refresh to the next

    def __post_init__(self) -> None:
        check_at_least_one(self, "buffer_size", "num_levels", "num_steps", "chunk", "refresh_every")
        if self.buffer_size > self.num_levels:
            raise ValueError(f"buffer_size={self.buffer_size}: it is at most num_levels={self.num_levels}, those seen.")
        if self.num_levels % self.chunk:
            raise ValueError(f"chunk={self.chunk} does not divide num_levels={self.num_levels}.")


@pytree
class Hyper:
    """Dynamic settings."""

    replay_share: jax.Array = 0.5  # of the levels of each rollout, those from the buffer


@pytree
class SFLState:
    levels: Any  # the buffer, leading axis C, the most learnable first
    score: jax.Array  # (C,), -inf where a slot of the buffer is empty
    rollouts: jax.Array  # int32, how many there were
    params: Any  # of the level distribution
    hyper: Hyper


def best(levels: Any, score: Float[Array, " N"], k: int) -> tuple[Any, Float[Array, " k"]]:
    """The `k` levels of the highest score, the highest first, and their scores."""
    score, rows = jax.lax.top_k(score, k)
    return jax.tree.map(lambda x: x[rows], levels), score


def choose(key: Array, state: SFLState, new: Any) -> LevelBatch:
    """The levels `new`, of which the first `replay_share` are replaced by levels of the buffer, unless it is empty."""
    n = jax.tree.leaves(new)[0].shape[0]
    filled = jnp.isfinite(state.score).sum()  # these come first
    slot = jax.random.randint(key, (n,), 0, jnp.maximum(filled, 1))
    from_buffer = (jnp.arange(n) < jnp.round(state.hyper.replay_share * n)) & (filled > 0)
    levels = rows_where(from_buffer, jax.tree.map(lambda x: x[slot], state.levels), new)
    return new_levels(levels)._replace(slot=jnp.where(from_buffer, slot, -1))


@recorded
def make(
    level_fn: Callable[[Array, Any], Any],
    config: Config = Config(),
    hyper: Hyper | None = None,
    score: Callable[..., Array] = learnability,
) -> Curriculum:
    """SFL over the levels that `level_fn(key, params)` draws.

    Args:
        score: `(rollout, batch, outcomes, hyper) -> (N,)` of a rollout that has `ends` only: `learnability` or what
            `oracle_regret` makes, or your own.

    Raises ValueError for settings out of range, and for a score that needs the student's values.
    """
    level_fn = drawing(level_fn)
    defaults = strongly_typed(Hyper() if hyper is None else hyper)
    _check(defaults)
    if score in (max_mc, positive_value_loss, l1_value_loss):
        raise ValueError("sfl: a look has no values, by which this score goes; use learnability or an oracle_regret.")

    def draw(key: Array, params: Any, n: int) -> Any:
        return strongly_typed(jax.vmap(level_fn, (0, None))(jax.random.split(key, n), params))

    def init(key: Array, hyper: Hyper, params: Any) -> SFLState:
        _check(hyper)
        params = strongly_typed(params)
        buffer = level_buffer.init(jax.eval_shape(level_fn, key, params), config.buffer_size)
        return SFLState(buffer.levels, buffer.score, jnp.int32(0), params, hyper)

    def refresh(key: Array, state: SFLState, look: Look) -> SFLState:
        """Every `refresh_every` rollouts a new buffer: the best of `num_levels` new levels, by how the student does."""

        def scored(key):
            level_key, look_key = jax.random.split(key)
            levels = draw(level_key, state.params, config.chunk)
            return levels, look(look_key, levels, config.num_steps).score

        def refreshed():
            levels, scores = jax.lax.map(scored, jax.random.split(key, config.num_levels // config.chunk))
            levels = jax.tree.map(lambda x: x.reshape(config.num_levels, *x.shape[2:]), levels)
            return best(levels, scores.reshape(-1), config.buffer_size)

        due = state.rollouts % config.refresh_every == 0
        levels, scores = rarely(due, refreshed, (state.levels, state.score))
        return state.replace(levels=levels, score=scores, rollouts=state.rollouts + 1)

    def sample(key: Array, state: SFLState, wanted: Bool[Array, " n"]) -> tuple[LevelBatch, SFLState]:
        level_key, slot_key = jax.random.split(key)
        return choose(slot_key, state, draw(level_key, state.params, len(wanted))), state

    def update(key: Array, state: SFLState, batch: LevelBatch, outcomes: Outcomes) -> SFLState:
        return state

    def metrics(state: SFLState) -> dict[str, Array]:
        known = jnp.isfinite(state.score)
        refreshed = (state.rollouts - 1) % config.refresh_every == 0
        return {
            "buffer_filled": known.mean(),
            "buffer_score": jnp.where(known, state.score, 0).sum() / jnp.maximum(known.sum(), 1),
            "refresh_steps": jnp.where(refreshed, jnp.int32(config.num_levels * config.num_steps), 0),
        }

    return Curriculum(init, sample, update, "sfl", (level_fn, config), defaults, score, metrics, refresh)


def _check(hyper: Hyper) -> None:
    if is_concrete(hyper) and not np.all((np.asarray(hyper.replay_share) >= 0) & (np.asarray(hyper.replay_share) <= 1)):
        raise ValueError(f"replay_share={hyper.replay_share}: it must be in [0, 1].")
