"""What Brax's and MuJoCo Playground's environments observe, as this library has it."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from jaxrl.environment import strongly_typed
from jaxrl.spaces import Box, Dict, Space


def named(obs: Any) -> Any:
    """An observation with jaxrl's name for what only the critic sees: Playground's is `privileged_state`."""
    if not isinstance(obs, Mapping):
        return obs
    return {"privileged" if name == "privileged_state" else name: x for name, x in obs.items()}


def observation_space(env: Any) -> Space:
    """The space of what `env.reset` observes."""
    return _space(env, jnp.result_type(float) == jnp.float64)


@functools.cache
def _space(env: Any, wide: bool) -> Space:
    obs = named(jax.eval_shape(lambda key: strongly_typed(env.reset(key)), jax.random.PRNGKey(0)).obs)
    boxes = jax.tree.map(lambda x: Box(-jnp.inf, jnp.inf, x.shape, x.dtype), obs)
    return Dict(boxes) if isinstance(boxes, dict) else boxes
