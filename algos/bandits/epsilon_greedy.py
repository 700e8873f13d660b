"""epsilon-greedy: the arm of the best average, and with probability epsilon a random arm.

First each arm is pulled once. Then a uniformly drawn arm is pulled with probability epsilon, else that of the highest
empirical mean.
`decreasing` is figure 3 of Auer, Cesa-Bianchi and Fischer (2002), "Finite-time analysis of the multiarmed bandit
problem": in round t, with K arms,

    epsilon_t = min(1, c K / (d^2 t)),

whose regret is logarithmic where d is at most the smallest gap between the best arm and another, and c large, for
example above 5 (theorem 3; the initial pulls of each arm are not in the paper). With constant epsilon the regret is
linear. The algorithm does not depend on the range of rewards. Results: `docs/results.md`.
"""

from __future__ import annotations

import dataclasses
from typing import Any

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
    decreasing: bool = False  # epsilon_t instead of a constant


@pytree
class Hyper:
    """Dynamic settings: leaves."""

    epsilon: jax.Array = 0.1  # probability of a random arm; constant
    c: jax.Array = 5.0  # decreasing: larger values explore more
    gap: jax.Array = 0.1  # decreasing: d, a lower bound of the smallest gap


@pytree
class Weights:
    pulls: jax.Array  # (K,) float, pulls of each arm
    total: jax.Array  # (K,) sum of each arm's rewards


def decreasing_epsilon(t: Float[Array, ""], K: int, c: Array, gap: Array) -> Float[Array, ""]:
    """The exploration probability of round t = 1, 2, ..."""
    return jnp.minimum(1, c * K / (gap**2 * t))


@shared
def make(env: Environment | VectorEnv, config: Config = Config()) -> Algorithm:
    """An epsilon-greedy player of `env`'s arms. Equal arguments share one jit cache.

    Raises ValueError unless the actions are Discrete, or for several environments with `forget`.
    """
    K = num_arms("epsilon_greedy", env)

    def init(key: Array, hyper: Hyper, env_params: Any) -> Weights:
        return Weights(jnp.zeros(K), jnp.zeros(K))

    def act(weights: Weights, hyper: Hyper, key: Array, obs: Any, greedy: bool) -> Integer[Array, ""]:
        mean = weights.total / jnp.maximum(weights.pulls, 1)
        if greedy:
            return jnp.argmax(mean).astype(jnp.int32)
        untried = weights.pulls <= 0
        epsilon = hyper.epsilon
        if config.decreasing:
            epsilon = decreasing_epsilon(jnp.sum(weights.pulls) + 1, K, hyper.c, hyper.gap)
        explore_key, tie_key = jax.random.split(key)
        u = jax.random.uniform(explore_key)
        # Given u < epsilon, u / epsilon is uniform: one random number decides both whether to explore and the arm.
        arm = jnp.minimum(jnp.floor(u / epsilon * K), K - 1).astype(jnp.int32)
        best = random_argmax(jnp.where(untried, jnp.inf, mean), tie_key)
        return jnp.where((u < epsilon) & ~jnp.any(untried), arm, best)

    def learn(weights: Weights, hyper: Hyper, key: Array, x: Experience) -> tuple[Weights, Array]:
        pulled = jnp.arange(K) == x.action
        error = jnp.sum(jnp.where(pulled, x.reward - weights.total / jnp.maximum(weights.pulls, 1), 0))
        return Weights(weights.pulls + pulled, weights.total + pulled * x.reward), error**2

    return make_online("epsilon_greedy", Rule(init, act, learn), config, Hyper, env, forget=config.forget)


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
