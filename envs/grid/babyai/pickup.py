"""BabyAI-Pickup*, UnblockPickup, FindObj*, OneRoom*, KeyCorridor*: pick up an object.

`minigrid` 3.2.0, `Pickup`, `UnblockPickup`, `PickupDist`, `PickupAbove`, `FindObjS5`, `OneRoomS8`, `KeyCorridor`. For
`PickupLoc` see `synth`. Mission and observation: see `instructions`, `engine`.
"""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp

from jaxrl.math import below

from .. import rooms
from ..engine import random_color
from ..tiles import BALL, CLOSED, KEY, LOCKED, kind_of, pack
from .goto import GoTo
from .instructions import Clause, Thing, Verb, like
from .level import BabyAI, Deal, Mission


@dataclasses.dataclass(frozen=True)
class Pickup(GoTo):
    """An object of a maze."""

    id: str = dataclasses.field(default="BabyAI-Pickup-v0", kw_only=True)

    verb = Verb.PICK_UP


@dataclasses.dataclass(frozen=True)
class UnblockPickup(Pickup):
    """An object of a maze in which some lie in the way."""

    id: str = dataclasses.field(default="BabyAI-UnblockPickup-v0", kw_only=True)
    num_dists: int = 20

    blocked = True


@dataclasses.dataclass(frozen=True)
class PickupDist(BabyAI):
    """One of five, told by its kind, its colour or both; with `debug` the mission fails with another one."""

    id: str = dataclasses.field(default="BabyAI-PickupDist-v0", kw_only=True)
    debug: bool = False

    room_size = 7
    num_rows = 1
    num_cols = 1

    @property
    def strict(self) -> tuple[bool, bool]:
        return self.debug, False

    def furnish(self, deal: Deal) -> tuple[rooms.House, Mission]:
        house, cells, _ = rooms.add_distractors(deal(5, 4), self.build(deal))
        house = rooms.place_agent(deal(3), house, 0)
        kind, color, _ = like(cells[0])
        told = below(deal(), 3)
        wanted = Thing(jnp.where(told == 1, 0, kind), jnp.where(told == 2, 0, color))
        return house, self.tell(Clause(Verb.PICK_UP, wanted))


@dataclasses.dataclass(frozen=True)
class PickupAbove(BabyAI):
    """The object in the room above."""

    id: str = dataclasses.field(default="BabyAI-PickupAbove-v0", kw_only=True)

    room_size = 6

    @property
    def time_limit(self) -> int:
        return 8 * self.room_size**2

    def furnish(self, deal: Deal) -> tuple[rooms.House, Mission]:
        wanted = rooms.random_object(deal(2))
        house, _ = rooms.add_object(deal(), self.build(deal), 1, wanted)
        house = rooms.add_door(house, 4, 3, random_color(deal()), CLOSED)
        house = self.connect(deal, rooms.place_agent(deal(3), house, 4))
        return house, self.tell(Clause(Verb.PICK_UP, like(wanted)))


@dataclasses.dataclass(frozen=True)
class FindObj(BabyAI):
    """The only object, in any room."""

    id: str = dataclasses.field(default="BabyAI-FindObjS5-v0", kw_only=True)
    room_size: int = 5

    @property
    def time_limit(self) -> int:
        return 20 * self.room_size**2

    def furnish(self, deal: Deal) -> tuple[rooms.House, Mission]:
        wanted = rooms.random_object(deal(2))
        house, _ = rooms.add_object(deal(), self.build(deal), below(deal(), 9), wanted)
        house = self.connect(deal, rooms.place_agent(deal(3), house, 4))
        return house, self.tell(Clause(Verb.PICK_UP, Thing(kind_of(wanted))))


@dataclasses.dataclass(frozen=True)
class OneRoom(BabyAI):
    """The ball, alone in a room."""

    id: str = dataclasses.field(default="BabyAI-OneRoomS8-v0", kw_only=True)
    room_size: int = 8

    num_rows = 1
    num_cols = 1

    def furnish(self, deal: Deal) -> tuple[rooms.House, Mission]:
        house, _ = rooms.add_object(deal(), self.build(deal), 0, pack(BALL, random_color(deal())))
        return rooms.place_agent(deal(3), house), self.tell(Clause(Verb.PICK_UP, Thing(BALL)))


@dataclasses.dataclass(frozen=True)
class KeyCorridor(BabyAI):
    """The ball in a locked room on the right of a corridor; the key is in a room on its left."""

    id: str = dataclasses.field(default="BabyAI-KeyCorridor-v0", kw_only=True)
    room_size: int = 6
    num_rows: int = 3

    @property
    def time_limit(self) -> int:
        return 30 * self.room_size**2

    def furnish(self, deal: Deal) -> tuple[rooms.House, Mission]:
        house, color = self.build(deal), random_color(deal())
        for row in range(1, self.num_rows):
            house = rooms.remove_wall(house, 3 * row + 1, 3)
        room = 3 * below(deal(), self.num_rows) + 2
        house = rooms.add_door(house, room, 2, color, LOCKED)
        house, _ = rooms.add_object(deal(), house, room, pack(BALL, random_color(deal())))
        house, _ = rooms.add_object(deal(), house, 3 * below(deal(), self.num_rows), pack(KEY, color))
        house = rooms.place_agent(deal(3), house, 3 * (self.num_rows // 2) + 1)
        return self.connect(deal, house), self.tell(Clause(Verb.PICK_UP, Thing(BALL)))
