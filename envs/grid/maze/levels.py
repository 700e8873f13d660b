"""Mazes to be tested on: those that curricula publish their results for, and families of random ones.

| id | cells | |
|---|---|---|
| `Maze-<name>-v0` for each of `HOLDOUTS` | 13 x 13 | a single level |
| `Maze-SmallCorridor-v0`, `Maze-LargeCorridor-v0` | 13 x 13, 19 x 19 | the goal in one of 10, 16 dead ends |
| `Maze-FourRooms-v0` | 17 x 17 | a gap in each wall between them, agent and goal in rooms |
| `Maze-Crossing-v0` | 9 x 9 | 5 walls across with a gap each, from corner to corner |
| `PerfectMaze13-v0`, `PerfectMaze19-v0`, `PerfectMaze101-v0` | | one way between any two cells |

The eight single levels are those of Dennis et al. (2020), arXiv:2012.02096, and Jiang et al. (2021),
arXiv:2110.02439, as minimax and JaxUED have them, and so are the other sizes and rules. Time limits are JaxUED's 250
for the single levels (minimax: 450) and for FourRooms, 4 (n + 2)^2 for Crossing, and 2 (n + 2)^2 for all others.
The walls of Crossing are MiniGrid's (minimax draws up to 5); a perfect maze is what a depth-first walk leaves that goes
on to an unseen neighbour at random, and back where there is none.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Integer, UInt32

from jaxrl.math import below, choose, random_words

from ..minigrid.crossing import Crossing as GridCrossing
from ..tiles import WALL, kind_of
from .kit import Level, WallMap, packed
from .maze import MazeTask, as_level, furnished

# ---- single levels

# Rows from above in hexadecimal, the first cell of a row being bit 12, 1 a wall; agent's x, y, direction; goal's x, y.
LAYOUTS: dict[str, tuple[str, tuple[int, int, int], tuple[int, int]]] = {
    "SixteenRooms": ("0248 0008 0240 176e 0200 0048 1add 0208 0240 0f6b 0248 0040 0208", (1, 1, 0), (11, 11)),
    "SixteenRooms2": ("0208 0048 0248 1edd 0240 0048 17df 0248 0200 1b6f 0248 0040 0248", (1, 1, 0), (11, 11)),
    "Labyrinth": ("0000 0ffe 0802 0bfa 0a0a 0aea 0aaa 0aaa 088a 0ffa 0082 1ebe 0080", (0, 12, 0), (6, 6)),
    "LabyrinthFlipped": ("0000 0ffe 0802 0bfa 0a0a 0aea 0aaa 0aaa 0a22 0bfe 0820 0faf 0020", (12, 12, 2), (6, 6)),
    "Labyrinth2": ("0800 0bfe 0a02 0afa 0a8a 02aa 1eaa 02ea 0a0a 0bfa 0802 0ffe 0000", (0, 0, 0), (6, 6)),
    "StandardMaze": ("0084 0ef6 0800 0ff7 0010 1fbe 0120 0c6f 0522 15ba 1488 16ee 0228", (6, 0, 0), (6, 12)),
    "StandardMaze2": ("0284 0af1 0804 0ff7 0254 1ad4 0a16 0b72 093a 0daa 08aa 0aaa 0220", (0, 6, 0), (12, 4)),
    "StandardMaze3": ("0140 0f5e 0850 03d5 1a14 02d6 0a92 0abb 08a8 0eae 08a2 0baa 0888", (3, 0, 0), (12, 6)),
}
HOLDOUTS = tuple(LAYOUTS)
"""The eight levels that curricula are tested on."""


def holdout(name: str, max_steps: int = 250) -> Level:
    """One of the `HOLDOUTS`. Raises ValueError for another name."""
    if name not in LAYOUTS:
        raise ValueError(f"there is no hold-out maze {name!r}; there are {', '.join(HOLDOUTS)}.")
    rows, (x, y, direction), goal = LAYOUTS[name]
    walls = np.array([[int(row, 16) >> 12 - i & 1 for i in range(13)] for row in rows.split()], bool)
    numbers = ((x, y), direction, goal, max_steps)
    return Level(jnp.asarray(walls), *(jnp.asarray(n, jnp.int32) for n in numbers))


def holdouts(max_steps: int = 250) -> Level:
    """All eight, stacked in the order of `HOLDOUTS`."""
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *(holdout(name, max_steps) for name in HOLDOUTS))


@dataclasses.dataclass(frozen=True)
class Holdout(MazeTask):
    """One of the `HOLDOUTS` as a task."""

    id: str = dataclasses.field(default="Maze-Labyrinth-v0", kw_only=True)
    name: str = "Labyrinth"

    def __post_init__(self) -> None:
        holdout(self.name)
        super().__post_init__()

    @property
    def shape(self) -> tuple[int, int]:
        return 13, 13

    def generate(self, key: Array, params: Any) -> Level:
        return holdout(self.name).replace(max_steps=params.max_steps)


# ---- families


def _at(x: Any, y: Any) -> Integer[Array, "2"]:
    return jnp.stack([jnp.asarray(x, jnp.int32), jnp.asarray(y, jnp.int32)])


@dataclasses.dataclass(frozen=True)
class SizedMaze(MazeTask):
    """A square family of odd size."""

    size: int = 13
    static_ranges = {"size": (5, 1001)}

    @property
    def shape(self) -> tuple[int, int]:
        return self.size, self.size

    @property
    def time_limit(self) -> int:
        return 2 * (self.size + 2) ** 2

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.size % 2 == 0:
            raise ValueError(f"{self.id}: size={self.size} must be odd.")


@dataclasses.dataclass(frozen=True)
class Corridor(SizedMaze):
    """Two rows of dead ends, back to back, and a way around them. The goal is at the end of one; the agent starts in
    the middle of the left side, facing right."""

    id: str = dataclasses.field(default="Maze-SmallCorridor-v0", kw_only=True)

    def generate(self, key: Array, params: Any) -> Level:
        n, middle = self.size, self.size // 2
        walls = np.zeros((n, n), bool)
        walls[1:-1, 1::2] = walls[middle, 1:-1] = True
        bits = random_words(key, (2,))
        goal = _at(2 + 2 * below(bits[0], n // 2 - 1), middle - 1 + 2 * below(bits[1], 2))
        return Level(jnp.asarray(walls), _at(0, middle), jnp.int32(0), goal, params.max_steps)


@dataclasses.dataclass(frozen=True)
class FourRooms(SizedMaze):
    """Four rooms with a gap in each wall between two; agent and goal anywhere, but not in a gap."""

    id: str = dataclasses.field(default="Maze-FourRooms-v0", kw_only=True)
    size: int = 17
    static_ranges = {"size": (7, 1001)}

    @property
    def time_limit(self) -> int:
        return 250

    def generate(self, key: Array, params: Any) -> Level:
        *gaps, agent, goal, turn = random_words(key, (7,))
        middle = self.size // 2
        y, x = np.mgrid[: self.size, : self.size]
        walls = jnp.asarray((x == middle) | (y == middle))
        start = furnished(jnp.stack([agent, goal, turn]), packed(~walls))
        for i, bits in enumerate(gaps):
            across, along = (x, y) if i < 2 else (y, x)
            walls &= ~((across == middle) & (along == (middle + 1) * (i % 2) + below(bits, middle)))
        return as_level(start, self.size, params.max_steps).replace(wall_map=walls)


@dataclasses.dataclass(frozen=True)
class Crossing(SizedMaze):
    """Walls from side to side, `crossings` of them at odd x and y, with one gap each on the way from the first corner,
    where the agent faces right, to the goal in the last."""

    id: str = dataclasses.field(default="Maze-Crossing-v0", kw_only=True)
    size: int = 9
    crossings: int = 5
    static_ranges = {"size": (5, 99), "crossings": (1, 98)}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.crossings > self.size - 1:
            raise ValueError(f"{self.id}: crossings={self.crossings} must be from 1 to size - 1 = {self.size - 1}.")

    @property
    def time_limit(self) -> int:
        return 4 * (self.size + 2) ** 2

    def generate(self, key: Array, params: Any) -> Level:
        n = self.size
        task = GridCrossing(size=n + 2, num_crossings=self.crossings, obstacle="wall")
        grid = task.generate(key, params).grid[1:-1, 1:-1]  # our outer wall is not part of the level
        return Level(kind_of(grid) == WALL, _at(0, 0), jnp.int32(0), _at(n - 1, n - 1), params.max_steps)


def carved(bits: UInt32[Array, " words"], rows: int, columns: int) -> WallMap:
    """The walls that a depth-first walk through `rows` x `columns` rooms leaves, (2 rows - 1, 2 columns - 1): it goes
    on to one of the neighbours not yet seen, each equally likely, or back where there is none.

    Needs 2 rows columns - 1 words. `came[room]` is the direction of the step into it plus one: the way back and, in the
    end, the gaps.
    """
    wide = columns + 2  # rooms that were seen stand around
    steps = np.array([1, wide, -1, -wide], np.int32)
    back = jnp.asarray(np.array([0, *-steps, 0], np.int32))
    seen = np.full((rows + 2, wide), 5, np.uint8)
    seen[1:-1, 1:-1] = 0
    first = below(bits[-1], rows * columns)
    first = (first // columns + 1) * wide + first % columns + 1

    def walk(i, carry):
        came, here = carry
        direction = choose(bits[i], came[here + steps] == 0)
        new = direction < 4
        there = here + jnp.where(new, jnp.asarray(steps)[direction % 4], back[came[here]])
        return came.at[there].set(jnp.where(new, direction + 1, came[there]).astype(jnp.uint8)), there

    came = jnp.asarray(seen.reshape(-1)).at[first].set(5)
    came, _ = jax.lax.fori_loop(0, 2 * rows * columns - 2, walk, (came, first))
    came = came.reshape(rows + 2, wide)[1:-1, 1:-1]
    across = (came[:, 1:] == 1) | (came[:, :-1] == 3)
    down = (came[1:] == 2) | (came[:-1] == 4)
    walls = jnp.ones((2 * rows - 1, 2 * columns - 1), bool)
    return walls.at[::2, ::2].set(False).at[::2, 1::2].set(~across).at[1::2, ::2].set(~down)


@dataclasses.dataclass(frozen=True)
class PerfectMaze(SizedMaze):
    """Rooms at even x and y, one way between any two; agent and goal anywhere."""

    id: str = dataclasses.field(default="PerfectMaze13-v0", kw_only=True)

    # A v5e's compiler expects 63 us of a step of 4,096 with sparse resets, 1 ms with dense ones.
    hints = SizedMaze.hints._replace(reset="sparse")

    def generate(self, key: Array, params: Any) -> Level:
        rooms = self.size // 2 + 1
        bits = random_words(key, (2 * rooms * rooms + 2,))
        free = packed(~carved(bits[3:], rooms, rooms))
        return as_level(furnished(bits[:3], free), self.size, params.max_steps)
