"""MiniGrid-GoToObject: go to the object that the mission names, and say `done`.

`minigrid` 3.2.0, `GoToObjectEnv`. Keys, balls and boxes, no two alike, lie in one room; agent and mission are random.
`done` ends the episode, with success beside the place where the object was at the start, facing it or not; so does
`toggle`, without. It sees through walls. `max_steps` 5 size^2. Mission: (colour, kind). Observation, actions and
reward: see `engine`. Target: (cell of the object).
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int32, Integer, UInt32

from jaxrl.math import below, choose, random_words

from ..engine import GridTask, Move, place, walled
from ..tiles import BOX, COLORS, DONE, KEY, KINDS, NOTHING, TOGGLE, Level, Params, color_of, kind_of, pack


def distinct_objects(bits: UInt32[Array, " n"]) -> Int32[Array, " n"]:
    """Keys, balls and boxes of the six colours, packed, no two alike."""
    left, objects = jnp.ones(3 * len(COLORS), bool), []
    for i in range(bits.size):
        which = choose(bits[i], left)
        left &= np.arange(left.size) != which
        objects.append(pack(KEY + which // len(COLORS), which % len(COLORS)))
    return jnp.stack(objects)


@dataclasses.dataclass(frozen=True)
class GoToObject(GridTask):
    id: str = dataclasses.field(default="MiniGrid-GoToObject-6x6-N2-v0", kw_only=True)
    size: int = 6
    num_objects: int = 2

    see_through_walls: bool = dataclasses.field(default=True, kw_only=True)
    missions = (len(COLORS), BOX + 1)
    static_ranges = {"size": (4, 100), "num_objects": (1, 18)}

    def __post_init__(self) -> None:
        super().__post_init__()
        most = min(3 * len(COLORS), (self.size - 2) ** 2 - 1)
        if not 1 <= self.num_objects <= most:
            raise ValueError(f"{self.id}: num_objects={self.num_objects} must be from 1 to {most} in this room.")

    @property
    def shape(self) -> tuple[int, int]:
        return self.size, self.size

    @property
    def time_limit(self) -> int:
        return 5 * self.size**2

    def generate(self, key: Array, params: Params | Level) -> Level:
        n = self.num_objects
        bits = random_words(key, (2 * n + 3,))
        objects = distinct_objects(bits[:n])
        grid, cells = jnp.asarray(walled(self.size, self.size).reshape(-1)), []
        for i in range(n):
            grid, cell = place(bits[n + i], grid, objects[i])
            cells.append(cell)
        _, position = place(bits[2 * n], grid, NOTHING)
        which = below(bits[2 * n + 2], n)
        mission = jnp.stack([color_of(objects[which]), kind_of(objects[which])])
        target = jnp.stack(cells)[which][None]
        direction = below(bits[2 * n + 1], 4)
        return Level(params.max_steps, grid.reshape(self.shape), position, direction, mission, target)

    def check(self, before: Any, action: Integer[Array, ""], move: Move) -> tuple[Any, Array, Array]:
        after, goal, lava = super().check(before, action, move)
        apart = jnp.abs(after.position - after.target[0])
        success = goal | ((action == DONE) & ((apart == 1) | (apart == self.size)))
        return after, success, lava | (action == TOGGLE) | ((action == DONE) & ~success)

    def mission_text(self, mission: Any) -> str:
        return f"go to the {COLORS[mission[0]]} {KINDS[mission[1]]}"
