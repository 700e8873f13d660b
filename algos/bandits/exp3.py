"""EXP3 and EXP3-IX: exponential weights over arms, for rewards chosen by an adversary.

`estimator`, with rewards r in [0, 1], K arms and p the probability of the pulled one:

- `exp3` (Auer, Cesa-Bianchi, Freund and Schapire 2002, figure 1): p = (1 - gamma) w / sum w + gamma / K, and the pulled
  arm's weight is multiplied by exp(gamma r / (p K)). Expected regret at most 2.63 sqrt(T K log K) for the gamma of
  corollary 3.2.
- `ix`, "implicit exploration" (Neu 2015, algorithm 1): p = w / sum w, multiplied by exp(-eta (1 - r) / (p + gamma)),
  with gamma = eta / 2. Its bound holds with high probability, not in expectation alone.

`gamma` zero means the value of the theorems for T = `horizon`: min(1, sqrt(K log K / ((e - 1) T))) and
sqrt(log K / (2 K T)) (Neu's theorem 1). `scale` divides the rewards. Results: `experiments/regret`.

Papers: Auer, Cesa-Bianchi, Freund and Schapire (2002), "The nonstochastic multiarmed bandit problem"; Neu (2015),
"Explore no more: improved high-probability regret bounds for non-stochastic bandits" (arXiv:1506.03271).
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Integer

from jaxrl.algorithm import Algorithm, shared
from jaxrl.environment import Environment, pytree
from jaxrl.online import Experience, Rule, num_arms
from jaxrl.online import make as make_online
from jaxrl.vector_env import VectorEnv


@dataclasses.dataclass(frozen=True)
class Config:
    """Static settings: each value compiles its own program."""

    num_envs: int = 1  # 1 with `forget`; for many runs, vmap over keys
    forget: bool = True  # an episode is a whole problem; False: it is a round, as in bsuite's bandit
    estimator: Literal["exp3", "ix"] = "exp3"  # or "ix"

    def __post_init__(self) -> None:
        if self.estimator not in ("exp3", "ix"):
            raise ValueError(f"estimator={self.estimator!r}: choose exp3 or ix.")


@pytree
class Hyper:
    """Dynamic settings: leaves."""

    gamma: jax.Array = 0.0  # exploration; 0: the theorem's value for `horizon`
    horizon: jax.Array = 1000.0  # rounds
    scale: jax.Array = 1.0  # width of the range of rewards


@pytree
class Weights:
    log_weight: jax.Array  # (K,) of each arm


def exploration(K: int, estimator: str, hyper: Hyper) -> Float[Array, ""]:
    """gamma: `hyper.gamma`, or the theorem's value where that is 0."""
    if estimator == "exp3":
        theorem = jnp.minimum(1, jnp.sqrt(K * math.log(K) / ((math.e - 1) * hyper.horizon)))
    else:
        theorem = jnp.sqrt(math.log(K) / (2 * K * hyper.horizon))
    return jnp.where(hyper.gamma > 0, hyper.gamma, theorem)


def probabilities(log_weight: Float[Array, " K"], gamma: Float[Array, ""], estimator: str) -> Float[Array, " K"]:
    """The probability of pulling each arm."""
    p = jax.nn.softmax(log_weight)
    return (1 - gamma) * p + gamma / len(p) if estimator == "exp3" else p


def log_weight_step(
    reward: Float[Array, ""], p: Float[Array, ""], gamma: Float[Array, ""], K: int, estimator: str
) -> Float[Array, ""]:
    """The increment of the log weight of the pulled arm, which was drawn with probability p."""
    return gamma * reward / (p * K) if estimator == "exp3" else -2 * gamma * (1 - reward) / (p + gamma)


@shared
def make(env: Environment | VectorEnv, config: Config = Config()) -> Algorithm:
    """An exponential-weights player of `env`'s arms. Equal arguments share one jit cache.

    Raises ValueError unless the actions are Discrete, or for several environments with `forget`.
    """
    K, estimator = num_arms("exp3", env), config.estimator

    def init(key: Array, hyper: Hyper, env_params: Any) -> Weights:
        return Weights(jnp.zeros(K))

    def act(weights: Weights, hyper: Hyper, key: Array, obs: Any, greedy: bool) -> Integer[Array, ""]:
        if greedy:
            return jnp.argmax(weights.log_weight).astype(jnp.int32)
        p = probabilities(weights.log_weight, exploration(K, estimator, hyper), estimator)
        # The inverse distribution function, without the last entry, as its sum may round to less than 1.
        below = jnp.cumsum(p)[:-1] <= jax.random.uniform(key)
        return jnp.sum(below).astype(jnp.int32)

    def learn(weights: Weights, hyper: Hyper, key: Array, x: Experience) -> tuple[Weights, Array]:
        pulled = jnp.arange(K) == x.action
        gamma = exploration(K, estimator, hyper)
        p = jnp.sum(jnp.where(pulled, probabilities(weights.log_weight, gamma, estimator), 0))
        reward = x.reward / hyper.scale
        log_weight = weights.log_weight + pulled * log_weight_step(reward, p, gamma, K, estimator)
        # Only differences matter; subtracting the maximum keeps them from being lost in rounding.
        return Weights(log_weight - jnp.max(log_weight)), -jnp.log(p) * reward

    return make_online("exp3", Rule(init, act, learn), config, Hyper, env, forget=config.forget)


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
