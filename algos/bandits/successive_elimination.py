"""Successive elimination: pull all arms in turn, and drop those that are not the best with high probability.

Even-Dar, Mannor and Mansour (2006), "Action elimination and stopping conditions for the multi-armed bandit and
reinforcement learning problems", algorithm 3: after t pulls of each surviving arm, those are dropped whose mean is
below the best one by at least 2 alpha_t,

    alpha_t = sqrt(log(c K t^2 / delta) / t),   c = 5 (the paper asks for more than 4),

which with probability 1 - `delta` never drops the best arm. In the end the last survivor is pulled. The greedy action
is the surviving arm of the highest mean. The bound is for rewards in [0, 1]; `scale` divides them where they are
larger. Results: `docs/results.md`.
"""

from __future__ import annotations

import dataclasses
from typing import Any

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


@pytree
class Hyper:
    """Dynamic settings: leaves."""

    delta: jax.Array = 0.05  # probability of dropping the best arm
    scale: jax.Array = 1.0  # width of the range of rewards


@pytree
class Weights:
    pulls: jax.Array  # (K,) float, pulls of each arm
    total: jax.Array  # (K,) sum of each arm's rewards, divided by scale
    alive: jax.Array  # (K,) bool, arms not yet dropped


def confidence(t: Float[Array, ""], K: int, delta: Float[Array, ""]) -> Float[Array, ""]:
    """alpha_t: all means of t pulls are this close to the truth, with probability 1 - delta at all times."""
    return jnp.sqrt(jnp.log(5 * K * t**2 / delta) / t)


@shared
def make(env: Environment | VectorEnv, config: Config = Config()) -> Algorithm:
    """A player of `env`'s arms by elimination. Equal arguments share one jit cache.

    Raises ValueError unless the actions are Discrete, or for several environments with `forget`.
    """
    K = num_arms("successive_elimination", env)

    def init(key: Array, hyper: Hyper, env_params: Any) -> Weights:
        return Weights(jnp.zeros(K), jnp.zeros(K), jnp.ones(K, bool))

    def act(weights: Weights, hyper: Hyper, key: Array, obs: Any, greedy: bool) -> Integer[Array, ""]:
        if greedy:
            mean = weights.total / jnp.maximum(weights.pulls, 1)
            return jnp.argmax(jnp.where(weights.alive, mean, -jnp.inf)).astype(jnp.int32)
        return jnp.argmin(jnp.where(weights.alive, weights.pulls, jnp.inf)).astype(jnp.int32)

    def learn(weights: Weights, hyper: Hyper, key: Array, x: Experience) -> tuple[Weights, Array]:
        pulled = jnp.arange(K) == x.action
        reward = x.reward / hyper.scale
        error = jnp.sum(jnp.where(pulled, reward - weights.total / jnp.maximum(weights.pulls, 1), 0))
        pulls, total, alive = weights.pulls + pulled, weights.total + pulled * reward, weights.alive
        t = jnp.min(jnp.where(alive, pulls, jnp.inf))
        even = jnp.all(~alive | (pulls == t))  # every surviving arm has t pulls
        mean = jnp.where(alive, total / jnp.maximum(pulls, 1), -jnp.inf)
        near = mean > jnp.max(mean) - 2 * confidence(jnp.maximum(t, 1), K, hyper.delta)
        return Weights(pulls, total, alive & (near | ~even)), error**2

    return make_online("successive_elimination", Rule(init, act, learn), config, Hyper, env, forget=config.forget)


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
