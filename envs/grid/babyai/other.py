"""BabyAI-ActionObjDoor: pick up an object, go to an object or door, or open a door, in the middle room.

`minigrid` 3.2.0, `ActionObjDoor`. Five objects that differ, four doors. Mission and observation: see `instructions`,
`engine`.
"""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp

from jaxrl.math import below

from .. import rooms
from ..tiles import DOOR, kind_of
from .instructions import Clause, Verb, like
from .level import BabyAI, Deal, Mission, four_doors


@dataclasses.dataclass(frozen=True)
class ActionObjDoor(BabyAI):
    id: str = dataclasses.field(default="BabyAI-ActionObjDoor-v0", kw_only=True)

    room_size = 7

    def furnish(self, deal: Deal) -> tuple[rooms.House, Mission]:
        house, cells, _ = rooms.add_distractors(deal(5, 4), self.build(deal), 4)
        house, doors = four_doors(deal, house, 4, locks=False)
        house = rooms.place_agent(deal(3), house, 4)
        wanted = jnp.append(cells, doors)[below(deal(), 9)]
        act = jnp.where(kind_of(wanted) == DOOR, Verb.OPEN, Verb.PICK_UP)
        verb = jnp.where(below(deal(), 2) == 0, Verb.GO_TO, act)
        return house, self.tell(Clause(verb, like(wanted)))
