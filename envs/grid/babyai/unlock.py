"""BabyAI-Unlock*, KeyInBox, BlockedUnlockPickup: a locked door.

`minigrid` 3.2.0, `Unlock`, `UnlockLocal`, `KeyInBox`, `UnlockPickup`, `BlockedUnlockPickup`, `UnlockToUnlock`. Mission
and observation: see `instructions`, `engine`.

Deviation: in `Unlock` and `GoToImpUnlock` the key is in another room than the locked one, which has no distractors. So
the reference means it, but compares numpy integers by identity: there the key may be behind its own door.
"""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, Bool, Integer

from jaxrl.math import below

from .. import rooms
from ..engine import permutation, put, random_color
from ..tiles import BALL, BOX, COLORS, DOOR, KEY, LOCKED, pack
from .instructions import Clause, Thing, Verb, like
from .level import BabyAI, Deal, Mission, elsewhere, lock_room


def locked_house(
    env: BabyAI, deal: Deal, per_room: int, own_color: Bool[Array, ""]
) -> tuple[rooms.House, Integer[Array, ""], Integer[Array, ""]]:
    """Connected rooms, one behind a locked door, objects in all others: `(house, locked room, colour of its door)`.

    `own_color`: no other door has that colour.
    """
    house = env.build(deal)
    room = below(deal(), house.num_rooms)
    house, color = lock_room(deal, house, room, rooms.free_side(deal(), house, room))
    house = env.connect(deal, house, ~own_color | (jnp.arange(len(COLORS)) != color))
    others = jnp.repeat(jnp.arange(house.num_rooms - 1), per_room)
    others = others + (others >= room)
    house, _, _ = rooms.add_distractors(deal(others.size, 4), house, others, unique=False)
    house = rooms.place_agent(deal(3), house, elsewhere(deal, house, room))
    return house.replace(valid=house.valid & rooms.objects_reachable(house)), room, color


@dataclasses.dataclass(frozen=True)
class Unlock(BabyAI):
    """Open the locked door of a maze; half of the time no other has its colour."""

    id: str = dataclasses.field(default="BabyAI-Unlock-v0", kw_only=True)

    def furnish(self, deal: Deal) -> tuple[rooms.House, Mission]:
        house, _, color = locked_house(self, deal, 3, below(deal(), 2) == 0)
        return house, self.tell(Clause(Verb.OPEN, like(pack(DOOR, color))))


@dataclasses.dataclass(frozen=True)
class UnlockLocal(BabyAI):
    """The only door, the key is in the same room, maybe among three other objects."""

    id: str = dataclasses.field(default="BabyAI-UnlockLocal-v0", kw_only=True)
    distractors: bool = False

    def furnish(self, deal: Deal) -> tuple[rooms.House, Mission]:
        house, color = self.build(deal), random_color(deal())
        house = rooms.add_door(house, 4, rooms.free_side(deal(), house, 4), color, LOCKED)
        house, _ = rooms.add_object(deal(), house, 4, pack(KEY, color))
        if self.distractors:
            house, _, _ = rooms.add_distractors(deal(3, 4), house, 4)
        house = rooms.place_agent(deal(3), house, 4)
        return house, self.tell(Clause(Verb.OPEN, Thing(DOOR)))


@dataclasses.dataclass(frozen=True)
class KeyInBox(BabyAI):
    """The only door, the key is in a box."""

    id: str = dataclasses.field(default="BabyAI-KeyInBox-v0", kw_only=True)

    def furnish(self, deal: Deal) -> tuple[rooms.House, Mission]:
        house, color = self.build(deal), random_color(deal())
        house = rooms.add_door(house, 4, rooms.free_side(deal(), house, 4), color, LOCKED)
        box = pack(BOX, random_color(deal()), color + 1 << 4)
        house, _ = rooms.add_object(deal(), house, 4, box)
        house = rooms.place_agent(deal(3), house, 4)
        return house, self.tell(Clause(Verb.OPEN, Thing(DOOR)))


@dataclasses.dataclass(frozen=True)
class UnlockPickup(BabyAI):
    """Pick up the box behind the locked door, maybe among four other objects."""

    id: str = dataclasses.field(default="BabyAI-UnlockPickup-v0", kw_only=True)
    distractors: bool = False

    room_size = 6
    num_rows = 1
    num_cols = 2

    def furnish(self, deal: Deal) -> tuple[rooms.House, Mission]:
        box, color = pack(BOX, random_color(deal())), random_color(deal())
        house, _ = rooms.add_object(deal(), self.build(deal), 1, box)
        house = rooms.add_door(house, 0, 0, color, LOCKED)
        house, _ = rooms.add_object(deal(), house, 0, pack(KEY, color))
        if self.distractors:
            house, _, _ = rooms.add_distractors(deal(4, 4), house)
        house = rooms.place_agent(deal(3), house, 0)
        return house, self.tell(Clause(Verb.PICK_UP, like(box)))


@dataclasses.dataclass(frozen=True)
class BlockedUnlockPickup(BabyAI):
    """Pick up the box behind the locked door, before which lies a ball."""

    id: str = dataclasses.field(default="BabyAI-BlockedUnlockPickup-v0", kw_only=True)

    room_size = 6
    num_rows = 1
    num_cols = 2

    @property
    def time_limit(self) -> int:
        return 16 * self.room_size**2

    def furnish(self, deal: Deal) -> tuple[rooms.House, Mission]:
        color = random_color(deal())
        house, _ = rooms.add_object(deal(), self.build(deal), 1, pack(BOX, random_color(deal())))
        house = rooms.add_door(house, 0, 0, color, LOCKED)
        house = house.replace(grid=put(house.grid, house.doorways[0, 0] - 1, pack(BALL, random_color(deal()))))
        house, _ = rooms.add_object(deal(), house, 0, pack(KEY, color))
        house = rooms.place_agent(deal(3), house, 0)
        return house, self.tell(Clause(Verb.PICK_UP, Thing(BOX)))


@dataclasses.dataclass(frozen=True)
class UnlockToUnlock(BabyAI):
    """Pick up the ball behind a locked door, whose key is behind another."""

    id: str = dataclasses.field(default="BabyAI-UnlockToUnlock-v0", kw_only=True)

    room_size = 6
    num_rows = 1

    @property
    def time_limit(self) -> int:
        return 30 * self.room_size**2

    def furnish(self, deal: Deal) -> tuple[rooms.House, Mission]:
        colors = permutation(deal(len(COLORS)))
        house = rooms.add_door(self.build(deal), 0, 0, colors[0], LOCKED)
        house, _ = rooms.add_object(deal(), house, 2, pack(KEY, colors[0]))
        house = rooms.add_door(house, 1, 0, colors[1], LOCKED)
        house, _ = rooms.add_object(deal(), house, 1, pack(KEY, colors[1]))
        house, _ = rooms.add_object(deal(), house, 0, pack(BALL, random_color(deal())))
        house = rooms.place_agent(deal(3), house, 1)
        return house, self.tell(Clause(Verb.PICK_UP, Thing(BALL)))
