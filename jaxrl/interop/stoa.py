"""Between jaxrl and Stoa: `from_stoa`, and `to_stoa`. Needs the `stoa-env` package (the extra `stoa`).

Stoa has no ids: build the environment with it. Lost: what its adapters lose, as gymnax's time limit; where jaxrl has an
adapter of its own for the library under it, take that. What `to_stoa` loses stands there.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxrl.environment import NO_LIMIT, Environment, Transition, check_params, strongly_typed
from jaxrl.interop import suites
from jaxrl.interop.foreign import (
    Adapted,
    Held,
    TheirParams,
    TheirState,
    box,
    kept,
    named,
    one_agent,
    refuse_training,
    with_key,
)
from jaxrl.spaces import Box, Dict, Discrete, MultiDiscrete, Space, Tuple

RESETTING = {"GymnaxToStoa": "gymnax", "KinetixToStoa": "kinetix"}
"""Adapters of Stoa whose step is the library's own with auto-reset, so that the last observation is gone."""


# ---- out


def to_stoa(env: Environment, params: Any = None) -> Any:
    """`env` as a `stoa.Environment`, to be given to Stoa's wrappers. It does not reset by itself.

    `params` are used where `reset` and `step` are given no `env_params`, as by Stoa's `AutoResetWrapper`, and make the
    spaces. A step's `step_type` is TERMINATED for the task's own end, also where the time limit is reached in the same
    step, and TRUNCATED for a cut; its `discount` is 0 for the former alone; `info` is `extras`, zeros at reset. The
    state is Stoa's `StateWithKey` around ours. Lost: the space of states, and of a box its `scale`. Raises ValueError
    where Stoa is not installed, for several agents and for a space that Stoa has not.
    """
    suites.require_suite(suites.STOA, "to_stoa")
    one_agent(env, "to_stoa")
    params = strongly_typed(env.default_params if params is None else params)
    check_params(env, params)
    from jaxrl.interop.stoa_out import ToStoa

    made = ToStoa(env, params)
    made.observation_space()  # a space that Stoa has not is an error now
    made.action_space()
    return made


# ---- in


@dataclasses.dataclass(frozen=True)
class FromStoa(Adapted):
    """Made by `from_stoa`."""

    own: Held = Held(None)  # its env_params, or None

    @property
    def default_params(self) -> TheirParams:
        return strongly_typed(TheirParams(env=self.own.thing))

    def initial(self, key: Array, params: TheirParams) -> TheirState:
        state, ts = self.env.reset(key, params.env)
        return strongly_typed(TheirState(jnp.int32(0), state, named(ts.observation)))

    def transition(self, key: Array, state: TheirState, action: Any, params: TheirParams) -> Transition:
        env, ts = self.env.step(with_key(state.env, key), action, params.env)
        env, obs = kept((env, named(ts.observation)), (state.env, state.obs))
        # Its adapter of Jumanji says "terminated" of every end; the discount tells them apart.
        terminated = ts.terminated() & (ts.discount == 0)
        reward = jnp.asarray(ts.reward, jnp.result_type(float))
        return Transition(state.replace(env=env, obs=obs), reward, terminated, ts.done() & ~terminated, {})

    def observation_space(self, params: TheirParams) -> Space:
        with jax.ensure_compile_time_eval():  # Stoa looks at its bounds when it makes a space
            return _space(self.env.observation_space(self.own.thing), of_action=False)

    def action_space(self, params: TheirParams) -> Space:
        with jax.ensure_compile_time_eval():
            return _space(self.env.action_space(self.own.thing), of_action=True)


def _space(space: Any, of_action: bool) -> Space:
    """A space of Stoa as jaxrl's. Integers that are seen are boxes: a count of steps is no category."""
    kind = type(space).__name__
    if kind == "DictSpace":
        return Dict({name: _space(s, of_action) for name, s in space.spaces.items()})
    if kind == "TupleSpace":
        return Tuple(tuple(_space(s, of_action) for s in space.spaces))
    if kind == "DiscreteSpace" and of_action:
        return Discrete(int(space.num_values))
    if kind == "MultiDiscreteSpace" and of_action:
        return MultiDiscrete(tuple(np.asarray(space.num_values).tolist()))
    if kind == "ArraySpace":
        return box(space.shape, space.dtype)
    if hasattr(space, "minimum"):
        dtype = jax.dtypes.canonicalize_dtype(space.dtype)
        return Box(np.asarray(space.minimum), np.asarray(space.maximum), tuple(space.shape), dtype)
    raise ValueError(f"from_stoa: {kind} is not a space it knows (arrays, discrete ones, Dict, Tuple).")


def from_stoa(
    env: Any, env_params: Any = None, max_steps: int = NO_LIMIT, id: str | None = None
) -> tuple[FromStoa, TheirParams]:
    """`(env, params)` of an environment in Stoa's interface; `params.env` are its `env_params`, where it takes any.

    `max_steps` is a time limit of ours beside what Stoa's `EpisodeStepLimitWrapper` cuts. Raises ValueError for its
    wrappers of batches and resets, and for its adapters of gymnax and Kinetix, whose step resets; TypeError for what is
    no such environment.
    """
    if lacking := [name for name in ("observation_space", "action_space", "step") if not hasattr(env, name)]:
        raise TypeError(f"from_stoa: {env!r:.60} is no environment of Stoa: it has no {', no '.join(lacking)}.")
    refuse_training(env, "from_stoa")
    inner = type(getattr(env, "unwrapped", env)).__name__
    if inner in RESETTING:
        own = "jaxrl.interop.gymnax.from_gymnax takes it" if inner == "GymnaxToStoa" else "there is no other way yet"
        raise ValueError(f"from_stoa: {inner} resets within its step, so that last observations are lost: {own}.")
    adapted = FromStoa(Held(env), Held(env_params), id=id or inner.removesuffix("ToStoa") or inner)
    params = adapted.default_params
    return adapted, params.replace(max_steps=jnp.int32(max_steps))
