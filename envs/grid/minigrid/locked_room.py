"""MiniGrid-LockedRoom: fetch the key from one of six rooms, unlock another one and get to the goal in it.

`minigrid` 3.2.0, `LockedRoomEnv`. 19 x 19 cells: a hallway in which the agent starts, three rooms on either side, each
behind a door of its own colour. One is locked and has the goal; the key of its colour lies in another. `max_steps` 190.
Mission: (colour of the locked door, colour of the room with the key, colour of the locked door). Observation, actions
and reward: see `engine`.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxrl.math import below, random_words

from ..engine import GridTask, permutation, place, put, walled
from ..tiles import CLOSED, COLORS, DOOR, GREEN_GOAL, GREY_WALL, KEY, LOCKED, NOTHING, Level, Params, pack

_LEFT, _RIGHT = 7, 11  # the walls of the hallway
_DOORS = np.array([19 * (6 * (room // 2) + 3) + (_RIGHT if room % 2 else _LEFT) for room in range(6)])


@dataclasses.dataclass(frozen=True)
class LockedRoom(GridTask):
    id: str = dataclasses.field(default="MiniGrid-LockedRoom-v0", kw_only=True)

    missions = (len(COLORS),) * 3

    @property
    def shape(self) -> tuple[int, int]:
        return 19, 19

    @property
    def time_limit(self) -> int:
        return 190

    def generate(self, key: Array, params: Params | Level) -> Level:
        bits = random_words(key, (14,))
        colors = permutation(bits[:6])
        locked = below(bits[6], 6)
        key_room = (locked + 1 + below(bits[7], 5)) % 6

        def inside(room: Array, across: Array, along: Array) -> Array:
            """A random cell of a room: 6 columns, 5 rows."""
            column = 1 + (room % 2) * _RIGHT + below(across, 6)
            return (6 * (room // 2) + 1 + below(along, 5)) * 19 + column

        rooms = walled(19, 19)
        rooms[:, [_LEFT, _RIGHT]] = GREY_WALL
        for row in (6, 12):
            rooms[row, :_LEFT] = rooms[row, _RIGHT:] = GREY_WALL
        grid = jnp.asarray(rooms.reshape(-1))
        for room, door in enumerate(_DOORS):
            grid = put(grid, door, pack(DOOR, colors[room], jnp.where(room == locked, LOCKED, CLOSED)))
        color, key_color = colors[locked], colors[key_room]
        grid = put(grid, inside(locked, bits[8], bits[9]), GREEN_GOAL)
        grid = put(grid, inside(key_room, bits[10], bits[11]), pack(KEY, color))
        x = np.arange(19 * 19) % 19
        _, position = place(bits[12], grid, NOTHING, (x > _LEFT) & (x < _RIGHT))
        mission, none = jnp.stack([color, key_color, color]), jnp.zeros(0, jnp.int32)
        return Level(params.max_steps, grid.reshape(19, 19), position, below(bits[13], 4), mission, none)

    def mission_text(self, mission: Any) -> str:
        key, room, door = (COLORS[i] for i in mission)
        return f"get the {key} key from the {room} room, unlock the {door} door and go to the goal"
