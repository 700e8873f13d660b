"""BabyAI-PutNext*, MoveTwoAcross*: put an object next to another.

`minigrid` 3.2.0, `PutNextLocal`, `PutNext`, `MoveTwoAcross`; all objects differ. Mission and observation: see
`instructions`, `engine`.

With `start_carrying` the agent has the object in hand from the start. Deviation: so says the first observation, too;
the reference's is still made before the object is taken. As there, putting it next to the other one with the very first
action does not count.
"""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, Int32

from jaxrl.math import below

from .. import rooms
from ..engine import put
from ..tiles import NOTHING, Level
from .instructions import Clause, Order, Verb, like, tags_of
from .level import BabyAI, Deal, Mission, State


@dataclasses.dataclass(frozen=True)
class PutNextLocal(BabyAI):
    """In one room."""

    id: str = dataclasses.field(default="BabyAI-PutNextLocal-v0", kw_only=True)
    room_size: int = 8
    num_objs: int = 8

    num_rows = 1
    num_cols = 1
    navigations = 2
    static_ranges = {"num_objs": (2, 18)}

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_objects("num_objs", 1, 2, 18)

    def furnish(self, deal: Deal) -> tuple[rooms.House, Mission]:
        house = rooms.place_agent(deal(3), self.build(deal))
        house, cells, _ = rooms.add_distractors(deal(self.num_objs, 4), house)
        house = house.replace(valid=house.valid & rooms.objects_reachable(house))
        moved, fixed = cells[0], cells[1]
        mission = self.tell(Clause(Verb.PUT_NEXT, like(moved), like(fixed)))
        return self.can_put(house, mission), mission


@dataclasses.dataclass(frozen=True)
class TwoRooms(BabyAI):
    """Objects on the left, where the agent is, and on the right; the wall between is then taken away."""

    room_size: int = 5
    objs_per_room: int = 2

    num_rows = 1
    num_cols = 2
    static_ranges = {"objs_per_room": (1, 9)}

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_objects("objs_per_room", 1, self.least_clauses, 9)  # a clause moves one of each

    def furnish_rooms(self, deal: Deal) -> tuple[rooms.House, Int32[Array, " n"], Int32[Array, " n"]]:
        """`(house, objects on the left, on the right)`, in random order."""
        house = rooms.place_agent(deal(3), self.build(deal), 0)
        house, left, _ = rooms.add_distractors(deal(self.objs_per_room, 4), house, 0)
        house, right, _ = rooms.add_distractors(deal(self.objs_per_room, 4), house, 1)
        return rooms.remove_wall(house, 0, 0), left, right


@dataclasses.dataclass(frozen=True)
class PutNext(TwoRooms):
    """An object from one side next to one on the other."""

    id: str = dataclasses.field(default="BabyAI-PutNextS5N2-v0", kw_only=True)
    start_carrying: bool = False

    @property
    def time_limit(self) -> int:
        return 8 * self.room_size**2

    def furnish(self, deal: Deal) -> tuple[rooms.House, Mission]:
        house, left, right = self.furnish_rooms(deal)
        flip = below(deal(), 2) == 0
        moved, fixed = jnp.where(flip, right[0], left[0]), jnp.where(flip, left[0], right[0])
        mission = self.tell(Clause(Verb.PUT_NEXT, like(moved), like(fixed)))
        return self.can_put(house, mission), mission

    def start(self, level: Level) -> State:
        state = super().start(level)
        if not self.start_carrying:
            return state
        index = jnp.argmax(tags_of(state.grid) & 1)
        return state.replace(carrying=state.grid[index], grid=put(state.grid, index, NOTHING))


@dataclasses.dataclass(frozen=True)
class MoveTwoAcross(TwoRooms):
    """An object from the left next to one on the right, then another from there next to another on the left."""

    id: str = dataclasses.field(default="BabyAI-MoveTwoAcrossS5N2-v0", kw_only=True)
    clauses: int = dataclasses.field(default=2, kw_only=True)

    @property
    def time_limit(self) -> int:
        return 16 * self.room_size**2

    def furnish(self, deal: Deal) -> tuple[rooms.House, Mission]:
        house, left, right = self.furnish_rooms(deal)
        there = Clause(Verb.PUT_NEXT, like(left[0]), like(right[0]))
        back = Clause(Verb.PUT_NEXT, like(right[1]), like(left[1]))
        mission = self.tell(there, back, Order.THEN)
        return self.can_put(house, mission), mission
