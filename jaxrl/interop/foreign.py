"""What the adapters of several libraries' environments share: an object held by identity, states that keep their types,
observations by names.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from jaxrl.environment import NO_LIMIT, Environment, pytree
from jaxrl.spaces import Box, Dict, Space, Tuple


@dataclasses.dataclass(frozen=True, eq=False)
class Held:
    """An object of another library, compared and hashed by identity, whatever it says of itself."""

    thing: Any


@pytree
class TheirParams:
    max_steps: jax.Array = NO_LIMIT
    env: Any = None  # the library's own parameters, where it has any


@pytree
class TheirState:
    time: jax.Array  # steps since reset
    env: Any  # the library's own
    obs: Any  # the library makes it within reset and step


@dataclasses.dataclass(frozen=True)
class Adapted(Environment):
    """Base of the adapters: an environment of another library, whose reset and step make the observation."""

    held: Held

    Params = TheirParams

    @property
    def env(self) -> Any:
        """The other library's environment."""
        return self.held.thing

    def observe(self, key: Array, state: TheirState, params: Any) -> Any:
        return state.obs


def typed(key: Array) -> Array:
    """A typed key; libraries often hold raw ones (`PRNGKey`)."""
    return key if is_key(key) else jax.random.wrap_key_data(key)


def no_info(env: Environment, key: Array, params: Any) -> dict[str, Any]:
    """Zeros in the place of a step's `info`, as other libraries want one of a reset, too."""

    def first(key: Array) -> Any:
        step_key, action_key = jax.random.split(key)
        _, state = env.reset(key, params)
        return env.step(step_key, state, env.action_space(params).sample(action_key), params).info

    return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(first, key))


def one_agent(env: Environment, caller: str) -> None:
    """Raise ValueError for an environment of several agents."""
    if env.num_agents > 1:
        raise ValueError(f"{caller}: {env.id} has {env.num_agents} agents; that library's environments have one.")


def is_key(x: Any) -> bool:
    """Whether a leaf is a typed key, or an array of them."""
    return isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def with_key(state: PyTree, key: Array) -> PyTree:
    """The library's state with `key` in place of the key in it, or with as many of its children as there are."""
    leaves, structure = jax.tree.flatten(state)
    places = [i for i, x in enumerate(leaves) if is_key(x)]
    if len(places) == 1 and leaves[places[0]].shape == ():
        leaves[places[0]] = key
    elif places:
        for i, child in zip(places, jax.random.split(key, len(places)), strict=True):
            leaves[i] = jax.random.split(child, leaves[i].shape) if leaves[i].shape else child
    return jax.tree.unflatten(structure, leaves)


def kept(new: PyTree, old: PyTree) -> PyTree:
    """`new` in the types of `old`, with its keys: libraries return python numbers and weak types in places, and what a
    state holds of random numbers is replaced before the next step (`with_key`).
    """
    return jax.tree.map(lambda x, y: y if is_key(y) else jnp.asarray(x, y.dtype), new, old)


def named(obs: Any) -> Any:
    """An observation with dicts in place of named tuples and dataclasses, at every depth."""
    layer = one_layer(obs)
    if isinstance(layer, dict):
        return {name: named(x) for name, x in layer.items()}
    return tuple(named(x) for x in layer) if isinstance(layer, tuple) else layer


def one_layer(tree: Any) -> Any:
    """A dict of what a dataclass, a named tuple or a mapping has by name, a tuple of a sequence; else what is given."""
    if dataclasses.is_dataclass(tree):
        return {f.name: getattr(tree, f.name) for f in dataclasses.fields(tree)}
    if hasattr(tree, "_asdict"):
        return dict(tree._asdict())
    if isinstance(tree, Mapping):
        return dict(tree)
    return tuple(tree) if isinstance(tree, tuple | list) else tree


def box(shape: Any, dtype: Any, low: Any = None, high: Any = None) -> Box:
    """A box with the dtype as jax has it; without bounds those of the dtype."""
    dtype = jax.dtypes.canonicalize_dtype(dtype)
    if dtype == jnp.bool_:
        low, high = 0, 1
    elif jnp.issubdtype(dtype, jnp.integer):
        info = jnp.iinfo(dtype)
        low, high = (info.min if low is None else low), (info.max if high is None else high)
    else:
        low, high = (-jnp.inf if low is None else low), (jnp.inf if high is None else high)
    return Box(low, high, tuple(shape), dtype)


def space_of(shapes: PyTree) -> Space:
    """The space of observations of these shapes and types (of `jax.eval_shape`), as wide as the types are."""
    if isinstance(shapes, dict):
        return Dict({name: space_of(x) for name, x in shapes.items()})
    if isinstance(shapes, tuple):
        return Tuple(tuple(space_of(x) for x in shapes))
    return box(shapes.shape, shapes.dtype)


TRAINING = ("AutoReset", "Vmap", "Pooled", "EpisodeMetrics", "Gymnasium", "ToGym", "DmEnv")
"""Parts of the names of wrappers that do what jaxrl does itself."""


def refuse_training(env: Any, caller: str) -> None:
    """Raise ValueError for a wrapper that batches, resets or counts, in whatever depth."""
    layer = env
    while layer is not None:
        name = type(layer).__name__
        if any(word in name for word in TRAINING):
            raise ValueError(
                f"{caller}: {name} is of that library's training, and jaxrl does the batch, the reset and the counts: "
                "give the environment under it."
            )
        inside = getattr(layer, "__dict__", {})
        layer = inside.get("_env", inside.get("env"))
