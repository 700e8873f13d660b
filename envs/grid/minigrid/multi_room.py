"""MiniGrid-MultiRoom: through a chain of rooms, opening the doors between them, to the goal in the last.

`minigrid` 3.2.0, `MultiRoomEnv`. 25 x 25 cells. The first room is put anywhere; each next one, of random size, joins
the last at a door at a random place of one of its three other walls. What would leave the grid or meet an earlier room
is drawn anew, up to eight times; then everything starts over. Doors next to each other differ in colour. The agent
starts in the first room. `max_steps` 20 num_rooms. Mission: one, always 0. Observation, actions and reward: see
`engine`.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int32, UInt32

from jaxrl.math import below, random_words

from ..engine import GridTask, put
from ..tiles import CLOSED, DOOR, GREEN_GOAL, GREY_WALL, NOTHING, Level, Params, pack

SIDE = 25
TRIES = 8


def next_room(
    bits: UInt32[Array, "5"], last: Int32[Array, "4"], entry: Array, largest: int
) -> tuple[Int32[Array, "4"], Int32[Array, "2"], Array]:
    """A room joined to `last`, (x, y, width, height), that was entered by wall `entry`: the room, its door (x, y) and
    the wall with the door in it. Walls: 0 right, 1 lower, 2 left, 3 upper."""
    x, y, width, height = last
    wall = (entry + 1 + below(bits[0], 3)) % 4
    beside = wall % 2 == 0
    along = 1 + below(bits[1], jnp.where(beside, height, width) - 2)
    door_x = x + jnp.where(beside, jnp.where(wall == 0, width - 1, 0), along)
    door_y = y + jnp.where(beside, along, jnp.where(wall == 1, height - 1, 0))
    width, height = 4 + below(bits[2], largest - 3), 4 + below(bits[3], largest - 3)
    shift = 2 + below(bits[4], jnp.where(beside, height, width) - 2)  # the door is in no corner of the new room either
    x = door_x - jnp.where(beside, jnp.where(wall == 2, width - 1, 0), width - shift)
    y = door_y - jnp.where(beside, height - shift, jnp.where(wall == 3, height - 1, 0))
    return jnp.stack([x, y, width, height]), jnp.stack([door_x, door_y]), (wall + 2) % 4


def fits(room: Int32[Array, "4"], rooms: Int32[Array, "n 4"], count: Array) -> Bool[Array, ""]:
    """Whether a room lies in the grid, not in its last row, and apart from the first `count` of `rooms`; further apart
    to its right and below than to its left and above, as in the reference."""
    x, y, width, height = room
    apart_x = (x + width < rooms[:, 0]) | (rooms[:, 0] + rooms[:, 2] <= x)
    apart_y = (y + height < rooms[:, 1]) | (rooms[:, 1] + rooms[:, 3] <= y)
    within = (x >= 0) & (y >= 0) & (x + width <= SIDE) & (y + height < SIDE)
    return within & jnp.all(apart_x | apart_y | (np.arange(rooms.shape[0]) >= count))


def draw_rooms(key: Array, number: int, largest: int) -> tuple[Int32[Array, "n 4"], Int32[Array, "n 2"]]:
    """(x, y, width, height) of each room and (x, y) of the door by which it is entered; the first has none."""

    def attempt(carry):
        key, count, tries, entry, rooms, doors = carry
        key, draw_key = jax.random.split(key)
        bits = random_words(draw_key, (7,))
        first = count == 0
        which = np.arange(number)[:, None]
        last = jnp.sum(jnp.where(which == count - 1, rooms, 0), 0, dtype=jnp.int32)
        room, door, wall = next_room(bits[:5], last, entry, largest)
        anywhere = jnp.stack([below(bits[5], SIDE - 2), below(bits[6], SIDE - 2), room[2], room[3]])
        room, wall = jnp.where(first, anywhere, room), jnp.where(first, 2, wall)
        ok = fits(room, rooms, count - 1)
        over = ~ok & (first | (tries == TRIES - 1))
        new = ok & (which == count)
        return (
            key,
            jnp.where(over, 0, count + ok),
            jnp.where(ok | over, 0, tries + 1),
            jnp.where(ok, wall, entry),
            jnp.where(new, room, rooms),
            jnp.where(new, door, doors),
        )

    zero = jnp.int32(0)
    start = (key, zero, zero, zero, jnp.zeros((number, 4), jnp.int32), jnp.zeros((number, 2), jnp.int32))
    *_, rooms, doors = jax.lax.while_loop(lambda carry: carry[1] < number, attempt, start)
    return rooms, doors


def spot(bits: UInt32[Array, ""], room: Int32[Array, "4"], taken: Array) -> tuple[Array, Array]:
    """`(index, rank)` of a random cell within the walls of a room, but for the one of rank `taken`, row by row."""
    x, y, width, height = room
    size = (width - 2) * (height - 2)
    rank = below(bits, size - (taken < size))
    rank = rank + (rank >= taken)
    return (y + 1 + jax.lax.div(rank, width - 2)) * SIDE + x + 1 + jax.lax.rem(rank, width - 2), rank


@dataclasses.dataclass(frozen=True)
class MultiRoom(GridTask):
    id: str = dataclasses.field(default="MiniGrid-MultiRoom-N6-v0", kw_only=True)
    num_rooms: int = 6
    largest: int = 10

    # Rooms are drawn until they fit, a loop whose end all slots wait for: a v5e's compiler expects 141 us of a step of
    # 4,096 with sparse resets, 218 us with dense ones, each round of the loop counted once.
    hints = GridTask.hints._replace(reset="sparse")
    static_ranges = {"num_rooms": (1, 12), "largest": (4, SIDE - 1)}

    @property
    def shape(self) -> tuple[int, int]:
        return SIDE, SIDE

    @property
    def time_limit(self) -> int:
        return 20 * self.num_rooms

    def generate(self, key: Array, params: Params | Level) -> Level:
        draw_key, rooms_key = jax.random.split(key)
        agent, turn, goal, *paint = random_words(draw_key, (3 + self.num_rooms,))
        rooms, doors = draw_rooms(rooms_key, self.num_rooms, self.largest)
        y, x = np.divmod(np.arange(SIDE * SIDE, dtype=np.int32), SIDE)

        def inside(room: Array) -> Any:
            return (x > room[0]) & (x < room[0] + room[2] - 1) & (y > room[1]) & (y < room[1] + room[3] - 1)

        grid, color = jnp.full(SIDE * SIDE, NOTHING, jnp.int32), jnp.int32(0)
        for i in range(self.num_rooms):
            room = rooms[i]
            whole = (x >= room[0]) & (x < room[0] + room[2]) & (y >= room[1]) & (y < room[1] + room[3])
            grid = jnp.where(whole & ~inside(room), GREY_WALL, grid)
            if i > 0:
                color = (color + 1 + below(paint[i], 5)) % 6 if i > 1 else below(paint[i], 6)
                grid = put(grid, doors[i, 1] * SIDE + doors[i, 0], pack(DOOR, color, CLOSED))
        # Nothing is in a room yet: the n-th of its cells is known without a look at the grid.
        position, taken = spot(agent, rooms[0], jnp.int32(SIDE * SIDE))
        grid = put(grid, spot(goal, rooms[-1], taken if self.num_rooms == 1 else jnp.int32(SIDE * SIDE))[0], GREEN_GOAL)
        none = jnp.zeros(0, jnp.int32)
        return Level(
            params.max_steps, grid.reshape(self.shape), position, below(turn, 4), jnp.zeros(1, jnp.int32), none
        )

    def mission_text(self, mission: Any) -> str:
        return "traverse the rooms to get to the goal"
