"""Jumanji's environments as jaxrl's: `from_jumanji`, or `make("jumanji:Snake-v1")`.

Needs the `jumanji` package (the extra `jumanji`). Lost: rewards of single agents (one learner acts for all of
them and gets the sum), and params (Jumanji keeps its numbers in the object).
"""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxrl.environment import NO_LIMIT, Transition, strongly_typed
from jaxrl.interop.foreign import (
    Adapted,
    Held,
    TheirParams,
    TheirState,
    box,
    kept,
    named,
    refuse_training,
    with_key,
)
from jaxrl.spaces import Box, Dict, Discrete, MultiDiscrete, Space


@dataclasses.dataclass(frozen=True)
class FromJumanji(Adapted):
    """Made by `from_jumanji`."""

    @property
    def joint(self) -> bool:
        """Whether a vector of integers is one of as many actions as there are vectors, as its mask has it."""
        mask = getattr(self.env.observation_spec, "action_mask", None)
        numbers = _numbers(self.env.action_spec)
        return numbers.ndim == 1 and mask is not None and tuple(mask.shape) == tuple(numbers.tolist())

    @property
    def default_params(self) -> TheirParams:
        return strongly_typed(TheirParams(max_steps=jnp.int32(getattr(self.env, "time_limit", NO_LIMIT))))

    def initial(self, key: Array, params: TheirParams) -> TheirState:
        state, ts = self.env.reset(key)
        return strongly_typed(TheirState(jnp.int32(0), state, self.seen(ts.observation)))

    def transition(self, key: Array, state: TheirState, action: Array, params: TheirParams) -> Transition:
        spec = self.env.action_spec
        if self.joint:
            action = jnp.stack(jnp.unravel_index(action.astype(jnp.int32), tuple(_numbers(spec).tolist())))
        before, action = with_key(state.env, key), action.astype(spec.dtype)
        env, ts = self.env.step(before, action)
        # Most of Jumanji reports its time limit as termination. The same step with the limit out of reach ends only
        # where the task does; the rest of it is thrown away, and XLA computes what they share once.
        own = ts if not hasattr(self.env, "time_limit") else _endless(self.env).step(before, action)[1]
        terminated = own.last() & jnp.all(own.discount == 0)
        env, obs = kept((env, self.seen(ts.observation)), (state.env, state.obs))
        reward = jnp.sum(jnp.asarray(ts.reward, jnp.result_type(float)))
        info = strongly_typed(dict(ts.extras))
        return Transition(state.replace(env=env, obs=obs), reward, terminated, ts.last() & ~terminated, info)

    def seen(self, obs: Any) -> Any:
        """An observation by names, its mask of actions as a vector that fits the action space."""
        obs = named(obs)
        if not isinstance(obs, dict) or "action_mask" not in obs:
            return obs
        mask, space = obs["action_mask"], self.action_space(None)
        wanted = space.n if isinstance(space, Discrete) else sum(space.nvec) if isinstance(space, MultiDiscrete) else 0
        if mask.size == wanted:
            return {**obs, "action_mask": jnp.reshape(mask, (wanted,))}
        return {"legal" if name == "action_mask" else name: x for name, x in obs.items()}

    def observation_space(self, params: TheirParams) -> Space:
        with jax.ensure_compile_time_eval():
            return _space(self.env.observation_spec, self.seen(self.env.observation_spec.generate_value()))

    def action_space(self, params: Any) -> Space:
        spec = self.env.action_spec
        kind = type(spec).__name__
        if kind == "DiscreteArray":
            return Discrete(int(spec.num_values))
        if (numbers := _numbers(spec)).ndim == 1:
            return Discrete(int(numbers.prod())) if self.joint else MultiDiscrete(tuple(numbers.tolist()))
        if kind == "BoundedArray":
            with jax.ensure_compile_time_eval():
                low, high = np.asarray(spec.minimum), np.asarray(spec.maximum)
            return Box(low, high, tuple(spec.shape), jax.dtypes.canonicalize_dtype(spec.dtype))
        raise ValueError(
            f"from_jumanji: actions in a {kind}; it takes DiscreteArray, MultiDiscreteArray, BoundedArray."
        )


def _numbers(spec: Any) -> np.ndarray:
    """How many values each number of an action has, 0 of a real one; also inside a trace, where Jumanji's constants are
    traced. Integers from zero in bounds, as MultiCVRP's, are counted, too."""
    with jax.ensure_compile_time_eval():
        integers = type(spec).__name__ == "BoundedArray" and jnp.issubdtype(spec.dtype, jnp.integer)
        if integers and len(spec.shape) == 1 and not np.any(spec.minimum):
            return np.broadcast_to(np.asarray(spec.maximum).astype(int) + 1, spec.shape)
        return np.asarray(getattr(spec, "num_values", 0))


def _endless(env: Any) -> Any:
    """The environment, without its time limit."""
    other = copy.copy(env)
    other.time_limit = NO_LIMIT
    return other


def _space(spec: Any, seen: Any, name: str = "") -> Space:
    """The space of an observation, of its spec and of one of its values as the agent sees it."""
    if isinstance(seen, dict):
        specs = {"legal" if k == "action_mask" and "legal" in seen else k: x for k, x in spec._specs.items()}
        return Dict({k: _space(specs[k], x, k) for k, x in seen.items()})
    low: Any = getattr(spec, "minimum", None)
    high: Any = getattr(spec, "maximum", None)
    if name == "step_count" and hasattr(spec, "maximum"):
        high = high + 1  # the last observation of an episode that the time limit ends has the limit itself
    if np.shape(low) != () or np.shape(high) != ():
        low, high = np.broadcast_to(low, spec.shape).reshape(seen.shape), np.broadcast_to(high, spec.shape)
        high = high.reshape(seen.shape)
    return box(seen.shape, spec.dtype, low, high)


def from_jumanji(env: Any, id: str | None = None) -> tuple[FromJumanji, TheirParams]:
    """`(env, params)` of a Jumanji environment.

    `truncated` is the time limit, also where Jumanji reports it as termination; `params.max_steps` starts at it, and a
    larger one changes nothing. Observations are dicts; a vector of integers with a mask of all vectors is one discrete
    action, other masks that do not fit the actions are called `legal`. Raises ValueError for Jumanji's wrappers of
    batches and resets and for actions of another kind, TypeError for what is no such environment.
    """
    if lacking := [name for name in ("observation_spec", "action_spec", "step") if not hasattr(env, name)]:
        raise TypeError(f"from_jumanji: {env!r:.60} is no Jumanji environment: it has no {', no '.join(lacking)}.")
    refuse_training(env, "from_jumanji")
    adapted = FromJumanji(Held(env), id=id or type(env.unwrapped).__name__)
    adapted.action_space(None)
    return adapted, adapted.default_params


def names() -> list[str]:
    """Ids that are registered with Jumanji."""
    import jumanji

    return sorted(jumanji.registered_environments())


def by_name(name: str) -> tuple[FromJumanji, TheirParams]:
    """`(env, params)` of one of `names()`."""
    import jumanji

    return from_jumanji(jumanji.make(name), id=name)
