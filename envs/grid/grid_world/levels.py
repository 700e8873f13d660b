"""Levels of GridWorld: what a level is, the published families of them, and how one is drawn, changed and checked.

Oh et al. (2020), "Discovering Reinforcement Learning Algorithms" (LPG), NeurIPS, arXiv:2007.08794, appendix; Jackson et
al. (2023), "Discovering General Reinforcement Learning Algorithms with Adversarial Environment Design" (GROOVE),
NeurIPS, arXiv:2310.02782, and its code, which the numbers here are from.

A `Distribution` is a mixture of K kinds of levels, equally likely, so every one of its leaves has a leading axis K. All
that differs between levels of one kind is drawn between bounds that are leaves. `FAMILIES` are the published ones:

| families | |
|---|---|
| `dense sparse long longer long_dense`, and `tabular`, their mixture | LPG's: objects and start anew in each level |
| `rand_dense rand_long rand_small rand_sparse rand_very_dense rand_tiny` | the same with objects that move (maps) |
| `small medium large all`, `rand_all` (maps), `debug` | GROOVE's: everything drawn |
| `all_shortlife all_randlife all_vrandlife` | `all` with other lifetimes |
| `sixteen_rooms` ... `small_corridor`, and `mazes`, their mixture | nine mazes of 13 x 13, objects drawn |
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Integer, UInt32

from jaxrl.environment import pytree, strongly_typed
from jaxrl.math import below, choose

from ..maze.levels import LAYOUTS
from ..sampling import distinct


@pytree
class Level:
    """One grid world: the params of `GridWorld`. G x G cells at most, N object slots, K types of objects.

    A cell is its number, row * G + column; the grid is the `grid_size` x `grid_size` cells at the upper left.
    """

    max_steps: jax.Array  # int32
    lifetime: jax.Array  # int32, updates that LPG gives an agent on this level; the environment does not read it
    grid_size: jax.Array  # int32, rows and columns in use, up to G
    walls: jax.Array  # (G, G) bool
    start: jax.Array  # int32, the agent's first cell
    num_objects: jax.Array  # int32, the first slots are in use
    object_types: jax.Array  # (N,) int32
    object_cells: jax.Array  # (N,) int32, where each object stands (with maps: they move, and this is not read)
    reward: jax.Array  # (K,) of collecting an object of each type
    p_terminate: jax.Array  # (K,) probability that collecting it ends the episode
    p_respawn: jax.Array  # (K,) probability of coming back, each step that it is absent


@pytree
class Distribution:
    """A mixture of C kinds of levels, each as likely as the others. Bounds are (low, high), both included."""

    max_steps: jax.Array  # (C, 2) int32, log-uniform, rounded
    lifetime: jax.Array  # (C, 2) int32, log-uniform, rounded
    grid_size: jax.Array  # (C, 2) int32, uniform
    num_objects: jax.Array  # (C, 2) int32, uniform
    walls: jax.Array  # (C, G, G) bool, always there
    num_walls: jax.Array  # (C,) int32, further ones: distinct cells of all G x G, so a smaller grid has fewer
    object_types: jax.Array  # (C, N) int32
    reward: jax.Array  # (C, K, 2) uniform
    p_terminate: jax.Array  # (C, K, 2) log-uniform
    p_respawn: jax.Array  # (C, K, 2) log-uniform


class Kind(NamedTuple):
    """One kind of levels as it is published; the fields are those of `Distribution`."""

    max_steps: tuple[int, int]
    grid_size: tuple[int, int]
    num_objects: tuple[int, int]
    object_types: tuple[int, ...]
    reward: tuple[tuple[float, float], ...]
    p_terminate: tuple[tuple[float, float], ...]
    p_respawn: tuple[tuple[float, float], ...]
    lifetime: tuple[int, int] = (2500, 2500)
    num_walls: int = 0
    walls: str = ""  # rows of hexadecimal digits, the lowest bit the last column


class Family(NamedTuple):
    """A published distribution, and the static settings of `GridWorld` that hold it."""

    kinds: tuple[Kind, ...]
    observation: str = "tabular"

    @property
    def max_grid(self) -> int:
        return max(kind.grid_size[1] for kind in self.kinds)

    @property
    def max_objects(self) -> int:
        return max(kind.num_objects[1] for kind in self.kinds)

    @property
    def num_types(self) -> int:
        return max(len(kind.reward) for kind in self.kinds)


def _fixed(
    steps: int,
    grid: int,
    types: tuple[int, ...],
    reward: Sequence[float | int],
    end: Sequence[float | int],
    back: Sequence[float | int],
    walls: str = "",
    life: int = 2500,
) -> Kind:
    """A kind whose levels differ only in where the objects and the start are."""

    def same(values: Sequence[float | int]) -> tuple[tuple[float, float], ...]:
        return tuple((float(x), float(x)) for x in values)

    sizes = ((steps, steps), (grid, grid), (len(types), len(types)))
    return Kind(*sizes, types, same(reward), same(end), same(back), (life, life), 0, walls)


def _drawn(
    steps: tuple[int, int], grid: tuple[int, int], objects: tuple[int, int], walls: int, life: tuple[int, int]
) -> Kind:
    """A kind with one slot a type, its first type worth collecting and the others of either sign."""
    n = objects[1]
    reward = ((0.0, 1.0), *[(-1.0, 1.0)] * (n - 1))
    ends, comes_back = ((1e-2, 1.0),) * n, ((1e-3, 1e-1),) * n
    return Kind(steps, grid, objects, tuple(range(n)), reward, ends, comes_back, life, walls)


def _maze(walls: str) -> Kind:
    kind = _drawn((25, 50), (13, 13), (3, 3), 0, (2500, 2500))
    return kind._replace(reward=((0.0, 1.0),) * 3, walls=walls)


_MAZES = {re.sub("(?<=[a-z])(?=[A-Z0-9])", "_", name).lower(): _maze(rows) for name, (rows, *_) in LAYOUTS.items()}
_MAZES["small_corridor"] = _maze("0000 0aaa 0aaa 0aaa 0aaa 0aaa 0ffe 0aaa 0aaa 0aaa 0aaa 0aaa 0000")

_DENSE = _fixed(500, 11, (0, 0, 1, 2), [1, -1, -1], [0, 0.5, 0], [0.05, 0.1, 0.5])
_LONG = _fixed(1000, 11, (0, 0, 1, 1), [1, -1], [0, 0.5], [0.01, 1])
_LPG = {
    "dense": _DENSE,
    "sparse": _fixed(50, 13, (0, 1), [1, -1], [1, 1], [0, 0]),
    "long": _LONG,
    # A wall down the middle with two gaps; LPG has five objects of the second type, GROOVE three.
    "longer": _fixed(2000, 9, (0, 0, 1, 1, 1), [1, -1], [0.1, 0.8], [0.01, 1], "010 000 010 010 010 010 010 000 010"),
    # Two walls that cross, with two gaps each.
    "long_dense": _fixed(2000, 11, (0, 0, 0, 0), [1], [0], [0.005], "000 020 020 020 6fb 020 020 000 020 020 020"),
}
_MOVING = {
    "rand_dense": _DENSE._replace(lifetime=(25_000, 25_000)),
    "rand_long": _LONG._replace(lifetime=(25_000, 25_000)),
    "rand_small": _fixed(500, 7, (0, 0, 1, 1), [1, -1], [0, 0.5], [0.05, 0.1], "00 10 00 04 00 00 00", 25_000),
    "rand_sparse": _fixed(50, 7, (0, 1, 1), [1, -1], [1, 1], [1, 1], life=25_000),
    "rand_very_dense": _fixed(2000, 11, (0,), [1], [0], [1], life=25_000),
    "rand_tiny": _fixed(50, 3, (0, 0), [1], [0], [1], life=250),
}
_ALL = _drawn((20, 750), (4, 10), (1, 5), 15, (1000, 1000))
_GROOVE = {
    "small": _drawn((20, 100), (4, 6), (1, 3), 7, (250, 250)),
    "medium": _drawn((100, 250), (6, 8), (2, 4), 10, (1000, 1000)),
    "large": _drawn((250, 750), (8, 10), (2, 5), 15, (2500, 2500)),
    "all": _ALL,
    "all_shortlife": _ALL._replace(lifetime=(250, 250)),
    "all_randlife": _ALL._replace(lifetime=(50, 250)),
    "all_vrandlife": _ALL._replace(lifetime=(10, 250)),
    "debug": _drawn((5, 10), (3, 4), (1, 2), 4, (4, 4)),
}

FAMILIES: dict[str, Family] = {
    **{name: Family((kind,)) for name, kind in {**_LPG, **_GROOVE, **_MAZES}.items()},
    **{name: Family((kind,), "maps") for name, kind in _MOVING.items()},
    "rand_all": Family((_ALL._replace(lifetime=(25_000, 25_000)),), "maps"),
    "tabular": Family(tuple(_LPG.values())),
    "mazes": Family(tuple(_MAZES.values())),
}
"""By name, the published distributions of levels."""


def distribution(family: str, max_grid: int = 0, max_objects: int = 0, num_types: int = 0) -> Distribution:
    """A published distribution as arrays, in the sizes that hold it or in larger ones.

    Raises ValueError for an unknown family or sizes that do not hold it.
    """
    if family not in FAMILIES:
        raise ValueError(f"family={family!r}: choose one of {', '.join(FAMILIES)}.")
    need = FAMILIES[family]
    grid, slots, types = max_grid or need.max_grid, max_objects or need.max_objects, num_types or need.num_types
    given = {"max_grid": grid, "max_objects": slots, "num_types": types}
    for name, size in given.items():
        if size < getattr(need, name):
            raise ValueError(f"{name}={size} does not hold the family {family!r}, which needs {getattr(need, name)}.")

    def padded(kind: Kind) -> Distribution:
        walls = np.zeros((grid, grid), bool)
        for row, digits in enumerate(kind.walls.split()):
            size = kind.grid_size[1]
            walls[row, :size] = [int(digits, 16) >> (size - 1 - column) & 1 for column in range(size)]
        slot_types = np.zeros(slots, np.int32)
        slot_types[: len(kind.object_types)] = kind.object_types
        rules: dict[str, Any] = {}
        for name in ("reward", "p_terminate", "p_respawn"):
            rules[name] = np.zeros((types, 2))
            rules[name][: len(kind.reward)] = getattr(kind, name)
        bounds = {k: np.int32(getattr(kind, k)) for k in ("max_steps", "lifetime", "grid_size", "num_objects")}
        shapes: dict[str, Any] = {"walls": walls, "object_types": slot_types}
        return Distribution(**bounds, **shapes, **rules, num_walls=np.int32(kind.num_walls))  # pyright: ignore

    kinds = [padded(kind) for kind in need.kinds]
    return strongly_typed(jax.tree.map(lambda *x: jnp.asarray(np.stack(x)), *kinds))


# ---- level kit


def generate(key: Array, params: Distribution) -> Level:
    """Draw a level: a kind, then all that it leaves open; start and objects on distinct free cells.

    Where walls leave too few free cells there are fewer objects.
    """
    num_kinds, size = params.walls.shape[0], params.walls.shape[-1]
    slots, types = params.object_types.shape[-1], params.reward.shape[-2]
    count = [5, 3 * types, slots + 1, size * size]
    bits = jax.random.bits(key, (sum(count),), jnp.uint32)
    single, rules, places, order = jnp.split(bits, np.cumsum(count)[:-1].tolist())
    which = below(single[0], num_kinds)
    kind: Distribution = jax.tree.map(lambda x: x[which], params)
    u = unit(rules, params.reward).reshape(3, types)
    first, second, third, fourth = (single[i] for i in range(1, 5))

    grid_size = between(first, kind.grid_size)
    row, column = jnp.mgrid[:size, :size]
    inside = (row < grid_size) & (column < grid_size)
    last = jnp.where(kind.num_walls > 0, jnp.sort(order)[jnp.maximum(kind.num_walls - 1, 0)], 0)
    drawn = (order.reshape(size, size) <= last) & (kind.num_walls > 0)
    walls = (kind.walls | drawn) & inside
    cells = distinct(places, (inside & ~walls).reshape(-1))
    free = jnp.sum(inside & ~walls, dtype=jnp.int32)
    return Level(
        max_steps=log_uniform(unit(second, params.reward), kind.max_steps),
        lifetime=log_uniform(unit(third, params.reward), kind.lifetime),
        grid_size=grid_size,
        walls=walls,
        start=cells[0],
        num_objects=jnp.minimum(between(fourth, kind.num_objects), free - 1),
        object_types=kind.object_types,
        object_cells=jnp.where(cells[1:] < size * size, cells[1:], 0),
        reward=kind.reward[:, 0] + (kind.reward[:, 1] - kind.reward[:, 0]) * u[0],
        p_terminate=log_uniform(u[1], kind.p_terminate),
        p_respawn=log_uniform(u[2], kind.p_respawn),
    )


def mutate(key: Array, level: Level) -> Level:
    """A neighbour of `level`: its start moved, one object moved, or one wall built or taken away, at equal chance.

    Nothing is moved onto a wall or another object, and no wall is built on anything.
    """
    what, where, which = jax.random.bits(key, (3,), jnp.uint32)
    what = below(what, 3)
    size, slots = level.walls.shape[-1], level.object_cells.shape[-1]
    cells = jnp.arange(size * size, dtype=jnp.int32)
    inside = (cells // size < level.grid_size) & (cells % size < level.grid_size)
    walls = level.walls.reshape(-1)
    used = jnp.arange(slots) < level.num_objects
    taken = jnp.any((cells == level.object_cells[:, None]) & used[:, None], 0) | (cells == level.start)

    to = choose(where, inside & ~walls & ~taken)
    possible = to < cells.size
    moved = (jnp.arange(slots) == below(which, level.num_objects)) & (what == 1) & possible
    flip = (cells == choose(where, inside & ~taken)) & (what == 2)
    return level.replace(
        start=jnp.where((what == 0) & possible, to, level.start),
        object_cells=jnp.where(moved, to, level.object_cells),
        walls=(walls ^ flip).reshape(size, size),
    )


def validate(level: Level) -> None:
    """Raise ValueError for a level that makes no sense. Host only; leaves may be batched."""
    walls = np.asarray(level.walls)
    size = walls.shape[-1]
    if walls.shape[-2:] != (size, size):
        raise ValueError(f"grid world: walls {walls.shape} must be square.")
    types, cells = np.asarray(level.object_types), np.asarray(level.object_cells)
    if types.shape[-1] != cells.shape[-1]:
        raise ValueError(f"grid world: {types.shape[-1]} object_types for {cells.shape[-1]} object_cells.")
    slots, num_types = cells.shape[-1], np.shape(level.reward)[-1]
    for name, low, high in (
        ("max_steps", 1, math.inf),
        ("lifetime", 1, math.inf),
        ("grid_size", 1, size),
        ("num_objects", 0, slots),
        ("object_types", 0, num_types - 1),
        ("p_terminate", 0, 1),
        ("p_respawn", 0, 1),
    ):
        value = np.asarray(getattr(level, name))
        if np.any((value < low) | (value > high)):
            raise ValueError(f"grid world: {name}={value} must be from {low} to {high}.")
    for name in ("p_terminate", "p_respawn"):
        if np.shape(getattr(level, name))[-1] != num_types:
            raise ValueError(f"grid world: {name} has {np.shape(getattr(level, name))[-1]} types, reward {num_types}.")
    if not np.all(np.isfinite(np.asarray(level.reward))):
        raise ValueError(f"grid world: reward={level.reward} must be finite.")

    used = np.arange(slots) < np.asarray(level.num_objects)[..., None]
    start = np.asarray(level.start)[..., None]
    for name, where, counts in (("start", start, np.True_), ("object_cells", cells, used)):
        grid_size = np.asarray(level.grid_size)[..., None]
        outside = (where < 0) | (where // size >= grid_size) | (where % size >= grid_size)
        if np.any(outside & counts):
            raise ValueError(f"grid world: {name}={where} must be cells of the grid of size {grid_size[..., 0]}.")
        batch = np.broadcast_shapes(walls.shape[:-2], where.shape[:-1])
        flat = np.broadcast_to(walls.reshape(*walls.shape[:-2], size * size), (*batch, size * size))
        at = np.broadcast_to(where, (*batch, where.shape[-1])).clip(0, size * size - 1)
        if np.any(np.take_along_axis(flat, at, -1) & counts):
            raise ValueError(f"grid world: {name}={where} stands on a wall.")
    together = (cells[..., :, None] == cells[..., None, :]) & used[..., :, None] & used[..., None, :]
    if np.any(together & ~np.eye(slots, dtype=bool)):
        raise ValueError(f"grid world: object_cells={cells} share a cell; every object needs its own.")


def default_level(family: str, max_grid: int = 0, max_objects: int = 0, num_types: int = 0) -> Level:
    """The level that a family's id stands for: the draw of key 0, or for `dense` its reference's own positions."""
    # The float type is in the cache's key, for who turns float64 on.
    return strongly_typed(_default_level(family, max_grid, max_objects, num_types, jnp.result_type(float)))


@functools.cache
def _default_level(family: str, max_grid: int, max_objects: int, num_types: int, dtype: np.dtype) -> Level:
    with jax.ensure_compile_time_eval():  # it may be asked for while something is traced
        params = distribution(family, max_grid, max_objects, num_types)
        level = jax.tree.map(np.asarray, jax.jit(generate)(jax.random.key(0), params))
    if family == "dense":
        size = level.walls.shape[-1]
        cells = level.object_cells.copy()
        cells[:4] = [row * size + column for row, column in ((1, 3), (3, 7), (8, 7), (9, 2))]
        level = level.replace(start=np.int32(0), object_cells=cells)
    return level


# ---- drawing


def unit(bits: UInt32[Array, "..."], like: Float[Array, "..."]) -> Float[Array, "..."]:
    """Uniform in [0, 1), from the upper 24 of 32 bits, in the precision of `like`."""
    return (bits >> 8).astype(like.dtype) * 2.0**-24


def between(bits: UInt32[Array, ""], bounds: Integer[Array, "2"]) -> Integer[Array, ""]:
    """A uniform integer of `bounds`, both included."""
    return bounds[0] + below(bits, bounds[1] - bounds[0] + 1)


def log_uniform(u: Float[Array, "..."], bounds: Array) -> Array:
    """`u` in [0, 1) to between `bounds[..., 0]` and `bounds[..., 1]`, uniform in the logarithm; integers are rounded.

    Equal bounds give exactly that, 0 included.
    """
    low, high = bounds[..., 0].astype(u.dtype), bounds[..., 1].astype(u.dtype)
    x = low * (high / jnp.maximum(low, jnp.finfo(u.dtype).tiny)) ** u
    return x if jnp.issubdtype(bounds.dtype, jnp.floating) else jnp.round(x).astype(bounds.dtype)
