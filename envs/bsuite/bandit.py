"""Bandit-bsuite: eleven arms with the rewards 0, 0.1, ..., 1 in an order to be found out, one pull an episode.

Osband et al. (2020), "Behaviour suite for reinforcement learning", experiments `bandit`, `bandit_noise` and
`bandit_scale`. Observation: (1, 1), always 1. Action: the arm. Reward: the arm's, without noise. Ends after one step.
`info["regret"]`: the best arm's reward, 1 in bsuite, minus this one's.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Integer

from jaxrl.environment import NO_LIMIT, Environment, Hints, Transition, pytree, strongly_typed
from jaxrl.spaces import Box, Discrete


@pytree
class Params:
    rewards: jax.Array  # (num_actions,) of each arm
    max_steps: jax.Array = NO_LIMIT


@pytree
class State:
    time: jax.Array  # steps since reset


def bsuite_rewards(mapping_seed: int, num_actions: int = 11) -> np.ndarray:
    """The arms' rewards in bsuite's task of this seed, shape (num_actions,). Host only."""
    order = np.random.RandomState(mapping_seed).choice(range(num_actions), size=num_actions, replace=False)
    return np.linspace(0, 1, num_actions)[order]


def shuffled_rewards(key: Array, params: Params) -> Params:
    """`params` with the arms in a random order: a task distribution, as a `level_fn`."""
    # Ranks of random words, by comparison: at eleven arms half the cost of a sort, and nothing gathers.
    K = params.rewards.shape[0]
    u, arm = jax.random.bits(key, (K,), jnp.uint32), jnp.arange(K)
    rank = jnp.sum((u < u[:, None]) | ((u == u[:, None]) & (arm < arm[:, None])), -1)
    return params.replace(rewards=jnp.sum(jnp.where(rank[:, None] == arm, params.rewards, 0), -1))


@dataclasses.dataclass(frozen=True)
class Bandit(Environment):
    num_actions: int = 11
    id: str = dataclasses.field(default="Bandit-bsuite", kw_only=True)
    Params = Params
    hints = Hints(deterministic=True, reset="dense")
    static_ranges = {"num_actions": (1, 1_000_000)}

    @property
    def default_params(self) -> Params:
        """bsuite's `bandit/0`."""
        return strongly_typed(Params(jnp.asarray(bsuite_rewards(0, self.num_actions), float)))

    def initial(self, key: Array, params: Params) -> State:
        return State(jnp.int32(0))

    def transition(self, key: Array, state: State, action: Integer[Array, ""], params: Params) -> Transition:
        reward = params.rewards[action]
        regret = jnp.max(params.rewards) - reward
        return Transition(state, reward, jnp.bool_(True), jnp.bool_(False), {"regret": regret})

    def observe(self, key: Array, state: State, params: Params) -> Float[Array, "1 1"]:
        return jnp.ones((1, 1), jnp.float32)

    def observation_space(self, params: Params) -> Box:
        return Box(1.0, 1.0, (1, 1))

    def action_space(self, params: Params) -> Discrete:
        return Discrete(self.num_actions)

    def validate(self, params: Params) -> None:
        if np.shape(params.rewards)[-1:] != (self.num_actions,):
            raise ValueError(f"{self.id}: rewards {np.shape(params.rewards)}; there are {self.num_actions} arms.")
