"""R-max: unknown state-action pairs are assumed to have the largest possible value.

Brafman and Tennenholtz (2002), "R-MAX, a general polynomial time algorithm for near-optimal reinforcement learning", in
the discounted form of Strehl, Li and Littman (2009), "Reinforcement learning in finite MDPs: PAC analysis".
A state-action pair is known after m visits; its transitions and reward are then the means of these m samples. In the
model for planning, an unknown pair leads back to its state with the largest reward, forever:
Q = R_max / (1 - gamma). The agent acts greedily; value iteration runs whenever a pair becomes known, at most S A times.

Results: `docs/results.md`.
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
from jaxrl.exact.solvers import value_iteration
from jaxrl.online import Experience, Rule, discrete_sizes, random_argmax
from jaxrl.online import make as make_online
from jaxrl.vector_env import VectorEnv


@dataclasses.dataclass(frozen=True)
class Config:
    """Static settings: each value compiles its own program."""

    num_envs: int = 1  # environments, which share one model


@pytree
class Hyper:
    """Dynamic settings: leaves."""

    known_count: jax.Array = 20.0  # m: samples after which a pair is known
    max_reward: jax.Array = 1.0  # R_max
    gamma: jax.Array = 0.95
    tolerance: jax.Array = 1e-3  # of the planned values


@pytree
class Weights:
    q: jax.Array  # (S, A) optimistic values
    count: jax.Array  # (S, A, S + 1) steps from each pair to each state, the first m; to S: terminated
    reward: jax.Array  # (S, A) mean of their rewards


def optimistic(count: Float[Array, "S A S1"], reward: Float[Array, "S A"], hyper: Hyper) -> DenseMDP:
    """The model for planning: sample means for known pairs; others stay in their state with the largest reward."""
    S = count.shape[0]
    n = jnp.sum(count, -1)
    known = n >= hyper.known_count
    stay = jnp.eye(S, dtype=count.dtype)[:, None, :]
    transition = jnp.where(known[..., None], count[..., :S] / jnp.maximum(n, 1)[..., None], stay)
    return DenseMDP(transition, jnp.where(known, reward, hyper.max_reward), jnp.zeros(S))


@shared
def make(env: Environment | VectorEnv, config: Config = Config()) -> Algorithm:
    """R-max on `env`. Equal arguments give the same functions, so they share one jit cache.

    Raises ValueError unless observations and actions are Discrete.
    """
    S, A = discrete_sizes("r_max", env)

    def init(key: Array, hyper: Hyper, env_params: Any) -> Weights:
        q = jnp.broadcast_to(hyper.max_reward / (1 - hyper.gamma), (S, A))
        return Weights(q, jnp.zeros((S, A, S + 1)), jnp.zeros((S, A)))

    def act(weights: Weights, hyper: Hyper, key: Array, obs: Array, greedy: bool) -> Integer[Array, ""]:
        q = weights.q[obs]
        return jnp.argmax(q).astype(jnp.int32) if greedy else random_argmax(q, key)

    def learn(weights: Weights, hyper: Hyper, key: Array, x: Experience) -> tuple[Weights, Array]:
        at = x.obs, x.action
        before = jnp.sum(weights.count[at])
        learning = before < hyper.known_count
        error = jnp.where(learning, x.reward - weights.reward[at], 0)
        count = weights.count.at[(*at, jnp.where(x.terminated, S, x.next_obs))].add(learning)
        reward = weights.reward.at[at].add(error / (before + 1))

        def solve(i, q):
            return value_iteration(optimistic(count, reward, hyper), hyper.gamma, hyper.tolerance).q

        # A loop of at most one turn: under vmap it is skipped, unlike a cond, when nothing became known in any run.
        becomes_known = learning & (before + 1 >= hyper.known_count)
        q = jax.lax.fori_loop(0, becomes_known.astype(jnp.int32), solve, weights.q)
        return Weights(q, count, reward), error**2

    return make_online("r_max", Rule(init, act, learn), config, Hyper, env)


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
