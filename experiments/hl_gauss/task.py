"""Rewards with noise."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax

from jaxrl.environment import Hints, pytree, strongly_typed
from jaxrl.wrappers import Wrapper


@pytree
class NoisyParams:
    env: Any
    eta: jax.Array = 0.0  # width of the noise

    @property
    def max_steps(self) -> jax.Array:
        return self.env.max_steps


@dataclasses.dataclass(frozen=True)
class NoisyReward(Wrapper):
    """Adds U(-eta/2, eta/2) to each reward: the best policy stays what it is."""

    Params = NoisyParams

    @property
    def hints(self) -> Hints:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.env.hints._replace(deterministic=False)

    @property
    def default_params(self):
        return strongly_typed(NoisyParams(self.env.default_params))

    def initial(self, key, params):
        return self.env.initial(key, params.env)

    def transition(self, key, state, action, params):
        env_key, key = jax.random.split(key)
        out = self.env.transition(env_key, state, action, params.env)
        return out._replace(reward=out.reward + params.eta * (jax.random.uniform(key) - 0.5))

    def observe(self, key, state, params):
        return self.env.observe(key, state, params.env)

    def observation_space(self, params):
        return self.env.observation_space(params.env)

    def action_space(self, params):
        return self.env.action_space(params.env)
