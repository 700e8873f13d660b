"""MiniGrid-Empty: walk to the goal in the far corner of an empty room.

`minigrid` 3.2.0, `EmptyEnv`. The agent starts in the first corner facing right, or with `random_start` anywhere. It
sees through walls. `max_steps` 4 size^2. Mission: one, always 0. Observation, actions and reward: see `engine`.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from jaxrl.math import below, random_words

from ..engine import GridTask, place, walled
from ..tiles import GREEN_GOAL, NOTHING, Level, Params


@dataclasses.dataclass(frozen=True)
class Empty(GridTask):
    id: str = dataclasses.field(default="MiniGrid-Empty-8x8-v0", kw_only=True)
    size: int = 8
    random_start: bool = False

    see_through_walls: bool = dataclasses.field(default=True, kw_only=True)
    static_ranges = {"size": (5, 100)}

    @property
    def shape(self) -> tuple[int, int]:
        return self.size, self.size

    @property
    def time_limit(self) -> int:
        return 4 * self.size**2

    def generate(self, key: Array, params: Params | Level) -> Level:
        room = walled(self.size, self.size)
        room[-2, -2] = GREEN_GOAL
        grid = jnp.asarray(room.reshape(-1))
        position, direction = jnp.int32(self.size + 1), jnp.int32(0)
        if self.random_start:
            where, turn = random_words(key, (2,))
            _, position = place(where, grid, NOTHING)
            direction = below(turn, 4)
        none = jnp.zeros(0, jnp.int32)
        return Level(params.max_steps, grid.reshape(self.shape), position, direction, jnp.zeros(1, jnp.int32), none)

    def mission_text(self, mission: Any) -> str:
        return "get to the green goal square"
