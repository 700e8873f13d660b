"""Levels as boards of cells that a page can change: walls that are flipped, and things that are put somewhere.

A level is read by its fields: arrays of booleans with a row and a column are flipped cell by cell (`walls`, `boxes`),
positions are set. A task that packs its cells says which are walls (`walls`) and what flips one (`flip_wall`).
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

FLIPPED = {"walls": "wall", "wall_map": "wall", "mines": "mine", "boxes": "box", "targets": "target"}
PLACED = {"agent_pos": "agent", "goal_pos": "goal", "position": "agent", "start": "agent", "goal": "goal"}
PLACED |= {"player": "agent"}


class Board(NamedTuple):
    """The cells of a level, row by row."""

    rows: int
    columns: int
    things: dict[str, np.ndarray]  # the cells of each kind of thing; that of a kind that is put somewhere is one


def bare(env: Any) -> Any:
    """What wrappers are around."""
    from jaxrl.wrappers import Wrapper

    while isinstance(env, Wrapper):
        env = env.env
    return env


def board_of(env: Any, level: Any) -> Board | None:
    """The board of a level; None where it has no cells that are known here."""
    fields = _fields(level)
    flags = {thing: np.asarray(fields[name]) for name, thing in FLIPPED.items() if _is_flags(fields.get(name))}
    if hasattr(bare(env), "flip_wall") and "grid" in fields:
        flags["wall"] = np.asarray(bare(env).walls(level))
    shapes = {x.shape for x in flags.values()}
    if len(shapes) != 1:
        return None
    rows, columns = shapes.pop()
    things = {thing: np.flatnonzero(_shown(env, x)) for thing, x in flags.items()}
    for name, thing in PLACED.items():
        cell = _cell(fields.get(name), columns)
        if cell is not None:
            things[thing] = np.array([cell])
    return Board(rows, columns, things)


def changed(env: Any, level: Any, thing: Any, cell: Any) -> Any:
    """The level with a thing put to a cell, or flipped there. Host only.

    Raises ValueError for a thing or a cell that there is not, and for a level that the task refuses.
    """
    board = board_of(env, level)
    if board is None:
        raise ValueError("levels of this task have no cells that can be changed here.")
    if thing not in board.things:
        raise ValueError(f"{thing!r:.60}: it is one of {', '.join(board.things)}.")
    if type(cell) is not int or not 0 <= cell < board.rows * board.columns:
        raise ValueError(f"cell {cell!r:.60}: it must be from 0 to {board.rows * board.columns - 1}.")
    row, column = divmod(cell, board.columns)
    fields = _fields(level)
    for name, value in fields.items():
        if FLIPPED.get(name) == thing and _is_flags(value):
            flags = _shown(env, np.array(value))
            flags[row, column] = not flags[row, column]
            return level.replace(**{name: jnp.asarray(_shown(env, flags))})
        if PLACED.get(name) == thing and _cell(value, board.columns) is not None:
            at = np.array([column, row]) if np.ndim(value) else np.array(cell)
            return level.replace(**{name: jnp.asarray(at, value.dtype)})
    return bare(env).flip_wall(level, row, column)


def _fields(level: Any) -> dict[str, Any]:
    return (
        {f.name: getattr(level, f.name) for f in dataclasses.fields(level)} if dataclasses.is_dataclass(level) else {}
    )


def _is_flags(x: Any) -> bool:
    return x is not None and np.ndim(x) == 2 and np.asarray(x).dtype == bool


def _cell(x: Any, columns: int) -> int | None:
    """A place as the number of its cell: an integer, or column and row; None for what is neither."""
    if x is None or not hasattr(x, "dtype") or not np.issubdtype(x.dtype, np.integer):
        return None
    if np.shape(x) == (2,):
        return int(x[1]) * columns + int(x[0])
    return int(x) if np.ndim(x) == 0 else None


def _shown(env: Any, x: np.ndarray) -> np.ndarray:
    """An array of the level with its rows in the order of the picture, and back."""
    return x[::-1] if getattr(bare(env), "rows_go_up", False) else x
