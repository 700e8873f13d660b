"""Parts of teachers of continuous parameters: levels from named ranges, and a history of tasks.

A teacher chooses points x (D,) of the unit box. Two kinds of functions make levels, which are env params:

    level_at(params, x) -> level      the level at a point, such as `Ranges`; the argument of teachers
    level_fn(key, params) -> level    a random level; the argument of `dr`, `plr`, `accel`, `sfl`, `groove`, `vectorize`

`Ranges.draw` is a `level_fn`: the level at a uniform point. Where a curriculum takes a `level_fn`, it also takes
`Ranges` and uses their `draw` (`drawing`).
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
    """A `level_at(params, x)`: params in which the named leaves go from `low` to `high` as x goes from 0 to 1.

    Hashable. Made by `ranges`.
    """

    names: tuple[str, ...]  # of leaves of the params
    low: tuple[tuple[float, ...], ...]  # for each leaf a number for each of its entries
    high: tuple[tuple[float, ...], ...]

    @property
    def dimensions(self) -> int:
        """D, the number of entries of all named leaves together."""
        return sum(map(len, self.low))

    def __call__(self, params: Any, x: Float[Array, " D"]) -> Any:
        """The level at x. Raises ValueError for params without one of the names and for x of another length."""
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
        """The level at a uniform x: a `level_fn(key, params)`."""
        return self(params, jax.random.uniform(key, (self.dimensions,)))


def drawing(level_fn: Callable[..., Any]) -> Callable[[Array, Any], Any]:
    """A `level_fn`: the function itself, or the `draw` of `Ranges`."""
    return level_fn.draw if isinstance(level_fn, Ranges) else level_fn


def ranges(params: PyTree, bounds: Mapping[str, tuple[Any, Any]]) -> Ranges:
    """The `Ranges` of leaves of `params` by their dotted names, each with its (lowest, highest) value.

        ranges(params, {"length": (0.2, 3.0), "machine.r_s": (0.01, 0.1)})

    A leaf with several entries has as many coordinates; its bounds are numbers or arrays of its shape. Raises
    ValueError for a name that is no leaf (naming the nearest), a leaf that is not of floating point, an empty range,
    and no range at all.
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


def dimensions_of(level_at: Callable[..., Any], dimensions: int | None) -> int:
    """D of a teacher: `dimensions`, or the attribute `dimensions` of `level_at`, which `Ranges` have.

    Raises ValueError if neither is given, for a number below 1, and if the two differ.
    """
    known = getattr(level_at, "dimensions", None)
    if dimensions is None and known is None:
        raise ValueError("dimensions=None: say how long the x of level_at is; what `ranges` makes says it itself.")
    D = known if dimensions is None else dimensions
    if D is None or D < 1:
        raise ValueError(f"dimensions={dimensions}: a box has at least 1.")
    if known not in (None, D):
        raise ValueError(f"dimensions={dimensions}: level_at varies {known} parameters.")
    return D


def new_levels_at(level_at: Callable[..., Any], params: Any, x: Float[Array, "n D"]) -> LevelBatch:
    """New levels at n points x. The points are the batch's `note`, so `update` gets them back with the outcomes."""
    return new_levels(jax.vmap(level_at, (None, 0))(params, x))._replace(note=x)


# ---- the history of tasks


@pytree
class History:
    """A ring buffer of the latest rows. A row is a teacher's record of one task."""

    rows: jax.Array  # (capacity, width)
    count: jax.Array  # int32, rows ever added

    @property
    def filled(self) -> Bool[Array, " capacity"]:
        """Which places hold a row."""
        return jnp.arange(len(self.rows)) < self.count


def no_history(capacity: int, width: int) -> History:
    """An empty history for `capacity` rows of `width` numbers each."""
    return History(jnp.zeros((capacity, width)), jnp.int32(0))


def remember(history: History, rows: Float[Array, "n width"], valid: Bool[Array, " n"]) -> History:
    """The history with the valid rows added in order. A full history loses its oldest rows."""
    capacity = len(history.rows)
    rank, added = jnp.cumsum(valid) - 1, valid.sum(dtype=jnp.int32)
    kept = valid & (rank >= added - capacity)
    where = jnp.where(kept, (history.count + rank) % capacity, capacity)  # past the end: dropped
    return History(history.rows.at[where].set(rows, mode="drop"), history.count + added)


def latest(history: History, n: int) -> Float[Array, "n width"]:
    """The last n rows, the oldest first. Meaningless before n rows were added."""
    return history.rows[(history.count - n + jnp.arange(n)) % len(history.rows)]


# ---- returns


def unit(value: Float[Array, "..."], low: Array | float, high: Array | float) -> Float[Array, "..."]:
    """`value` on a scale on which `low` is 0 and `high` is 1, clipped to [0, 1]."""
    return jnp.clip((value - low) / (high - low), 0, 1)


def check_returns(hyper: Any) -> None:
    """Raise ValueError unless `return_low` < `return_high` and `random_share` is in [0, 1]."""
    if not is_concrete(hyper):
        return
    low, high, share = (np.asarray(v) for v in (hyper.return_low, hyper.return_high, hyper.random_share))
    if not np.all(low < high):
        raise ValueError(f"return_low={low} must be below return_high={high}.")
    if np.any((share < 0) | (share > 1)):
        raise ValueError(f"random_share={share} must be in [0, 1].")
