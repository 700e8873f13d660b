"""BabyAI-GoTo*: go to an object, which means to face it from beside it.

`minigrid` 3.2.0, `GoTo`, `GoToObj`, `GoToLocal` (the latter two are `GoTo` in one room), `GoToRedBall*`,
`GoToRedBlueBall`, `GoToDoor`, `GoToObjDoor`, `GoToImpUnlock`. Nothing need be moved out of the way. For `GoToSeq` see
`synth`. Mission and observation: see `instructions`, `engine`.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import jax.numpy as jnp

from jaxrl.math import below

from .. import rooms
from ..engine import put
from ..tiles import BALL, BLUE, GREY, RED, kind_of, pack
from .instructions import Clause, Verb, like
from .level import BabyAI, Deal, Mission, four_doors
from .unlock import locked_house


@dataclasses.dataclass(frozen=True)
class GoTo(BabyAI):
    """One of `num_dists` objects, anywhere; or something else to do with it."""

    id: str = dataclasses.field(default="BabyAI-GoTo-v0", kw_only=True)
    room_size: int = 8
    num_rows: int = 3
    num_cols: int = 3
    num_dists: int = 18
    doors_open: bool = False

    verb: ClassVar[Verb] = Verb.GO_TO
    blocked: ClassVar[bool] = False
    """Whether some object must be out of reach unless others are moved, or none may."""

    def __post_init__(self) -> None:
        super().__post_init__()
        num_rooms = self.num_rows * self.num_cols
        # Half of the cells at most: all objects must be within reach. In one room three can lock one into a corner.
        least, most = (3 if self.blocked and num_rooms == 1 else 1), num_rooms * (self.room_size - 2) ** 2 // 2
        self._check_objects("num_dists", num_rooms, least, most)

    def furnish(self, deal: Deal) -> tuple[rooms.House, Mission]:
        house = rooms.place_agent(deal(3), self.build(deal))
        house = self.connect(deal, house)
        house, cells, _ = rooms.add_distractors(deal(self.num_dists, 4), house, unique=False)
        house = house.replace(valid=house.valid & (rooms.objects_reachable(house) != self.blocked))
        if self.doors_open:
            house = rooms.open_all_doors(house)
        return house, self.tell(Clause(self.verb, like(cells[0])))  # as random as any of them


@dataclasses.dataclass(frozen=True)
class GoToRedBall(BabyAI):
    """In one room, among others, which may all be grey."""

    id: str = dataclasses.field(default="BabyAI-GoToRedBall-v0", kw_only=True)
    room_size: int = 8
    num_dists: int = 7
    grey: bool = False

    num_rows = 1
    num_cols = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_objects("num_dists", 1, least=0)

    def furnish(self, deal: Deal) -> tuple[rooms.House, Mission]:
        house = rooms.place_agent(deal(3), self.build(deal))
        ball = pack(BALL, RED)
        house, index = rooms.add_object(deal(), house, 0, ball)
        house, _, _ = rooms.add_distractors(deal(self.num_dists, 4), house, unique=False)
        if self.grey:
            loose = jnp.isin(kind_of(house.grid), jnp.array(rooms.LOOSE))
            grid = jnp.where(loose, pack(kind_of(house.grid), GREY), house.grid)
            house = house.replace(grid=put(grid, index, ball))
        house = house.replace(valid=house.valid & rooms.objects_reachable(house))
        return house, self.tell(Clause(Verb.GO_TO, like(ball)))


@dataclasses.dataclass(frozen=True)
class GoToRedBlueBall(BabyAI):
    """In one room, the only ball that is red or blue."""

    id: str = dataclasses.field(default="BabyAI-GoToRedBlueBall-v0", kw_only=True)
    room_size: int = 8
    num_dists: int = 7

    num_rows = 1
    num_cols = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_objects("num_dists", 1, least=0)

    def furnish(self, deal: Deal) -> tuple[rooms.House, Mission]:
        house = rooms.place_agent(deal(3), self.build(deal))
        house, cells, _ = rooms.add_distractors(deal(self.num_dists, 4), house, unique=False)
        another = jnp.any((cells == pack(BALL, RED)) | (cells == pack(BALL, BLUE)))
        ball = pack(BALL, jnp.where(below(deal(), 2) == 0, RED, BLUE))
        house, _ = rooms.add_object(deal(), house, 0, ball)
        house = house.replace(valid=house.valid & ~another & rooms.objects_reachable(house))
        return house, self.tell(Clause(Verb.GO_TO, like(ball)))


@dataclasses.dataclass(frozen=True)
class GoToDoor(BabyAI):
    """One of the four doors of the middle room."""

    id: str = dataclasses.field(default="BabyAI-GoToDoor-v0", kw_only=True)

    room_size = 7

    def furnish(self, deal: Deal) -> tuple[rooms.House, Mission]:
        house, doors = four_doors(deal, self.build(deal), 4, locks=True)
        house = rooms.place_agent(deal(3), house, 4)
        return house, self.tell(Clause(Verb.GO_TO, like(doors[below(deal(), 4)])))


@dataclasses.dataclass(frozen=True)
class GoToObjDoor(BabyAI):
    """One of eight objects or four doors of the middle room."""

    id: str = dataclasses.field(default="BabyAI-GoToObjDoor-v0", kw_only=True)

    def furnish(self, deal: Deal) -> tuple[rooms.House, Mission]:
        house = rooms.place_agent(deal(3), self.build(deal), 4)
        house, cells, _ = rooms.add_distractors(deal(8, 4), house, 4, unique=False)
        house, doors = four_doors(deal, house, 4, locks=True)
        house = house.replace(valid=house.valid & rooms.objects_reachable(house))
        wanted = like(jnp.append(cells, doors)[below(deal(), 12)])
        return house, self.tell(Clause(Verb.GO_TO, wanted))


@dataclasses.dataclass(frozen=True)
class GoToImpUnlock(BabyAI):
    """An object in a locked room."""

    id: str = dataclasses.field(default="BabyAI-GoToImpUnlock-v0", kw_only=True)

    def furnish(self, deal: Deal) -> tuple[rooms.House, Mission]:
        house, room, _ = locked_house(self, deal, 2, jnp.bool_(False))
        house, cells, _ = rooms.add_distractors(deal(1, 4), house, room, unique=False)
        return house, self.tell(Clause(Verb.GO_TO, like(cells[0])))
