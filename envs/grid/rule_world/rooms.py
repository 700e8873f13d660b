"""The rooms of rule worlds, and where doors, objects and the agent are put in a trial."""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Integer, UInt8, UInt32

from jaxrl.math import below

from .rules import CLOSED, NOTHING, WALL

LAYOUTS = ("R1", "R2", "R4", "R6", "R9")
GREY_WALL = WALL << 4 | 6

Index = Integer[Array, ""]  # row * size + column
Grid = UInt8[Array, " cells"]  # packed tiles, and an empty one that stands for the outside


class Rooms(NamedTuple):
    """The walls of a layout, where its doors may be, and the floor, all static."""

    grid: UInt8[np.ndarray, " cells"]  # packed tiles, the last one being the outside
    doors: Integer[np.ndarray, "doors choices"]
    floor: Integer[np.ndarray, " floor"]


@functools.cache
def rooms(layout: str, size: int) -> Rooms:
    """A layout of `size` x `size`. Raises ValueError for a size that it does not have."""
    grid = np.full((size, size), NOTHING, np.uint8)
    grid[[0, -1]] = grid[:, [0, -1]] = GREY_WALL
    half, third = size // 2, size // 3
    doors: list[list[tuple[int, int]]] = []
    if size < 5 or (layout == "R4" and size % 2 == 0) or (layout == "R6" and size < 9):
        raise ValueError(f"layout {layout} has no size={size}: from 5 (R4: and odd; R6: from 9).")
    if layout == "R9" and (size < 7 or size % 3 != 1):
        raise ValueError(f"layout R9 has no size={size}: 7, 10, 13 and so on.")
    if layout == "R2":
        grid[:, half] = GREY_WALL
        doors = [[(row, half) for row in range(1, size - 1)]]
    elif layout == "R4":
        grid[half] = grid[:, half] = GREY_WALL
        for part in (range(1, half), range(half + 1, size - 1)):
            doors += [[(half, x) for x in part], [(x, half) for x in part]]
    elif layout == "R6":
        left, right = half - 2, half + 2
        grid[:, [left, right]] = GREY_WALL
        for row in (third, 2 * third):
            grid[row, :left] = grid[row, right:] = GREY_WALL
        doors = [[(row, column)] for column in (left, right) for row in (half - third, half, half + third)]
    elif layout == "R9":
        grid[[third, 2 * third]] = grid[:, [third, 2 * third]] = GREY_WALL
        for i in range(3):
            along = range(i * third + 1, (i + 1) * third)
            for wall in (third, 2 * third):
                doors += [[(wall, x) for x in along], [(x, wall) for x in along]]
    cells = np.array([[row * size + column for row, column in door] for door in doors], np.int32)
    floor = np.flatnonzero(grid == NOTHING).astype(np.int32)
    return Rooms(
        np.append(grid.reshape(-1), np.uint8(0)), cells.reshape(len(doors), len(doors[0]) if doors else 0), floor
    )


def _distinct(bits: UInt32[Array, " k"], n: int) -> Integer[Array, " k"]:
    """Different integers below n, every sequence equally likely: a Lehmer code, read from its end."""
    k = bits.size
    numbers = below(bits, jnp.int32(n) - np.arange(k, dtype=np.int32))

    def earlier(i: Array, numbers: Array) -> Array:
        i = k - 2 - i
        return numbers + ((np.arange(k) > i) & (numbers >= numbers[i]))

    return jax.lax.fori_loop(0, k - 1, earlier, numbers)


def num_words(layout: Rooms, num_objects: int) -> int:
    """How many random words `places` takes."""
    return 2 * len(layout.doors) + num_objects + 1 + 1 + 2


def places(
    bits: UInt32[Array, " words"], objects: UInt8[Array, " K"], layout: Rooms
) -> tuple[Grid, Index, Index, UInt32[Array, "2"]]:
    """`(grid, position, direction, next seed)` of a new trial: doors of six colours, closed; objects and agent on
    different cells of the floor."""
    doors, k = len(layout.doors), objects.shape[0]
    where, color, cells, turn, seed = jnp.split(bits, np.cumsum([doors, doors, k + 1, 1]))
    cell = jnp.arange(layout.grid.size)[:, None]
    at = jnp.asarray(layout.floor)[_distinct(cells, len(layout.floor))]
    tile = jnp.max(jnp.where(cell == at[:k], objects.astype(jnp.int32), 0), 1, initial=0)
    if doors:
        at_door = jnp.asarray(layout.doors)[np.arange(doors), below(where, layout.doors.shape[1])]
        door = jnp.max(jnp.where(cell == at_door, CLOSED << 4 | 1 + below(color, 6), 0), 1)
        tile = jnp.maximum(tile, door)
    grid = jnp.where(tile > 0, tile.astype(jnp.uint8), jnp.asarray(layout.grid))
    return grid, at[k], below(turn[0], 4), seed
