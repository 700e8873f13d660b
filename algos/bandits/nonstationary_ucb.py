"""D-UCB and SW-UCB: upper confidence bounds with forgetting, for arms whose rewards change.

Garivier and Moulines (2011), "On upper-confidence bound policies for switching bandit problems". Pulls n_i and sums of
rewards of each arm are

- `discounted`: multiplied by `discount` every round; the index is mean + 2 B sqrt(xi log(sum_j n_j) / n_i);
- `window`: those of the last `window` rounds only; the index is mean + B sqrt(xi log(min(t, window)) / n_i),

with rewards in [0, B], B = `scale`. An arm without pulls is pulled first. For T rounds and C changes the paper's
choices are discount = 1 - sqrt(C / T) / 4 and window = 2 sqrt(T log(T) / C) (both for B = 1). Results:
`docs/results.md`.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Integer

from jaxrl.algorithm import Algorithm, shared
from jaxrl.environment import Environment, pytree
from jaxrl.online import Experience, Rule, num_arms, random_argmax
from jaxrl.online import make as make_online
from jaxrl.vector_env import VectorEnv


@dataclasses.dataclass(frozen=True)
class Config:
    """Static settings: each value compiles its own program."""

    num_envs: int = 1  # 1 with `forget`; for many runs, vmap over keys
    forget: bool = True  # an episode is a whole problem; False: it is a round, as in bsuite's bandit
    forgetting: Literal["discounted", "window"] = "discounted"  # or "window"
    window: int = 200  # `window`: number of rounds that are kept

    def __post_init__(self) -> None:
        if self.forgetting not in ("discounted", "window"):
            raise ValueError(f"forgetting={self.forgetting!r}: choose discounted or window.")
        if self.window < 1:
            raise ValueError(f"window={self.window}: it must be at least 1.")


@pytree
class Hyper:
    """Dynamic settings: leaves."""

    discount: jax.Array = 0.99  # `discounted`: factor of counts and sums, each round
    xi: jax.Array = 0.6  # weight of the bonus, inside the root
    scale: jax.Array = 1.0  # width of the range of rewards


@pytree
class Weights:
    pulls: jax.Array  # (K,) float, of each arm, discounted or in the window
    total: jax.Array  # (K,) sum of their rewards over scale
    time: jax.Array  # rounds played
    arms: Any  # (window,) int32, the arms of the last rounds; None unless window
    rewards: Any  # (window,) rewards of these rounds, divided by scale


def index(pulls: Float[Array, " K"], total: Float[Array, " K"], log_time: Float[Array, ""], width: Array | float):
    """mean + width sqrt(log_time / pulls), infinite without pulls."""
    tried = pulls > 0
    n = jnp.where(tried, pulls, 1)
    return jnp.where(tried, total / n + width * jnp.sqrt(log_time / n), jnp.inf)


@shared
def make(env: Environment | VectorEnv, config: Config = Config()) -> Algorithm:
    """An upper-confidence-bound player of `env`'s arms with forgetting. Equal arguments share one jit cache.

    Raises ValueError unless the actions are Discrete, or for several environments with `forget`.
    """
    K, tau = num_arms("nonstationary_ucb", env), config.window
    windowed = config.forgetting == "window"

    def init(key: Array, hyper: Hyper, env_params: Any) -> Weights:
        ring = (jnp.full(tau, -1, jnp.int32), jnp.zeros(tau)) if windowed else (None, None)
        return Weights(jnp.zeros(K), jnp.zeros(K), jnp.int32(0), *ring)

    def act(weights: Weights, hyper: Hyper, key: Array, obs: Any, greedy: bool) -> Integer[Array, ""]:
        if greedy:
            tried = weights.pulls > 0
            mean = weights.total / jnp.where(tried, weights.pulls, 1)
            return jnp.argmax(jnp.where(tried, mean, -jnp.inf)).astype(jnp.int32)
        count = jnp.minimum(weights.time, tau) if windowed else jnp.sum(weights.pulls)
        width = (1 if windowed else 2) * jnp.sqrt(hyper.xi)
        return random_argmax(index(weights.pulls, weights.total, jnp.log(jnp.maximum(count, 1.0)), width), key)

    def learn(weights: Weights, hyper: Hyper, key: Array, x: Experience) -> tuple[Weights, Array]:
        pulled = jnp.arange(K) == x.action
        reward = x.reward / hyper.scale
        error = jnp.sum(jnp.where(pulled, reward - weights.total / jnp.maximum(weights.pulls, 1e-8), 0))
        keep = 1.0 if windowed else hyper.discount
        pulls, total = keep * weights.pulls + pulled, keep * weights.total + pulled * reward
        arms, rewards = weights.arms, weights.rewards
        if windowed:
            slot = weights.time % tau
            leaves = jnp.arange(K) == arms[slot]  # no arm leaves while the window fills
            pulls, total = pulls - leaves, total - leaves * rewards[slot]
            total = jnp.where(pulls > 0, total, 0)  # removes rounding errors when the window has no pull of an arm
            arms, rewards = arms.at[slot].set(x.action.astype(jnp.int32)), rewards.at[slot].set(reward)
        return Weights(pulls, total, weights.time + 1, arms, rewards), error**2

    return make_online("nonstationary_ucb", Rule(init, act, learn), config, Hyper, env, forget=config.forget)


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
