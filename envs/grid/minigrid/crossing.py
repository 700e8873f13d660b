"""MiniGrid-LavaCrossing and SimpleCrossing: find the openings in rivers of lava, or walls, on the way to the goal.

`minigrid` 3.2.0, `CrossingEnv`. `num_crossings` rivers are drawn among all even columns and rows; they run from border
to border. A way from the first corner to the goal in the far one crosses them in random order, through an opening at a
random place of the stretch that the room before it touches. `max_steps` 4 size^2. Mission: one, always 0. Observation,
actions and reward: see `engine`; lava ends the episode.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxrl.math import below, random_words

from ..engine import GridTask, permutation, walled
from ..tiles import GREEN_GOAL, GREY_WALL, NOTHING, RED_LAVA, Level, Params


@dataclasses.dataclass(frozen=True)
class Crossing(GridTask):
    id: str = dataclasses.field(default="MiniGrid-LavaCrossingS9N1-v0", kw_only=True)
    size: int = 9
    num_crossings: int = 1
    obstacle: str = "lava"
    static_ranges = {"size": (5, 101), "num_crossings": (0, 98)}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.size % 2 == 0:
            raise ValueError(f"{self.id}: size={self.size} must be odd.")
        if self.num_crossings > self.size - 3:
            room = f"size={self.size} has room for 0 to {self.size - 3}"
            raise ValueError(f"{self.id}: num_crossings={self.num_crossings}; {room}.")
        if self.obstacle not in ("lava", "wall"):
            raise ValueError(f"{self.id}: obstacle={self.obstacle!r}; it is 'lava' or 'wall'.")

    @property
    def shape(self) -> tuple[int, int]:
        return self.size, self.size

    @property
    def time_limit(self) -> int:
        return 4 * self.size**2

    def generate(self, key: Array, params: Params | Level) -> Level:
        size, places = self.size, (self.size - 3) // 2
        bits = random_words(key, (2 * places + self.num_crossings,))
        # Rivers in the order in which the way crosses them; the first half of all places is upright.
        crossed = permutation(bits[: 2 * places])[: self.num_crossings]
        upright, at = crossed < places, 2 + 2 * (crossed % places)

        row, column = np.divmod(np.arange(size * size, dtype=np.int32), size)
        inner = (row > 0) & (row < size - 1) & (column > 0) & (column < size - 1)
        rivers = jnp.any(at[:, None] == jnp.where(upright[:, None], column, row), 0) & inner
        open_at = jnp.zeros(size * size, bool)
        west = north = jnp.int32(0)  # the rivers crossed last
        for i in range(self.num_crossings):
            east = jnp.min(jnp.where(upright & (at > west), at, size - 1))
            south = jnp.min(jnp.where(~upright & (at > north), at, size - 1))
            low, high = jnp.where(upright[i], north, west), jnp.where(upright[i], south, east)
            along = low + 1 + below(bits[2 * places + i], high - low - 1)
            x, y = jnp.where(upright[i], east, along), jnp.where(upright[i], along, south)
            open_at |= (column == x) & (row == y)
            west, north = jnp.where(upright[i], east, west), jnp.where(upright[i], north, south)

        room = walled(size, size)
        room[-2, -2] = GREEN_GOAL
        obstacle = RED_LAVA if self.obstacle == "lava" else GREY_WALL
        grid = jnp.where(rivers, jnp.where(open_at, NOTHING, obstacle), room.reshape(-1))
        start, none = jnp.int32(size + 1), jnp.zeros(0, jnp.int32)
        return Level(params.max_steps, grid.reshape(self.shape), start, jnp.int32(0), jnp.zeros(1, jnp.int32), none)

    def mission_text(self, mission: Any) -> str:
        how = "avoid the lava" if self.obstacle == "lava" else "find the opening"
        return f"{how} and get to the green goal square"
