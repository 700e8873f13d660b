"""Spaces: what an observation or action may be. Shapes and dtypes are static; bounds may be traced (they can come from
params).
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float


class Space:
    """Base of all spaces: `sample(key)`, `contains(x)` (a traced boolean), `to_gymnasium()`."""

    shape: tuple[int, ...]
    dtype: Any

    def sample(self, key: Array) -> Any:
        """One uniformly drawn member (normal where a bound is infinite)."""
        raise NotImplementedError

    def contains(self, x: Any) -> Bool[Array, ""]:
        """Whether `x` is a member: structure, shape, dtype kind and values."""
        raise NotImplementedError

    def to_gymnasium(self) -> Any:
        """The same space of the `gymnasium` package (needs concrete bounds and gymnasium installed)."""
        raise NotImplementedError


def _fits(x: Any, shape: tuple[int, ...], dtype: Any) -> bool:
    """The static half of `contains`. Any integer dtype passes for an integer space, any real one for a float space."""
    if not hasattr(x, "dtype") and not isinstance(x, int | float):
        return False
    kind = jnp.integer if jnp.issubdtype(dtype, jnp.integer) else jnp.number
    return np.shape(x) == shape and (jnp.result_type(x) == dtype or bool(jnp.issubdtype(jnp.result_type(x), kind)))


@dataclasses.dataclass(frozen=True, eq=False)
class Box(Space):
    """Arrays of `shape` between `low` and `high` (scalars or arrays that broadcast to it, inclusive).

    `scale` is `(low, high)` of a box inside of this one, which policies take for the ends of sides that are open.
    """

    low: Any
    high: Any
    shape: tuple[int, ...] = ()
    dtype: Any = jnp.float32
    scale: tuple[Any, Any] | None = None

    def __repr__(self) -> str:
        concrete = not any(isinstance(x, jax.core.Tracer) for x in (self.low, self.high))
        bounds = f"{np.asarray(self.low).tolist()}, {np.asarray(self.high).tolist()}, " if concrete else ""
        return f"Box({bounds}{self.shape}, {jnp.dtype(self.dtype).name})"

    def sample(self, key: Array) -> Array:
        if self.dtype == jnp.bool_:
            return jax.random.bernoulli(key, shape=self.shape)
        if jnp.issubdtype(self.dtype, jnp.integer):
            return jax.random.randint(key, self.shape, self.low, jnp.asarray(self.high) + 1, self.dtype)
        low, high = (jnp.broadcast_to(jnp.asarray(x, self.dtype), self.shape) for x in (self.low, self.high))
        u_key, n_key = jax.random.split(key)
        bounded = jnp.isfinite(low) & jnp.isfinite(high)
        # Where a side is open: a half-normal from the closed one, or a normal.
        normal = jax.random.normal(n_key, self.shape, self.dtype)
        one_sided = jnp.where(jnp.isfinite(low), low + jnp.abs(normal), high - jnp.abs(normal))
        open_ = jnp.where(jnp.isfinite(low) | jnp.isfinite(high), one_sided, normal)
        safe_low, safe_high = jnp.where(bounded, low, 0), jnp.where(bounded, high, 1)
        u = jax.random.uniform(u_key, self.shape, self.dtype)
        uniform = (1 - u) * safe_low + u * safe_high  # their difference may overflow
        return jnp.where(bounded, jnp.clip(uniform, safe_low, safe_high), open_)

    def contains(self, x: Any) -> Bool[Array, ""]:
        if not _fits(x, self.shape, self.dtype):
            return jnp.asarray(False)
        x = jnp.asarray(x)
        return jnp.all((x >= self.low) & (x <= self.high))

    def from_unit(self, x: Float[Array, "..."]) -> Float[Array, "..."]:
        """What policies act in, [-1, 1] a side, in the box's own units and clipped to it; of an open side, in `scale`.

        Without a `scale` -1 and 1 are themselves there. Needs concrete bounds.
        """
        low, high = np.asarray(self.low), np.asarray(self.high)
        finite = self.ends()
        middle, half = (finite[0] + finite[1]) / 2, (finite[1] - finite[0]) / 2
        return jnp.clip(middle.astype(x.dtype) + x * half.astype(x.dtype), low, high)

    def ends(self) -> tuple[np.ndarray, np.ndarray]:
        """What -1 and 1 are to a policy: the bounds, of an open side those of `scale`, else -1 and 1. Host only."""
        ends = np.asarray(self.low), np.asarray(self.high)
        for low, high in (self.scale or (-1, 1), (-1, 1)):
            bounded = np.isfinite(ends[0]) & np.isfinite(ends[1])
            ends = np.where(bounded, ends[0], low), np.where(bounded, ends[1], high)
        return ends

    def is_open(self) -> bool:
        """Whether a side has no two ends, nor has `scale`: between which actions are best, nobody knows. Host only."""
        inner = self.scale or (np.inf, np.inf)
        closed = (np.isfinite(low) & np.isfinite(high) for low, high in ((self.low, self.high), inner))
        return not np.all(np.logical_or(*closed))

    def to_gymnasium(self) -> Any:
        import gymnasium

        dtype = np.dtype(jnp.dtype(self.dtype).name)
        low, high = (np.broadcast_to(np.asarray(x, dtype), self.shape) for x in (self.low, self.high))
        return gymnasium.spaces.Box(low, high, self.shape, dtype)


@dataclasses.dataclass(frozen=True)
class Discrete(Space):
    """The integers 0 .. n-1."""

    n: int
    shape: tuple[int, ...] = dataclasses.field(default=(), init=False)
    dtype: Any = jnp.int32

    def __post_init__(self) -> None:
        if self.n < 1:
            raise ValueError(f"Discrete(n={self.n}): n must be at least 1.")

    def __repr__(self) -> str:
        return f"Discrete({self.n})"

    def sample(self, key: Array) -> Array:
        return jax.random.randint(key, (), 0, self.n, self.dtype)

    def contains(self, x: Any) -> Bool[Array, ""]:
        if not _fits(x, (), self.dtype):
            return jnp.asarray(False)
        return (jnp.asarray(x) >= 0) & (jnp.asarray(x) < self.n)

    def to_gymnasium(self) -> Any:
        import gymnasium

        return gymnasium.spaces.Discrete(self.n)


@dataclasses.dataclass(frozen=True)
class MultiDiscrete(Space):
    """Vectors of integers, entry i in 0 .. nvec[i]-1."""

    nvec: tuple[int, ...]
    dtype: Any = jnp.int32

    def __post_init__(self) -> None:
        object.__setattr__(self, "nvec", tuple(int(n) for n in self.nvec))
        if not self.nvec or min(self.nvec) < 1:
            raise ValueError(f"MultiDiscrete(nvec={self.nvec}): every entry must be at least 1, and there must be one.")

    def __repr__(self) -> str:
        return f"MultiDiscrete({self.nvec})"

    @property
    def shape(self) -> tuple[int, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return (len(self.nvec),)

    def sample(self, key: Array) -> Array:
        return jax.random.randint(key, self.shape, 0, jnp.asarray(self.nvec, self.dtype), self.dtype)

    def contains(self, x: Any) -> Bool[Array, ""]:
        if not _fits(x, self.shape, self.dtype):
            return jnp.asarray(False)
        return jnp.all((jnp.asarray(x) >= 0) & (jnp.asarray(x) < jnp.asarray(self.nvec)))

    def to_gymnasium(self) -> Any:
        import gymnasium

        return gymnasium.spaces.MultiDiscrete(list(self.nvec))


@dataclasses.dataclass(frozen=True, eq=False)
class Tuple(Space):
    """A tuple of spaces."""

    spaces: tuple[Space, ...]

    def sample(self, key: Array) -> tuple:
        return tuple(s.sample(k) for s, k in zip(self.spaces, jax.random.split(key, len(self.spaces)), strict=True))

    def contains(self, x: Any) -> Bool[Array, ""]:
        if not isinstance(x, tuple) or len(x) != len(self.spaces):
            return jnp.asarray(False)
        return jnp.all(jnp.stack([s.contains(v) for s, v in zip(self.spaces, x, strict=True)]))

    def to_gymnasium(self) -> Any:
        import gymnasium

        return gymnasium.spaces.Tuple([s.to_gymnasium() for s in self.spaces])


@dataclasses.dataclass(frozen=True, eq=False)
class Dict(Space):
    """A dictionary of spaces. Reserved keys: `privileged` (critic only), `action_mask`, `mission`."""

    spaces: dict[str, Space]

    def sample(self, key: Array) -> dict:
        keys = jax.random.split(key, len(self.spaces))
        return {name: s.sample(k) for (name, s), k in zip(self.spaces.items(), keys, strict=True)}

    def contains(self, x: Any) -> Bool[Array, ""]:
        if not isinstance(x, dict) or x.keys() != self.spaces.keys():
            return jnp.asarray(False)
        return jnp.all(jnp.stack([s.contains(x[name]) for name, s in self.spaces.items()]))

    def to_gymnasium(self) -> Any:
        import gymnasium

        return gymnasium.spaces.Dict({name: s.to_gymnasium() for name, s in self.spaces.items()})


def flat_size(space: Space) -> int:
    """Numbers in one member of `space`: the length of its flattened vector (a discrete one counts as one number)."""
    if isinstance(space, Tuple):
        return sum(flat_size(s) for s in space.spaces)
    if isinstance(space, Dict):
        return sum(flat_size(s) for s in space.spaces.values())
    return math.prod(space.shape)


def environment_action(space: Space, action: Array) -> Array:
    """The action in the environment's units, of one in units of the box; a discrete action as it is."""
    return space.from_unit(action) if isinstance(space, Box) else action
