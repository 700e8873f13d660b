"""Between jaxrl and gymnax, in both directions and for both of its interfaces, whether gymnax is installed or not.

| | gymnax 1.x (`api="1.0"`) | gymnax 0.0.x (`api="0.0"`) |
|---|---|---|
| `step` | obs, state, reward, terminated, truncated, info | obs, state, reward, done, info |
| `step_env` | obs, state, reward, terminated, info | obs, state, reward, done, info |

gymnax's `step` resets finished episodes, its `step_env` does not; jaxrl's `step` is the latter.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxrl.environment import NO_LIMIT, Environment, Transition, pytree, strongly_typed
from jaxrl.spaces import Box, Dict, Discrete, Space, Tuple

APIS = ("1.0", "0.0")


# ---- out


@dataclasses.dataclass(frozen=True)
class ToGymnax:
    """Made by `to_gymnax`: the methods that gymnax's wrappers and the training scripts written for it call."""

    env: Environment
    api: str

    @property
    def name(self) -> str:
        return self.env.id

    @property
    def default_params(self) -> Any:
        """jaxrl's, which also answer gymnax's `max_steps_in_episode`, in `replace` too."""
        params = self.env.default_params
        fields = {f.name: getattr(params, f.name) for f in dataclasses.fields(params)}
        return _answering(type(params))(**fields)

    @property
    def num_actions(self) -> int:
        """How many discrete actions there are; of another space how many numbers an action has."""
        space: Any = self.env.action_space(self.default_params)
        return space.n if isinstance(space, Discrete) else max(1, sum(space.shape))

    def observation_space(self, params: Any) -> Any:
        return _gymnax_space(self.env.observation_space(params))

    def action_space(self, params: Any = None) -> Any:
        return _gymnax_space(self.env.action_space(self.default_params if params is None else params))

    def reset_env(self, key: Array, params: Any) -> tuple[Any, Any]:
        return self.env.reset(_typed(key), params)

    def step_env(self, key: Array, state: Any, action: Any, params: Any) -> tuple[Any, Any, Array, Array, dict]:
        """Without reset. The fourth is `terminated` with api 1.0, with 0.0 the end of either kind."""
        space = self.env.action_space(params)
        if isinstance(space, Box) and space.shape == (1,):
            action = jnp.reshape(action, (1,))  # gymnax's Pendulum takes a scalar as well, and rejax gives it one
        ts = self.env.step(_typed(key), state, action, params)
        info = {**ts.info, "terminated": ts.terminated, "truncated": ts.truncated}
        info["discount"] = jnp.where(ts.terminated, 0.0, 1.0)
        done = ts.terminated if self.api == "1.0" else ts.terminated | ts.truncated
        return ts.obs, ts.state, ts.reward, done, info

    def is_truncated(self, state: Any, params: Any) -> Array:
        """Whether `state` is at the time limit (a truncation that is the environment's own shows in `info` only)."""
        return state.time >= params.max_steps

    @functools.partial(jax.jit, static_argnums=0)
    def reset(self, key: Array, params: Any = None) -> tuple[Any, Any]:
        return self.reset_env(key, self.default_params if params is None else params)

    @functools.partial(jax.jit, static_argnums=0)
    def step(self, key: Array, state: Any, action: Any, params: Any = None) -> tuple:
        """With reset of a finished episode, whose last observation is `info["final_observation"]`."""
        params = self.default_params if params is None else params
        step_key, reset_key = jax.random.split(key)
        final_obs, state, reward, done, info = self.step_env(step_key, state, action, params)
        done = done | info["truncated"]
        fresh = self.reset_env(reset_key, params)
        obs, state = jax.tree.map(functools.partial(jnp.where, done), fresh, (final_obs, state))
        info["final_observation"] = final_obs
        if self.api == "1.0":
            return obs, state, reward, info["terminated"], info["truncated"], info
        return obs, state, reward, done, info


@functools.cache
def _answering(cls: Any) -> Any:
    """jaxrl's class of params with gymnax's name for the time limit, which its training scripts read and replace."""

    def replace(self, **changes: Any) -> Any:
        if "max_steps_in_episode" in changes:
            changes["max_steps"] = changes.pop("max_steps_in_episode")
        return dataclasses.replace(self, **changes)

    names = {"max_steps_in_episode": property(lambda self: self.max_steps), "replace": replace}
    return pytree(type(cls.__name__, (cls,), names))


def _typed(key: Array) -> Array:
    """Scripts for gymnax often hold raw keys (`PRNGKey`), jaxrl's environments take typed ones."""
    return key if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else jax.random.wrap_key_data(key)


def _gymnax_space(space: Space) -> Any:
    """`space` as gymnax's own, whose class its agents ask for.

    It stays as it is where gymnax is not installed, or has no such space.
    """
    try:
        from gymnax.environments import spaces
    except ImportError:
        return space
    if isinstance(space, Discrete):
        return spaces.Discrete(space.n)
    if isinstance(space, Box):
        return spaces.Box(space.low, space.high, space.shape, space.dtype)
    if isinstance(space, Dict):
        return spaces.Dict({name: _gymnax_space(s) for name, s in space.spaces.items()})
    if isinstance(space, Tuple):
        return spaces.Tuple(tuple(_gymnax_space(s) for s in space.spaces))
    return space


def to_gymnax(env: Environment, api: str = "1.0") -> ToGymnax:
    """`env` with gymnax's interface, of its 1.x ("1.0", six results of `step`) or 0.0.x ("0.0", five) generation.

    Its params are jaxrl's and answer gymnax's `max_steps_in_episode` too (`NO_LIMIT` where there is none: some agents
    evaluate that long). Its spaces are gymnax's own where gymnax is installed, but for MultiDiscrete, which gymnax
    lacks. Raises ValueError for another api or several agents.
    """
    if api not in APIS:
        raise ValueError(f"api={api!r}: choose one of {', '.join(APIS)}.")
    if env.num_agents > 1:
        raise ValueError(f"{env.id} has {env.num_agents} agents; gymnax environments have one.")
    return ToGymnax(env, api)


# ---- in


@pytree
class GymnaxParams:
    env: Any  # gymnax's own

    @property
    def max_steps(self) -> Array:
        """gymnax's `max_steps_in_episode`, where there is one."""
        return getattr(self.env, "max_steps_in_episode", jnp.int32(NO_LIMIT))


@pytree
class GymnaxState:
    time: jax.Array  # steps since reset
    env: Any  # gymnax's own
    obs: Any  # gymnax makes it within reset and step


@dataclasses.dataclass(frozen=True)
class FromGymnax(Environment):
    """Made by `from_gymnax`."""

    env: Any  # hashed by identity, as gymnax does

    Params = GymnaxParams

    @property
    def default_params(self) -> GymnaxParams:
        return strongly_typed(GymnaxParams(self.env.default_params))

    def initial(self, key: Array, params: GymnaxParams) -> GymnaxState:
        obs, state = self.env.reset_env(key, params.env)
        return strongly_typed(GymnaxState(jnp.int32(0), state, obs))

    def transition(self, key: Array, state: GymnaxState, action: Any, params: GymnaxParams) -> Transition:
        obs, env, reward, done, info = self.env.step_env(key, state.env, action, params.env)
        truncated = False
        if hasattr(self.env, "is_truncated"):  # 1.x: what step_env reports is the task's own end
            truncated = self.env.is_truncated(env, params.env)
        elif hasattr(params.env, "max_steps_in_episode"):
            # 0.0.x merges the two. The same step with the limit out of reach ends only where the task does; the rest of
            # it, which may show the limit to the agent, is thrown away, and XLA computes what they share once.
            endless = dataclasses.replace(params.env, max_steps_in_episode=jnp.int32(NO_LIMIT))
            done = self.env.step_env(key, state.env, action, endless)[3]
        # gymnax returns python numbers and weak types in places; a state keeps the types it began with.
        env, obs = jax.tree.map(lambda new, old: jnp.asarray(new, old.dtype), (env, obs), (state.env, state.obs))
        reward = jnp.asarray(reward, jnp.result_type(float))
        return Transition(
            state.replace(env=env, obs=obs),
            reward,
            jnp.asarray(done, bool),
            jnp.asarray(truncated, bool),
            strongly_typed(info),
        )

    def observe(self, key: Array, state: GymnaxState, params: GymnaxParams) -> Any:
        return state.obs

    def observation_space(self, params: GymnaxParams) -> Space:
        return _space(self.env.observation_space(params.env))

    def action_space(self, params: GymnaxParams) -> Space:
        return _space(self.env.action_space(params.env))


def _space(space: Any) -> Space:
    """A gymnax space as jaxrl's. Raises ValueError for an unknown kind."""
    kind = type(space).__name__
    if kind == "Discrete":
        return Discrete(int(space.n))
    if kind == "Box":
        shape = (space.shape,) if isinstance(space.shape, int) else tuple(space.shape)
        return Box(space.low, space.high, shape, jax.dtypes.canonicalize_dtype(space.dtype))
    if kind == "Dict":
        return Dict({name: _space(s) for name, s in space.spaces.items()})
    if kind == "Tuple":
        return Tuple(tuple(_space(s) for s in space.spaces))
    raise ValueError(f"from_gymnax: {kind} is not a space it knows (Box, Discrete, Dict, Tuple).")


def from_gymnax(env: Any, params: Any = None) -> tuple[FromGymnax, GymnaxParams]:
    """`(env, params)` of a gymnax environment of either generation, without its auto-reset.

    `params.env` are gymnax's own, so their leaves can be vmapped as any. `terminated` is the task's own end and
    `truncated` the time limit `max_steps_in_episode`, also for 0.0.x, whose `done` merges them.
    """
    params = env.default_params if params is None else params
    return FromGymnax(env, id=str(env.name)), strongly_typed(GymnaxParams(params))


def names() -> list[str]:
    """Ids that are registered with gymnax."""
    import gymnax

    return sorted(gymnax.registered_envs)


def by_name(name: str) -> tuple[FromGymnax, GymnaxParams]:
    """`(env, params)` of one of `names()`."""
    import gymnax

    return from_gymnax(*gymnax.make(name))
