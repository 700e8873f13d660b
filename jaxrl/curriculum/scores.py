"""What a level is worth: scores of a rollout that level replay ranks by."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxrl.curriculum.protocol import LevelBatch, Outcomes
from jaxrl.returns import gae

# ---- scores: (rollout (T, N), batch, seen, hyper) -> (N,), the level's worth for training
# `seen` are the outcomes without the score, `hyper` the student's settings. Levels without a finished episode score
# -inf, and so never enter a buffer.


def episodic_mean(x: Float[Array, "T N"], done: Bool[Array, "T N"]) -> Float[Array, " N"]:
    """The mean over the steps of each finished episode, then over those; -inf where none finished.

    So steps count for less in a long episode than in a short one, and those after the last end not at all.
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


def max_mc(rollout: Any, batch: LevelBatch, seen: Outcomes, hyper: Any) -> Float[Array, " N"]:
    """The best return ever seen on the level minus the value estimate (Jiang et al. 2021b, "MaxMC"), as episodic mean.

    May be negative: use it with rank prioritisation. Values must be in units of the return, as they are unless the
    student normalises rewards.
    """
    return episodic_mean(seen.max_return - rollout.value, rollout.ends.done)


def positive_value_loss(rollout: Any, batch: LevelBatch, seen: Outcomes, hyper: Any) -> Float[Array, " N"]:
    """The positive part of the advantage estimate (Jiang et al. 2021b, "PVL"), as episodic mean."""
    return episodic_mean(jnp.maximum(_advantage(rollout, hyper), 0), rollout.ends.done)


def l1_value_loss(rollout: Any, batch: LevelBatch, seen: Outcomes, hyper: Any) -> Float[Array, " N"]:
    """The size of the advantage estimate (Jiang et al. 2021a, "L1 value loss"), as episodic mean."""
    return episodic_mean(jnp.abs(_advantage(rollout, hyper)), rollout.ends.done)


def _advantage(rollout: Any, hyper: Any) -> Float[Array, "T N"]:
    ends = rollout.terminated, rollout.truncated
    return gae(rollout.reward, rollout.value, rollout.next_value, *ends, hyper.gamma, hyper.gae_lambda)


def learnability(rollout: Any, batch: LevelBatch, seen: Outcomes, hyper: Any) -> Float[Array, " N"]:
    """p (1 - p) with p the share of finished episodes that succeed (Rutherford et al. 2024, arXiv:2408.15099).

    Of whole numbers, so that p and 1 - p are equally good to the last bit and no rounding decides between them.
    """
    wins = jnp.round(seen.success * seen.episodes)
    score = wins * (seen.episodes - wins) / jnp.square(jnp.maximum(seen.episodes, 1))
    return jnp.where(seen.episodes > 0, score, -jnp.inf)


def oracle_regret(optimal_value: Callable[[Any], Array]) -> Callable[..., Array]:
    """The score `optimal_value(level)`, the best undiscounted return, minus the mean return: the exact regret."""

    def score(rollout: Any, batch: LevelBatch, seen: Outcomes, hyper: Any) -> Float[Array, " N"]:
        regret = jax.vmap(optimal_value)(batch.params) - seen.episode_return
        return jnp.where(seen.episodes > 0, regret, -jnp.inf)

    return score


def algorithmic_regret(agent: Outcomes, antagonist: Outcomes) -> Float[Array, " N"]:
    """The best return of the antagonist minus the agent's mean return, at least 0, of rollouts on the same new levels.

    Dennis et al. (2020), PAIRED, as minimax's `relative_regret`: who finished no episode returned 0, so returns should
    not be below 0; -inf where neither finished one.
    """
    best = jnp.where(antagonist.episodes > 0, antagonist.max_return, 0)
    regret = jnp.maximum(best - agent.episode_return, 0)
    return jnp.where((agent.episodes > 0) | (antagonist.episodes > 0), regret, -jnp.inf)
