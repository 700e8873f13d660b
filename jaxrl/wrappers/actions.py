"""Wrappers of actions: clipped, rescaled, repeated by chance, repeated always."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxrl.environment import Environment, Hints, Levels, Transition, check_params, pytree, strongly_typed
from jaxrl.spaces import Box, Space
from jaxrl.telemetry import Plane, Quantity
from jaxrl.wrappers.base import Remembering, Wrapper, WrapperState


def _box(env: Environment, wrapper: str) -> Box:
    space = env.action_space(env.default_params)
    if not isinstance(space, Box):
        raise ValueError(f"{wrapper}: {env.id} acts in {space}; only a Box can be clipped or rescaled.")
    return space


@dataclasses.dataclass(frozen=True)
class ClipAction(Wrapper):
    """Accepts any real action and clips it to the box; policies are scaled by that box as before.

    Raises ValueError where the action space is no Box.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        _box(self.env, "ClipAction")

    def transition(self, key: Array, state: Any, action: Float[Array, "..."], params: Any) -> Transition:
        box: Any = self.env.action_space(params)
        return self.env.transition(key, state, jnp.clip(action, box.low, box.high), params)

    def action_space(self, params: Any) -> Box:
        box: Any = self.env.action_space(params)
        return Box(-jnp.inf, jnp.inf, box.shape, box.dtype, (box.low, box.high))


@dataclasses.dataclass(frozen=True)
class RescaleAction(Wrapper):
    """Actions in [-1, 1], mapped linearly to the box or, where a side of it is unbounded, to `bounds` inside it.

    Raises ValueError for an action space that is no Box, or `bounds` that are not inside it; `validate` raises it for
    an unbounded side without `bounds`.
    """

    bounds: tuple[float, float] | None = None  # the actions for -1 and 1; None: the ends of the box

    def __post_init__(self) -> None:
        super().__post_init__()
        box = _box(self.env, "RescaleAction")
        if self.bounds is not None:
            low, high = self.bounds
            inside = np.all(box.low <= low) and np.all(high <= box.high)
            if not (np.isfinite(low) and np.isfinite(high) and low < high and inside):
                raise ValueError(f"RescaleAction: bounds={self.bounds}; a finite low below a high, both in {box}.")

    def _ends(self, params: Any) -> tuple[Any, Any]:
        box: Any = self.env.action_space(params)
        return self.bounds or (box.low, box.high)

    def transition(self, key: Array, state: Any, action: Float[Array, "..."], params: Any) -> Transition:
        low, high = self._ends(params)
        # Written so that -1 and 1 give the bounds exactly.
        action = 0.5 * ((1 - action) * low + (1 + action) * high)
        return self.env.transition(key, state, action, params)

    def action_space(self, params: Any) -> Box:
        box: Any = self.env.action_space(params)
        return Box(-1.0, 1.0, box.shape, box.dtype)

    def validate(self, params: Any) -> None:
        self.env.validate(params)
        if not all(np.all(np.isfinite(x)) for x in self._ends(params)):
            box = self.env.action_space(params)
            raise ValueError(f"RescaleAction: {self.id} acts in {box}; every bound must be finite, or give bounds=.")


@pytree
class StickyParams:
    env: Any  # the wrapped environment's params
    probability: jax.Array = 0.25  # of repeating the last action

    @property
    def max_steps(self) -> Array:
        return self.env.max_steps


@dataclasses.dataclass(frozen=True)
class _Inside:
    """The function `(key, params) -> params` that replaces `params.env` by `change(key, params.env)`."""

    change: Callable[..., Any]

    def __call__(self, key: Array, params: Any) -> Any:
        return params.replace(env=self.change(key, params.env))


@dataclasses.dataclass(frozen=True)
class StickyActions(Remembering):
    """With `params.probability` the last executed action is executed again instead of the given one.

    Machado et al. (2018), "Revisiting the Arcade Learning Environment", section 5. An episode's first action is never
    replaced.
    """

    Params = StickyParams

    @property
    def hints(self) -> Hints:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.env.hints._replace(deterministic=False)

    @property
    def default_params(self) -> StickyParams:
        return strongly_typed(StickyParams(self.env.default_params))

    def initial(self, key: Array, params: StickyParams) -> WrapperState:
        space = self.env.action_space(params.env)

        def zeros(x):
            # Float actions are kept in the default precision, whatever the space declares.
            dtype = jnp.result_type(float) if jnp.issubdtype(x.dtype, jnp.floating) else x.dtype
            return jnp.zeros(self._agents() + x.shape, dtype)

        return WrapperState(self.env.initial(key, params.env), jax.tree.map(zeros, jax.eval_shape(space.sample, key)))

    def transition(self, key: Array, state: WrapperState, action: Any, params: StickyParams) -> Transition:
        sticky_key, env_key = jax.random.split(key)
        repeat = jax.random.bernoulli(sticky_key, params.probability) & (state.time > 0)
        action = jax.tree.map(lambda old, new: jnp.where(repeat, old, new.astype(old.dtype)), state.memory, action)
        out = self.env.transition(env_key, state.env, action, params.env)
        return out._replace(state=WrapperState(out.state, action))

    def observe(self, key: Array, state: WrapperState, params: StickyParams) -> Any:
        return self.env.observe(key, state.env, params.env)

    def observation_space(self, params: StickyParams) -> Space:
        return self.env.observation_space(params.env)

    def action_space(self, params: StickyParams) -> Space:
        return self.env.action_space(params.env)

    def validate(self, params: StickyParams) -> None:
        self.env.validate(params.env)
        probability = np.asarray(params.probability)
        if not np.all((probability >= 0) & (probability <= 1)):
            raise ValueError(f"StickyActions: probability={probability} must be from 0 to 1.")

    def terminal(self, obs: Any, params: StickyParams) -> Bool[Array, ""]:
        return self.env.terminal(obs, params.env)

    @property
    def levels(self) -> Levels | None:
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

    def describe(self, params: StickyParams) -> dict[str, Array]:
        return self.env.describe(params.env)

    @property
    def observation_names(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.env.observation_names

    @property
    def action_names(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.env.action_names

    def measures(self, params: StickyParams) -> dict[str, dict[str, str]]:
        return self.env.measures(params.env)

    def telemetry(self, state: WrapperState, params: StickyParams) -> dict[str, Quantity]:
        return self.env.telemetry(state.env, params.env)

    def planes(self, telemetry: dict[str, Quantity], params: StickyParams) -> list[Plane]:
        return self.env.planes(telemetry, params.env)

    def render(self, state: WrapperState, params: StickyParams) -> np.ndarray:
        return self.env.render(state.env, params.env)

    def render_episode(self, states: WrapperState, params: StickyParams) -> list[np.ndarray]:
        return self.env.render_episode(states.env, params.env)


@dataclasses.dataclass(frozen=True)
class ActionRepeat(Wrapper):
    """Each action is taken `repeat` times, or until the episode ends: decisions are slower than the task's steps.

    Rewards are summed, as are those of `info`; its other entries are of the last step. The clock counts the task's
    steps, so its time limit stays as it is. Observations in between are not seen. `evaluate(..., hold=n)` does the same
    to a policy that was trained without. Raises ValueError for fewer than one.
    """

    repeat: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.repeat < 1:
            raise ValueError(f"ActionRepeat: repeat={self.repeat} must be at least 1.")

    def transition(self, key: Array, state: Any, action: Any, params: Any) -> Transition:
        # `Environment.step` of this wrapper ticks once, too.
        ts = self._taken(key, state, action, params)
        return ts._replace(state=ts.state.replace(time=ts.state.time - 1))

    def _taken(self, key: Array, state: Any, action: Any, params: Any) -> Transition:
        deterministic = self.env.hints.deterministic
        keys = [key] * self.repeat if deterministic else jax.random.split(key, self.repeat)

        def step(key: Array, state: Any) -> Transition:
            ts = self.env.step(key, state, action, params)
            return Transition(ts.state, ts.reward, ts.terminated, ts.truncated, ts.info)

        def again(past: Transition, key: Array) -> tuple[Transition, None]:
            new = step(key, past.state)
            info = {name: past.info[name] + x if name.startswith("reward/") else x for name, x in new.info.items()}
            new = new._replace(reward=past.reward + new.reward, info=info)
            return jax.tree.map(functools.partial(jnp.where, past.terminated | past.truncated), past, new), None

        taken = step(keys[0], state)
        return taken if self.repeat == 1 else jax.lax.scan(again, taken, jnp.stack(keys[1:]))[0]
