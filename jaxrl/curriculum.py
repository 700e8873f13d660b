"""Curricula: what decides on which levels a student trains. A level is env params, so any environment can have one.

A `Curriculum` is three pure functions; `attach` puts one around any student whose environments take batched params and
gives an `Algorithm` again: train, fit, resume and sweeps work unchanged.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from jaxrl.algorithm import Algorithm
from jaxrl.environment import pytree
from jaxrl.returns import gae

Scalar = Array | float


class LevelBatch(NamedTuple):
    """The levels of one rollout, leading axis n."""

    params: Any  # levels: env params with leading axis n
    slot: Int[Array, " n"]  # where in the buffer it comes from, -1 for a new one
    learn_mask: Bool[Array, " n"]  # learn from it; robust PLR only looks at new levels
    parent: Int[Array, " n"]  # the slot a mutated level was made from, else -1
    max_return: Float[Array, " n"]  # best return ever seen on it, -inf for a new one
    note: Any = ()  # leading axis n: what the curriculum wants back with the outcomes


class Outcomes(NamedTuple):
    """What a rollout showed of each level, (n,) each; without a finished episode means are 0 and max_return is -inf."""

    episode_return: Array  # mean over finished episodes
    episode_length: Array  # likewise
    success: Array  # share of finished episodes with a positive return
    score: Array  # of the level for training, higher is more useful
    max_return: Array  # best return ever seen, this rollout included
    episodes: Array  # finished episodes, int32


class Curriculum(NamedTuple):
    """`params` are the level distribution's, handed to the level function."""

    init: Callable[[Array, Any], Any]  # (key, params) -> cstate
    sample: Callable[[Array, Any, int], tuple[LevelBatch, Any]]  # (key, cstate, n) -> (batch, cstate)
    update: Callable[[Array, Any, LevelBatch, Outcomes], Any]  # (key, cstate, batch, outcomes) -> cstate


# ---- level buffer


@pytree
class LevelBuffer:
    """A fixed number of levels with what replay needs to know of each. Empty slots have score -inf."""

    levels: Any  # leading axis C
    score: jax.Array  # (C,)
    max_return: jax.Array  # (C,)
    sampled_at: jax.Array  # (C,) int32, the clock when last trained on
    clock: jax.Array  # int32, batches drawn


def buffer_init(example: PyTree, capacity: int) -> LevelBuffer:
    """An empty buffer for levels like `example` (arrays or their shapes). Raises ValueError for a capacity below 1."""
    if capacity < 1:
        raise ValueError(f"capacity={capacity}: a level buffer holds at least 1 level.")
    levels = jax.tree.map(lambda x: jnp.zeros((capacity, *x.shape), x.dtype), example)
    empty = jnp.full(capacity, -jnp.inf)
    return LevelBuffer(levels, empty, empty, jnp.zeros(capacity, jnp.int32), jnp.int32(0))


def buffer_weights(
    buffer: LevelBuffer, temperature: Float[Array, ""] | float, staleness: Float[Array, ""] | float
) -> Float[Array, " C"]:
    """Replay probabilities: (1 - staleness) rank^(-1/temperature) + staleness age, each normalised.

    Jiang et al. (2021), eq. 1-3.
    Rank 1 is the highest score. Zero for empty slots; they sum to one unless all are empty.
    """
    filled = jnp.isfinite(buffer.score)
    order = jnp.argsort(-buffer.score)
    rank = jnp.zeros_like(order).at[order].set(jnp.arange(1, order.shape[0] + 1))
    by_score = jnp.where(filled, jnp.exp(-jnp.log(rank.astype(buffer.score.dtype)) / temperature), 0)
    age = jnp.where(filled, buffer.clock - buffer.sampled_at, 0).astype(by_score.dtype)
    age = jnp.where(age.sum() > 0, age, filled)  # all equally fresh
    by_score, by_age = (w / jnp.maximum(w.sum(), 1e-30) for w in (by_score, age))
    return (1 - staleness) * by_score + staleness * by_age


def buffer_draw(key: Array, weights: Float[Array, " C"], n: int) -> Int[Array, " n"]:
    """`n` slots without repetition, in proportion to `weights` (Gumbel top-k); repeats only where fewer have weight."""
    log_weights = jnp.where(weights > 0, jnp.log(jnp.where(weights > 0, weights, 1)), -jnp.inf)
    k = min(n, weights.shape[0])
    value, slots = jax.lax.top_k(log_weights + jax.random.gumbel(key, weights.shape, weights.dtype), k)
    valid = jnp.maximum(jnp.isfinite(value).sum(), 1)
    return slots[jnp.arange(n) % valid]


def buffer_insert(
    buffer: LevelBuffer,
    levels: PyTree,
    score: Float[Array, " n"],
    max_return: Float[Array, " n"],
    usefulness: Float[Array, " C"],
) -> LevelBuffer:
    """Put new levels in place of the least useful ones: first into empty slots, then where the new score is higher.

    The best new level meets the least useful slot, the second best the second least, and so on. Levels with score -inf
    (nothing was learned of them) stay out.
    """
    n = min(score.shape[0], buffer.score.shape[0])
    best = jnp.argsort(-score)[:n]
    empty = ~jnp.isfinite(buffer.score)
    worst = jax.lax.top_k(jnp.where(empty, jnp.inf, -usefulness), n)[1]
    enters = jnp.isfinite(score[best]) & (empty[worst] | (score[best] > buffer.score[worst]))
    where = jnp.where(enters, worst, buffer.score.shape[0])  # past the end: dropped

    def put(old, new):
        return old.at[where].set(new[best], mode="drop")

    return buffer.replace(
        levels=jax.tree.map(put, buffer.levels, levels),
        score=put(buffer.score, score),
        max_return=put(buffer.max_return, max_return),
        sampled_at=buffer.sampled_at.at[where].set(buffer.clock, mode="drop"),
    )


# ---- scores: (rollout, max_return (N,), gamma, gae_lambda) -> (N,), the level's worth for training


def max_mc(rollout: Any, max_return: Array, gamma: Scalar, gae_lambda: Scalar) -> Float[Array, " N"]:
    """Mean over time of the best return ever seen minus the value estimate (Jiang et al. 2021b, "MaxMC").

    -inf where no episode has ever finished. May be negative: use it with rank prioritisation.
    """
    return jnp.where(jnp.isfinite(max_return), jnp.mean(max_return - rollout.value, axis=0), -jnp.inf)


def positive_value_loss(rollout: Any, max_return: Array, gamma: Scalar, gae_lambda: Scalar) -> Float[Array, " N"]:
    """Mean over time of the positive part of the advantage estimate (Jiang et al. 2021b, "PVL")."""
    advantage = gae(
        rollout.reward, rollout.value, rollout.next_value, rollout.terminated, rollout.truncated, gamma, gae_lambda
    )
    return jnp.mean(jnp.maximum(advantage, 0), axis=0)


def outcomes(
    rollout: Any, score: Callable[..., Array], max_return: Array, gamma: Scalar, gae_lambda: Scalar
) -> Outcomes:
    """What a rollout (T, N) showed of the level in each slot; `max_return` is the best one known before."""
    done = rollout.terminated | rollout.truncated
    episodes = done.sum(0, dtype=jnp.int32)

    def mean(x):
        return jnp.where(done, x, 0).sum(0) / jnp.maximum(episodes, 1)

    best = jnp.maximum(max_return, jnp.max(jnp.where(done, rollout.episode_return, -jnp.inf), axis=0))
    return Outcomes(
        episode_return=mean(rollout.episode_return),
        episode_length=mean(rollout.episode_length),
        success=mean(rollout.episode_return > 0),
        score=score(rollout, best, gamma, gae_lambda),
        max_return=best,
        episodes=episodes,
    )


# ---- a student under a curriculum


@pytree
class AttachedState:
    """A student's state and its curriculum's. The public fields of an algorithm's state are the student's."""

    key: jax.Array
    student: Any
    curriculum: Any

    @property
    def hyper(self) -> Any:
        return self.student.hyper

    @property
    def env_params(self) -> Any:
        return self.student.env_params

    @property
    def env_state(self) -> Any:
        return self.student.env_state

    @property
    def obs(self) -> Any:
        return self.student.obs

    @property
    def step(self) -> Any:
        return self.student.step

    @property
    def weights(self) -> Any:
        return self.student.weights


class AttachedRollout(NamedTuple):
    """A student's rollout and the levels it was made on."""

    student: Any
    batch: LevelBatch


def attach(student: Algorithm, curriculum: Curriculum, score: Callable[..., Array] = max_mc) -> Algorithm:
    """`student`, each of whose rollouts starts on the levels that `curriculum` chooses. An Algorithm again.

    The student's rollout has `value`, `next_value` and `learn_mask` (as ppo's). `env_params` given to `init` are the
    level distribution's. Raises ValueError unless the student's environments were vectorised with
    `batched_params=True`.
    """
    venv = student.venv
    if not venv.batched_params or venv.level_fn is not None:
        raise ValueError(
            "attach: the curriculum chooses each slot's level, so the student needs "
            f"vectorize(env, {venv.num_envs}, batched_params=True) and no level_fn."
        )

    def init(key, hyper=None, env_params=None):
        key, curriculum_key, sample_key, student_key = jax.random.split(key, 4)
        cstate = curriculum.init(curriculum_key, venv.env.default_params if env_params is None else env_params)
        # The first levels only give the student's state its shapes; collect draws those that are trained on.
        batch, _ = curriculum.sample(sample_key, cstate, venv.num_envs)
        return AttachedState(key, student.init(student_key, hyper, batch.params), cstate)

    def collect(state):
        key, sample_key, restart_key = jax.random.split(state.key, 3)
        batch, cstate = curriculum.sample(sample_key, state.curriculum, venv.num_envs)
        everywhere = jnp.ones(venv.num_envs, bool)
        obs, env_state = venv.restart(restart_key, state.student.env_state, batch.params, everywhere)
        ready = state.student.replace(obs=obs, env_state=env_state, env_params=batch.params)
        after, rollout = student.collect(ready)
        return state.replace(key=key, student=after, curriculum=cstate), AttachedRollout(rollout, batch)

    def learn(state, rollout):
        missing = {"value", "next_value", "learn_mask"} - set(rollout.student._fields)
        if missing:
            raise ValueError(
                f"attach: rollouts of {student.name} have no {', '.join(sorted(missing))}, by which levels are scored "
                "and learning is held back; those of ppo and ppo_rnn have."
            )
        key, update_key = jax.random.split(state.key)
        hyper, batch = state.student.hyper, rollout.batch
        seen = outcomes(rollout.student, score, batch.max_return, hyper.gamma, hyper.gae_lambda)
        after, metrics = student.learn(state.student, rollout.student._replace(learn_mask=batch.learn_mask))
        cstate = curriculum.update(update_key, state.curriculum, batch, seen)
        known = jnp.isfinite(seen.score)
        metrics = {
            **metrics,
            "level_score": jnp.where(known, seen.score, 0).sum() / jnp.maximum(known.sum(), 1),
            "level_success": seen.success.mean(),
            "levels_replayed": (batch.slot >= 0).mean(),
        }
        return state.replace(key=key, student=after, curriculum=cstate), metrics

    return student._replace(
        name=f"{student.name}+curriculum",
        init=init,
        collect=collect,
        learn=learn,
        update=lambda state: learn(*collect(state)),
        policy=lambda state: student.policy(state.student),
    )
