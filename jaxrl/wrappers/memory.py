"""Wrappers with a memory within the episode: past observations, actions, rewards and visits."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxrl.environment import Transition
from jaxrl.spaces import Box, Dict, Discrete, MultiDiscrete, Space, Tuple
from jaxrl.wrappers.base import Remembering, WrapperState
from jaxrl.wrappers.vectors import RESERVED, flatten, flatten_space


@dataclasses.dataclass(frozen=True)
class FrameStack(Remembering):
    """The last `length` observations, oldest first, along the last axis: (n,) becomes (length * n,).

    Images (H, W, C) become (H, W, length * C). The first observation fills the stack at the start. In a Dict each
    entry except the reserved ones is stacked. Noise of an observation is drawn once, also for later stacks. Raises
    ValueError for length < 1 or a Tuple of observations.
    """

    length: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.length < 1:
            raise ValueError(f"FrameStack: length={self.length} must be at least 1.")
        if isinstance(space := self.env.observation_space(self.env.default_params), Tuple):
            raise ValueError(f"FrameStack: {self.id} observes {space}; stack the entries of a Dict instead.")

    def initial(self, key: Array, params: Any) -> WrapperState:
        initial_key, observe_key = (key, key) if self.env.hints.deterministic else jax.random.split(key)
        state = self.env.initial(initial_key, params)

        def repeat(space, frame):
            return jnp.concatenate([_with_axis(space, frame)] * self.length, -1)

        frame = self.env.observe(observe_key, state, params)
        return WrapperState(state, _map(repeat, self.env.observation_space(params), frame))

    def transition(self, key: Array, state: WrapperState, action: Any, params: Any) -> Transition:
        env_key, observe_key = (key, key) if self.env.hints.deterministic else jax.random.split(key)
        out = self.env.transition(env_key, state.env, action, params)
        # The next observation, with the clock as `step` will set it.
        frame = self.env.observe(observe_key, out.state.replace(time=out.state.time + 1), params)

        def push(space, frame, frames):
            frame = _with_axis(space, frame)
            return jnp.concatenate([frames[..., frame.shape[-1] :], frame.astype(frames.dtype)], -1)

        memory = _map(push, self.env.observation_space(params), frame, state.memory)
        return out._replace(state=WrapperState(out.state, memory))

    def observe(self, key: Array, state: WrapperState, params: Any) -> Any:
        return state.memory

    def observation_space(self, params: Any) -> Space:
        space = self.env.observation_space(params)
        if not isinstance(space, Dict):
            return self._stacked(space)
        return Dict({name: s if name in RESERVED else self._stacked(s) for name, s in space.spaces.items()})

    def _stacked(self, space: Space) -> Space:
        if isinstance(space, Discrete):
            return MultiDiscrete((space.n,) * self.length)
        if isinstance(space, MultiDiscrete):
            return MultiDiscrete(space.nvec * self.length)
        if not isinstance(space, Box):
            raise ValueError(f"FrameStack: {self.id} observes {space} in an entry; it stacks arrays.")
        shape = space.shape or (1,)
        low, high = (
            jnp.concatenate([jnp.broadcast_to(jnp.asarray(x, space.dtype), shape)] * self.length, -1)
            for x in (space.low, space.high)
        )
        return Box(low, high, (*shape[:-1], self.length * shape[-1]), space.dtype)


def _with_axis(space: Space, x: Array) -> Array:
    return x if space.shape else jnp.asarray(x)[..., None]


def _map(f: Any, space: Space, frame: Any, *rest: Any) -> Any:
    """`f(space, frame, *rest)` of an observation; for a Dict, of each entry that is not reserved."""
    if not isinstance(space, Dict):
        return f(space, frame, *rest)
    return {
        name: x if name in RESERVED else f(space.spaces[name], x, *(r[name] for r in rest)) for name, x in frame.items()
    }


def added(obs: Any, **extra: Any) -> dict[str, Any]:
    """A Dict observation (or its spaces) with more entries; any other observation becomes the entry `obs`."""
    obs = obs if isinstance(obs, dict) else obs.spaces if isinstance(obs, Dict) else {"obs": obs}
    return {**obs, **extra}


@dataclasses.dataclass(frozen=True)
class ActionHistory(Remembering):
    """Adds `action_history` (length, A): the last `length` actions as given, oldest first, zeros before the first.

    A Box action is flattened; a discrete one is one-hot, so that "no action yet" differs from action 0. Raises
    ValueError for a length below 1.
    """

    length: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.length < 1:
            raise ValueError(f"ActionHistory: length={self.length} must be at least 1.")

    def initial(self, key: Array, params: Any) -> WrapperState:
        shape = (*self._agents(), self.length, flatten_space(self.env.action_space(params)).shape[0])
        return WrapperState(self.env.initial(key, params), jnp.zeros(shape))

    def transition(self, key: Array, state: WrapperState, action: Any, params: Any) -> Transition:
        out = self.env.transition(key, state.env, action, params)
        newest = flatten(self.env.action_space(params), action).astype(state.memory.dtype)
        memory = jnp.concatenate([state.memory[..., 1:, :], newest[..., None, :]], -2)
        return out._replace(state=WrapperState(out.state, memory))

    def observe(self, key: Array, state: WrapperState, params: Any) -> dict[str, Any]:
        return added(self.env.observe(key, state.env, params), action_history=state.memory)

    def observation_space(self, params: Any) -> Dict:
        actions = with_zero(flatten_space(self.env.action_space(params)), (self.length,))
        return Dict(added(self.env.observation_space(params), action_history=actions))


@dataclasses.dataclass(frozen=True)
class PreviousActionReward(Remembering):
    """For recurrent agents: adds `previous_action` (A,), as `ActionHistory` does, and `previous_reward` ()."""

    def initial(self, key: Array, params: Any) -> WrapperState:
        action = jnp.zeros((*self._agents(), flatten_space(self.env.action_space(params)).shape[0]))
        return WrapperState(self.env.initial(key, params), (action, jnp.zeros(self._agents())))

    def transition(self, key: Array, state: WrapperState, action: Any, params: Any) -> Transition:
        out = self.env.transition(key, state.env, action, params)
        memory = (flatten(self.env.action_space(params), action), jnp.asarray(out.reward))
        memory = jax.tree.map(lambda new, old: new.astype(old.dtype), memory, state.memory)
        return out._replace(state=WrapperState(out.state, memory))

    def observe(self, key: Array, state: WrapperState, params: Any) -> dict[str, Any]:
        action, reward = state.memory
        return added(self.env.observe(key, state.env, params), previous_action=action, previous_reward=reward)

    def observation_space(self, params: Any) -> Dict:
        action = with_zero(flatten_space(self.env.action_space(params)))
        reward = Box(-jnp.inf, jnp.inf)
        return Dict(added(self.env.observation_space(params), previous_action=action, previous_reward=reward))


@dataclasses.dataclass(frozen=True)
class VisitBonus(Remembering):
    """Adds scale / sqrt(n) to the reward, where n counts the visits of the current place in this episode.

    As `minigrid.wrappers.PositionBonus`, whose counts however outlive the episode and do not include the start. The
    place is the field `leaf` of the state, an integer from 0 below `num_places`: say the `position` of a grid world.
    Raises ValueError for fewer than one place.
    """

    leaf: str
    num_places: int
    scale: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_places < 1:
            raise ValueError(f"VisitBonus: num_places={self.num_places} must be at least 1.")

    def initial(self, key: Array, params: Any) -> WrapperState:
        state = self.env.initial(key, params)
        return WrapperState(state, jnp.zeros(self.num_places, jnp.int32).at[getattr(state, self.leaf)].set(1))

    def transition(self, key: Array, state: WrapperState, action: Any, params: Any) -> Transition:
        out = self.env.transition(key, state.env, action, params)
        place = getattr(out.state, self.leaf)
        visits = state.memory.at[place].add(1)
        reward = out.reward + self.scale / jnp.sqrt(visits[place])
        return out._replace(state=WrapperState(out.state, visits), reward=reward)


def with_zero(box: Box, leading: tuple[int, ...] = ()) -> Box:
    """`box` repeated along leading axes and extended to contain zero, which represents "no action yet"."""
    shape = leading + box.shape
    low, high = jnp.minimum(box.low, 0), jnp.maximum(box.high, 0)
    return Box(jnp.broadcast_to(low, shape), jnp.broadcast_to(high, shape), shape)
