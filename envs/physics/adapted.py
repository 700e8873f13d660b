"""What the adapters to Brax and MuJoCo Playground share: States with `obs`, `reward`, `done`, `metrics`, `info`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxrl.environment import Environment, Hints, TimeStep, Transition, pytree
from jaxrl.interop.observations import named, observation_space
from jaxrl.spaces import Box, Space

from .task import check_numbers, sound


@pytree
class Params:
    max_steps: jax.Array = 1000
    model: Any = None  # the model's numbers, by the names that its library gives them


@pytree
class State:
    time: jax.Array  # steps since reset
    env: Any  # the library's own State


@dataclasses.dataclass(frozen=True)
class Adapted(Environment):
    """Base of the two. A task has `settings`, `env`, the library's environment, and `under`."""

    settings: Any = dataclasses.field(default=(), kw_only=True)
    Params = Params
    # A dense reset runs beside the step: two batched Cholesky factorisations at a time, which may hang a CPU.
    hints = Hints(noiseless=True, fenced=False, reset="sparse", reset_share=1 / 32)

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.settings, Mapping):
            object.__setattr__(self, "settings", tuple(self.settings.items()))

    @property
    def env(self) -> Any:
        """The library's own environment."""
        raise NotImplementedError

    def under(self, model: dict[str, Array]) -> Any:
        """The library's environment with these numbers of its model."""
        raise NotImplementedError

    def transition(self, key: Array, state: State, action: Float[Array, "n"], params: Params) -> Transition:
        # Their tasks write into the dictionaries they are given.
        before = state.env.replace(info=dict(state.env.info), metrics=dict(state.env.metrics))
        after = self.under(params.model).step(before, action)
        after = jax.tree.map(lambda new, old: jnp.asarray(new, old.dtype), after, state.env)
        state = state.replace(env=after)
        return Transition(state, after.reward, after.done > 0, jnp.bool_(False), dict(after.metrics))

    def step(self, key: Array, state: State, action: Any, params: Params) -> TimeStep:
        return sound(super().step(key, state, action, params))

    def observe(self, key: Array, state: State, params: Params) -> Any:
        return named(state.env.obs)

    def observation_space(self, params: Params) -> Space:
        return observation_space(self.env)

    def action_space(self, params: Params) -> Box:
        return Box(-1.0, 1.0, (self.env.action_size,))

    def validate(self, params: Params) -> None:
        check_numbers(self.id, params.model, self.default_params.model)
