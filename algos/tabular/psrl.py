"""PSRL: posterior sampling for reinforcement learning, for finite horizons.

Strens (2000), "A Bayesian framework for reinforcement learning"; Osband, Russo and Van Roy (2013), "(More) efficient
reinforcement learning via posterior sampling", algorithm 1. Before each episode of H steps one MDP is drawn from the
posterior, and its optimal policy, found by backward induction, is followed throughout the episode. The prior, with

- P(. | s, a) ~ Dirichlet(concentration, ..., concentration) over the S states and the end of the episode,
- the reward of (s, a) ~ Normal(mean, 1 / precision), (mean, precision) ~ NormalGamma(mu, kappa, a, b):
  precision ~ Gamma(shape a, rate b) and mean ~ Normal(mu, 1 / (kappa precision)),

independent over pairs, is conjugate: after n rewards of mean m and sum of squared deviations M they are

    kappa + n,  (kappa mu + n m) / (kappa + n),  a + n / 2,  b + M / 2 + kappa n (m - mu)^2 / (2 (kappa + n)).

An episode longer than H is treated as several episodes. Results: `docs/results.md`.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Integer

from jaxrl.algorithm import Algorithm, shared
from jaxrl.environment import Environment, pytree
from jaxrl.exact.mdp import DenseMDP
from jaxrl.exact.solvers import backward_induction
from jaxrl.online import Experience, Rule, discrete_sizes, planning_horizon
from jaxrl.online import make as make_online
from jaxrl.vector_env import VectorEnv


@dataclasses.dataclass(frozen=True)
class Config:
    """Static settings: each value compiles its own program."""

    num_envs: int = 1  # always 1, as the learner follows one episode; for many runs, vmap over keys
    horizon: int | None = None  # H, steps that it plans for; None: the environment's time limit

    def __post_init__(self) -> None:
        if self.num_envs != 1:
            raise ValueError(f"num_envs={self.num_envs}: it follows one episode; vmap over keys for many runs.")
        if self.horizon is not None and self.horizon < 1:
            raise ValueError(f"horizon={self.horizon}: it must be at least 1.")


@pytree
class Hyper:
    """Dynamic settings: leaves. The prior of each pair of state and action."""

    concentration: jax.Array = 0.2  # of the Dirichlet distribution, the same for each outcome
    reward_mean: jax.Array = 0.5  # mu
    reward_weight: jax.Array = 1.0  # kappa: observations that the prior mean is worth
    precision_shape: jax.Array = 1.0  # a
    precision_rate: jax.Array = 0.1  # b


@pytree
class Weights:
    count: jax.Array  # (S, A, S + 1) steps from each pair to each state; to S: terminated
    mean: jax.Array  # (S, A) of the rewards of each pair
    deviation: jax.Array  # (S, A) sum of their squared deviations from it
    policy: jax.Array  # (H, S) int32, optimal in the MDP of this episode
    time: jax.Array  # int32, step of the episode


def reward_posterior(
    n: Float[Array, "S A"], mean: Float[Array, "S A"], deviation: Float[Array, "S A"], hyper: Hyper
) -> tuple[Float[Array, "S A"], Float[Array, "S A"], Float[Array, "S A"], Float[Array, "S A"]]:
    """`(mu, kappa, a, b)` of the normal-gamma posterior after n rewards."""
    weight = hyper.reward_weight + n
    centre = (hyper.reward_weight * hyper.reward_mean + n * mean) / weight
    shift = hyper.reward_weight * n * (mean - hyper.reward_mean) ** 2 / (2 * weight)
    return centre, weight, hyper.precision_shape + n / 2, hyper.precision_rate + deviation / 2 + shift


def sample_mdp(key: Array, weights: Weights, hyper: Hyper) -> DenseMDP:
    """One MDP from the posterior."""
    S = weights.count.shape[0]
    transition_key, precision_key, mean_key = jax.random.split(key, 3)
    # In logarithms, as gamma variables of a small shape underflow, sometimes all S + 1 of a row.
    log_weight = jax.random.loggamma(transition_key, hyper.concentration + weights.count)
    transition = jax.nn.softmax(log_weight, -1)
    mu, kappa, a, b = reward_posterior(jnp.sum(weights.count, -1), weights.mean, weights.deviation, hyper)
    precision = jax.random.gamma(precision_key, a) / b
    reward = mu + jax.random.normal(mean_key, mu.shape) / jnp.sqrt(kappa * precision)
    return DenseMDP(transition[..., :S], reward, jnp.zeros(S))


@shared
def make(env: Environment | VectorEnv, config: Config = Config()) -> Algorithm:
    """PSRL on `env`. Equal arguments give the same functions, so they share one jit cache.

    Raises ValueError unless observations and actions are Discrete, or without a horizon.
    """
    S, A = discrete_sizes("psrl", env)
    H = planning_horizon("psrl", env, config.horizon)

    def draw_policy(key: Array, weights: Weights, hyper: Hyper) -> Integer[Array, "H S"]:
        return backward_induction(sample_mdp(key, weights, hyper), H)[2]

    def init(key: Array, hyper: Hyper, env_params: Any) -> Weights:
        zeros = jnp.zeros((S, A))
        weights = Weights(jnp.zeros((S, A, S + 1)), zeros, zeros, jnp.zeros((H, S), jnp.int32), jnp.int32(0))
        return weights.replace(policy=draw_policy(key, weights, hyper))

    def act(weights: Weights, hyper: Hyper, key: Array, obs: Array, greedy: bool) -> Integer[Array, ""]:
        return weights.policy[weights.time, obs]

    def learn(weights: Weights, hyper: Hyper, key: Array, x: Experience) -> tuple[Weights, Array]:
        at, done = (x.obs, x.action), x.terminated | x.truncated | (weights.time + 1 >= H)
        count = weights.count.at[(*at, jnp.where(x.terminated, S, x.next_obs))].add(1)
        error = x.reward - weights.mean[at]
        mean = weights.mean.at[at].add(error / jnp.sum(count[at]))
        deviation = weights.deviation.at[at].add(error * (x.reward - mean[at]))  # Welford (1962)
        weights = Weights(count, mean, deviation, weights.policy, jnp.where(done, 0, weights.time + 1))

        def redraw(i, carry):
            key, draw_key = jax.random.split(carry[0])
            return key, draw_policy(draw_key, weights, hyper)

        # A loop of at most one turn: under vmap it is skipped, unlike a cond, when no run begins an episode.
        _, policy = jax.lax.fori_loop(0, done.astype(jnp.int32), redraw, (key, weights.policy))
        return weights.replace(policy=policy), error**2

    def at(weights: Weights, t: Array) -> Weights:
        return weights.replace(time=t % H)

    return make_online(
        "psrl", Rule(init, act, learn, at, lambda weights: at(weights, jnp.int32(0))), config, Hyper, env
    )


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
