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

from jaxrl.math import as_words, below, choose_bit, flip_bit, random_words

from ..engine import GridTask, put, walled
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
        rooms = jnp.asarray(rooms.reshape(-1))
        # Free cells are a mask of bits in which only the gaps differ, so that no level is looked through for them.
        free, open_ = as_words(rooms == NOTHING), jnp.zeros(rooms.shape, bool)
        for i, bits in enumerate(gaps):  # in the upright wall above and below, then in the level one left and right
            along = 1 + 9 * (i % 2) + below(bits, 8)
            gap = along * 19 + 9 if i < 2 else 9 * 19 + along
            free, open_ = flip_bit(free, gap), open_ | (np.arange(19 * 19) == gap)
        position = choose_bit(agent, free)
        place = choose_bit(goal, flip_bit(free, position))
        grid = put(jnp.where(open_, NOTHING, rooms), place, GREEN_GOAL).reshape(19, 19)
        return Level(params.max_steps, grid, position, below(turn, 4), jnp.zeros(1, jnp.int32), jnp.zeros(0, jnp.int32))

    def mission_text(self, mission: Any) -> str:
        return "reach the goal"
