"""MiniGrid-FourRooms: find the goal somewhere in four rooms with a gap in each wall between them.

`minigrid` 3.2.0, `FourRoomsEnv`; Sutton, Precup and Singh (1999) for the rooms. 19 x 19 cells; agent, its direction
and the goal are random. `max_steps` 100. Mission: one, always 0. Observation, actions and reward: see `engine`.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxrl.math import below, random_words

from ..engine import GridTask, place, walled
from ..tiles import GREEN_GOAL, GREY_WALL, NOTHING, Level, Params


@dataclasses.dataclass(frozen=True)
class FourRooms(GridTask):
    id: str = dataclasses.field(default="MiniGrid-FourRooms-v0", kw_only=True)

    @property
    def shape(self) -> tuple[int, int]:
        return 19, 19

    @property
    def time_limit(self) -> int:
        return 100

    def generate(self, key: Array, params: Params | Level) -> Level:
        *gaps, agent, turn, goal = random_words(key, (7,))
        rooms = walled(19, 19)
        rooms[9] = rooms[:, 9] = GREY_WALL
        y, x = np.divmod(np.arange(19 * 19), 19)
        grid = jnp.asarray(rooms.reshape(-1))
        for i, bits in enumerate(gaps):  # in the upright wall above and below, then in the level one left and right
            across, along = (x, y) if i < 2 else (y, x)
            grid = jnp.where((across == 9) & (along == 1 + 9 * (i % 2) + below(bits, 8)), NOTHING, grid)
        _, position = place(agent, grid, NOTHING)
        grid, _ = place(goal, grid, GREEN_GOAL, np.arange(19 * 19) != position)
        none = jnp.zeros(0, jnp.int32)
        return Level(params.max_steps, grid.reshape(19, 19), position, below(turn, 4), jnp.zeros(1, jnp.int32), none)

    def mission_text(self, mission: Any) -> str:
        return "reach the goal"
