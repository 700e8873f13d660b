"""A wrapper whose reward is a function that was learned: say, from preferences.

Christiano et al. (2017), "Deep reinforcement learning from human preferences": people compare segments, a model of the
reward is fitted to what they say, and any learner that acts may learn from it. The model's weights are a leaf of
params, so a `vmap` trains on many models, and a model that is fitted again goes on in the same program:

    model, _ = reward_models.fit(key, preferences, observation_space, action_space)
    task = LearnedReward(env, reward_models.reward_of)
    state, _ = jaxrl.train(ppo.make(task), key, 300_000, hyper, task.on(env_params, model))

What the task itself pays is `info["task_reward"]`; evaluate on `env` itself to know what the policy is worth.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxrl.environment import Levels, Transition, pytree, strongly_typed
from jaxrl.wrappers.base import KeepsObservation, WrapperState


@pytree
class LearnedRewardParams:
    env: Any  # the wrapped environment's params
    model: Any  # the reward's weights

    @property
    def max_steps(self) -> Array:
        return self.env.max_steps


@dataclasses.dataclass(frozen=True)
class LearnedReward(KeepsObservation):
    """The reward of a step is `reward(params.model, obs, action)`: of what the agent saw, noise included, and did.

    Ends are those of the wrapped task. Raises ValueError where several agents act; a step raises it for params without
    a model, as the default ones are, and TypeError for a reward that is not a scalar.
    """

    reward: Callable[[Any, Any, Any], Any]  # (weights, obs, action) -> scalar

    Params = LearnedRewardParams

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.env.num_agents > 1:
            raise ValueError(f"LearnedReward: {self.id} has {self.env.num_agents} agents; it is for one.")

    @property
    def default_params(self) -> LearnedRewardParams:
        return self.on(self.env.default_params, None)

    def on(self, params: Any, model: Any) -> LearnedRewardParams:
        """The wrapped environment's `params` with a reward of these weights."""
        return strongly_typed(LearnedRewardParams(params, model))

    def transition(self, key: Array, state: WrapperState, action: Any, params: LearnedRewardParams) -> Transition:
        if params.model is None:
            raise ValueError("LearnedReward: params have no model; take those of `task.on(env_params, model)`.")
        out = self.after(key, state, action, params)
        reward = jnp.asarray(self.reward(params.model, state.memory, action), jax.dtypes.canonicalize_dtype(float))
        if reward.shape != ():
            raise TypeError(f"LearnedReward: reward {reward.shape} of one step; it must be a scalar.")
        return out._replace(reward=reward, info={**out.info, "task_reward": out.reward})

    @property
    def levels(self) -> Levels | None:
        return self.levels_inside()
