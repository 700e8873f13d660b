"""Tabular Q-learning and double Q-learning.

Watkins and Dayan (1992), "Q-learning": after a step from s by a to s' with reward r,

    Q(s, a) += alpha (r + gamma max_a' Q(s', a') - Q(s, a)),

without the bootstrap where the episode terminated (a time limit bootstraps). `double`: van Hasselt (2010), "Double
Q-learning", algorithm 1: one of two tables is drawn at random; its best action is evaluated by the other table, whose
value is the target. Actions are greedy in the sum of both. Exploration is epsilon-greedy with a linear schedule; with
`count_exponent` w the step size is max(alpha, n(s, a)^-w), which converges for w in (1/2, 1] and alpha 0. Results:
`docs/results.md`.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Integer

from jaxrl.algorithm import Algorithm, shared
from jaxrl.environment import Environment, pytree
from jaxrl.online import Experience, Rule, discrete_sizes, random_argmax
from jaxrl.online import make as make_online
from jaxrl.vector_env import VectorEnv


@dataclasses.dataclass(frozen=True)
class Config:
    """Static settings: each value compiles its own program."""

    num_envs: int = 1  # environments, which share one table
    double: bool = False  # double Q-learning, with two tables


@pytree
class Hyper:
    """Dynamic settings: leaves."""

    learning_rate: jax.Array = 0.1  # alpha; with count_exponent the smallest step size
    count_exponent: jax.Array = 0.0  # w of the step size n^-w; 0: constant alpha
    gamma: jax.Array = 0.99
    epsilon_start: jax.Array = 1.0
    epsilon_end: jax.Array = 0.05
    exploration_steps: jax.Array = 10_000  # updates from start to end
    initial_value: jax.Array = 0.0  # of every entry; high values explore by optimism


@pytree
class Weights:
    q: jax.Array  # (tables, S, A)
    count: jax.Array  # (tables, S, A) updates of each entry
    steps: jax.Array  # experiences learned from


def target(
    reward: Float[Array, ""], terminated: Array, next_q: Float[Array, " A"], chooser: Float[Array, " A"], gamma: Array
) -> Float[Array, ""]:
    """r + gamma times the value in `next_q` of the best action in `chooser`; no bootstrap where terminated."""
    return reward + gamma * jnp.where(terminated, 0, next_q[jnp.argmax(chooser)])


@shared
def make(env: Environment | VectorEnv, config: Config = Config()) -> Algorithm:
    """Q-learning on `env`. Equal arguments give the same functions, so they share one jit cache.

    Raises ValueError unless observations and actions are Discrete.
    """
    S, A = discrete_sizes("q_learning", env)
    tables = 2 if config.double else 1

    def init(key: Array, hyper: Hyper, env_params: Any) -> Weights:
        q = jnp.broadcast_to(hyper.initial_value, (tables, S, A))
        return Weights(q, jnp.zeros((tables, S, A)), jnp.int32(0))

    def act(weights: Weights, hyper: Hyper, key: Array, obs: Array, greedy: bool) -> Integer[Array, ""]:
        q = jnp.sum(weights.q[:, obs], 0)
        if greedy:
            return jnp.argmax(q).astype(jnp.int32)
        explore_key, action_key, tie_key = jax.random.split(key, 3)
        done = jnp.minimum(weights.steps / jnp.maximum(hyper.exploration_steps, 1), 1)
        epsilon = hyper.epsilon_start + done * (hyper.epsilon_end - hyper.epsilon_start)
        random = jax.random.randint(action_key, (), 0, A, jnp.int32)
        return jnp.where(jax.random.uniform(explore_key) < epsilon, random, random_argmax(q, tie_key))

    def learn(weights: Weights, hyper: Hyper, key: Array, x: Experience) -> tuple[Weights, Array]:
        i = jax.random.bernoulli(key).astype(jnp.int32) if config.double else 0
        at = (i, x.obs, x.action)
        own, other = weights.q[i, x.next_obs], weights.q[tables - 1 - i, x.next_obs]
        error = target(x.reward, x.terminated, other, own, hyper.gamma) - weights.q[at]
        count = weights.count.at[at].add(1)
        decayed = jnp.where(hyper.count_exponent > 0, count[at] ** -hyper.count_exponent, 0)
        q = weights.q.at[at].add(jnp.maximum(hyper.learning_rate, decayed) * error)
        return Weights(q, count, weights.steps + 1), error**2

    return make_online("q_learning", Rule(init, act, learn), config, Hyper, env)


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
