"""Thompson sampling: draw a mean of each arm from its posterior, and pull the arm with the highest draw.

Thompson (1933), "On the likelihood that one unknown probability exceeds another in view of the evidence of two
samples". `posterior`:

- `beta`: rewards in [0, 1], uniform prior: after s successes and f failures an arm's mean is Beta(1 + s, 1 + f). A
  reward that is not 0 or 1 counts as a success with that probability (Agrawal and Goyal 2012, algorithm 2). For
  Bernoulli arms the regret reaches the lower bound of Lai and Robbins (Kaufmann, Korda and Munos 2012).
- `gaussian`: normal rewards of known standard deviation `noise_scale`, prior N(`prior_mean`, `prior_scale`^2): after n
  pulls with the sum S the mean is N(m, v), 1 / v = 1 / prior_scale^2 + n / noise_scale^2 and
  m = v (prior_mean / prior_scale^2 + S / noise_scale^2).

`scale` divides the rewards of `beta` where they are larger than 1. Results: `docs/results.md`.
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
    posterior: Literal["beta", "gaussian"] = "beta"  # or "gaussian"

    def __post_init__(self) -> None:
        if self.posterior not in ("beta", "gaussian"):
            raise ValueError(f"posterior={self.posterior!r}: choose beta or gaussian.")


@pytree
class Hyper:
    """Dynamic settings: leaves."""

    scale: jax.Array = 1.0  # beta: width of the range of rewards
    prior_mean: jax.Array = 0.5  # gaussian: of an arm's mean
    prior_scale: jax.Array = 0.5  # gaussian: its standard deviation
    noise_scale: jax.Array = 1.0  # gaussian: standard deviation of a reward


@pytree
class Weights:
    pulls: jax.Array  # (K,) float, pulls of each arm
    total: jax.Array  # (K,) sum of its rewards; beta: successes


def normal_posterior(
    pulls: Float[Array, " K"], total: Float[Array, " K"], hyper: Hyper
) -> tuple[Float[Array, " K"], Float[Array, " K"]]:
    """Mean and variance of the posterior of each arm's mean."""
    prior, noise = hyper.prior_scale**-2, hyper.noise_scale**-2
    variance = 1 / (prior + pulls * noise)
    return variance * (hyper.prior_mean * prior + total * noise), variance


def gamma_draw(key: Array, shape: Float[Array, " n"]) -> Float[Array, " n"]:
    """Gamma variates of shapes 1 or more, by Marsaglia and Tsang (2000): exact, with at least 95 % acceptance.

    Each iteration proposes all variates in one call; `jax.random.gamma` draws one after the other.
    """
    # Logarithms are slow on a CPU in rows that do not fill its vector registers.
    n, shape = len(shape), jnp.pad(shape, (0, -len(shape) % 8), constant_values=1e3)
    d = shape - 1 / 3
    c = 1 / jnp.sqrt(9 * d)
    above = jnp.nextafter(jnp.asarray(-1, shape.dtype), jnp.asarray(0, shape.dtype))

    def attempt(carry):
        key, value, done = carry
        key, draw_key = jax.random.split(key)
        u = jax.random.uniform(draw_key, (2, len(shape)), shape.dtype, minval=above, maxval=1)
        x = math.sqrt(2) * jax.scipy.special.erfinv(u[0])
        v = (1 + c * x) ** 3
        # |u| is uniform in (0, 1).
        accept = (v > 0) & (jnp.log(jnp.abs(u[1])) < x * x / 2 + d - d * v + d * jnp.log(jnp.maximum(v, 1e-30)))
        return key, jnp.where(done, value, d * v), done | accept

    start = attempt((key, jnp.zeros_like(shape), jnp.zeros(len(shape), bool)))
    return jax.lax.while_loop(lambda carry: ~jnp.all(carry[2]), attempt, start)[1][:n]


@shared
def make(env: Environment | VectorEnv, config: Config = Config()) -> Algorithm:
    """A Thompson sampler of `env`'s arms. Equal arguments share one jit cache.

    Raises ValueError unless the actions are Discrete, or for several environments with `forget`.
    """
    K = num_arms("thompson", env)

    def init(key: Array, hyper: Hyper, env_params: Any) -> Weights:
        return Weights(jnp.zeros(K), jnp.zeros(K))

    def act(weights: Weights, hyper: Hyper, key: Array, obs: Any, greedy: bool) -> Integer[Array, ""]:
        if config.posterior == "beta":
            counts = 1 + jnp.concatenate([weights.total, weights.pulls - weights.total])
            # A ratio of gammas is the odds of a beta variate, and the highest odds are the highest probability.
            counts = counts if greedy else gamma_draw(key, counts)
            draw = counts[:K] / counts[K:]
        else:
            draw, variance = normal_posterior(weights.pulls, weights.total, hyper)
            if not greedy:
                draw = draw + jnp.sqrt(variance) * jax.random.normal(key, (K,))
        return jnp.argmax(draw).astype(jnp.int32)

    def learn(weights: Weights, hyper: Hyper, key: Array, x: Experience) -> tuple[Weights, Array]:
        pulled = jnp.arange(K) == x.action
        if config.posterior == "beta":
            mean = (weights.total + 1) / (weights.pulls + 2)
            reward = (jax.random.uniform(key) < x.reward / hyper.scale).astype(mean.dtype)
        else:
            mean, reward = normal_posterior(weights.pulls, weights.total, hyper)[0], x.reward
        error = jnp.sum(jnp.where(pulled, reward - mean, 0))
        return Weights(weights.pulls + pulled, weights.total + pulled * reward), error**2

    return make_online("thompson", Rule(init, act, learn), config, Hyper, env, forget=config.forget)


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
