"""GORP (greedy over random policy): an open-loop planner for deterministic environments.

Laidlaw, Russell and Dragan (2023), "Bridging RL theory and practice with the effective horizon", algorithm 1. A
sequence of T actions is built action by action. With the first t - 1 actions fixed, each continuation of k actions is
tried in m episodes, which then continue with uniformly random actions; the first action of the continuation with the
largest mean return becomes action t. After T updates, at most T^2 A^k m environment steps, the sequence is the policy.
`jaxrl.exact.effective_horizon` says for which MDPs, k and m it is optimal.

One update fixes one action: A^k m episodes of T steps from a reset. Further updates leave the sequence unchanged. The
policy ignores observations; its carry counts the steps. Results: `experiments/effective_horizon`.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Integer

from jaxrl.algorithm import (
    Algorithm,
    State,
    algorithm_of,
    as_vector_env,
    check_at_least_one,
    environment_of,
    shared,
    starting_values,
)
from jaxrl.environment import Environment, pytree
from jaxrl.rollout import Ends, ends_of, step_keys, ticked
from jaxrl.spaces import Discrete
from jaxrl.vector_env import VectorEnv


@dataclasses.dataclass(frozen=True)
class Config:
    """Static settings: each value compiles its own program."""

    horizon: int = 20  # T: the environment's time limit
    depth: int = 1  # k, actions of a continuation
    episodes: int = 16  # m, episodes of each continuation

    def __post_init__(self) -> None:
        check_at_least_one(self, "horizon", "depth", "episodes")


@pytree
class Hyper:
    """Dynamic settings: leaves."""

    gamma: jax.Array = 1.0  # discount of the returns compared


@pytree
class Plan:
    actions: jax.Array  # (T,) int32
    fixed: jax.Array  # int32, number of actions that are fixed


@pytree
class GORPState(State):
    weights: Plan


class Rollout(NamedTuple):
    """Time-major, (T, N); N = A^k m episodes, those of one sequence next to each other."""

    reward: Array
    ends: Ends


def sequences(num_actions: int, depth: int) -> Integer[Array, "n k"]:
    """All A^k sequences of actions, in lexicographic order."""
    return jnp.stack(jnp.unravel_index(jnp.arange(num_actions**depth), (num_actions,) * depth), -1).astype(jnp.int32)


def mean_returns(
    reward: Float[Array, "T N"], done: Bool[Array, "T N"], gamma: Float[Array, ""] | float, num_sequences: int
) -> Float[Array, " n"]:
    """The mean return of each sequence's episodes; steps after the end of an episode do not count."""
    alive = jnp.cumprod(jnp.concatenate([jnp.ones_like(reward[:1]), 1 - done[:-1].astype(reward.dtype)]), 0)
    discount = gamma ** jnp.arange(len(reward), dtype=reward.dtype)
    total = jnp.sum(discount[:, None] * alive * reward, 0)
    return jnp.mean(total.reshape(num_sequences, -1), -1)


@dataclasses.dataclass(frozen=True)
class _GORP:
    """The static settings of the learner; its methods are the Algorithm's functions."""

    config: Config
    venv: VectorEnv
    num_actions: int
    deployed = "greedy"

    def init(self, key: Array, hyper: Any = None, env_params: Any = None) -> GORPState:
        hyper, env_params = starting_values(Hyper, self.venv, hyper, env_params)
        key, reset_key = jax.random.split(key)
        obs, env_state = self.venv.reset(reset_key, env_params)
        plan = Plan(jnp.zeros(self.config.horizon, jnp.int32), jnp.int32(0))
        return GORPState(key, hyper, env_params, env_state, obs, jnp.int32(0), plan)

    def collect(self, state: GORPState) -> tuple[GORPState, Rollout]:
        T, N = self.config.horizon, self.venv.num_envs
        key, reset_key, action_key, env_key = jax.random.split(state.key, 4)
        tried = jnp.repeat(sequences(self.num_actions, self.config.depth), self.config.episodes, 0)
        # Row t of the actions: the plan up to `fixed`, then the sequence, then random actions.
        random = jax.random.randint(action_key, (T, N), 0, self.num_actions, jnp.int32)
        since = jnp.arange(T) - state.weights.fixed
        inside = (since >= 0) & (since < self.config.depth)
        trial = tried.T[jnp.clip(since, 0, self.config.depth - 1)]
        actions = jnp.where(inside[:, None], trial, random)
        actions = jnp.where(since[:, None] < 0, state.weights.actions[:, None], actions)

        def step(env_state, inputs):
            ts = self.venv.step(inputs[0], env_state, inputs[1], state.env_params)
            return ts.state, (Rollout(ts.reward, ends_of(ts)), ts.obs)

        _, env_state = self.venv.reset(reset_key, state.env_params)
        keys = step_keys(env_key, T)
        env_state, (rollout, obs) = jax.lax.scan(step, env_state, (keys, actions))
        obs = jax.tree.map(lambda x: x[-1], obs)
        return state.replace(key=key, env_state=env_state, obs=obs, step=ticked(state.step, T * N)), rollout

    def learn(self, state: GORPState, rollout: Rollout) -> tuple[GORPState, dict[str, Array]]:
        plan, T = state.weights, self.config.horizon
        count = self.num_actions**self.config.depth
        returns = mean_returns(rollout.reward, rollout.ends.done, state.hyper.gamma, count)
        best = jnp.argmax(returns)
        action = (best // (count // self.num_actions)).astype(jnp.int32)
        actions = plan.actions.at[jnp.where(plan.fixed < T, plan.fixed, T)].set(action, mode="drop")
        metrics = {
            **rollout.ends.metrics(),
            "loss": jnp.zeros_like(returns[0]),
            "best_return": returns[best],
        }
        return state.replace(weights=Plan(actions, jnp.minimum(plan.fixed + 1, T))), metrics

    def policy(self, state: GORPState) -> Plan:
        return state.weights

    def initial_carry(self, batch_shape: tuple[int, ...] = ()) -> Integer[Array, "*batch"]:
        return jnp.zeros(batch_shape, jnp.int32)

    def act(self, policy: Plan, key: Array, obs: Any, carry: Any, greedy: bool = False) -> tuple[Array, Any]:
        planned = policy.actions[jnp.minimum(carry, self.config.horizon - 1)]
        if greedy:
            return planned, carry + 1
        random = jax.random.randint(key, carry.shape, 0, self.num_actions, jnp.int32)
        return jnp.where(carry < policy.fixed, planned, random), carry + 1


@shared
def make(env: Environment | VectorEnv, config: Config = Config()) -> Algorithm:
    """GORP on `env`. Equal arguments give the same functions, so they share one jit cache.

    Raises ValueError for actions that are not Discrete, several agents, or a VectorEnv of another size than A^k m.
    It is meant for deterministic environments with one initial state; elsewhere the sequence is an open-loop heuristic.
    """
    inner = environment_of(env)
    if inner.num_agents > 1:
        raise ValueError(f"{inner.id} has {inner.num_agents} agents; gorp plans for one.")
    space = inner.action_space(inner.default_params)
    if not isinstance(space, Discrete):
        raise ValueError(f"gorp tries every sequence of Discrete actions, {inner.id} has {space}.")
    num_envs = space.n**config.depth * config.episodes
    venv = as_vector_env(env, num_envs)
    gorp = _GORP(config, venv, space.n)
    return algorithm_of("gorp", gorp, Hyper, num_envs * config.horizon)


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
