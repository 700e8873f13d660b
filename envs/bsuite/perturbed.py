"""The rewards of any environment, noisy or rescaled: what bsuite's `*_noise` and `*_scale` experiments change.

A wrapper, so that the plain tasks stay deterministic and spend no random bits. `info["raw_reward"]` is the reward
before the change, which is what scores are made of.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxrl.environment import Hints, Transition, pytree, strongly_typed
from jaxrl.spaces import Space
from jaxrl.wrappers import Wrapper


@pytree
class Params:
    env: Any
    noise_scale: jax.Array = 0.0  # standard deviation of the normal noise on every reward
    reward_scale: jax.Array = 1.0  # factor on every reward, noise included

    @property
    def max_steps(self) -> Array:
        return self.env.max_steps


@dataclasses.dataclass(frozen=True)
class PerturbedReward(Wrapper):
    """`env` with `(reward + noise_scale * normal) * reward_scale` as its reward."""

    Params = Params

    @property
    def hints(self) -> Hints:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.env.hints._replace(deterministic=False)

    @property
    def default_params(self) -> Params:
        return strongly_typed(Params(self.env.default_params))

    def initial(self, key: Array, params: Params) -> Any:
        return self.env.initial(key, params.env)

    def transition(self, key: Array, state: Any, action: Any, params: Params) -> Transition:
        noise_key, env_key = (key, key) if self.env.hints.deterministic else jax.random.split(key)
        out = self.env.transition(env_key, state, action, params.env)
        noise = params.noise_scale * jax.random.normal(noise_key, jnp.shape(out.reward), out.reward.dtype)
        reward = (out.reward + noise) * params.reward_scale
        return out._replace(reward=reward, info={**out.info, "raw_reward": out.reward})

    def observe(self, key: Array, state: Any, params: Params) -> Any:
        return self.env.observe(key, state, params.env)

    def observation_space(self, params: Params) -> Space:
        return self.env.observation_space(params.env)

    def action_space(self, params: Params) -> Space:
        return self.env.action_space(params.env)

    def validate(self, params: Params) -> None:
        if np.any(np.asarray(params.noise_scale) < 0):
            raise ValueError(f"{self.id}: noise_scale={params.noise_scale} must not be negative.")
        self.env.validate(params.env)

    def render(self, state: Any, params: Params) -> Any:
        return self.env.render(state, params.env)
