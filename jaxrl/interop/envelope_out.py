"""What `jaxrl.interop.envelope.to_envelope` makes, which Envelope finds as the suite `jaxrl`, by an entry point.

Importing this module imports Envelope.
"""

from __future__ import annotations

import functools
from typing import Any

import envelope  # the library, which pyright takes for the module of this name beside this one
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxrl import registry
from jaxrl.environment import NO_LIMIT, Environment, check_params, is_concrete, pytree, strongly_typed
from jaxrl.interop.foreign import no_info, one_agent, typed
from jaxrl.spaces import Box, Dict, Discrete, MultiDiscrete, Space, Tuple


@pytree
class KeyedState:
    key: jax.Array  # of the next step
    env: Any  # ours


class ToEnvelope(envelope.Environment):
    """Made by `to_envelope`."""

    jaxrl_env: Environment = envelope.static_field()
    params: Any = envelope.field()

    @classmethod
    def registered_names(cls) -> tuple[str, ...]:
        """All ids of jaxrl."""
        return tuple(registry.environments())

    @classmethod
    def from_name(cls, env_name: str, env_kwargs: dict[str, Any] | None = None, params: Any = None) -> ToEnvelope:
        """What `envelope.create("jaxrl::<id>")` calls; `env_kwargs` are the static settings of `jaxrl.make`."""
        env, default = registry.make(env_name, **(env_kwargs or {}))
        one_agent(env, "to_envelope")
        return outward(env, default if params is None else params)

    def init(self, key: Array) -> tuple[KeyedState, envelope.InfoContainer]:
        reset_key, key = jax.random.split(key)
        obs, state = self.jaxrl_env.reset(typed(reset_key), self.params)
        no, zero = jnp.bool_(False), jnp.zeros((), jnp.result_type(float))
        info = envelope.InfoContainer(_seen(obs), zero, no, no)
        return KeyedState(key, state), info.update(backend=no_info(self.jaxrl_env, typed(reset_key), self.params))

    def step(self, state: KeyedState, action: Any) -> tuple[KeyedState, envelope.InfoContainer]:
        step_key, key = jax.random.split(state.key)
        ts = self.jaxrl_env.step(typed(step_key), state.env, action, self.params)
        info = envelope.InfoContainer(_seen(ts.obs), ts.reward, ts.terminated, ts.truncated)
        return KeyedState(key, ts.state), info.update(backend=ts.info)

    @functools.cached_property
    def observation_space(self) -> envelope.Space:
        with jax.ensure_compile_time_eval():
            return _whole(_space(self.jaxrl_env.observation_space(self.params), self.jaxrl_env.id, of_action=False))

    @functools.cached_property
    def action_space(self) -> envelope.Space:
        with jax.ensure_compile_time_eval():
            return _whole(_space(self.jaxrl_env.action_space(self.params), self.jaxrl_env.id, of_action=True))

    @property
    def default_max_steps(self) -> int | None:
        """`params.max_steps`; None where there is no limit, and of a batch of params."""
        limit = self.params.max_steps
        if not is_concrete(limit) or np.shape(limit) or int(limit) >= NO_LIMIT:
            return None
        return int(limit)


def outward(env: Environment, params: Any) -> ToEnvelope:
    """`to_envelope`, where Envelope is installed and the agent is one."""
    params = strongly_typed(env.default_params if params is None else params)
    if is_concrete(params):
        check_params(env, params)
    made = ToEnvelope(env, params)  # pyright: ignore[reportCallIssue]
    _ = made.observation_space, made.action_space  # a space that Envelope has not is an error now
    return made


def _seen(obs: Any) -> Any:
    """Envelope has no space of booleans; its own adapters observe them as small integers, too."""
    return jax.tree.map(lambda x: x.astype(jnp.int8) if x.dtype == jnp.bool_ else x, obs)


def _whole(space: Any) -> envelope.Space:
    """A tree of spaces as one."""
    return space if isinstance(space, envelope.Space) else envelope.PyTreeSpace(space)


def _space(space: Space, id: str, of_action: bool) -> Any:
    """A space of ours as Envelope's, or a tree of them, of which `PyTreeSpace` is the outermost layer only."""
    if isinstance(space, Discrete):
        return envelope.Discrete(jnp.asarray(space.n, space.dtype))  # pyright: ignore[reportArgumentType]
    if isinstance(space, MultiDiscrete):
        return envelope.Discrete(jnp.asarray(space.nvec, space.dtype))  # pyright: ignore[reportArgumentType]
    if isinstance(space, Box) and space.dtype == jnp.bool_:
        return envelope.Discrete(jnp.full(space.shape, 2, jnp.int8))  # pyright: ignore[reportArgumentType]
    if isinstance(space, Box) and not (of_action and jnp.issubdtype(space.dtype, jnp.integer)):  # it draws floats
        low, high = (jnp.broadcast_to(jnp.asarray(x, space.dtype), space.shape) for x in (space.low, space.high))
        return envelope.Continuous(low, high)
    if isinstance(space, Dict):
        return {name: _space(s, id, of_action) for name, s in space.spaces.items()}
    if isinstance(space, Tuple):
        return tuple(_space(s, id, of_action) for s in space.spaces)
    raise ValueError(f"to_envelope: {id} has a {space!r:.60}; Envelope has no such space.")
