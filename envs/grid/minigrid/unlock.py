"""MiniGrid-Unlock, MiniGrid-UnlockPickup, MiniGrid-BlockedUnlockPickup: two rooms and a locked door between them.

`minigrid` 3.2.0, `UnlockEnv`, `UnlockPickupEnv`, `BlockedUnlockPickupEnv`. Agent and key are in the left room. Open the
door; or pick up the box in the right room; or that, and a ball lies in front of the door. `max_steps` 8, 8 and 16
room_size^2, room_size 6. Mission: one, always 0; colour and kind of the box. Observation, actions and reward: see
`engine`.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Integer

from jaxrl.math import random_words

from .. import rooms
from ..engine import GridTask, Move, put, random_color
from ..tiles import (
    BALL,
    BOX,
    COLORS,
    DOOR,
    KEY,
    LOCKED,
    OPEN,
    PICKUP,
    TOGGLE,
    Level,
    Params,
    color_of,
    kind_of,
    pack,
    state_of,
)

SIZE = 6  # of a room


@dataclasses.dataclass(frozen=True)
class Unlock(GridTask):
    id: str = dataclasses.field(default="MiniGrid-Unlock-v0", kw_only=True)

    @property
    def shape(self) -> tuple[int, int]:
        return rooms.shape_of(1, 2, SIZE)

    @property
    def time_limit(self) -> int:
        return 8 * SIZE**2

    def furnish(self, key: Array) -> tuple[rooms.House, Array, Array]:
        """`(house, bits, box)`: key, agent and door in place, and a box behind it for those who ask for it."""
        bits = random_words(key, (10,))
        house = rooms.build(bits[:1], 1, 2, SIZE)
        box, color = pack(BOX, random_color(bits[1])), random_color(bits[2])
        if self.missions != (1,):
            house, _ = rooms.add_object(bits[3], house, 1, box)
        house = rooms.add_door(house, 0, 0, color, LOCKED)
        return house, bits, box

    def finish(self, house: rooms.House, bits: Array) -> rooms.House:
        """The key, then the agent."""
        color = color_of(house.grid[house.doorways[0, 0]])
        house, _ = rooms.add_object(bits[4], house, 0, pack(KEY, color))
        return rooms.place_agent(bits[5:8], house, 0)

    def generate(self, key: Array, params: Params | Level) -> Level:
        house, bits, _ = self.furnish(key)
        return rooms.as_level(self.finish(house, bits), params.max_steps, (0,))

    def check(self, before: Any, action: Integer[Array, ""], move: Move) -> tuple[Any, Array, Array]:
        opened = (kind_of(move.new) == DOOR) & (state_of(move.new) == OPEN)
        return move.state, (action == TOGGLE) & opened, jnp.bool_(False)

    def mission_text(self, mission: Any) -> str:
        return "open the door"


@dataclasses.dataclass(frozen=True)
class UnlockPickup(Unlock):
    id: str = dataclasses.field(default="MiniGrid-UnlockPickup-v0", kw_only=True)

    missions = (6, 11)

    def generate(self, key: Array, params: Params | Level) -> Level:
        house, bits, box = self.furnish(key)
        return rooms.as_level(self.finish(house, bits), params.max_steps, (color_of(box), BOX))

    def check(self, before: Any, action: Integer[Array, ""], move: Move) -> tuple[Any, Array, Array]:
        return move.state, (action == PICKUP) & (kind_of(move.state.carrying) == BOX), jnp.bool_(False)

    def mission_text(self, mission: Any) -> str:
        return f"pick up the {COLORS[mission[0]]} box"


@dataclasses.dataclass(frozen=True)
class BlockedUnlockPickup(UnlockPickup):
    id: str = dataclasses.field(default="MiniGrid-BlockedUnlockPickup-v0", kw_only=True)

    @property
    def time_limit(self) -> int:
        return 16 * SIZE**2

    def generate(self, key: Array, params: Params | Level) -> Level:
        house, bits, box = self.furnish(key)
        ball = pack(BALL, random_color(bits[8]))
        house = house.replace(grid=put(house.grid, house.doorways[0, 0] - 1, ball))
        return rooms.as_level(self.finish(house, bits), params.max_steps, (color_of(box), BOX))
