"""MiniGrid-GoToDoor: go to the door of the colour that the mission names, and say `done`.

`minigrid` 3.2.0, `GoToDoorEnv`. A room of random size, at least 5 x 5, in the corner of the grid; each wall has a door,
all of different colours. `done` ends the episode, with success beside the door, facing it or not; so does `toggle`,
without. It sees through walls. `max_steps` 4 size^2. Mission: (colour). Observation, actions and reward: see `engine`.
Target: (cell of the door).
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Integer

from jaxrl.math import below, random_words

from ..engine import GridTask, Move, permutation, place, put
from ..tiles import CLOSED, COLORS, DONE, DOOR, GREY_WALL, NOTHING, TOGGLE, Level, Params, pack


@dataclasses.dataclass(frozen=True)
class GoToDoor(GridTask):
    id: str = dataclasses.field(default="MiniGrid-GoToDoor-5x5-v0", kw_only=True)
    size: int = 5

    see_through_walls: bool = dataclasses.field(default=True, kw_only=True)
    missions = (len(COLORS),)
    doors = False
    static_ranges = {"size": (5, 100)}

    @property
    def shape(self) -> tuple[int, int]:
        return self.size, self.size

    @property
    def time_limit(self) -> int:
        return 4 * self.size**2

    def generate(self, key: Array, params: Params | Level) -> Level:
        bits = random_words(key, (15,))
        size = self.size
        width, height = 5 + below(bits[0], size - 4), 5 + below(bits[1], size - 4)
        row, column = np.divmod(np.arange(size * size, dtype=np.int32), size)
        inside = (column > 0) & (column < width - 1) & (row > 0) & (row < height - 1)
        grid = jnp.where((column < width) & (row < height) & ~inside, GREY_WALL, NOTHING).astype(jnp.int32)
        upper, lower = (2 + below(bits[i], width - 4) for i in (2, 3))
        left, right = ((2 + below(bits[i], height - 4)) * size for i in (4, 5))
        doors = jnp.stack([upper, lower + (height - 1) * size, left, right + width - 1])
        colors = permutation(bits[6:12])[:4]
        for i in range(4):
            grid = put(grid, doors[i], pack(DOOR, colors[i], CLOSED))
        _, position = place(bits[12], grid, NOTHING, inside)
        which = below(bits[14], 4)
        return Level(
            params.max_steps,
            grid.reshape(self.shape),
            position,
            below(bits[13], 4),
            colors[which][None],
            doors[which][None],
        )

    def check(self, before: Any, action: Integer[Array, ""], move: Move) -> tuple[Any, Array, Array]:
        after, goal, lava = super().check(before, action, move)
        apart = jnp.abs(after.position - after.target[0])
        success = goal | ((action == DONE) & ((apart == 1) | (apart == self.size)))
        return after, success, lava | (action == TOGGLE) | ((action == DONE) & ~success)

    def mission_text(self, mission: Any) -> str:
        return f"go to the {COLORS[mission[0]]} door"
