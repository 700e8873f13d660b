"""BabyAI-BossLevel*, MiniBossLevel, Synth*, GoToSeq*, PickupLoc: any sentence of a part of the language.

`minigrid` 3.2.0, `LevelGen`; which part is a matter of settings. A maze, `num_dists` objects, sometimes a locked room
and its key; then clauses about what is there. Mission and observation: see `instructions`, `engine`.
"""

from __future__ import annotations

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Integer

from jaxrl.math import below, choose

from .. import rooms
from ..tiles import BALL, BOX, COLORS, DOOR, KEY, LOCKED, color_of, kind_of, pack, state_of
from .instructions import Order, Place, Verb, encode, verbs_of
from .level import BabyAI, Deal, Mission, lock_room

VERBS = {"goto": Verb.GO_TO, "pickup": Verb.PICK_UP, "open": Verb.OPEN, "putnext": Verb.PUT_NEXT}
KINDS = (BOX, BALL, KEY, DOOR)
FORMS = ("action", "and", "seq")


@dataclasses.dataclass(frozen=True)
class LevelGen(BabyAI):
    """`locations`: descriptions may tell the place. `unblocking`: the agent may have to move objects out of the way.
    `implicit_unlock`: what is asked for may all be in the locked room."""

    id: str = dataclasses.field(default="BabyAI-BossLevel-v0", kw_only=True)
    room_size: int = 8
    num_rows: int = 3
    num_cols: int = 3
    num_dists: int = 18
    locked_room_prob: float = 0.5
    locations: bool = True
    unblocking: bool = True
    implicit_unlock: bool = True
    action_kinds: tuple[str, ...] = ("goto", "pickup", "open", "putnext")
    instr_kinds: tuple[str, ...] = FORMS
    clauses: int = dataclasses.field(default=4, kw_only=True)

    def __post_init__(self) -> None:
        for name, known in (("action_kinds", tuple(VERBS)), ("instr_kinds", FORMS)):
            given = getattr(self, name)
            if not given or not set(given) <= set(known):
                raise ValueError(f"{self.id}: {name}={given}; some of {known}.")
        super().__post_init__()
        if not 0 <= self.locked_room_prob <= 1 or (self.locked_room_prob and self.num_rows * self.num_cols == 1):
            raise ValueError(f"{self.id}: locked_room_prob={self.locked_room_prob}; from 0 to 1, 0 in a single room.")
        num_rooms = self.num_rows * self.num_cols
        # Half of the cells at most: all objects must be within reach.
        self._check_objects("num_dists", num_rooms, most=num_rooms * (self.room_size - 2) ** 2 // 2)

    @property
    def least_clauses(self) -> int:
        return 1 if set(self.instr_kinds) == {"action"} else 4

    @property
    def time_limit(self) -> int:
        longest = 4 if "seq" in self.instr_kinds else 2 if "and" in self.instr_kinds else 1
        return super().time_limit * longest * (2 if "putnext" in self.action_kinds else 1)

    def limit(self, mission: Integer[Array, " K"], max_steps: Array) -> Array:
        verbs = verbs_of(mission)
        navigations = jnp.sum(verbs != Verb.NONE) + jnp.sum(verbs == Verb.PUT_NEXT)
        return jnp.minimum(navigations * super().time_limit, max_steps).astype(jnp.int32)

    def furnish(self, deal: Deal) -> tuple[rooms.House, Mission]:
        house = self.build(deal)
        locked = jnp.int32(-1)
        if self.locked_room_prob > 0:
            house, locked = self._maybe_lock(deal, house)
        house = self.connect(deal, house)
        house, _, _ = rooms.add_distractors(deal(self.num_dists, 4), house, unique=False)
        house = rooms.place_agent(deal(3), house, choose(deal(), jnp.arange(house.num_rooms) != locked))
        if not self.unblocking:
            house = house.replace(valid=house.valid & rooms.objects_reachable(house))
        return self._mission(deal, house, locked)

    def _maybe_lock(self, deal: Deal, house: rooms.House) -> tuple[rooms.House, Integer[Array, ""]]:
        """`(house, the locked room, -1 for none)`."""
        where = choose(deal(), house.doorways.reshape(-1) >= 0)
        with_lock, _ = lock_room(deal, house, where // 4, where % 4)
        lock = below(deal(), 1 << 24) < self.locked_room_prob * 2**24
        house = jax.tree.map(lambda a, b: jnp.where(lock, a, b), with_lock, house)
        return house, jnp.where(lock, where // 4, -1)

    def _mission(self, deal: Deal, house: rooms.House, locked: Integer[Array, ""]) -> tuple[rooms.House, Mission]:
        """A sentence about what is there; a house in which it makes no sense is not `valid`."""
        n, coin = self.clauses, below(deal(3), 2) == 0
        form = jnp.array([FORMS.index(form) for form in self.instr_kinds])[below(deal(), len(self.instr_kinds))]
        sequence = form == FORMS.index("seq")
        joined = jnp.where(sequence, coin[:2], form == FORMS.index("and"))
        present = jnp.stack([jnp.bool_(True), joined[0], sequence, sequence & joined[1]])[:: 4 // n]
        order = jnp.where(sequence, jnp.where(coin[2], Order.THEN, Order.AFTER), Order.ALONE)
        verbs = jnp.array([VERBS[verb] for verb in self.action_kinds])[below(deal(n), len(self.action_kinds))]
        verbs = jnp.where(present, verbs, Verb.NONE)

        things = np.array(list(itertools.product(KINDS, range(1 + len(COLORS)), self._told_places)), np.int32)
        there = self._there(house, locked).reshape(-1)
        door = things[:, 0] == DOOR
        first = jnp.where(verbs[:, None] == Verb.GO_TO, True, door == (verbs[:, None] == Verb.OPEN))
        needed = jnp.stack([present, verbs == Verb.PUT_NEXT], 1)
        allowed = there & jnp.stack([first, jnp.ones_like(first)], 1)
        chosen = jax.vmap(choose)(deal(2 * n), allowed.reshape(2 * n, -1)).reshape(n, 2)
        told = jnp.where(needed[..., None], jnp.asarray(things)[jnp.minimum(chosen, len(things) - 1)], 0)

        mission = encode(order, verbs, told)
        valid = jnp.all(~needed | (chosen < len(things)))
        if self.unblocking:  # what opens a door is not to be put away
            locks = (kind_of(house.grid) == DOOR) & (state_of(house.grid) == LOCKED)
            colors = jnp.where(locks, 1 + color_of(house.grid), -1)
            opens = jnp.any(colors == told[..., 1, None], -1) & (told[..., 0] == KEY)
            valid &= ~jnp.any(opens)
        return self.can_put(house.replace(valid=house.valid & valid), mission), mission

    @property
    def _told_places(self) -> list[Place]:
        """Each as often as it is likely: half of the descriptions tell none."""
        return [Place.ANYWHERE] * 4 + list(Place)[1:] if self.locations else [Place.ANYWHERE]

    def _there(self, house: rooms.House, locked: Integer[Array, ""]) -> Bool[Array, "kinds colors places"]:
        """Whether anything fits a kind, colour and place; if it must not all be locked, outside the locked room."""
        places = self.places(house.grid, house.position, house.direction)
        if not self.implicit_unlock:
            places = jnp.where((locked >= 0) & rooms.inside(house, locked), 0, places)
        alike = house.grid & 0xFFFF == pack(np.array(KINDS)[:, None, None], np.arange(len(COLORS))[:, None])
        colors = jnp.bitwise_or.reduce(jnp.where(alike, places, 0), axis=2)
        colors = jnp.concatenate([jnp.bitwise_or.reduce(colors, axis=1, keepdims=True), colors], 1)
        return colors[..., None] >> np.array(self._told_places, np.int32) & 1 > 0
