"""What the agent of a grid world sees: the cells before it that walls and doors leave in sight, or all from above.

Packed cells (`tiles.py`) in the order of `image`, and their two encodings; `engine.py` has the table of observations.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int32, Integer, UInt8

from jaxrl.math import fence, on_cpu

from .tiles import AGENT, DOOR, NOTHING, OPEN, RED, WALL, State, color_of, kind_of, pack, state_of


@functools.cache
def view_table(height: int, width: int, size: int) -> Integer[np.ndarray, "states cells"]:
    """Which cell an agent sees where: a row for each direction and position, its `size`^2 cells in the order of
    `image`; height * width stands for the outside."""
    to_right = (np.arange(size) - size // 2)[:, None]
    forward = (size - 1 - np.arange(size))[None, :]
    y, x = np.divmod(np.arange(height * width), width)
    rows = []
    for dx, dy in ((1, 0), (0, 1), (-1, 0), (0, -1)):
        u = x[:, None, None] + dx * forward - dy * to_right
        v = y[:, None, None] + dy * forward + dx * to_right
        inside = (u >= 0) & (u < width) & (v >= 0) & (v < height)
        rows.append(np.where(inside, v * width + u, height * width))
    return np.stack(rows).reshape(4 * height * width, size * size).astype(np.int16)


def opaque(cell: Integer[Array, "..."]) -> Bool[Array, "..."]:
    """Walls, and doors that are not open."""
    return (kind_of(cell) == WALL) | ((kind_of(cell) == DOOR) & (state_of(cell) != OPEN))


def visible(cells: Int32[Array, " cells"], size: int) -> Bool[Array, " cells"]:
    """What of a view can be seen: light spreads from the agent along each row, and from row to row straight on and
    askew, through all that is not opaque.

    A row is one integer, a bit a cell. Adding the lit bits to the transparent ones carries light upwards through a run
    of these; downwards it is shifted by 1, 2, 4 ...
    """
    clear = ~opaque(cells)
    every = (1 << size) - 1
    lit = jnp.int32(1 << size // 2)
    rows = [lit] * size
    for j in reversed(range(size)):
        through = sum((clear[i * size + j].astype(jnp.int32) << i for i in range(size)), jnp.int32(0))
        seed = lit & through
        flood = (((seed + through) ^ through) | seed) & through
        run, shift = through, 1
        while shift < size:
            flood |= run & (flood >> shift)
            run &= run >> shift
            shift *= 2
        spread = flood << 1 | flood >> 1
        rows[j] = (lit | spread) & every
        lit = (flood | spread) & every
    # As few numbers as hold all bits: each is computed anew from the cells, the fence keeps their readers from that.
    fit = 31 // size
    words = fence(tuple(sum(row << size * k for k, row in enumerate(rows[j : j + fit])) for j in range(0, size, fit)))
    which, bit = np.divmod(np.tile(np.arange(size), size), fit)
    shift = bit * size + np.repeat(np.arange(size), size)
    word = functools.reduce(lambda word, k: jnp.where(which == k, words[k], word), range(1, len(words)), words[0])
    return (word >> shift & 1).astype(bool)


def _gathered(shape: tuple[int, int], size: int, grid: Array, position: Array, direction: Array) -> Array:
    """The cells before an agent, by a table."""
    height, width = shape
    table = jnp.asarray(view_table(height, width, size))
    rows = table.at[direction * (height * width) + position].get(mode="promise_in_bounds")
    return fence(grid.at[rows.astype(jnp.int32)].get(mode="promise_in_bounds"))


def _selected(shape: tuple[int, int], size: int, grid: Array, position: Array, direction: Array) -> Array:
    """The same without gathers, which other platforms are slow at: rows are picked from the grid, columns from them."""
    height, width = shape
    half, k = size // 2, np.arange(size)
    x, y = jax.lax.rem(position, jnp.int32(width)), jax.lax.div(position, jnp.int32(width))
    dx, dy = (jnp.int32(direction == d) - jnp.int32(direction == d + 2) for d in (0, 1))
    level = direction % 2 == 0
    v = y + jnp.where(level, dx * (k - half), dy * (size - 1 - k))
    u = x + jnp.where(level, dx * (size - 1 - k), -dy * (k - half))
    cells = grid[:-1].reshape(height, width)
    which = v[:, None] == np.arange(height)
    rows = jnp.sum(jnp.where(which[..., None], cells, 0), 1, dtype=grid.dtype)
    which = u[:, None] == np.arange(width)
    cells = jnp.sum(jnp.where(which, rows[:, None], 0), -1, dtype=grid.dtype)
    inside = ((v >= 0) & (v < height))[:, None] & (u >= 0) & (u < width)
    cells = jnp.where(inside, cells, grid[-1])
    return jnp.where(level, cells, cells.T).reshape(-1)


def look(state: State, shape: tuple[int, int], size: int, see_through_walls: bool) -> Int32[Array, " cells"]:
    """The packed cells that the agent sees, flat in the order of `image`; 0 where it cannot see."""
    args = state.grid, state.position, state.direction
    cells = on_cpu(functools.partial(_gathered, shape, size), functools.partial(_selected, shape, size), *args)
    own = np.arange(size * size) == size // 2 * size + size - 1
    seen = jnp.where(own, jnp.where(state.carrying != 0, state.carrying, NOTHING), cells)
    return seen if see_through_walls else jnp.where(visible(cells, size), seen, 0)


def look_down(state: State, shape: tuple[int, int]) -> Int32[Array, " cells"]:
    """All cells, column by column as `image` has them, the agent drawn in."""
    agent = pack(AGENT, RED, state.direction)
    grid = jnp.where(jnp.arange(state.grid.size) == state.position, agent, state.grid)
    return grid[:-1].reshape(shape).T.reshape(-1)


def symbolic(cells: Int32[Array, "..."]) -> UInt8[Array, "... 3"]:
    """Kind, colour and state of packed cells."""
    return (cells[..., None] >> np.array([0, 8, 16]) & np.array([255, 255, 15])).astype(jnp.uint8)


def one_hot(cells: Int32[Array, "..."]) -> UInt8[Array, "... 20"]:
    """11 kinds, 6 colours and 3 states of packed cells, as planes of 0 and 1."""
    parts = [
        part[..., None] == np.arange(n)
        for part, n in ((kind_of(cells), 11), (color_of(cells), 6), (jnp.minimum(state_of(cells), 2), 3))
    ]
    return jnp.concatenate(parts, -1).astype(jnp.uint8)
