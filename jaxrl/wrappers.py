"""Environments made from environments: other actions, other observations, a little memory within the episode.

A wrapper is an `Environment`: frozen, hashable, stepped and vectorised as any other, with the wrapped one's id and
params (`StickyActions`, `FromStates` add leaves). What must outlive an episode, running statistics say, belongs to
the learner's state instead.

Where the wrapper remembers something, its state is a `WrapperState`; otherwise it is the wrapped environment's own.
Wrappers that add to the observation give a Dict; `FlattenObservation` around them makes it one vector.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PyTree, Shaped

from jaxrl.environment import NO_LIMIT, Environment, TimeStep, Transition, is_concrete, pytree, strongly_typed
from jaxrl.spaces import Box, Dict, Discrete, MultiDiscrete, Space, Tuple, flat_size
from jaxrl.vectorize import VectorEnv

RESERVED = ("action_mask", "mission", "privileged")
"""Entries of a Dict observation that are no part of its history or its vector."""


@pytree
class WrapperState:
    """The wrapped environment's state and what the wrapper remembers. There is one clock, the innermost."""

    env: Any
    memory: Any

    @property
    def time(self) -> Any:
        return self.env.time

    def replace(self, **changes: Any) -> WrapperState:
        """As every pytree's; `time` goes to the wrapped state."""
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
    def deterministic(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.env.deterministic

    @property
    def noiseless(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.env.noiseless

    @property
    def reset_strategy(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.env.reset_strategy

    @property
    def fenced(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.env.fenced

    @property
    def reset_share(self) -> float:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.env.reset_share

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

    def render(self, state: Any, params: Any) -> np.ndarray:
        return self.env.render(state, params)


class _Remembering(Wrapper):
    """A wrapper whose state is a `WrapperState`."""

    def observe(self, key: Array, state: WrapperState, params: Any) -> Any:
        return self.env.observe(key, state.env, params)

    def render(self, state: WrapperState, params: Any) -> np.ndarray:
        return self.env.render(state.env, params)

    def _agents(self) -> tuple[int, ...]:
        return (self.num_agents,) if self.num_agents > 1 else ()


# ---- actions


def _box(env: Environment, wrapper: str) -> Box:
    space = env.action_space(env.default_params)
    if not isinstance(space, Box):
        raise ValueError(f"{wrapper}: {env.id} acts in {space}; only a Box can be clipped or rescaled.")
    return space


@dataclasses.dataclass(frozen=True)
class ClipAction(Wrapper):
    """Any real action is accepted and clipped to the box. Raises ValueError where the action space is no Box."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _box(self.env, "ClipAction")

    def transition(self, key: Array, state: Any, action: Float[Array, "..."], params: Any) -> Transition:
        box: Any = self.env.action_space(params)
        return self.env.transition(key, state, jnp.clip(action, box.low, box.high), params)

    def action_space(self, params: Any) -> Box:
        box: Any = self.env.action_space(params)
        return Box(-jnp.inf, jnp.inf, box.shape, box.dtype)


@dataclasses.dataclass(frozen=True)
class RescaleAction(Wrapper):
    """Actions in [-1, 1], mapped linearly to the box.

    Raises ValueError where it is none, or (`validate`) an unbounded one.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        _box(self.env, "RescaleAction")

    def transition(self, key: Array, state: Any, action: Float[Array, "..."], params: Any) -> Transition:
        box: Any = self.env.action_space(params)
        # Written so that -1 and 1 give the bounds exactly.
        action = 0.5 * ((1 - action) * box.low + (1 + action) * box.high)
        return self.env.transition(key, state, action, params)

    def action_space(self, params: Any) -> Box:
        box: Any = self.env.action_space(params)
        return Box(-1.0, 1.0, box.shape, box.dtype)

    def validate(self, params: Any) -> None:
        self.env.validate(params)
        box: Any = self.env.action_space(params)
        if not (np.all(np.isfinite(box.low)) and np.all(np.isfinite(box.high))):
            raise ValueError(f"RescaleAction: {self.id} acts in {box}; every bound must be finite.")


@pytree
class StickyParams:
    env: Any  # the wrapped environment's params
    probability: jax.Array = 0.25  # of repeating the last action

    @property
    def max_steps(self) -> Array:
        return self.env.max_steps


@dataclasses.dataclass(frozen=True)
class StickyActions(_Remembering):
    """With `params.probability` the last executed action is executed again instead of the given one.

    Machado et al. (2018), "Revisiting the Arcade Learning Environment", section 5. An episode's first action is never
    replaced.
    """

    Params = StickyParams
    deterministic = False

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

    def render(self, state: WrapperState, params: StickyParams) -> np.ndarray:
        return self.env.render(state.env, params.env)


# ---- observations


@dataclasses.dataclass(frozen=True)
class FrameStack(_Remembering):
    """The last `length` observations, oldest first, along the last axis: (n,) becomes (length * n,).

    Images (H, W, C) become (H, W, length * C). At the start the first observation fills it. Of a Dict each entry is
    stacked but the reserved ones. A noisy observation is drawn once: the agent sees tomorrow what it saw today. Raises
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
        initial_key, observe_key = (key, key) if self.env.deterministic else jax.random.split(key)
        state = self.env.initial(initial_key, params)

        def repeat(space, frame):
            return jnp.concatenate([_with_axis(space, frame)] * self.length, -1)

        frame = self.env.observe(observe_key, state, params)
        return WrapperState(state, _map(repeat, self.env.observation_space(params), frame))

    def transition(self, key: Array, state: WrapperState, action: Any, params: Any) -> Transition:
        env_key, observe_key = (key, key) if self.env.deterministic else jax.random.split(key)
        out = self.env.transition(env_key, state.env, action, params)
        # What is seen next, with the clock as `step` will set it.
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
    """`f(space, frame, *rest)` of an observation, of a Dict for each entry that is not reserved."""
    if not isinstance(space, Dict):
        return f(space, frame, *rest)
    return {
        name: x if name in RESERVED else f(space.spaces[name], x, *(r[name] for r in rest)) for name, x in frame.items()
    }


def _added(obs: Any, **extra: Any) -> dict[str, Any]:
    """A Dict observation (or its spaces) with more entries; one that is no Dict becomes its entry `obs`."""
    obs = obs if isinstance(obs, dict) else obs.spaces if isinstance(obs, Dict) else {"obs": obs}
    return {**obs, **extra}


@dataclasses.dataclass(frozen=True)
class ActionHistory(_Remembering):
    """Adds `action_history` (length, A): the last `length` actions as given, oldest first, zeros before the first.

    A Box action is flattened, a discrete one is one-hot, so that none is not action 0. Raises ValueError for a length
    below 1.
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
        return _added(self.env.observe(key, state.env, params), action_history=state.memory)

    def observation_space(self, params: Any) -> Dict:
        actions = _with_zero(flatten_space(self.env.action_space(params)), (self.length,))
        return Dict(_added(self.env.observation_space(params), action_history=actions))


@dataclasses.dataclass(frozen=True)
class PreviousActionReward(_Remembering):
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
        return _added(self.env.observe(key, state.env, params), previous_action=action, previous_reward=reward)

    def observation_space(self, params: Any) -> Dict:
        action = _with_zero(flatten_space(self.env.action_space(params)))
        reward = Box(-jnp.inf, jnp.inf)
        return Dict(_added(self.env.observation_space(params), previous_action=action, previous_reward=reward))


@dataclasses.dataclass(frozen=True)
class VisitBonus(_Remembering):
    """Adds scale / sqrt(n) to the reward, n being the visits of the present place so far in this episode.

    The bonus of `minigrid.wrappers.PositionBonus`, but that its counts outlive the episode and leave out the start. The
    place is `getattr(state, leaf)`, an integer from 0 below `num_places`: the `position` of a grid world, say. Raises
    ValueError for fewer than one place.
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


@dataclasses.dataclass(frozen=True)
class FlattenObservation(Wrapper):
    """The observation as one vector (F,), or `{"obs": vector, ...}` with the reserved entries of a Dict apart."""

    def observe(self, key: Array, state: Any, params: Any) -> Any:
        obs = self.env.observe(key, state, params)
        space = self.env.observation_space(params)
        vector = flatten(_unreserved(space), obs)
        kept = {name: obs[name] for name in _reserved(space)}
        return {"obs": vector, **kept} if kept else vector

    def observation_space(self, params: Any) -> Space:
        space = self.env.observation_space(params)
        vector = flatten_space(_unreserved(space))
        kept = _reserved(space)
        return Dict({"obs": vector, **kept}) if kept else vector


def _reserved(space: Space) -> dict[str, Space]:
    return {name: s for name, s in space.spaces.items() if name in RESERVED} if isinstance(space, Dict) else {}


def _unreserved(space: Space) -> Space:
    if not isinstance(space, Dict):
        return space
    return Dict({name: s for name, s in space.spaces.items() if name not in RESERVED})


# ---- vectors


def flatten(space: Space, x: PyTree[Shaped[Array, "..."] | int | float]) -> Float[Array, "*batch F"]:
    """One vector of a member of `space`, of any leading batch shape: arrays flattened, discrete numbers one-hot.

    A Dict goes in the order of its sorted names (those that the space has), as `networks.encode` does.
    """
    if isinstance(space, Dict):
        return jnp.concatenate([flatten(s, x[name]) for name, s in sorted(space.spaces.items())], -1)
    if isinstance(space, Tuple):
        return jnp.concatenate([flatten(s, value) for s, value in zip(space.spaces, x, strict=True)], -1)
    if isinstance(space, Discrete):
        return jax.nn.one_hot(x, space.n)
    x = jnp.asarray(x)
    if isinstance(space, MultiDiscrete):
        return jnp.concatenate([jax.nn.one_hot(x[..., i], n) for i, n in enumerate(space.nvec)], -1)
    x = x if jnp.issubdtype(x.dtype, jnp.floating) else x.astype(jnp.result_type(float))
    return x.reshape(*x.shape[: x.ndim - len(space.shape)], math.prod(space.shape))


def flatten_space(space: Space) -> Box:
    """The Box of the vectors that `flatten` makes."""
    if isinstance(space, Dict | Tuple):
        spaces = [s for _, s in sorted(space.spaces.items())] if isinstance(space, Dict) else space.spaces
        boxes = [flatten_space(s) for s in spaces]
        low, high = jnp.concatenate([b.low for b in boxes]), jnp.concatenate([b.high for b in boxes])
        return Box(low, high, low.shape)
    if isinstance(space, Discrete | MultiDiscrete):
        size = space.n if isinstance(space, Discrete) else sum(space.nvec)
        return Box(jnp.zeros(size), jnp.ones(size), (size,))
    box: Any = space
    low, high = (jnp.broadcast_to(jnp.asarray(x, jnp.float32), box.shape).reshape(-1) for x in (box.low, box.high))
    return Box(low, high, (flat_size(box),))


def _with_zero(box: Box, leading: tuple[int, ...] = ()) -> Box:
    """`box` repeated along leading axes and widened to hold zero, which stands for no action yet."""
    shape = leading + box.shape
    low, high = jnp.minimum(box.low, 0), jnp.maximum(box.high, 0)
    return Box(jnp.broadcast_to(low, shape), jnp.broadcast_to(high, shape), shape)


# ---- several agents


@dataclasses.dataclass(frozen=True)
class Team(Wrapper):
    """Several agents that look like one to an algorithm: spaces are of one agent, the reward is the mean.

    Observations and actions keep their axis M, as another batch axis of a policy that all share: `act` takes any. For
    evaluation; learning takes `agents_as_slots`, whose `env` is this.
    """

    @property
    def num_agents(self) -> int:
        return 1

    def step(self, key: Array, state: Any, action: Any, params: Any) -> TimeStep:
        ts = self.env.step(key, state, action, params)
        return ts._replace(reward=jnp.mean(ts.reward, -1))


@dataclasses.dataclass(frozen=True)
class AgentVectorEnv(VectorEnv):
    """Made by `agents_as_slots`: `num_envs` counts agents, those of one environment next to each other."""

    inner: Any = None  # the VectorEnv

    @property
    def default_params(self) -> Any:
        return self.inner.default_params

    def reset(self, key: Array, params: Any) -> tuple[Any, Any]:
        """`(obs, vstate)`, obs with leading axis N M; the state is the inner one, (N,)."""
        obs, vstate = self.inner.reset(key, params)
        return self._fold(obs), vstate

    def step(self, key: Array, vstate: Any, action: Any, params: Any) -> TimeStep:
        """Everything of one agent a row; what is of the environment (ends, lengths) is repeated for each of its agents.

        An entry of `info` counts as the agents' where its second axis is M.
        """
        agents = self.inner.env.num_agents
        action = jax.tree.map(lambda x: x.reshape(-1, agents, *x.shape[1:]), action)
        ts = self.inner.step(key, vstate, action, params)

        def rows(x):
            return self._fold(x) if x.ndim > 1 and x.shape[1] == agents else jnp.repeat(x, agents, 0)

        info = {name: self._fold(x) if name == "final_obs" else jax.tree.map(rows, x) for name, x in ts.info.items()}
        ends = rows(ts.terminated), rows(ts.truncated)
        return TimeStep(self._fold(ts.obs), ts.state, self._fold(ts.reward), *ends, info)

    def restart(self, key: Array, vstate: Any, params: Any, mask: Bool[Array, " N"]) -> tuple[Any, Any]:
        """Start a new episode where `mask` names any agent of an environment."""
        mask = mask.reshape(-1, self.inner.env.num_agents).any(1)
        obs, vstate = self.inner.restart(key, vstate, params, mask)
        return self._fold(obs), vstate

    def _fold(self, tree: PyTree) -> PyTree:
        return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), tree)


def agents_as_slots(venv: VectorEnv) -> AgentVectorEnv:
    """Each of the M agents of N environments as a slot of its own: one policy learns from all (independent learning
    with shared weights). Any algorithm for one agent takes it, with `num_envs` N M, unless its policy has a memory:

        venv = agents_as_slots(vectorize(env, 16))
        algo = ppo.make(venv, ppo.Config(num_envs=venv.num_envs))

    Steps are counted per agent. Raises ValueError for a single agent or for batched params.
    """
    agents = venv.env.num_agents
    if agents < 2:
        raise ValueError(f"agents_as_slots: {venv.env.id} has one agent; train on it as it is.")
    if venv.batched_params:
        raise ValueError("agents_as_slots: batched_params has a row an environment, not one an agent; use level_fn.")
    rest = venv.reset_strategy, venv.level_fn, False, venv.chunk, venv.pool_size
    return AgentVectorEnv(Team(venv.env), venv.num_envs * agents, *rest, inner=venv)


# ---- starts


@pytree
class StartParams:
    """Where episodes start is a parameter, so that a level can be a state. `FromStates.starting` makes them."""

    env: Any  # the wrapped environment's params
    states: Any  # its states, leading axis K
    weights: jax.Array  # (K,) how often each is drawn, to a common factor
    share: jax.Array  # probability of starting in one of them; else as the environment does
    limit: jax.Array = NO_LIMIT  # time limit, if lower than the environment's, while share > 0

    @property
    def max_steps(self) -> Array:
        # Known params stay known while something else is traced: `evaluate` looks whether there is a limit.
        with jax.ensure_compile_time_eval() if is_concrete(self) else contextlib.nullcontext():
            return jnp.where(self.share > 0, jnp.minimum(self.limit, self.env.max_steps), self.env.max_steps)


@dataclasses.dataclass(frozen=True)
class FromStates(Wrapper):
    """Episodes start in stored states, `params.states`, with the clock at zero; otherwise everything is as in `env`.

        starts = FromStates(env)
        params = starts.starting(env_params, states)  # leading axis K
        obs, state = starts.reset(key, params)  # one of the K states

    With its default params (`share` 0) it is `env`. A level that `curriculum.attach` can use has K = 1.
    """

    Params = StartParams

    @property
    def default_params(self) -> StartParams:
        params = self.env.default_params
        one = jax.tree.map(lambda x: x[None], self.env.initial(jax.random.key(0), params))
        return strongly_typed(self.starting(params, one, share=0.0))

    def starting(
        self, params: Any, states: PyTree, weights: Any = None, share: Any = 1.0, limit: Any = NO_LIMIT
    ) -> StartParams:
        """The wrapped environment's `params` with starts in `states` (leading axis K), by `weights` if given."""
        weights = jnp.ones(len(jax.tree.leaves(states)[0])) if weights is None else weights
        return StartParams(params, states, weights, jnp.asarray(share, jnp.result_type(float)), jnp.int32(limit))

    def initial(self, key: Array, params: StartParams) -> Any:
        key, env_key = jax.random.split(key)
        which, stored = jax.random.uniform(key, (2,))
        cdf = jnp.cumsum(params.weights)
        i = jnp.minimum(jnp.searchsorted(cdf, which * cdf[-1], side="right"), len(cdf) - 1)
        state = jax.tree.map(lambda x: x[i], params.states)
        state = state.replace(time=jnp.zeros_like(state.time))
        own = self.env.initial(env_key, params.env)
        return jax.tree.map(lambda x, y: jnp.where(stored < params.share, x, y), state, own)

    def transition(self, key: Array, state: Any, action: Any, params: StartParams) -> Transition:
        return self.env.transition(key, state, action, params.env)

    def observe(self, key: Array, state: Any, params: StartParams) -> Any:
        return self.env.observe(key, state, params.env)

    def observation_space(self, params: StartParams) -> Space:
        return self.env.observation_space(params.env)

    def action_space(self, params: StartParams) -> Space:
        return self.env.action_space(params.env)

    def validate(self, params: StartParams) -> None:
        """Raises ValueError also for states that are none of `env`'s, and weights or a share that cannot be."""
        self.env.validate(params.env)
        wanted = jax.eval_shape(self.env.initial, jax.random.key(0), self.env.default_params)
        if jax.tree.structure(params.states) != jax.tree.structure(wanted):
            raise ValueError(f"FromStates: states are {type(params.states).__name__}, not states of {self.id}.")
        leading = jnp.shape(params.weights)
        for (path, y), x in zip(
            jax.tree_util.tree_leaves_with_path(wanted), jax.tree.leaves(params.states), strict=True
        ):
            if (x.shape, x.dtype) != ((*leading, *y.shape), y.dtype):
                raise ValueError(
                    f"FromStates: states{jax.tree_util.keystr(path)} is {x.dtype} {x.shape}; {leading} states of "
                    f"{self.id} need {y.dtype} {(*leading, *y.shape)}."
                )
        weights, share, limit = (np.asarray(x) for x in (params.weights, params.share, params.limit))
        if np.any(weights < 0) or not np.all(np.isfinite(weights)) or np.any(weights.sum(-1) <= 0):
            raise ValueError(f"FromStates: weights={weights} must be finite, none below 0 and some above.")
        if not np.all((share >= 0) & (share <= 1)):
            raise ValueError(f"FromStates: share={share} must be from 0 to 1.")
        if np.any(limit < 1):
            raise ValueError(f"FromStates: limit={limit} must be at least 1.")

    def render(self, state: Any, params: StartParams) -> np.ndarray:
        return self.env.render(state, params.env)
