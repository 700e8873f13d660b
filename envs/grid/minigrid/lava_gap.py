"""MiniGrid-LavaGap: through the gap in a strip of lava to the goal.

`minigrid` 3.2.0, `LavaGapEnv`. An upright strip of lava at a random column, but for one random cell, lies between the
agent in the first corner and the goal in the far one. `max_steps` 4 size^2. Mission: one, always 0. Observation,
actions and reward: see `engine`; lava ends the episode.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxrl.math import below, random_words

from ..engine import GridTask, walled
from ..tiles import GREEN_GOAL, RED_LAVA, Level, Params


@dataclasses.dataclass(frozen=True)
class LavaGap(GridTask):
    id: str = dataclasses.field(default="MiniGrid-LavaGapS5-v0", kw_only=True)
    size: int = 5
    static_ranges = {"size": (5, 100)}

    @property
    def shape(self) -> tuple[int, int]:
        return self.size, self.size

    @property
    def time_limit(self) -> int:
        return 4 * self.size**2

    def generate(self, key: Array, params: Params | Level) -> Level:
        strip, gap = random_words(key, (2,))
        size = self.size
        row, column = np.mgrid[:size, :size].astype(np.int32)
        room = walled(size, size)
        room[-2, -2] = GREEN_GOAL
        lava = (column == 2 + below(strip, size - 4)) & (row != 1 + below(gap, size - 2))
        grid = jnp.where(lava & (row > 0) & (row < size - 1), RED_LAVA, room)
        start, none = jnp.int32(size + 1), jnp.zeros(0, jnp.int32)
        return Level(params.max_steps, grid, start, jnp.int32(0), jnp.zeros(1, jnp.int32), none)

    def mission_text(self, mission: Any) -> str:
        return "avoid the lava and get to the green goal square"
