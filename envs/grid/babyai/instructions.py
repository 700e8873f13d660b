"""The missions of BabyAI as integers: what they say, which objects they mean, when they are fulfilled.

Chevalier-Boisvert et al. (2019), "BabyAI: A Platform to Study the Sample Efficiency of Grounded Language Learning",
ICLR, arXiv:1810.08272; the rules of `minigrid` 3.2.0.

A mission has two halves of one clause, or of two joined by "and": (1 + 9 n,) int32 for n = 1, 2, 4 clauses (with n = 1
there is no second half). First how the halves are joined: 0 there is but one, 1 "X, then Y", 2 "X after you Y". Then
nine numbers a clause, all 0 where there is none:

| | | |
|---|---|---|
| verb | 1 .. 4 | go to, open, pick up, put next to |
| kind | 0 .. 7 | of the object as the grid has it (4 door, 5 key, 6 ball, 7 box); 0 any |
| colour | 0 .. 6 | 1 + the grid's; 0 any |
| place | 0 .. 4 | left, right, in front, behind, seen from the agent at the start and in its room; 0 anywhere |
| several | 0, 1 | whether it fits several objects: "a", else "the" |

and these four again for the second description of "put next to".

An object is meant by a description if it fits at the start. So its cell gets a tag, a bit for each description (clause
c has the bits 2 c and 2 c + 1), that goes where it goes. Where tagged objects are is remembered, and looked up again
only with an action `drop`: until then an object still counts for "go to" where it was picked up.
"""

from __future__ import annotations

import enum
import re
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int32, Integer

from ..tiles import COLORS, DOOR, DROP, KINDS, NOTHING, OPEN, PICKUP, TOGGLE, Grid, Index, color_of, kind_of, state_of


class Verb(enum.IntEnum):
    NONE, GO_TO, OPEN, PICK_UP, PUT_NEXT = range(5)


class Order(enum.IntEnum):
    ALONE, THEN, AFTER = range(3)


class Place(enum.IntEnum):
    ANYWHERE, LEFT, RIGHT, FRONT, BEHIND = range(5)


class Thing(NamedTuple):
    """A description."""

    kind: Any = 0
    color: Any = 0
    place: Any = 0


class Clause(NamedTuple):
    """An action to be taken."""

    verb: Any = Verb.NONE
    thing: Thing = Thing()
    other: Thing = Thing()


def like(cell: Any) -> Thing:
    """The description of a packed cell by kind and colour."""
    return Thing(kind_of(cell), color_of(cell) + 1)


# ---- as integers

_CLAUSE = (5, 8, 7, 5, 2, 8, 7, 5, 2)


def sizes(clauses: int) -> tuple[int, ...]:
    """How many values each number of a mission has."""
    return (len(Order), *_CLAUSE * clauses)


def encode(order: Any, verbs: Integer[Array, " n"], things: Integer[Array, "n 2 3"]) -> Int32[Array, " K"]:
    """The mission of clauses (kind, colour, place of their things), `several` still 0."""
    things = jnp.pad(things, ((0, 0), (0, 0), (0, 1))).reshape(-1, 8)
    clauses = jnp.concatenate([verbs[:, None], things], 1)
    return jnp.append(jnp.asarray(order), clauses.reshape(-1)).astype(jnp.int32)


def verbs_of(mission: Integer[Array, " K"]) -> Integer[Array, " n"]:
    """The verb of each clause."""
    return mission[1::9]


def things_of(mission: Any) -> Any:
    """The descriptions (2n, 4): kind, colour, place, several; two a clause."""
    return mission[1:].reshape(-1, 9)[:, 1:].reshape(-1, 4)


def with_several(mission: Integer[Array, " K"], several: Bool[Array, " d"]) -> Int32[Array, " K"]:
    """The mission, knowing which descriptions fit several objects."""
    clauses = mission[1:].reshape(-1, 9)
    clauses = clauses.at[:, jnp.array([4, 8])].set(several.reshape(-1, 2).astype(jnp.int32))
    return jnp.concatenate([mission[:1], clauses.reshape(-1)])


_VERBS = ("", "go to", "open", "pick up", "put")
_PLACES = ("", " on your left", " on your right", " in front of you", " behind you")
_THING = rf"(a|the) (?:({'|'.join(COLORS)}) )?({'|'.join(KINDS)}|object)({'|'.join(_PLACES)})"
_SAID = re.compile(rf"({'|'.join(_VERBS[1:])}) {_THING}(?: next to {_THING})?")


def text(mission: Any) -> str:
    """The mission in BabyAI's words. Host only."""
    order, *numbers = np.asarray(mission).tolist()
    clauses = [numbers[i : i + 9] for i in range(0, len(numbers), 9)]

    def describe(kind: int, color: int, place: int, several: int) -> str:
        named = f"{COLORS[color - 1]} " if color else ""
        return f"{'a' if several else 'the'} {named}{KINDS[kind] if kind else 'object'}{_PLACES[place]}"

    def say(clause: list[int]) -> str:
        words = f"{_VERBS[clause[0]]} {describe(*clause[1:5])}"
        return f"{words} next to {describe(*clause[5:])}" if clause[0] == Verb.PUT_NEXT else words

    half = max(1, len(clauses) // 2)
    parts = [" and ".join(say(c) for c in part if c[0]) for part in (clauses[:half], clauses[half:])]
    return ("", ", then ", " after you ")[order].join(parts) if order else parts[0]


def numbers_of(words: str, clauses: int) -> tuple[int, ...]:
    """The opposite of `text`, for missions of so many clauses. Host only. Raises ValueError for other words."""
    joins = {", then ": Order.THEN, " after you ": Order.AFTER}
    join, order = next(((j, o) for j, o in joins.items() if j in words), (None, Order.ALONE))
    halves = words.split(join) if join else [words]
    room = max(1, clauses // 2)
    numbers = [int(order)]
    for half in [*halves, ""][:2]:
        said = half.split(" and ") if half else []
        found = [_SAID.fullmatch(clause) for clause in said]
        if len(halves) > min(2, clauses) or len(said) > room or None in found:
            raise ValueError(f"{words!r:.120} is no mission of {clauses} clauses in BabyAI's words.")
        for clause in filter(None, found):
            verb, *things = clause.groups()
            if (verb == "put") != (things[4] is not None):
                raise ValueError(f"{words!r:.120}: only what is put has a place next to another object.")
            numbers += [_VERBS.index(verb), *_described(*things[:4]), *_described(*things[4:])]
        numbers += [0] * 9 * (room - len(said))
    return tuple(numbers[: 1 + 9 * clauses])


def _described(article: str | None, color: str | None, kind: str | None, place: str | None) -> tuple[int, ...]:
    if article is None or kind is None:
        return 0, 0, 0, 0
    named = 0 if kind == "object" else KINDS.index(kind)
    return named, COLORS.index(color) + 1 if color else 0, _PLACES.index(place or ""), int(article == "a")


# ---- which objects are meant


def places_of(
    cells: int, position: Index, direction: Integer[Array, ""], width: int, room: int
) -> Int32[Array, " cells"]:
    """What places each cell has, a bit for each `Place`. `room`: its size with the walls, which it shares."""
    y, x = np.divmod(np.arange(cells), width)
    here_y, here_x = position // width, position % width
    across, down = x - here_x, y - here_y
    ahead = jnp.stack([across, down, -across, -down])[direction]
    right = jnp.stack([down, -across, -down, across])[direction]
    top, left = here_y // (room - 1) * (room - 1), here_x // (room - 1) * (room - 1)
    inside = (y >= top) & (y < top + room) & (x >= left) & (x < left + room)
    sides = (right < 0, right > 0, ahead > 0, ahead < 0)
    return sum(((side & inside).astype(jnp.int32) << k for k, side in enumerate(sides, 1)), jnp.int32(1))


def fitting(things: Integer[Array, "d 4"], grid: Grid, places: Int32[Array, " cells"]) -> Bool[Array, "d cells"]:
    """The cells that fit descriptions; see `places_of`."""
    kind, color, place = (things[:, k, None] for k in range(3))
    named = (kind > 0) | (color > 0)
    alike = ((kind == 0) | (kind == kind_of(grid))) & ((color == 0) | (color == color_of(grid) + 1))
    return named & (grid != NOTHING) & alike & (places >> place & 1 > 0)


def tags(fits: Bool[Array, "d cells"]) -> Int32[Array, " cells"]:
    """A bit for each description."""
    bits = jnp.left_shift(1, jnp.arange(fits.shape[0], dtype=jnp.int32))
    return jnp.sum(jnp.where(fits, bits[:, None], 0), 0, dtype=jnp.int32)


def tags_of(cell: Any) -> Any:
    """The tags of a packed cell."""
    return cell >> 24 & 255


def may_put(verbs: Integer[Array, " n"], fits: Bool[Array, "d cells"], width: int) -> Bool[Array, ""]:
    """Whether each "put next to" has something to do: no object fits both descriptions, none lies next to another."""
    moved, fixed = fits[::2].reshape(len(verbs), -1, width), fits[1::2].reshape(len(verbs), -1, width)
    padded = jnp.pad(fixed, ((0, 0), (1, 1), (1, 1)))
    beside = padded[:, :-2, 1:-1] | padded[:, 2:, 1:-1] | padded[:, 1:-1, :-2] | padded[:, 1:-1, 2:]
    return jnp.all((verbs != Verb.PUT_NEXT) | ~jnp.any(moved & (fixed | beside), (1, 2)))


# ---- when they are fulfilled


class Scene(NamedTuple):
    """What missions look at after an action."""

    action: Array
    held: Array  # packed cell, before it
    holding: Array  # and after
    faced: Array  # packed cell
    remembered: Array  # tags of what was known to be there
    beside: Array  # and next to it


def judge(
    verbs: Integer[Array, " n"], held: Integer[Array, " n"], scene: Scene, strict: np.ndarray
) -> tuple[Bool[Array, " n"], Bool[Array, " n"]]:
    """`(success, failure)` of each clause by itself. `held`: what it knows to have been held before."""
    bit = 1 << 2 * np.arange(verbs.size)

    def marks(tags: Array, bit: np.ndarray) -> Array:
        return tags & bit != 0

    toggled, picked = scene.action == TOGGLE, scene.action == PICKUP
    door = kind_of(scene.faced) == DOOR
    opened = marks(tags_of(scene.faced), bit) & door & (state_of(scene.faced) == OPEN)
    taken = marks(tags_of(scene.holding), bit) & (held == 0)
    put = marks(tags_of(held), bit) & (scene.holding == 0) & marks(scene.beside, 2 * bit)
    success = (
        (verbs == Verb.GO_TO) & marks(scene.remembered, bit)
        | (verbs == Verb.OPEN) & toggled & opened
        | (verbs == Verb.PICK_UP) & picked & taken
        | (verbs == Verb.PUT_NEXT) & (scene.action == DROP) & put
    )
    wrong = (verbs == Verb.OPEN) & toggled & door | (verbs == Verb.PICK_UP) & picked & (scene.holding != 0)
    return success, strict & wrong & ~success


def verify(
    mission: Integer[Array, " K"],
    done: Bool[Array, " n"],
    first_step: Bool[Array, ""],
    scene: Scene,
    strict: np.ndarray,
) -> tuple[Bool[Array, " n"], Bool[Array, ""], Bool[Array, ""]]:
    """`(done, success, failure)` after an action. `strict`: (n,) bool, clauses that fail with the wrong door opened or
    the wrong object picked up.

    The half that comes second is looked at from the very action on that completes the other one. A clause knows what
    was held only since it was looked at before.
    """
    verbs = verbs_of(mission)
    present = verbs != Verb.NONE
    second = np.arange(verbs.size) >= max(1, verbs.size // 2)
    leads = second == (mission[0] == Order.AFTER)
    led = jnp.all(done | ~present | ~leads)
    known = jnp.where(leads, ~first_step, led)
    success, failure = judge(verbs, jnp.where(known, scene.held, 0), scene, strict)
    look = leads & present & ~done & ~led
    after = done | look & success
    look |= ~leads & present & ~done & jnp.all(after | ~present | ~leads)
    after |= look & success
    return after, jnp.all(after | ~present), jnp.any(look & failure)
