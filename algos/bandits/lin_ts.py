"""LinTS: Thompson sampling for arms whose mean reward is linear in known features.

Agrawal and Goyal (2013), "Thompson sampling for contextual bandits with linear payoffs", algorithm 1. The observation
of a round is a matrix of features, one row for each arm. With the features x and rewards r of earlier rounds,

    A = regularisation I + sum x x^T,   mean = A^-1 sum r x,

a parameter vector is drawn from N(mean, v^2 A^-1) and the best arm for it is pulled. With normal noise of standard
deviation v this is exactly the posterior of the prior N(0, v^2 / regularisation I); the paper's bound takes the larger
v = noise_scale sqrt(9 d log(t / delta)).

The draw needs a square root W of A^-1 = W W^T. It is updated by a rank-one correction (Potter 1963, known from Kalman
filters) in d^2 operations a round, without a factorisation: with w = W^T x and s = w w,

    W' = W (I - w w^T / (1 + s + sqrt(1 + s))).

Results: `docs/results.md`.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Integer

from jaxrl.algorithm import Algorithm, environment_of, shared
from jaxrl.environment import Environment, pytree
from jaxrl.online import Experience, Rule, num_arms
from jaxrl.online import make as make_online
from jaxrl.spaces import Box
from jaxrl.vector_env import VectorEnv


@dataclasses.dataclass(frozen=True)
class Config:
    """Static settings: each value compiles its own program."""

    num_envs: int = 1  # 1 with `forget`; for many runs, vmap over keys
    forget: bool = True  # an episode is a whole problem; False: it is a round, as in bsuite's bandit


@pytree
class Hyper:
    """Dynamic settings: leaves."""

    v: jax.Array = 0.1  # scale of the draw
    regularisation: jax.Array = 1.0


@pytree
class Weights:
    root: jax.Array  # (d, d), W
    moment: jax.Array  # (d,) sum of r x


def feature_shape(env: Environment | VectorEnv) -> tuple[int, int]:
    """`(K, d)`, the shape of observations: features of K arms. Raises ValueError for other observations."""
    K = num_arms("lin_ts", env)
    env = environment_of(env)
    space = env.observation_space(env.default_params)
    if not isinstance(space, Box) or len(space.shape) != 2 or space.shape[0] != K:
        raise ValueError(
            f"lin_ts needs observations of shape ({K}, d), a row of features an arm; {env.id} has {space}."
        )
    return space.shape


def add_sample(root: Float[Array, "d d"], x: Float[Array, " d"]) -> Float[Array, "d d"]:
    """The square root of (A + x x^T)^-1 from that of A^-1."""
    w = x @ root
    s = w @ w
    return root - jnp.outer(root @ w, w / (1 + s + jnp.sqrt(1 + s)))


@shared
def make(env: Environment | VectorEnv, config: Config = Config()) -> Algorithm:
    """A linear Thompson sampler of `env`, whose observations are features (K, d). Equal arguments share one jit cache.

    Raises ValueError unless observations and actions are such, or for several environments with `forget`.
    """
    _, d = feature_shape(env)

    def init(key: Array, hyper: Hyper, env_params: Any) -> Weights:
        return Weights(jnp.eye(d) / jnp.sqrt(hyper.regularisation), jnp.zeros(d))

    def act(weights: Weights, hyper: Hyper, key: Array, obs: Float[Array, "K d"], greedy: bool) -> Integer[Array, ""]:
        step = weights.moment @ weights.root
        if not greedy:
            step = step + hyper.v * jax.random.normal(key, (d,))
        return jnp.argmax(obs @ (weights.root @ step)).astype(jnp.int32)

    def learn(weights: Weights, hyper: Hyper, key: Array, experience: Experience) -> tuple[Weights, Array]:
        obs = experience.obs
        x = jnp.sum(jnp.where(jnp.arange(len(obs))[:, None] == experience.action, obs, 0), 0)
        error = experience.reward - (x @ weights.root) @ (weights.moment @ weights.root)
        return Weights(add_sample(weights.root, x), weights.moment + experience.reward * x), error**2

    return make_online("lin_ts", Rule(init, act, learn), config, Hyper, env, forget=config.forget)


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
