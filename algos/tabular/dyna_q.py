"""Tabular Dyna-Q and Dyna-Q+: Q-learning from experience and from a learned model.

Sutton (1990), "Integrated architectures for learning, planning, and reacting"; the boxes of Sutton and Barto (2018),
sections 8.2 and 8.3. Each real step updates Q(S, A) as Q-learning does and stores its outcome in the model. Then follow
`planning_steps` updates from the model: a visited state S and an action A taken there are drawn uniformly, and

    Q(S, A) += alpha (R + kappa sqrt(tau) + gamma max_a Q(S', a) - Q(S, A))

with the stored R and S'; tau counts the steps since A was last taken in S. kappa is 0 in Dyna-Q. Dyna-Q+ also plans
actions that were never taken in a visited state (`untried`); until they are taken, they lead back to it with reward 0
(the footnote of section 8.3).

The model stores the last outcome of each pair, as in the book: it is exact for deterministic environments; in
stochastic ones each plan uses the latest sample. Exploration is that of `q_learning`. Results: `docs/results.md`.
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

    num_envs: int = 1  # environments, which share one table and model
    planning_steps: int = 10  # n: updates from the model after each real one
    untried: bool = False  # also plan actions that were never taken in a visited state (Dyna-Q+)

    def __post_init__(self) -> None:
        if self.planning_steps < 1:
            raise ValueError(f"planning_steps={self.planning_steps}: at least 1; with none it is q_learning.")


@pytree
class Hyper:
    """Dynamic settings: leaves."""

    learning_rate: jax.Array = 0.1  # alpha
    gamma: jax.Array = 0.99
    bonus: jax.Array = 0.0  # kappa: planned reward per square root of the steps since a pair was last taken
    epsilon_start: jax.Array = 1.0
    epsilon_end: jax.Array = 0.05
    exploration_steps: jax.Array = 10_000  # updates from start to end
    initial_value: jax.Array = 0.0  # of every entry; high values explore by optimism


@pytree
class Weights:
    q: jax.Array  # (S, A)
    reward: jax.Array  # (S, A) at the last visit
    next_state: jax.Array  # (S, A) int32 at the last visit; S where the episode terminated
    tried: jax.Array  # (S, A) int32, the step at which a pair was last taken; 0: never
    seen: jax.Array  # (S,) int32, states in the order of their first visit
    num_seen: jax.Array  # int32
    steps: jax.Array  # experiences learned from


def update(
    q: Float[Array, "S A"],
    obs: Array,
    action: Array,
    reward: Float[Array, ""],
    next_state: Integer[Array, ""],
    hyper: Hyper,
) -> tuple[Float[Array, "S A"], Float[Array, ""]]:
    """One Q-learning update and its error; `next_state` S is the end of an episode, of value 0."""
    S = q.shape[0]
    ahead = jnp.where(next_state < S, jnp.max(q[jnp.minimum(next_state, S - 1)]), 0)
    error = reward + hyper.gamma * ahead - q[obs, action]
    return q.at[obs, action].add(hyper.learning_rate * error), error


def plan(weights: Weights, hyper: Hyper, key: Array, planning_steps: int, untried: bool) -> Float[Array, "S A"]:
    """The table after `planning_steps` updates from the model."""
    S, A = weights.q.shape

    def step(q, uniform):
        rank = jnp.minimum((uniform[0] * weights.num_seen).astype(jnp.int32), weights.num_seen - 1)
        s = weights.seen[rank]
        allowed = jnp.ones(A, bool) if untried else weights.tried[s] > 0
        count = jnp.cumsum(allowed)
        a = jnp.argmax(count > jnp.floor(uniform[1] * count[-1]))
        since = weights.steps - weights.tried[s, a]
        reward = weights.reward[s, a] + hyper.bonus * jnp.sqrt(since.astype(q.dtype))
        return update(q, s, a, reward, weights.next_state[s, a], hyper)[0], None

    return jax.lax.scan(step, weights.q, jax.random.uniform(key, (planning_steps, 2)))[0]


@shared
def make(env: Environment | VectorEnv, config: Config = Config()) -> Algorithm:
    """Dyna-Q on `env`. Equal arguments give the same functions, so they share one jit cache.

    Raises ValueError unless observations and actions are Discrete.
    """
    S, A = discrete_sizes("dyna_q", env)

    def init(key: Array, hyper: Hyper, env_params: Any) -> Weights:
        return Weights(
            q=jnp.broadcast_to(hyper.initial_value, (S, A)),
            reward=jnp.zeros((S, A)),
            next_state=jnp.broadcast_to(jnp.arange(S)[:, None], (S, A)).astype(jnp.int32),
            tried=jnp.zeros((S, A), jnp.int32),
            seen=jnp.full(S, S, jnp.int32),
            num_seen=jnp.int32(0),
            steps=jnp.int32(0),
        )

    def act(weights: Weights, hyper: Hyper, key: Array, obs: Array, greedy: bool) -> Integer[Array, ""]:
        q = weights.q[obs]
        if greedy:
            return jnp.argmax(q).astype(jnp.int32)
        explore_key, action_key, tie_key = jax.random.split(key, 3)
        done = jnp.minimum(weights.steps / jnp.maximum(hyper.exploration_steps, 1), 1)
        epsilon = hyper.epsilon_start + done * (hyper.epsilon_end - hyper.epsilon_start)
        random = jax.random.randint(action_key, (), 0, A, jnp.int32)
        return jnp.where(jax.random.uniform(explore_key) < epsilon, random, random_argmax(q, tie_key))

    def learn(weights: Weights, hyper: Hyper, key: Array, x: Experience) -> tuple[Weights, Array]:
        next_state = jnp.where(x.terminated, S, x.next_obs).astype(jnp.int32)
        q, error = update(weights.q, x.obs, x.action, x.reward, next_state, hyper)
        at, steps = (x.obs, x.action), weights.steps + 1
        new = jnp.all(weights.tried[x.obs] == 0)
        weights = Weights(
            q=q,
            reward=weights.reward.at[at].set(x.reward),
            next_state=weights.next_state.at[at].set(next_state),
            tried=weights.tried.at[at].set(steps),
            # Out of range where the state is not new, so that the write is dropped.
            seen=weights.seen.at[jnp.where(new, weights.num_seen, S)].set(x.obs.astype(jnp.int32), mode="drop"),
            num_seen=weights.num_seen + new,
            steps=steps,
        )
        return weights.replace(q=plan(weights, hyper, key, config.planning_steps, config.untried)), error**2

    return make_online("dyna_q", Rule(init, act, learn), config, Hyper, env)


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
