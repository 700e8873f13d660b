"""What `jaxrl.interop.stoa.to_stoa` makes. Importing this module imports Stoa."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import stoa
from jaxtyping import Array

from jaxrl.environment import Environment
from jaxrl.interop.foreign import no_info, typed
from jaxrl.spaces import Box, Dict, Discrete, MultiDiscrete, Space, Tuple


class ToStoa(stoa.Environment):
    """Made by `to_stoa`."""

    def __init__(self, env: Environment, params: Any) -> None:
        self.env, self.params = env, params

    def reset(self, rng_key: Array, env_params: Any = None) -> tuple[stoa.StateWithKey, stoa.TimeStep]:
        params = self._params(env_params)
        reset_key, rng_key = jax.random.split(rng_key)
        obs, state = self.env.reset(typed(reset_key), params)
        zero = jnp.zeros((), jnp.result_type(float))
        info = no_info(self.env, typed(reset_key), params)
        return stoa.StateWithKey(state, rng_key), stoa.TimeStep(stoa.StepType.FIRST, zero, 1 + zero, obs, info)

    def step(
        self, state: stoa.StateWithKey, action: Any, env_params: Any = None
    ) -> tuple[stoa.StateWithKey, stoa.TimeStep]:
        step_key, rng_key = jax.random.split(state.rng_key)
        ts = self.env.step(typed(step_key), state.base_env_state, action, self._params(env_params))
        going = jnp.where(ts.truncated, stoa.StepType.TRUNCATED, stoa.StepType.MID)
        kind = jnp.where(ts.terminated, stoa.StepType.TERMINATED, going)
        discount = jnp.where(ts.terminated, 0, jnp.ones_like(ts.reward))
        return stoa.StateWithKey(ts.state, rng_key), stoa.TimeStep(kind, ts.reward, discount, ts.obs, ts.info)

    def observation_space(self, env_params: Any = None) -> stoa.Space:
        with jax.ensure_compile_time_eval():  # Stoa looks at its bounds when it makes a space
            return _space(self.env.observation_space(self._params(env_params)), self.env.id)

    def action_space(self, env_params: Any = None) -> stoa.Space:
        with jax.ensure_compile_time_eval():  # Stoa looks at its bounds when it makes a space
            return _space(self.env.action_space(self._params(env_params)), self.env.id)

    def state_space(self, env_params: Any = None) -> stoa.Space:
        raise NotImplementedError(f"to_stoa: {self.env.id} has no space of states.")

    def render(self, state: stoa.StateWithKey, env_params: Any = None) -> np.ndarray:
        """An RGB picture of a state; Stoa's wrappers take their own layers off before."""
        return self.env.render(state.base_env_state, self._params(env_params))

    def _params(self, env_params: Any) -> Any:
        return self.params if env_params is None else env_params


def _space(space: Space, id: str) -> stoa.Space:
    """A space of ours as Stoa's."""
    if isinstance(space, Discrete):
        return stoa.DiscreteSpace(space.n, space.dtype)
    if isinstance(space, MultiDiscrete):
        return stoa.MultiDiscreteSpace(space.nvec, space.dtype)
    if isinstance(space, Box):
        unbounded = np.all(np.isneginf(space.low)) and np.all(np.isposinf(space.high))
        bounds = {} if unbounded else {"minimum": space.low, "maximum": space.high}
        return (stoa.BoundedArraySpace if bounds else stoa.ArraySpace)(space.shape, space.dtype, **bounds)
    if isinstance(space, Dict):
        return stoa.DictSpace({name: _space(s, id) for name, s in space.spaces.items()})
    if isinstance(space, Tuple):
        return stoa.TupleSpace([_space(s, id) for s in space.spaces])
    raise ValueError(f"to_stoa: {id} has a {space!r:.60}; Stoa has no such space.")
