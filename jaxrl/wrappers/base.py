"""The base classes of wrappers: environments that forward everything to another one."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Bool

from jaxrl.environment import Environment, Hints, Levels, Transition, check_params, pytree
from jaxrl.spaces import Space
from jaxrl.telemetry import Plane, Quantity


@pytree
class WrapperState:
    """The wrapped environment's state and the wrapper's memory. The clock is that of the innermost state."""

    env: Any
    memory: Any

    @property
    def time(self) -> Any:
        return self.env.time

    def replace(self, **changes: Any) -> WrapperState:
        """A copy with some fields changed; `time` is a field of the wrapped state."""
        if "time" in changes:
            changes["env"] = changes.get("env", self.env).replace(time=changes.pop("time"))
        return dataclasses.replace(self, **changes)


@dataclasses.dataclass(frozen=True)
class Wrapper(Environment):
    """Forwards everything to `env`; a subclass overrides what it changes."""

    env: Environment

    def __post_init__(self) -> None:
        if not self.id:
            object.__setattr__(self, "id", self.env.id)
        super().__post_init__()

    @property
    def Params(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.env.Params

    @property
    def hints(self) -> Hints:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.env.hints

    @property
    def num_agents(self) -> int:
        return self.env.num_agents

    @property
    def default_params(self) -> Any:
        return self.env.default_params

    def initial(self, key: Array, params: Any) -> Any:
        return self.env.initial(key, params)

    def transition(self, key: Array, state: Any, action: Any, params: Any) -> Transition:
        return self.env.transition(key, state, action, params)

    def observe(self, key: Array, state: Any, params: Any) -> Any:
        return self.env.observe(key, state, params)

    def observation_space(self, params: Any) -> Space:
        return self.env.observation_space(params)

    def action_space(self, params: Any) -> Space:
        return self.env.action_space(params)

    def validate(self, params: Any) -> None:
        self.env.validate(params)

    def terminal(self, obs: Any, params: Any) -> Bool[Array, ""]:
        """As the wrapped environment. Raises NotImplementedError where the wrapper changes observations."""
        cls = type(self)
        same = cls.observation_space is Wrapper.observation_space
        if not same or cls.observe not in (Wrapper.observe, Remembering.observe):
            raise NotImplementedError(
                f"{cls.__name__} changes the observations of {self.id}: ends cannot be read from them."
            )
        return self.env.terminal(obs, params)

    @property
    def levels(self) -> Levels | None:
        """The wrapper's own level kit if it has `generate` or `as_levels`; else the wrapped environment's, for this
        wrapper, and None where the wrapper adds leaves to params."""
        if hasattr(type(self), "generate") or hasattr(type(self), "as_levels"):
            return super().levels
        inner = self.env.levels
        if inner is None or type(self).Params is not Wrapper.Params:
            return None
        plain = type(self).transition is Wrapper.transition and type(self).step is Environment.step
        value = inner.optimal_value if plain else None  # which holds for the rewards of the wrapped task
        return inner._replace(env=dataclasses.replace(self, env=inner.env), optimal_value=value)

    def describe(self, params: Any) -> dict[str, Array]:
        return self.env.describe(params)

    @property
    def observation_names(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """As the wrapped environment, unless the wrapper changes observations."""
        same = type(self).observation_space is Wrapper.observation_space
        return self.env.observation_names if same else ()

    @property
    def action_names(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """As the wrapped environment, unless the wrapper changes actions."""
        return self.env.action_names if type(self).action_space is Wrapper.action_space else ()

    @property
    def infinite(self) -> dict[str, float]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.env.infinite

    def measures(self, params: Any) -> dict[str, dict[str, str]]:
        return self.env.measures(params)

    def telemetry(self, state: Any, params: Any) -> dict[str, Quantity]:
        return self.env.telemetry(state, params)

    def planes(self, telemetry: dict[str, Quantity], params: Any) -> list[Plane]:
        return self.env.planes(telemetry, params)

    def render(self, state: Any, params: Any) -> np.ndarray:
        return self.env.render(state, params)

    def render_episode(self, states: Any, params: Any) -> list[np.ndarray]:
        """As the wrapped environment, unless the wrapper changes `render`."""
        if type(self).render is not Wrapper.render:
            return super().render_episode(states, params)
        return self.env.render_episode(states, params)


@dataclasses.dataclass(frozen=True)
class _Inside:
    """The function `(key, params) -> params` that replaces `params.env` by `change(key, params.env)`."""

    change: Callable[..., Any]

    def __call__(self, key: Array, params: Any) -> Any:
        return params.replace(env=self.change(key, params.env))


class AddsParams(Wrapper):
    """A wrapper with leaves of its own in params, beside those of the wrapped environment, `params.env`."""

    def _inner(self, state: Any) -> Any:
        """The wrapped environment's state."""
        return state

    def initial(self, key: Array, params: Any) -> Any:
        return self.env.initial(key, params.env)

    def transition(self, key: Array, state: Any, action: Any, params: Any) -> Transition:
        return self.env.transition(key, state, action, params.env)

    def observe(self, key: Array, state: Any, params: Any) -> Any:
        return self.env.observe(key, self._inner(state), params.env)

    def observation_space(self, params: Any) -> Space:
        return self.env.observation_space(params.env)

    def action_space(self, params: Any) -> Space:
        return self.env.action_space(params.env)

    def validate(self, params: Any) -> None:
        self.env.validate(params.env)

    def terminal(self, obs: Any, params: Any) -> Bool[Array, ""]:
        return self.env.terminal(obs, params.env)

    def levels_inside(self) -> Levels | None:
        """The level kit of the wrapped environment, acting on `params.env`."""
        inner = self.env.levels
        if inner is None:
            return None
        env, generate, mutate = dataclasses.replace(self, env=inner.env), inner.generate, inner.mutate
        return Levels(
            env=env,
            generate=None if generate is None else _Inside(generate),
            mutate=None if mutate is None else _Inside(mutate),
            validate=functools.partial(check_params, env),
            optimal_value=None,
            editor=None,
        )

    def describe(self, params: Any) -> dict[str, Array]:
        return self.env.describe(params.env)

    @property
    def observation_names(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.env.observation_names

    @property
    def action_names(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.env.action_names

    def measures(self, params: Any) -> dict[str, dict[str, str]]:
        return self.env.measures(params.env)

    def telemetry(self, state: Any, params: Any) -> dict[str, Quantity]:
        return self.env.telemetry(self._inner(state), params.env)

    def planes(self, telemetry: dict[str, Quantity], params: Any) -> list[Plane]:
        return self.env.planes(telemetry, params.env)

    def render(self, state: Any, params: Any) -> np.ndarray:
        return self.env.render(self._inner(state), params.env)

    def render_episode(self, states: Any, params: Any) -> list[np.ndarray]:
        return self.env.render_episode(self._inner(states), params.env)


class Remembering(Wrapper):
    """A wrapper whose state is a `WrapperState`."""

    def observe(self, key: Array, state: WrapperState, params: Any) -> Any:
        return self.env.observe(key, state.env, params)

    def telemetry(self, state: WrapperState, params: Any) -> dict[str, Quantity]:
        return self.env.telemetry(state.env, params)

    def render(self, state: WrapperState, params: Any) -> np.ndarray:
        return self.env.render(state.env, params)

    def render_episode(self, states: WrapperState, params: Any) -> list[np.ndarray]:
        if type(self).render is not Remembering.render:
            return super().render_episode(states, params)
        return self.env.render_episode(states.env, params)

    def _agents(self) -> tuple[int, ...]:
        return (self.num_agents,) if self.num_agents > 1 else ()


class KeepsObservation(AddsParams):
    """A wrapper whose state holds the observation that the agent saw, noise included, beside the wrapped state."""

    def _inner(self, state: WrapperState) -> Any:
        return state.env

    def initial(self, key: Array, params: Any) -> WrapperState:
        initial_key, observe_key = (key, key) if self.env.hints.deterministic else jax.random.split(key)
        state = self.env.initial(initial_key, params.env)
        return WrapperState(state, self.env.observe(observe_key, state, params.env))

    def after(self, key: Array, state: WrapperState, action: Any, params: Any) -> Transition:
        """The wrapped transition, and the observation that the agent sees after it."""
        env_key, observe_key = (key, key) if self.env.hints.deterministic else jax.random.split(key)
        out = self.env.transition(env_key, state.env, action, params.env)
        # The next observation, with the clock as `step` will set it.
        obs = self.env.observe(observe_key, out.state.replace(time=out.state.time + 1), params.env)
        return out._replace(state=WrapperState(out.state, obs))

    def observe(self, key: Array, state: WrapperState, params: Any) -> Any:
        return state.memory
