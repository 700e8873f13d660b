"""MiniGrid-DoorKey: pick up the key, unlock the door and get to the goal behind it.

`minigrid` 3.2.0, `DoorKeyEnv`. A wall at a random column splits the room; agent and yellow key are on its left, the
locked yellow door is in it, the goal in the far corner. `max_steps` 10 size^2. Mission: one, always 0. Observation,
actions and reward: see `engine`.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxrl.math import below, random_words

from ..engine import GridTask, place, put, walled
from ..tiles import DOOR, GREEN_GOAL, GREY_WALL, KEY, LOCKED, NOTHING, YELLOW, Level, Params, pack


@dataclasses.dataclass(frozen=True)
class DoorKey(GridTask):
    id: str = dataclasses.field(default="MiniGrid-DoorKey-8x8-v0", kw_only=True)
    size: int = 8
    static_ranges = {"size": (5, 100)}

    @property
    def shape(self) -> tuple[int, int]:
        return self.size, self.size

    @property
    def time_limit(self) -> int:
        return 10 * self.size**2

    def generate(self, key: Array, params: Params | Level) -> Level:
        split, door, agent, turn, key_at = random_words(key, (5,))
        size = self.size
        room = walled(size, size)
        room[-2, -2] = GREEN_GOAL
        x = np.arange(size * size) % size
        column, row = 2 + below(split, size - 4), 1 + below(door, size - 3)
        grid = jnp.where(x == column, GREY_WALL, room.reshape(-1))
        grid = put(grid, row * size + column, pack(DOOR, YELLOW, LOCKED))
        left = x < column
        _, position = place(agent, grid, NOTHING, left)
        grid, _ = place(key_at, grid, pack(KEY, YELLOW), left & (np.arange(size * size) != position))
        direction = below(turn, 4)
        none = jnp.zeros(0, jnp.int32)
        return Level(params.max_steps, grid.reshape(self.shape), position, direction, jnp.zeros(1, jnp.int32), none)

    def mission_text(self, mission: Any) -> str:
        return "use the key to open the door and then get to the goal"
