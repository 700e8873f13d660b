"""MiniGrid-ObstructedMaze: pick up the blue ball behind locked doors, whose keys may be hidden and ways blocked.

`minigrid` 3.2.0, `ObstructedMaze_1Dlhb`, `ObstructedMaze_Full`, `ObstructedMaze_Full_V1`. In the names: the number of
doors (D) or quarters (Q), l locked doors, h their keys hidden in grey boxes, b a green ball before each. With one door
there are two rooms. Else 3 x 3: doors lead from the middle room to `num_quarters` of the rooms beside it, locked ones
from each of those to the corners on both its sides; their keys lie in it, and the blue ball in a corner of one of these
quarters. `max_steps` 4 room_size^2 times the number of rooms to visit, room_size 6. Mission: the colour of the ball,
always blue. Observation, actions and reward: see `engine`.

In version 0 of the blocked ones (`keys_last=False`) a key is put down before the ball of the room's second door, which
may replace it: such a level cannot be solved.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Integer

from jaxrl.math import below, random_words

from .. import rooms
from ..engine import GridTask, Move, permutation, put
from ..tiles import (
    BALL,
    BLUE,
    BOX,
    CLOSED,
    COLORS,
    GREEN,
    GREY,
    KEY,
    LOCKED,
    PICKUP,
    Level,
    Params,
    color_of,
    kind_of,
    pack,
)

SIZE = 6  # of a room
BESIDE = (5, 7, 3, 1)  # rooms right of, below, left of and above the middle one, room 4
CORNERS = (2, 8, 6, 0)


@dataclasses.dataclass(frozen=True)
class ObstructedMaze(GridTask):
    id: str = dataclasses.field(default="MiniGrid-ObstructedMaze-Full-v1", kw_only=True)
    num_quarters: int = 4  # 0: a single door
    agent_room: int = 4
    num_rooms_visited: int = 25
    key_in_box: bool = True
    blocked: bool = True
    keys_last: bool = True

    missions = (6,)
    static_ranges = {"num_quarters": (0, 4), "agent_room": (0, 8), "num_rooms_visited": (1, 100)}

    def __post_init__(self) -> None:
        super().__post_init__()
        rooms = math.prod(self.lattice)
        if self.agent_room >= rooms:
            raise ValueError(f"{self.id}: agent_room={self.agent_room} must be from 0 to {rooms - 1}: {rooms} rooms.")

    @property
    def lattice(self) -> tuple[int, int]:
        """Rows and columns of rooms."""
        return (3, 3) if self.num_quarters else (1, 2)

    @property
    def shape(self) -> tuple[int, int]:
        return rooms.shape_of(*self.lattice, SIZE)

    @property
    def time_limit(self) -> int:
        return 4 * self.num_rooms_visited * SIZE**2

    def lock(self, house: rooms.House, room: int, side: int, color: Array) -> rooms.House:
        """A locked door, with a ball before it."""
        house = rooms.add_door(house, room, side, color, LOCKED)
        if not self.blocked:
            return house
        before = (-1, -house.shape[1], 1, house.shape[1])[side]
        return house.replace(grid=put(house.grid, house.doorways[room, side] + before, pack(BALL, GREEN)))

    def hide(self, bits: Array, house: rooms.House, room: int, color: Array) -> rooms.House:
        """The key of a colour, in a box or not."""
        key = pack(BOX, GREY, 16 * (color + 1)) if self.key_in_box else pack(KEY, color)
        return rooms.add_object(bits, house, room, key)[0]

    def generate(self, key: Array, params: Params | Level) -> Level:
        walls = rooms.num_doorways(*self.lattice)
        bits = random_words(key, (19 + walls,))
        house = rooms.build(bits[19:], *self.lattice, SIZE)
        color = permutation(bits[:6])
        for i, room in enumerate(BESIDE[: self.num_quarters]):
            house = rooms.add_door(house, 4, i, color[i], CLOSED)
            sides = [((i + k) % 4, color[(i + k) % 6]) for k in (-1, 1)]
            for k, (side, its) in enumerate(sides):
                house = self.lock(house, room, side, its)
                if not self.keys_last:
                    house = self.hide(bits[6 + 2 * i + k], house, room, its)
            for k, (_, its) in enumerate(sides if self.keys_last else ()):
                house = self.hide(bits[6 + 2 * i + k], house, room, its)
        if self.num_quarters:
            ball_room = jnp.asarray(CORNERS)[below(bits[14], self.num_quarters)]
        else:
            house, ball_room = self.hide(bits[6], self.lock(house, 0, 0, color[0]), 0, color[0]), 1
        house, _ = rooms.add_object(bits[15], house, ball_room, pack(BALL, BLUE))
        house = rooms.place_agent(bits[16:19], house, self.agent_room)
        return rooms.as_level(house, params.max_steps, (BLUE,))

    def check(self, before: Any, action: Integer[Array, ""], move: Move) -> tuple[Any, Array, Array]:
        held = move.state.carrying
        success = (action == PICKUP) & (kind_of(held) == BALL) & (color_of(held) == BLUE)
        return move.state, success, jnp.bool_(False)

    def mission_text(self, mission: Any) -> str:
        return f"pick up the {COLORS[mission[0]]} ball"
