"""Between jaxrl and Brax: `to_brax`, a `brax.envs.Env`, and `from_brax`, which also takes MuJoCo Playground's.

Importing this module imports brax.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from brax.envs import base
from jaxtyping import Array

from jaxrl.environment import NO_LIMIT, Environment, Transition, check_params, pytree, strongly_typed
from jaxrl.interop.observations import named, observation_space
from jaxrl.spaces import Box, Space

# ---- out


class ToBrax(base.Env):
    """Made by `to_brax`. The jaxrl state is `pipeline_state`; `info` holds the next key (`rng`) and `truncation`."""

    def __init__(self, env: Environment, params: Any) -> None:
        self.env, self.params = env, params

    def reset(self, rng: Array) -> base.State:
        rng, reset_key = jax.random.split(rng)
        obs, state = self.env.reset(_typed(reset_key), self.params)
        action = jax.eval_shape(self.env.action_space(self.params).sample, rng)
        shapes = jax.eval_shape(self.env.step, _typed(rng), state, action, self.params)
        metrics = {name: jnp.zeros(()) for name, x in shapes.info.items() if _is_metric(x)}
        zero = jnp.zeros(())
        return base.State(state, obs, zero, zero, metrics, {"rng": rng, "truncation": zero})

    def step(self, state: Any, action: Array) -> base.State:
        rng, step_key = jax.random.split(state.info["rng"])
        ts = self.env.step(_typed(step_key), state.pipeline_state, action, self.params)
        metrics = {**state.metrics, **{name: jnp.asarray(x, float) for name, x in ts.info.items() if _is_metric(x)}}
        done, truncation = ts.terminated | ts.truncated, ts.truncated & ~ts.terminated
        return state.replace(
            pipeline_state=ts.state,
            obs=ts.obs,
            reward=ts.reward,
            done=done.astype(float),
            metrics=metrics,
            info={**state.info, "rng": rng, "truncation": truncation.astype(float)},
        )

    @property
    def observation_size(self) -> Any:
        obs, _ = jax.eval_shape(self.env.reset, jax.random.key(0), self.params)
        return jax.tree.map(lambda x: x.shape[0] if len(x.shape) == 1 else x.shape, obs)

    @property
    def action_size(self) -> int:
        return math.prod(self.env.action_space(self.params).shape)

    @property
    def backend(self) -> str:
        return "jaxrl"


def _typed(key: Array) -> Array:
    """Brax's wrappers want raw keys (they take the last axis for the key's own), jaxrl's states hold typed ones."""
    return key if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else jax.random.wrap_key_data(key)


def _is_metric(x: Any) -> bool:
    return not isinstance(x, dict) and x.shape == ()


def to_brax(env: Environment, params: Any = None) -> base.Env:
    """`env` as a Brax environment, to be given to Brax's wrappers and agents.

    `done` is the end of either kind and `info["truncation"]` tells them apart. Brax's `EpisodeWrapper` overwrites that
    with its own limit, so under it set `params.max_steps` to `NO_LIMIT` and give it the limit instead. Brax's agents
    act in [-1, 1]: wrap `env` in `RescaleAction` where its box is another. Scalars of `info` become metrics. Raises
    ValueError unless actions are a 1-d Box, for one agent.
    """
    params = strongly_typed(env.default_params if params is None else params)
    space = env.action_space(params)
    if not isinstance(space, Box) or len(space.shape) != 1 or env.num_agents > 1:
        raise ValueError(f"to_brax: {env.id} has {env.num_agents} agent(s) in {space}; Brax has one, in a 1-d Box.")
    check_params(env, params)
    return ToBrax(env, params)


# ---- in


@pytree
class BraxParams:
    max_steps: jax.Array = 1000


@pytree
class BraxState:
    time: jax.Array  # steps since reset
    env: Any  # Brax's State: the pipeline's state, observation, reward, done, metrics, info


@dataclasses.dataclass(frozen=True)
class FromBrax(Environment):
    """Made by `from_brax`."""

    env: Any

    Params = BraxParams

    def initial(self, key: Array, params: BraxParams) -> BraxState:
        return strongly_typed(BraxState(jnp.int32(0), self.env.reset(key)))

    def transition(self, key: Array, state: BraxState, action: Array, params: BraxParams) -> Transition:
        # Brax's wrappers write into the info they are given.
        before = state.env.replace(info=dict(state.env.info), metrics=dict(state.env.metrics))
        env = self.env.step(before, action)
        env = jax.tree.map(lambda new, old: jnp.asarray(new, old.dtype), env, state.env)
        done, cut = env.done > 0, jnp.bool_(False)
        if "truncation" in env.info:
            cut = env.info["truncation"] > 0
        return Transition(state.replace(env=env), env.reward, done & ~cut, cut, dict(env.metrics))

    def observe(self, key: Array, state: BraxState, params: BraxParams) -> Any:
        return named(state.env.obs)

    def observation_space(self, params: BraxParams) -> Space:
        return observation_space(self.env)

    def action_space(self, params: BraxParams) -> Box:
        return Box(-1.0, 1.0, (self.env.action_size,))


PARTS = ("reset", "step", "action_size", "unwrapped")
TRAINING = ("AutoReset", "Vmap", "EpisodeWrapper", "EvalWrapper", "GymWrapper", "TorchWrapper", "DmEnvWrapper")
"""Parts of the names of wrappers that do what jaxrl does itself."""


def _attributes(layer: Any) -> dict[str, Any]:
    return getattr(layer, "__dict__", {})


def from_brax(env: Any, max_steps: int = 1000, id: str | None = None) -> tuple[FromBrax, BraxParams]:
    """`(env, params)` of a Brax environment, or one of MuJoCo Playground, whose State has the same fields.

    Give the environment itself, not wrapped for training: jaxrl does the batch, the reset and the time limit. Actions
    are in [-1, 1]; metrics become `info`; an observation `privileged_state` becomes `privileged`. Brax keeps its
    dynamics' numbers in the object, so `max_steps` is the only leaf of params. Wrappers that change the task, as its
    reward, are taken. Raises ValueError for a wrapper of Brax's or Playground's training, which batches, resets, cuts
    or counts, and TypeError for what is no such environment.
    """
    if lacking := [name for name in PARTS if not hasattr(type(env), name) and name not in _attributes(env)]:
        raise TypeError(f"from_brax: {env!r:.60} is no Brax environment: it has no {', no '.join(lacking)}.")
    layer = env
    while layer is not None:
        for cls in type(layer).__mro__:
            if any(word in cls.__name__ for word in TRAINING):
                raise ValueError(
                    f"from_brax: {type(layer).__name__} is of Brax's training, and jaxrl does the batch, the reset and "
                    "the time limit: give the environment under it, env.unwrapped, and its episode_length as max_steps."
                )
        layer = _attributes(layer).get("env")
    if not isinstance(max_steps, int | np.integer) or not 1 <= max_steps <= NO_LIMIT:
        raise ValueError(f"max_steps={max_steps}: it must be an integer from 1 to {NO_LIMIT}.")
    wrapped = FromBrax(env, id=id or type(env.unwrapped).__name__)
    return wrapped, wrapped.default_params.replace(max_steps=jnp.int32(max_steps))
