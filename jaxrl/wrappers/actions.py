"""Wrappers of actions: clipped, rescaled, repeated by chance, repeated always."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxrl.environment import Environment, Hints, Levels, Transition, pytree, strongly_typed
from jaxrl.spaces import Box
from jaxrl.wrappers.base import AddsParams, Wrapper, WrapperState


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
class StickyActions(AddsParams):
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

    def _inner(self, state: WrapperState) -> Any:
        return state.env

    def initial(self, key: Array, params: StickyParams) -> WrapperState:
        space, lead = self.env.action_space(params.env), (self.num_agents,) if self.num_agents > 1 else ()

        def zeros(x):
            # Float actions are kept in the default precision, whatever the space declares.
            dtype = jnp.result_type(float) if jnp.issubdtype(x.dtype, jnp.floating) else x.dtype
            return jnp.zeros(lead + x.shape, dtype)

        return WrapperState(self.env.initial(key, params.env), jax.tree.map(zeros, jax.eval_shape(space.sample, key)))

    def transition(self, key: Array, state: WrapperState, action: Any, params: StickyParams) -> Transition:
        sticky_key, env_key = jax.random.split(key)
        repeat = jax.random.bernoulli(sticky_key, params.probability) & (state.time > 0)
        action = jax.tree.map(lambda old, new: jnp.where(repeat, old, new.astype(old.dtype)), state.memory, action)
        out = self.env.transition(env_key, state.env, action, params.env)
        return out._replace(state=WrapperState(out.state, action))

    def validate(self, params: StickyParams) -> None:
        super().validate(params)
        probability = np.asarray(params.probability)
        if not np.all((probability >= 0) & (probability <= 1)):
            raise ValueError(f"StickyActions: probability={probability} must be from 0 to 1.")

    @property
    def levels(self) -> Levels | None:
        return self.levels_inside()


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
