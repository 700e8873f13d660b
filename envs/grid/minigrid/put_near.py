"""MiniGrid-PutNear: carry one object to another one.

`minigrid` 3.2.0, `PutNearEnv`. Keys, balls and boxes, no two alike and none touching another, lie in one room; agent
and mission are random. To pick up another object than the one to be moved ends the episode; so does `drop` while
something is carried, with success on one of the nine cells around where the other object was at the start. It sees
through walls. `max_steps` 5 size. Mission: (colour, kind) of what is moved, (colour, kind) of where to. Observation,
actions and reward: see `engine`. Target: (cell of the latter).
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Integer

from jaxrl.math import below, random_words

from ..engine import GridTask, Move, place, walled
from ..tiles import BOX, COLORS, DROP, KINDS, NOTHING, PICKUP, Level, Params, color_of, kind_of, pack
from .go_to_object import distinct_objects


@dataclasses.dataclass(frozen=True)
class PutNear(GridTask):
    id: str = dataclasses.field(default="MiniGrid-PutNear-6x6-N2-v0", kw_only=True)
    size: int = 6
    num_objects: int = 2

    see_through_walls: bool = dataclasses.field(default=True, kw_only=True)
    missions = (len(COLORS), BOX + 1) * 2
    static_ranges = {"size": (6, 100), "num_objects": (2, 18)}  # in a smaller room two may not fit

    def __post_init__(self) -> None:
        super().__post_init__()
        # Each keeps others out of 3 x 3 cells at most: so many fit wherever they are.
        most = min(3 * len(COLORS), (-(-(self.size - 2) // 3)) ** 2)
        if not 2 <= self.num_objects <= most:
            raise ValueError(f"{self.id}: num_objects={self.num_objects} must be from 2 to {most} in this room.")

    @property
    def shape(self) -> tuple[int, int]:
        return self.size, self.size

    @property
    def time_limit(self) -> int:
        return 5 * self.size

    def near(self, cell: Array, other: Any) -> Array:
        """Whether two cells touch, at a corner at least, or are one."""
        row, column = cell // self.size, cell % self.size
        return (jnp.abs(row - other // self.size) <= 1) & (jnp.abs(column - other % self.size) <= 1)

    def generate(self, key: Array, params: Params | Level) -> Level:
        n = self.num_objects
        bits = random_words(key, (2 * n + 4,))
        objects = distinct_objects(bits[:n])
        grid, cells = jnp.asarray(walled(self.size, self.size).reshape(-1)), []
        apart, everywhere = jnp.ones(self.size**2, bool), np.arange(self.size**2, dtype=np.int32)
        for i in range(n):
            grid, cell = place(bits[n + i], grid, objects[i], apart)
            cells.append(cell)
            apart &= ~self.near(cell, everywhere)
        agent, turn, which, other = bits[2 * n :]
        _, position = place(agent, grid, NOTHING)
        moved = below(which, n)
        target = (moved + 1 + below(other, n - 1)) % n
        mission = jnp.stack([part(objects[i]) for i in (moved, target) for part in (color_of, kind_of)])
        where = jnp.stack(cells)[target][None]
        return Level(params.max_steps, grid.reshape(self.shape), position, below(turn, 4), mission, where)

    def check(self, before: Any, action: Integer[Array, ""], move: Move) -> tuple[Any, Array, Array]:
        after, goal, lava = super().check(before, action, move)
        held = after.carrying
        right = held & 0xFFFF == pack(after.mission[1], after.mission[0])
        wrong = (action == PICKUP) & (held != 0) & ~right
        tried = (action == DROP) & (before.carrying != 0)
        success = goal | (tried & (held == 0) & self.near(move.index, after.target[0]))
        return after, success, lava | wrong | (tried & ~success)

    def mission_text(self, mission: Any) -> str:
        moved, target = (f"{COLORS[mission[i]]} {KINDS[mission[i + 1]]}" for i in (0, 2))
        return f"put the {moved} near the {target}"
