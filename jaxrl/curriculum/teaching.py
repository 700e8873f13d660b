"""What teachers of continuous parameters share: levels from named ranges, what they remember, what they hand out.

A teacher chooses points x (D,) of the unit box; a level function `level_fn(params, x)` makes env params of them. What
draws levels without a teacher, `dr`, `plr`, `accel`, `sfl` and `vectorize`, takes a `level_fn(key, params)`; of ranges
it is `Ranges.draw`, which the four take for the ranges themselves (`drawing`).
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PyTree

from jaxrl.curriculum.protocol import LevelBatch, new_levels
from jaxrl.environment import is_concrete, pytree

# ---- levels


@dataclasses.dataclass(frozen=True)
class Ranges:
    """A level function: params with some leaves put where x says, each coordinate in its own range. Hashable."""

    names: tuple[str, ...]
    low: tuple[tuple[float, ...], ...]  # a number an entry of each leaf
    high: tuple[tuple[float, ...], ...]

    @property
    def dimensions(self) -> int:
        return sum(map(len, self.low))

    def __call__(self, params: Any, x: Float[Array, " D"]) -> Any:
        """`params` as a level. Raises ValueError for params without one of the names or x of another length."""
        if x.shape != (self.dimensions,):
            raise ValueError(f"x has shape {x.shape}; {', '.join(self.names)} need ({self.dimensions},).")
        paths, leaves, structure = _named_leaves(params)
        begin = 0
        for name, low, high in zip(self.names, self.low, self.high, strict=True):
            i = _find(name, paths, leaves)
            part = x[begin : begin + len(low)]
            value = jnp.asarray(low) + part * (jnp.asarray(high) - jnp.asarray(low))
            leaves[i] = value.reshape(jnp.shape(leaves[i])).astype(jnp.result_type(leaves[i]))
            begin += len(low)
        return jax.tree.unflatten(structure, leaves)

    def draw(self, key: Array, params: Any) -> Any:
        """`params` as a level at a uniform x."""
        return self(params, jax.random.uniform(key, (self.dimensions,)))


def drawing(level_fn: Callable[..., Any]) -> Callable[[Array, Any], Any]:
    """`level_fn(key, params)`, also of `Ranges`: uniform in them."""
    return level_fn.draw if isinstance(level_fn, Ranges) else level_fn


def ranges(params: PyTree, bounds: Mapping[str, tuple[Any, Any]]) -> Ranges:
    """The level function of leaves of `params` by name, each with its (lowest, highest) value.

        ranges(params, {"length": (0.2, 3.0), "machine.r_s": (0.01, 0.1)})

    A leaf with several entries takes as many coordinates; its bounds are numbers or arrays of its shape. Raises
    ValueError for a name that is no leaf (naming the nearest), a leaf that is not of floating point, an empty range,
    and where nothing is left to vary.
    """
    paths, leaves, _ = _named_leaves(params)
    continuous = [p for p, leaf in zip(paths, leaves, strict=True) if _is_float(leaf)]
    if not continuous:
        has = f"; it has {', '.join(paths)}" if paths else ""
        raise ValueError(f"{type(params).__name__} has no leaf of floating point that a teacher could vary{has}.")
    if not bounds:
        raise ValueError(f"ranges of no parameter: name some of {', '.join(continuous)}.")
    lows, highs = [], []
    for name, (low, high) in bounds.items():
        leaf = leaves[_find(name, paths, leaves)]
        low, high = (np.asarray(b, float) for b in (low, high))
        if not (np.all(np.isfinite(low)) and np.all(np.isfinite(high)) and np.all(low < high)):
            raise ValueError(f"{name}: the range from {low} to {high} is empty; both are finite, the first is lower.")
        shape = np.shape(leaf)
        if any(b.shape not in ((), shape) for b in (low, high)):
            raise ValueError(f"{name} has shape {shape}; its bounds have {low.shape} and {high.shape}.")
        lows.append(tuple(np.broadcast_to(low, shape).ravel().tolist()))
        highs.append(tuple(np.broadcast_to(high, shape).ravel().tolist()))
    return Ranges(tuple(bounds), tuple(lows), tuple(highs))


def _named_leaves(params: PyTree) -> tuple[list[str], list[Any], Any]:
    leaves, structure = jax.tree_util.tree_flatten_with_path(params)
    names = [jax.tree_util.keystr(path, simple=True, separator=".") for path, _ in leaves]
    return names, [leaf for _, leaf in leaves], structure


def _is_float(leaf: Any) -> bool:
    return bool(jnp.issubdtype(jnp.result_type(leaf), jnp.floating))


def _find(name: str, paths: list[str], leaves: list[Any]) -> int:
    if name not in paths:
        near = difflib.get_close_matches(name, paths, n=1, cutoff=0.5)
        guess = f"; did you mean {near[0]!r}?" if near else "."
        raise ValueError(f"params have no leaf {name!r}{guess} They have {', '.join(paths)}.")
    leaf = leaves[paths.index(name)]
    if not _is_float(leaf):
        raise ValueError(f"{name} is {jnp.result_type(leaf)}: only leaves of floating point vary continuously.")
    return paths.index(name)


def dimensions_of(level_fn: Callable[..., Any], dimensions: int | None) -> int:
    """D of a teacher. Raises ValueError when it is not given, below 1, or not that of `level_fn`."""
    known = getattr(level_fn, "dimensions", None)
    if dimensions is None and known is None:
        raise ValueError("dimensions=None: say how long the x of this level function is; that of `ranges` knows it.")
    D = known if dimensions is None else dimensions
    if D is None or D < 1:
        raise ValueError(f"dimensions={dimensions}: a box has at least 1.")
    if known not in (None, D):
        raise ValueError(f"dimensions={dimensions}: the level function varies {known} parameters.")
    return D


def levels_at(level_fn: Callable[..., Any], params: Any, x: Float[Array, "n D"]) -> LevelBatch:
    """New levels at the points x, which come back with the outcomes as `note`."""
    return new_levels(jax.vmap(level_fn, (None, 0))(params, x))._replace(note=x)


# ---- what a teacher remembers


@pytree
class Memory:
    """The latest rows that were added."""

    rows: jax.Array  # (capacity, width), a ring
    count: jax.Array  # int32, rows ever added

    @property
    def filled(self) -> Bool[Array, " capacity"]:
        return jnp.arange(len(self.rows)) < self.count


def memory(capacity: int, width: int) -> Memory:
    return Memory(jnp.zeros((capacity, width)), jnp.int32(0))


def remember(memory: Memory, rows: Float[Array, "n width"], valid: Bool[Array, " n"]) -> Memory:
    """Add the valid rows, in their order."""
    capacity = len(memory.rows)
    rank, added = jnp.cumsum(valid) - 1, valid.sum(dtype=jnp.int32)
    kept = valid & (rank >= added - capacity)
    where = jnp.where(kept, (memory.count + rank) % capacity, capacity)  # past the end: dropped
    return Memory(memory.rows.at[where].set(rows, mode="drop"), memory.count + added)


def latest(memory: Memory, n: int) -> Float[Array, "n width"]:
    """The last n rows, the oldest first. Meaningless before there are so many."""
    return memory.rows[(memory.count - n + jnp.arange(n)) % len(memory.rows)]


# ---- returns


def unit(value: Float[Array, "..."], low: Array | float, high: Array | float) -> Float[Array, "..."]:
    """Mapped to [0, 1] from [low, high], clipped."""
    return jnp.clip((value - low) / (high - low), 0, 1)


def check_returns(hyper: Any) -> None:
    """Raise ValueError for bounds of the return or a share that cannot be."""
    if not is_concrete(hyper):
        return
    low, high, share = (np.asarray(v) for v in (hyper.return_low, hyper.return_high, hyper.random_share))
    if not np.all(low < high):
        raise ValueError(f"return_low={low} must be below return_high={high}.")
    if np.any((share < 0) | (share > 1)):
        raise ValueError(f"random_share={share} must be in [0, 1].")
