"""Flattening: members of a space as vectors, and wrappers that flatten observations or drop entries of them."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree, Shaped

from jaxrl.spaces import Box, Dict, Discrete, MultiDiscrete, Space, Tuple, flat_size
from jaxrl.wrappers.base import Wrapper

RESERVED = ("action_mask", "mission", "privileged")
"""Entries of a Dict observation that are neither stacked nor flattened."""


@dataclasses.dataclass(frozen=True)
class FlattenObservation(Wrapper):
    """The observation as one vector (F,); a Dict with reserved entries becomes `{"obs": vector, ...}` with these."""

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


@dataclasses.dataclass(frozen=True)
class FilterObservation(Wrapper):
    """Of a Dict observation the entries `keys` alone, as Gymnasium's wrapper of the name."""

    keys: tuple[str, ...] = ()

    def observe(self, key: Array, state: Any, params: Any) -> Any:
        obs = self.env.observe(key, state, params)
        return {name: obs[name] for name in self.observation_space(params).spaces}

    def observation_space(self, params: Any) -> Dict:
        space = self.env.observation_space(params)
        has = list(space.spaces) if isinstance(space, Dict) else []
        if not self.keys or (unknown := [name for name in self.keys if name not in has]):
            said = ", ".join(unknown) if self.keys else "nothing"
            raise ValueError(
                f"FilterObservation keeps {said} of {self.id}, which has {', '.join(has) or 'no entries'}."
            )
        return Dict({name: inner for name, inner in space.spaces.items() if name in self.keys})


@dataclasses.dataclass(frozen=True)
class Observed(Wrapper):
    """Of a flat observation (n,) the numbers `indices` alone, in that order: say positions without velocities.

    A Dict observation needs `FilterObservation` or `FlattenObservation` first. Raises ValueError for other observations
    than vectors, for no index, and for one that is not from 0 to n - 1.
    """

    indices: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "indices", tuple(int(i) for i in self.indices))
        self.observation_space(self.env.default_params)

    def observe(self, key: Array, state: Any, params: Any) -> Any:
        # Slices that are put together: an accelerator gathers at a cost, and knows these places when it compiles.
        obs = self.env.observe(key, state, params)
        return jnp.stack([obs[..., i] for i in self.indices], -1)

    def observation_space(self, params: Any) -> Box:
        space = self.env.observation_space(params)
        if not isinstance(space, Box) or len(space.shape) != 1:
            raise ValueError(f"Observed: {self.id} observes {space}; it takes numbers of a vector.")
        size = space.shape[0]
        if not self.indices or not all(0 <= i < size for i in self.indices):
            raise ValueError(f"Observed: indices={self.indices} of {self.id} must be some, from 0 to {size - 1}.")
        where = list(self.indices)
        low, high = (jnp.broadcast_to(jnp.asarray(x), space.shape)[jnp.array(where)] for x in (space.low, space.high))
        return Box(low, high, (len(where),), space.dtype)

    @property
    def observation_names(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        names = self.env.observation_names
        return tuple(names[i] for i in self.indices) if names else ()


def _reserved(space: Space) -> dict[str, Space]:
    return {name: s for name, s in space.spaces.items() if name in RESERVED} if isinstance(space, Dict) else {}


def _unreserved(space: Space) -> Space:
    if not isinstance(space, Dict):
        return space
    return Dict({name: s for name, s in space.spaces.items() if name not in RESERVED})


def flatten(space: Space, x: PyTree[Shaped[Array, "..."] | int | float]) -> Float[Array, "*batch F"]:
    """A member of `space` (any leading batch shape) as one vector: arrays flattened, discrete numbers one-hot.

    Entries of a Dict are in the order of the sorted names of the space, as in `networks.encode`.
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
    """The Box of the vectors that `flatten` returns."""
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
