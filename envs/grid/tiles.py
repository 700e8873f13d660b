"""What grid worlds are made of: packed cells, the levels and states that hold them, and levels written as text.

A cell is one int32: `kind | colour << 8 | state << 16 | tags << 24`. Doors have the states open, closed and locked; the
state of a box is 0, or 16 (colour + 1) of the key inside. Tags belong to a task: they travel with the object that has
them and are never seen. A grid is held flat, row by row, with one wall behind its end that stands for all that lies
outside.

Kinds, colours and states are MiniGrid's numbers (`minigrid` 3.2.0).
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int32, Integer

from jaxrl.environment import pytree
from jaxrl.math import on_cpu

UNSEEN, EMPTY, WALL, FLOOR, DOOR, KEY, BALL, BOX, GOAL, LAVA, AGENT = range(11)
KINDS = ("unseen", "empty", "wall", "floor", "door", "key", "ball", "box", "goal", "lava", "agent")
RED, GREEN, BLUE, PURPLE, YELLOW, GREY = range(6)
COLORS = ("red", "green", "blue", "purple", "yellow", "grey")
OPEN, CLOSED, LOCKED = range(3)
LEFT, RIGHT, FORWARD, PICKUP, DROP, TOGGLE, DONE = range(7)

Cell = Int32[Array, ""]  # packed
Index = Integer[Array, ""]  # row * width + column
Grid = Int32[Array, " cells"]  # flat


def pack(kind: Any, color: Any = 0, state: Any = 0) -> Any:
    """The cell of a kind, colour and state: numbers or arrays."""
    return kind | color << 8 | state << 16


def kind_of(cell: Any) -> Any:
    """The kind of a packed cell."""
    return cell & 255


def color_of(cell: Any) -> Any:
    """The colour of a packed cell."""
    return cell >> 8 & 255


def state_of(cell: Any) -> Any:
    """The state of a packed cell as it is seen: 0 open, 1 closed, 2 locked, 0 for all but doors."""
    return cell >> 16 & 15


NOTHING = EMPTY  # the packed cell: colour 0, state 0
GREY_WALL = pack(WALL, GREY)
GREEN_GOAL = pack(GOAL, GREEN)
RED_LAVA = pack(LAVA, RED)


@pytree
class Params:
    max_steps: jax.Array


@pytree
class Level:
    """Where an episode starts, as params."""

    max_steps: jax.Array
    grid: jax.Array  # (height, width) int32, packed cells
    position: jax.Array  # int32, row * width + column
    direction: jax.Array  # int32, 0 right, 1 down, 2 left, 3 up
    mission: jax.Array  # (K,) int32, what is asked for
    target: jax.Array  # (J,) int32, what the check of the task needs to know besides


@pytree
class State:
    time: jax.Array  # steps since reset
    grid: jax.Array  # (height * width + 1,) int32, packed cells and the wall that stands for the outside
    position: jax.Array  # int32, row * width + column
    direction: jax.Array  # int32
    carrying: jax.Array  # int32, packed cell; 0 for nothing
    mission: jax.Array  # (K,) int32
    target: jax.Array  # (J,) int32


def cell_at(grid: Grid, index: Index) -> Cell:
    """The cell at an index within the grid. Where gathers are dear every cell is read, which fuses."""

    def summed(grid, index):
        return jnp.sum(jnp.where(jnp.arange(grid.size) == index, grid, 0), dtype=grid.dtype)

    return on_cpu(lambda grid, index: grid.at[index].get(mode="promise_in_bounds"), summed, grid, index)


# ---- levels as text

_LETTERS = {FLOOR: "F", KEY: "K", BALL: "A", BOX: "B", GOAL: "G", LAVA: "V", WALL: "W"}
_DOORS = "OCL"  # open, closed, locked
_AGENT = ">v<^"


def to_ascii(grid: Integer[np.ndarray, "height width"], position: int = -1, direction: int = 0) -> str:
    """A level's grid as lines of two characters a cell: `..` empty, `##` grey wall, a letter for what it is (F floor, K
    key, A ball, B box, G goal, V lava, W wall, O C L open, closed and locked door) and one for its colour; the agent is
    `>>` `vv` `<<` `^^`. What is inside a box is not shown."""

    def text(index: int, cell: int) -> str:
        if index == position:
            return 2 * _AGENT[direction]
        if cell in (NOTHING, GREY_WALL):
            return ".." if cell == NOTHING else "##"
        letter = _DOORS[state_of(cell)] if kind_of(cell) == DOOR else _LETTERS[kind_of(cell)]
        color = color_of(cell)
        return letter + ("e" if color == GREY else COLORS[color][0])

    cells = [text(i, int(c)) for i, c in enumerate(np.asarray(grid).reshape(-1))]
    width = np.shape(grid)[1]
    return "\n".join("".join(cells[i : i + width]) for i in range(0, len(cells), width))


def from_ascii(text: str) -> tuple[Int32[np.ndarray, "height width"], int, int]:
    """`(grid, position, direction)` of what `to_ascii` writes. Raises ValueError, saying where, for an unknown tile,
    lines of unequal length, or not exactly one agent."""
    lines = [line.strip() for line in text.strip().splitlines()]
    if len({len(line) for line in lines}) != 1 or len(lines[0]) % 2:
        raise ValueError(f"level: lines of {[len(line) for line in lines]} characters; two a cell, all alike.")
    colors = {("e" if name == "grey" else name[0]): i for i, name in enumerate(COLORS)}
    kinds = {letter: pack(kind) for kind, letter in _LETTERS.items()}
    kinds |= {letter: pack(DOOR, 0, state) for state, letter in enumerate(_DOORS)}
    cells, agents = [], []
    for row, line in enumerate(lines):
        for column in range(len(line) // 2):
            tile = line[2 * column : 2 * column + 2]
            if tile[0] in _AGENT and tile[0] == tile[1]:
                agents.append((len(cells), _AGENT.index(tile[0])))
                cells.append(NOTHING)
            elif tile in ("..", "##"):
                cells.append(NOTHING if tile == ".." else GREY_WALL)
            elif tile[0] in kinds and tile[1] in colors:
                cells.append(kinds[tile[0]] | colors[tile[1]] << 8)
            else:
                known = f"'..', '##', an agent {_AGENT} twice, or one of {''.join(kinds)} and one of {''.join(colors)}"
                raise ValueError(f"level: unknown tile {tile!r} at row {row}, column {column}: {known}.")
    if len(agents) != 1:
        raise ValueError(f"level: {len(agents)} agents; there must be one.")
    return np.array(cells, np.int32).reshape(len(lines), -1), *agents[0]
