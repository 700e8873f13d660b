"""BabyAI-Open*: open a door, or two in order.

`minigrid` 3.2.0, `Open`, `OpenRedDoor`, `OpenDoor`, `OpenTwoDoors`, `OpenDoorsOrder`. With `debug` (`strict`) the
mission fails with a wrong door toggled; so, in `OpenDoorsOrder`, do missions with two doors: the first door opened is a
wrong one for the second clause. Mission and observation: see `instructions`, `engine`.
"""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp

from jaxrl.math import below, choose

from .. import rooms
from ..engine import permutation
from ..tiles import COLORS, DOOR, RED, kind_of, pack
from .instructions import Clause, Order, Thing, Verb, like
from .level import BabyAI, Deal, Mission


@dataclasses.dataclass(frozen=True)
class Open(BabyAI):
    """A door of a maze with 18 objects."""

    id: str = dataclasses.field(default="BabyAI-Open-v0", kw_only=True)

    def furnish(self, deal: Deal) -> tuple[rooms.House, Mission]:
        house = rooms.place_agent(deal(3), self.build(deal))
        house = self.connect(deal, house)
        house, _, _ = rooms.add_distractors(deal(18, 4), house, unique=False)
        house = house.replace(valid=house.valid & rooms.objects_reachable(house))
        door = house.grid[choose(deal(), kind_of(house.grid) == DOOR)]
        return house, self.tell(Clause(Verb.OPEN, like(door)))


@dataclasses.dataclass(frozen=True)
class OpenRedDoor(BabyAI):
    """The only door."""

    id: str = dataclasses.field(default="BabyAI-OpenRedDoor-v0", kw_only=True)

    room_size = 5
    num_rows = 1
    num_cols = 2

    def furnish(self, deal: Deal) -> tuple[rooms.House, Mission]:
        house = rooms.add_door(self.build(deal), 0, 0, RED)
        house = rooms.place_agent(deal(3), house, 0)
        return house, self.tell(Clause(Verb.OPEN, Thing(DOOR, 1 + RED)))


@dataclasses.dataclass(frozen=True)
class OpenDoor(BabyAI):
    """One of four doors, told by its colour or its place, or by either."""

    id: str = dataclasses.field(default="BabyAI-OpenDoor-v0", kw_only=True)
    debug: bool = False
    select_by: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.select_by not in (None, "color", "loc"):
            raise ValueError(f"{self.id}: select_by={self.select_by!r}; it is 'color', 'loc' or None.")

    @property
    def strict(self) -> tuple[bool, bool]:
        return self.debug, False

    def furnish(self, deal: Deal) -> tuple[rooms.House, Mission]:
        house, colors = self.build(deal), permutation(deal(len(COLORS)))
        for side in range(4):
            house = rooms.add_door(house, 4, side, colors[side])
        house = rooms.place_agent(deal(3), house, 4)
        by_place = below(deal(), 2) == 0 if self.select_by is None else self.select_by == "loc"
        color, place = jnp.where(by_place, 0, 1 + colors[0]), jnp.where(by_place, 1 + below(deal(), 4), 0)
        return house, self.tell(Clause(Verb.OPEN, Thing(DOOR, color, place)))


@dataclasses.dataclass(frozen=True)
class OpenTwoDoors(BabyAI):
    """The left door, then the right one, of two random colours or of those given."""

    id: str = dataclasses.field(default="BabyAI-OpenTwoDoors-v0", kw_only=True)
    first_color: str | None = None
    second_color: str | None = None
    debug: bool = False
    clauses: int = dataclasses.field(default=2, kw_only=True)

    room_size = 6

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("first_color", "second_color"):
            if getattr(self, name) not in (None, *COLORS):
                raise ValueError(f"{self.id}: {name}={getattr(self, name)!r}; it is None or one of {COLORS}.")

    @property
    def time_limit(self) -> int:
        return 20 * self.room_size**2

    @property
    def strict(self) -> tuple[bool, bool]:
        return self.debug, False

    def furnish(self, deal: Deal) -> tuple[rooms.House, Mission]:
        drawn = permutation(deal(len(COLORS)))
        first = drawn[0] if self.first_color is None else jnp.int32(COLORS.index(self.first_color))
        second = drawn[1] if self.second_color is None else jnp.int32(COLORS.index(self.second_color))
        house = rooms.add_door(self.build(deal), 4, 2, first)
        house = rooms.add_door(house, 4, 0, second)
        house = rooms.place_agent(deal(3), house, 4)
        left, right = (Clause(Verb.OPEN, like(pack(DOOR, color))) for color in (first, second))
        return house, self.tell(left, right, Order.THEN)


@dataclasses.dataclass(frozen=True)
class OpenDoorsOrder(BabyAI):
    """One of `num_doors` doors, or one then or after another."""

    id: str = dataclasses.field(default="BabyAI-OpenDoorsOrderN4-v0", kw_only=True)
    num_doors: int = 4
    debug: bool = False
    clauses: int = dataclasses.field(default=2, kw_only=True)

    room_size = 6
    static_ranges = {"num_doors": (2, 4)}

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 2 <= self.num_doors <= 4:
            raise ValueError(f"{self.id}: num_doors={self.num_doors}; from 2 to 4.")

    @property
    def time_limit(self) -> int:
        return 20 * self.room_size**2

    @property
    def strict(self) -> tuple[bool, bool]:
        return self.debug, self.debug

    def furnish(self, deal: Deal) -> tuple[rooms.House, Mission]:
        house, colors, sides = self.build(deal), permutation(deal(len(COLORS))), permutation(deal(4))
        for k in range(self.num_doors):
            house = rooms.add_door(house, 4, sides[k], colors[k])
        house = rooms.place_agent(deal(3), house, 4)
        one, other = permutation(deal(self.num_doors))[:2]
        order = below(deal(), 3)
        first = Clause(Verb.OPEN, like(pack(DOOR, colors[one])))
        verb, kind, color = (jnp.where(order == Order.ALONE, 0, x) for x in (Verb.OPEN, DOOR, 1 + colors[other]))
        return house, self.tell(first, Clause(verb, Thing(kind, color)), order)
