"""What every wrapper is: an environment that changes one thing of another."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Array, Bool

from jaxrl.environment import Environment, Hints, Levels, Transition, pytree
from jaxrl.spaces import Space
from jaxrl.telemetry import Plane, Quantity


@pytree
class WrapperState:
    """The wrapped environment's state and what the wrapper remembers. There is one clock, the innermost."""

    env: Any
    memory: Any

    @property
    def time(self) -> Any:
        return self.env.time

    def replace(self, **changes: Any) -> WrapperState:
        """A copy with some fields changed; `time` is changed in the wrapped state."""
        if "time" in changes:
            changes["env"] = changes.get("env", self.env).replace(time=changes.pop("time"))
        return dataclasses.replace(self, **changes)


@dataclasses.dataclass(frozen=True)
class Wrapper(Environment):
    """Everything as in `env`; subclasses change one thing."""

    env: Environment

    def __post_init__(self) -> None:
        if not self.id:
            object.__setattr__(self, "id", self.env.id)

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
        """The wrapped one's. Raises NotImplementedError where observations are others than those it reads."""
        cls = type(self)
        same = cls.observation_space is Wrapper.observation_space
        if not same or cls.observe not in (Wrapper.observe, Remembering.observe):
            raise NotImplementedError(
                f"{cls.__name__} changes the observations of {self.id}: ends cannot be read from them."
            )
        return self.env.terminal(obs, params)

    @property
    def levels(self) -> Levels | None:
        """The wrapped one's, in this wrapper; None where params have leaves of the wrapper's, unless it says how."""
        inner = self.env.levels
        if inner is None or type(self).Params is not Wrapper.Params:
            return None
        plain = type(self).transition is Wrapper.transition and type(self).step is Environment.step
        value = inner.optimal_value if plain else None  # of the wrapped task's rewards
        return inner._replace(env=dataclasses.replace(self, env=inner.env), optimal_value=value)

    def describe(self, params: Any) -> dict[str, Array]:
        return self.env.describe(params)

    @property
    def observation_names(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The wrapped one's, unless the observation is another."""
        same = type(self).observation_space is Wrapper.observation_space
        return self.env.observation_names if same else ()

    @property
    def action_names(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The wrapped one's, unless the action is another."""
        return self.env.action_names if type(self).action_space is Wrapper.action_space else ()

    def measures(self, params: Any) -> dict[str, dict[str, str]]:
        return self.env.measures(params)

    def telemetry(self, state: Any, params: Any) -> dict[str, Quantity]:
        return self.env.telemetry(state, params)

    def planes(self, telemetry: dict[str, Quantity], params: Any) -> list[Plane]:
        return self.env.planes(telemetry, params)

    def render(self, state: Any, params: Any) -> np.ndarray:
        return self.env.render(state, params)

    def render_episode(self, states: Any, params: Any) -> list[np.ndarray]:
        """The wrapped one's, unless a picture is another."""
        if type(self).render is not Wrapper.render:
            return super().render_episode(states, params)
        return self.env.render_episode(states, params)


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
