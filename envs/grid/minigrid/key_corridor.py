"""MiniGrid-KeyCorridor: find the key, unlock the door, pick up the ball behind it.

`minigrid` 3.2.0, `KeyCorridorEnv`. Three columns of rooms; the middle one is a corridor where the agent starts. The
ball is in a room on the right behind a locked door, the key in one on the left; other doors are as it comes, until all
rooms are connected. `max_steps` 30 room_size^2. Mission: colour and kind of what to pick up. Observation, actions and
reward: see `engine`.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Integer

from jaxrl.math import below, random_words

from .. import rooms
from ..engine import GridTask, Move, random_color
from ..tiles import BALL, COLORS, KEY, LOCKED, PICKUP, Level, Params, color_of, kind_of, pack


@dataclasses.dataclass(frozen=True)
class KeyCorridor(GridTask):
    id: str = dataclasses.field(default="MiniGrid-KeyCorridorS6R3-v0", kw_only=True)
    room_size: int = 6
    num_rows: int = 3

    # A v5e's compiler expects 0.2 ms of a step of 4,096 with sparse resets, 10 ms with dense ones.
    hints = GridTask.hints._replace(reset="sparse")
    missions = (6, 11)
    static_ranges = {"room_size": (3, 64), "num_rows": (1, 10)}

    def __post_init__(self) -> None:
        super().__post_init__()
        rooms.check_cells(self.id, self.room_size, self.num_rows, 3)

    @property
    def shape(self) -> tuple[int, int]:
        return rooms.shape_of(self.num_rows, 3, self.room_size)

    @property
    def time_limit(self) -> int:
        return 30 * self.room_size**2

    def generate(self, key: Array, params: Params | Level) -> Level:
        walls = rooms.num_doorways(self.num_rows, 3)
        bits = random_words(key, (10 + 3 * walls,))
        where, key_row, door_color, ball_color, at_ball, at_key, *agent = bits[:9]
        house = rooms.build(bits[10 : 10 + walls], self.num_rows, 3, self.room_size)
        for row in range(1, self.num_rows):
            house = rooms.remove_wall(house, 3 * row + 1, 3)
        room = 3 * below(where, self.num_rows) + 2
        color, ball = random_color(door_color), pack(BALL, random_color(ball_color))
        house = rooms.add_door(house, room, 2, color, LOCKED)
        house, _ = rooms.add_object(at_ball, house, room, ball)
        house, _ = rooms.add_object(at_key, house, 3 * below(key_row, self.num_rows), pack(KEY, color))
        house = rooms.place_agent(jnp.stack(agent), house, 3 * (self.num_rows // 2) + 1)
        house = rooms.connect_all(bits[10 + walls :].reshape(-1, 2), house)
        return rooms.as_level(house, params.max_steps, (color_of(ball), kind_of(ball)))

    def check(self, before: Any, action: Integer[Array, ""], move: Move) -> tuple[Any, Array, Array]:
        success = (action == PICKUP) & (kind_of(move.state.carrying) == BALL)
        return move.state, success, jnp.bool_(False)

    def mission_text(self, mission: Any) -> str:
        return f"pick up the {COLORS[mission[0]]} ball"
