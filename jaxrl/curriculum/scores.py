"""Scores of levels for level replay: how useful a level is for training, computed from a student's rollout on it.

A score is a function `(rollout, batch, outcomes, hyper) -> (N,)`:

    rollout     the student's rollout (T, N) with `reward`, `value`, `next_value`, `terminated`, `truncated`, `ends`
    batch       the levels of the N slots, a `LevelBatch`
    outcomes    `Outcomes` of their episodes, in which `score` is not yet computed
    hyper       the student's settings; the value losses read `gamma` and `gae_lambda`

A higher score is a level more useful for training. A level on which no episode ended scores -inf, and so never enters
a buffer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxrl.curriculum.protocol import LevelBatch, Outcomes
from jaxrl.returns import gae


def episodic_mean(x: Float[Array, "T N"], done: Bool[Array, "T N"]) -> Float[Array, " N"]:
    """The mean of x over the steps of each finished episode, then over these episodes; -inf where none finished.

    So a step of a long episode counts less than one of a short episode, and steps after the last end do not count.
    """

    def step(carry, inputs):
        total, steps, mean = carry
        x, done = inputs
        total, steps = total + x, steps + 1
        mean = mean + jnp.where(done, total / steps, 0)
        return (jnp.where(done, 0, total), jnp.where(done, 0, steps), mean), None

    zero = jnp.zeros_like(x[0])
    (_, _, total), _ = jax.lax.scan(step, (zero, zero, zero), (x, done))
    episodes = done.sum(0)
    return jnp.where(episodes > 0, total / jnp.maximum(episodes, 1), -jnp.inf)


def max_mc(rollout: Any, batch: LevelBatch, outcomes: Outcomes, hyper: Any) -> Float[Array, " N"]:
    """The best return ever seen on the level minus the value estimate (Jiang et al. 2021b, "MaxMC"), as episodic mean.

    It may be negative, so use it with rank prioritisation. Values must be in units of the return: the student must not
    normalise rewards.
    """
    return episodic_mean(outcomes.max_return - rollout.value, rollout.ends.done)


def positive_value_loss(rollout: Any, batch: LevelBatch, outcomes: Outcomes, hyper: Any) -> Float[Array, " N"]:
    """The positive part of the advantage estimate (Jiang et al. 2021b, "PVL"), as episodic mean."""
    return episodic_mean(jnp.maximum(_advantage(rollout, hyper), 0), rollout.ends.done)


def l1_value_loss(rollout: Any, batch: LevelBatch, outcomes: Outcomes, hyper: Any) -> Float[Array, " N"]:
    """The absolute advantage estimate (Jiang et al. 2021a, "L1 value loss"), as episodic mean."""
    return episodic_mean(jnp.abs(_advantage(rollout, hyper)), rollout.ends.done)


def _advantage(rollout: Any, hyper: Any) -> Float[Array, "T N"]:
    ends = rollout.terminated, rollout.truncated
    return gae(rollout.reward, rollout.value, rollout.next_value, *ends, hyper.gamma, hyper.gae_lambda)


def learnability(rollout: Any, batch: LevelBatch, outcomes: Outcomes, hyper: Any) -> Float[Array, " N"]:
    """p (1 - p) with p the share of finished episodes that succeed (Rutherford et al. 2024, arXiv:2408.15099).

    It is computed from integer counts of successes and failures, so that p and 1 - p have bitwise the same score and
    rounding does not rank one level above the other.
    """
    wins = jnp.round(outcomes.success * outcomes.episodes)
    score = wins * (outcomes.episodes - wins) / jnp.square(jnp.maximum(outcomes.episodes, 1))
    return jnp.where(outcomes.episodes > 0, score, -jnp.inf)


def balanced(low: float, high: float) -> Callable[..., Array]:
    """The score `learnability` of levels with a success rate p from `low` to `high`; of all others -inf.

    Balanced online difficulty filtering (Bae et al. 2025, "Online difficulty filtering for reasoning oriented
    reinforcement learning", arXiv:2504.03380), which leaves out what is too easy or too hard, where p (1 - p) alone
    puts it behind. Raises ValueError unless 0 <= low <= high <= 1.
    """
    if not 0 <= low <= high <= 1:
        raise ValueError(f"balanced(low={low}, high={high}): the rates of success must be in order and from 0 to 1.")

    def score(rollout: Any, batch: LevelBatch, outcomes: Outcomes, hyper: Any) -> Float[Array, " N"]:
        wins = jnp.round(outcomes.success * outcomes.episodes)
        # In counts: 3 of 4 is no more than 0.75, whatever 3 / 4 rounds to.
        kept = (wins >= low * outcomes.episodes) & (wins <= high * outcomes.episodes)
        return jnp.where(kept, learnability(rollout, batch, outcomes, hyper), -jnp.inf)

    return score


def oracle_regret(optimal_value: Callable[[Any], Array]) -> Callable[..., Array]:
    """The score `optimal_value(level)`, the best undiscounted return, minus the mean return: the exact regret."""

    def score(rollout: Any, batch: LevelBatch, outcomes: Outcomes, hyper: Any) -> Float[Array, " N"]:
        regret = jax.vmap(optimal_value)(batch.params) - outcomes.episode_return
        return jnp.where(outcomes.episodes > 0, regret, -jnp.inf)

    return score


def algorithmic_regret(agent: Outcomes, antagonist: Outcomes) -> Float[Array, " N"]:
    """The best return of the antagonist minus the mean return of the agent, at least 0, on the same new levels.

    It is the regret of Dennis et al. (2020, PAIRED), as `relative_regret` of minimax computes it: a student that
    finished no episode returned 0, so returns should not be below 0. The score is -inf where neither finished one.
    """
    best = jnp.where(antagonist.episodes > 0, antagonist.max_return, 0)
    regret = jnp.maximum(best - agent.episode_return, 0)
    return jnp.where((agent.episodes > 0) | (antagonist.episodes > 0), regret, -jnp.inf)
