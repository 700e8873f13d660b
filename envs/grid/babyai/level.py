"""What the tasks of BabyAI share: the lattice of rooms, the clock, the mission's progress.

A level file furnishes a house and gives instructions (see `instructions`): `BabyAI.furnish`. A level that its task
would not have is drawn anew, as `RoomGridLevel` of `minigrid` 3.2.0 does. Rewards, actions and observations: see
`engine`; a mission that has failed ends the episode with reward 0.

`max_steps` is room_size^2 a room and navigation (two for "put next to", else one), unless a task says otherwise. Where
missions differ in that, an episode has the limit of its own mission and `params.max_steps` caps it.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int32, Integer, UInt32

from jaxrl.environment import Transition, pytree
from jaxrl.math import below, random_words

from .. import engine, rooms, tiles
from ..engine import GridTask, Move, ahead_of, random_color, until_valid
from ..tiles import CLOSED, DOOR, DROP, KEY, LOCKED, Level, Params, color_of, pack
from . import instructions
from .instructions import Clause, Order, Scene, Verb, fitting, tags, tags_of, things_of, verbs_of

Mission = Int32[Array, " K"]


@pytree
class State(tiles.State):
    remembered: jax.Array  # (cells + 1,) uint8, tags of the objects known to be there
    done: jax.Array  # (clauses,) bool
    limit: jax.Array  # int32, max_steps of this episode


class Deal:
    """The random words of one level, drawn at once and dealt out in turn."""

    def __init__(self, key: Array, words: int) -> None:
        self.words = random_words(key, (words,))

    def __call__(self, *shape: int) -> UInt32[Array, "..."]:
        n = math.prod(shape)
        dealt, self.words = self.words[:n], self.words[n:]
        return dealt.reshape(shape)


@dataclasses.dataclass(frozen=True)
class BabyAI(GridTask):
    """Base of the levels. `clauses`: how many a mission has room for, 1, 2 or 4; with 4 all ids' are of one shape."""

    clauses: int = dataclasses.field(default=1, kw_only=True)

    # A v5e's compiler expects 0.9 ms of a step of 4,096 GoToLocal with sparse resets, 1.2 ms with dense ones.
    hints = GridTask.hints._replace(reset="sparse")
    room_size = 8  # with its walls; a subclass that leaves the choice makes fields of these
    num_rows = 3
    num_cols = 3
    num_dists = 24  # objects at most
    navigations = 1
    static_ranges = {
        "clauses": (1, 4),
        "room_size": (3, 64),
        "num_rows": (1, 10),
        "num_cols": (1, 10),
        "num_dists": (0, 1000),
    }

    def furnish(self, deal: Deal) -> tuple[rooms.House, Mission]:
        """A house, which may turn out not to be `valid`, and the mission, `several` left 0."""
        raise NotImplementedError

    @property
    def least_clauses(self) -> int:
        """How many a mission of this task may have."""
        return type(self).clauses

    @property
    def strict(self) -> tuple[bool, bool]:
        """Whether a wrong door or object fails the mission: in its first half, in its second."""
        return False, False

    @property
    def shape(self) -> tuple[int, int]:
        return rooms.shape_of(self.num_rows, self.num_cols, self.room_size)

    @property
    def missions(self) -> tuple[int, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return instructions.sizes(self.clauses)

    @property
    def time_limit(self) -> int:
        return self.navigations * self.room_size**2 * self.num_rows * self.num_cols

    def limit(self, mission: Integer[Array, " K"], max_steps: Array) -> Array:
        """The time limit of a level that is generated."""
        return max_steps

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.clauses not in (1, 2, 4) or self.clauses < self.least_clauses:
            raise ValueError(f"{self.id}: clauses={self.clauses} must be 1, 2 or 4, from {self.least_clauses} on.")
        rooms.check_cells(self.id, self.room_size, self.num_rows, self.num_cols)

    def _check_objects(self, name: str, num_rooms: int, least: int = 1, most: int = 99999) -> None:
        """Raise ValueError unless so many objects fit into rooms beside the agent, whom they must not touch."""
        most = min(most, num_rooms * (self.room_size - 2) ** 2 - 3)
        if most < least:
            raise ValueError(f"{self.id}: room_size={self.room_size} leaves no place for {name} of at least {least}.")
        if not least <= getattr(self, name) <= most:
            raise ValueError(
                f"{self.id}: {name}={getattr(self, name)} must be from {least} to {most} at room_size={self.room_size}."
            )

    # ---- making levels

    def build(self, deal: Deal) -> rooms.House:
        """The empty rooms."""
        doorways = rooms.num_doorways(self.num_rows, self.num_cols)
        return rooms.build(deal(doorways), self.num_rows, self.num_cols, self.room_size)

    def connect(self, deal: Deal, house: rooms.House, colors: Bool[Array, "6"] | None = None) -> rooms.House:
        """Doors until all rooms are connected."""
        return rooms.connect_all(deal(rooms.num_doorways(self.num_rows, self.num_cols), 2), house, colors)

    def tell(self, first: Clause, second: Clause | None = None, order: Any = Order.ALONE) -> Mission:
        """The mission of one clause, or of one in each half."""
        half = max(1, self.clauses // 2)
        clauses = [Clause()] * self.clauses
        clauses[0] = first
        if second is not None:
            clauses[half] = second
        verbs = jnp.stack([jnp.asarray(clause.verb, jnp.int32) for clause in clauses])
        things = [x for clause in clauses for thing in clause[1:] for x in thing]
        things = jnp.stack([jnp.asarray(x, jnp.int32) for x in things]).reshape(-1, 2, 3)
        return instructions.encode(order, verbs, things)

    def can_put(self, house: rooms.House, mission: Mission) -> rooms.House:
        """Not `valid`, if what is to be put next to something is there already."""
        fits = self._fitting(mission, house.grid, house.position, house.direction)
        return house.replace(valid=house.valid & instructions.may_put(verbs_of(mission), fits, self.shape[1]))

    def generate(self, key: Array, params: Params | Level) -> Level:
        return until_valid(key, lambda key: self._draw(key, params.max_steps))

    def _draw(self, key: Array, max_steps: Array) -> tuple[Level, Array]:
        words = 40 + 3 * rooms.num_doorways(self.num_rows, self.num_cols) + 4 * self.num_dists
        house, mission = self.furnish(Deal(key, words))
        several = jnp.sum(self._fitting(mission, house.grid, house.position, house.direction), 1) > 1
        mission = instructions.with_several(mission, several)
        return rooms.as_level(house, self.limit(mission, max_steps), mission), house.valid

    def _fitting(self, mission: Array, grid: Array, position: Array, direction: Array) -> Bool[Array, "d cells"]:
        return fitting(things_of(mission), grid, self.places(grid, position, direction))

    def places(self, grid: Array, position: Array, direction: Array) -> Int32[Array, " cells"]:
        """What places each cell of a flat grid has; see `instructions.places_of`."""
        return instructions.places_of(grid.size, position, direction, self.shape[1], self.room_size)

    # ---- an episode

    def start(self, level: Level) -> State:
        state = engine.as_state(level)
        marks = tags(self._fitting(level.mission, level.grid.reshape(-1), level.position, level.direction))
        marks = jnp.append(marks, 0)
        return State(
            **vars(state.replace(grid=state.grid | marks << 24)),
            remembered=marks.astype(jnp.uint8),
            done=jnp.zeros(self.clauses, bool),
            limit=level.max_steps,
        )

    def check(self, before: State, action: Integer[Array, ""], move: Move) -> tuple[State, Array, Array]:
        after, width = move.state, self.shape[1]
        current = tags_of(after.grid).astype(jnp.uint8)
        remembered = jnp.where(action == DROP, current, before.remembered)
        index = ahead_of(after.position, after.direction, width)
        around = remembered.at[index + jnp.array([0, 1, -1, width, -width])].get(mode="clip").astype(jnp.int32)
        scene = Scene(
            action=action,
            held=before.carrying,
            holding=after.carrying,
            faced=after.grid.at[index].get(mode="promise_in_bounds"),
            remembered=around[0],
            beside=around[1] | around[2] | around[3] | around[4],
        )
        strict = np.repeat(self.strict, max(1, self.clauses // 2))[: self.clauses]
        done, success, failure = instructions.verify(before.mission, before.done, before.time == 0, scene, strict)
        return after.replace(remembered=remembered, done=done), success, failure

    def transition(self, key: Array, state: State, action: Integer[Array, ""], params: Params | Level) -> Transition:
        step = super().transition(key, state, action, params.replace(max_steps=state.limit))
        return step._replace(truncated=state.time + 1 >= state.limit)

    def mission_text(self, mission: Any) -> str:
        return instructions.text(mission)

    def mission_of(self, text: str) -> tuple[int, ...]:
        """The mission that `mission_text` puts into these words. Host only. Raises ValueError for other words."""
        return instructions.numbers_of(text, (len(self.missions) - 1) // 9)

    # ---- levels

    def mutate(self, key: Array, level: Level) -> Level:
        """A neighbour of `level`, see `engine.mutate`; itself, if nothing would fit a description any more."""
        other = engine.mutate(key, level)
        fits = self._fitting(level.mission, other.grid.reshape(-1), other.position, other.direction)
        other = other.replace(mission=instructions.with_several(level.mission, jnp.sum(fits, 1) > 1))
        meant = jnp.any(things_of(level.mission)[:, :2] > 0, 1)
        return jax.tree.map(lambda a, b: jnp.where(jnp.all(~meant | jnp.any(fits, 1)), a, b), other, level)

    def validate(self, params: Params | Level) -> None:
        super().validate(params)
        if not isinstance(params, Level):
            return
        missions = np.asarray(params.mission).reshape(-1, len(self.missions))
        with jax.ensure_compile_time_eval():
            grids = jnp.asarray(params.grid).reshape(len(missions), -1)
            positions, directions = jnp.asarray(params.position).reshape(-1), jnp.asarray(params.direction).reshape(-1)
            fits = jax.vmap(self._fitting)(jnp.asarray(missions), grids, positions, directions)
            counts = np.asarray(jnp.sum(fits, -1))
        for mission, count in zip(missions, counts, strict=True):
            self._validate_mission(mission, count)

    def _validate_mission(self, mission: np.ndarray, count: np.ndarray) -> None:
        verbs, things = mission[1::9], np.asarray(things_of(mission)).reshape(-1, 2, 4)
        halves = (verbs > 0).reshape(-1, max(1, self.clauses // 2))
        joined = bool(np.any(halves[1:])) == (mission[0] != Order.ALONE)
        if not halves[0, 0] or not joined or np.any(halves[:, 1:] & ~halves[:, :1]):
            raise ValueError(f"level: verbs={verbs}, order={mission[0]}: no sentence (see babyai/instructions.py).")
        needed = np.stack([verbs != Verb.NONE, verbs == Verb.PUT_NEXT], 1)
        if np.any(needed != np.any(things[..., :2], -1)) or np.any((verbs == Verb.OPEN) & (things[:, 0, 0] != DOOR)):
            raise ValueError(f"level: verbs={verbs} with things={things.tolist()}; each verb needs its own.")
        said = things[..., 3].reshape(-1)
        if np.any(needed.reshape(-1) & ((count == 0) | (said != (count > 1)))):
            raise ValueError(f"level: {self.mission_text(mission)!r}, but {count} objects fit its descriptions.")


# ---- furnishing


def elsewhere(deal: Deal, house: rooms.House, room: Integer[Array, ""]) -> Integer[Array, ""]:
    """Another room."""
    other = below(deal(), house.num_rooms - 1)
    return other + (other >= room)


def four_doors(deal: Deal, house: rooms.House, room: int, locks: bool) -> tuple[rooms.House, Integer[Array, "4"]]:
    """A door in each wall of a room, of any colour, locked or not: `(house, doors)`, packed."""
    states = jnp.where(below(deal(4), 2) == 0, LOCKED, CLOSED) if locks else jnp.full(4, CLOSED)
    doors = pack(DOOR, random_color(deal(4)), states)
    for side in range(4):
        house = rooms.add_door(house, room, side, color_of(doors[side]), states[side])
    return house, doors


def lock_room(
    deal: Deal, house: rooms.House, room: Integer[Array, ""], side: Integer[Array, ""]
) -> tuple[rooms.House, Integer[Array, ""]]:
    """A locked door in a wall of a room and its key in another one: `(house, colour)`."""
    color = random_color(deal())
    house = rooms.add_door(house, room, side, color, LOCKED)
    house, _ = rooms.add_object(deal(), house, elsewhere(deal, house, room), pack(KEY, color))
    return house, color
