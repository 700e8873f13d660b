"""Whether a ruleset can be solved, and how: a search without geometry. Host only."""

from __future__ import annotations

import dataclasses
import heapq
import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from .rules import (
    AGENT_AT,
    GOAL,
    GOALS,
    HOLD,
    NEAR,
    NOTHING,
    ON,
    PICKABLE,
    TILE_AT,
    TILES,
    Rule,
    Ruleset,
    goal_arity,
    has_two,
    name_of,
)


class Plan(NamedTuple):
    """What `solve` found: the steps in words, and how many states it looked at."""

    steps: list[str]
    states: int


def solve(ruleset: Ruleset, most_states: int = 20_000) -> Plan | None:
    """A plan that reaches the goal, or None where there is none or `most_states` did not suffice. Host only.

    Best-first search over what lies on the ground and what is in hand, with the rules in their order and without
    geometry: the agent can stand on any side of a tile, and lay a tile down on any side of another or by itself. What
    cannot be avoided happens: whoever goes to a tile is next to it, which may turn it into another.
    """
    puzzle = _Puzzle.of(ruleset)
    counter = itertools.count()
    start = (_tidy(tuple(_code(x) for x in np.asarray(ruleset.objects))), 0)
    frontier: list[Any] = [(puzzle.distance(*start), 0, next(counter), start, None)]
    seen: set[Any] = {start}
    while frontier and len(seen) < most_states:
        _, length, _, (ground, hand), path = heapq.heappop(frontier)
        for word, new_ground, new_hand, done in puzzle.successors(ground, hand):
            state = (_tidy(new_ground), new_hand)
            if done:
                steps = [word]
                while path:
                    steps.append(path[0])
                    path = path[1]
                return Plan(steps[::-1], len(seen))
            if state not in seen:
                seen.add(state)
                heapq.heappush(frontier, (puzzle.distance(*state), length + 1, next(counter), state, (word, path)))
    return None


@dataclasses.dataclass(frozen=True)
class _Puzzle:
    """A ruleset without geometry: tiles are codes, a place is a side of the agent or of a tile."""

    goal_kind: int
    goal_a: int
    goal_b: int
    rules: list[Rule]
    wanted: list[int]  # the goal's tiles
    makes: dict[int, Rule]  # which rule makes a needed tile

    @classmethod
    def of(cls, ruleset: Ruleset) -> _Puzzle:
        """Raises ValueError where the goal asks for a place."""
        goal, rules = np.asarray(ruleset.goal), np.asarray(ruleset.rules)
        kind, a, b = int(goal[0]), _code(goal[1:3]), _code(goal[3:5])
        if kind in (TILE_AT, AGENT_AT):
            raise ValueError(f"solve: the goal {GOALS[kind]!r} asks for a place, which this search has none of.")
        taken = [Rule(int(r[0]), _code(r[1:3]), _code(r[3:5]), _code(r[5:7])) for r in rules if r[0]]
        taken = [r if has_two(r.kind) else Rule(r.kind, r.a, 0, r.b) for r in taken]
        makes: dict[int, Rule] = {}
        wanted = [a, *([b] if goal_arity(np.int32(kind))[1] else [])]
        needed = list(wanted)
        for tile in needed:
            rule = next((r for r in taken if r.product == tile), None)
            if rule:
                makes[tile] = rule
                needed += [x for x in (rule.a, rule.b) if x and x not in needed]
        return cls(kind, a, b, taken, wanted, makes)

    def distance(self, ground: tuple[int, ...], hand: int) -> int:
        """How many needed rules have not been used yet."""
        have = [*ground, hand]

        def missing(tile: int, depth: int = 0) -> int:
            if tile in have:
                have.remove(tile)
                return 0
            if tile not in self.makes or depth > len(self.rules):
                return 10**6
            rule = self.makes[tile]
            return 1 + sum(missing(x, depth + 1) for x in (rule.a, rule.b) if x)

        return sum(missing(tile) for tile in self.wanted)

    def next_to(self, tile: int, side: int, action: int) -> int:
        """What a tile on one side of the agent is after a step (action 0) or after laying something down (4)."""
        for r in self.rules:
            if tile == r.a and ((r.kind == 2 and action == 0) or r.kind == 8 + side):
                tile = r.product
        return tile

    def approached(self, tile: int) -> set[tuple[int, bool]]:
        """`(tile, goal reached)` after a step to each side of it."""
        found = set()
        for side in range(4):
            new = self.next_to(tile, side, 0)
            found.add((new, new == self.goal_a and (self.goal_kind == NEAR or self.goal_kind == 11 + side)))
        return found

    def taken_up(self, tile: int) -> int:
        for r in self.rules:
            if r.kind == 1 and r.a == tile:
                tile = r.product
        return tile

    def laid(self, tile: int, other: int, side: int) -> tuple[int, int, bool]:
        """`(tile, other, goal reached)` when `tile` is laid down with `other` on its side."""
        for r in self.rules:
            if 3 <= r.kind <= 7:
                by_a = tile == r.a and other == r.b and (r.kind == 3 or r.kind == 4 + side)
                by_b = tile == r.b and other == r.a and (r.kind == 3 or r.kind == 4 + (side + 2) % 4)
                if by_a or by_b:
                    tile, other = NOTHING, r.product
        kind, a, b = self.goal_kind, self.goal_a, self.goal_b
        by_a = tile == a and other == b and (kind == TILES or kind == 7 + side)
        by_b = tile == b and other == a and (kind == TILES or kind == 7 + (side + 2) % 4)
        return tile, other, by_a or by_b

    def successors(self, ground: tuple[int, ...], hand: int) -> Iterator[tuple[str, tuple[int, ...], int, bool]]:
        """`(what is done, ground, hand, goal reached)` of everything that can be done."""
        kind, a = self.goal_kind, self.goal_a
        for tile in sorted(set(ground)):
            rest = list(ground)
            rest.remove(tile)
            for near, done in self.approached(tile):
                yield f"go to {_word(tile)}", (*rest, near), hand, done
                if hand == 0 and near >> 4 in PICKABLE:
                    held = self.taken_up(near)
                    yield f"take {_word(near)}", tuple(rest), held, kind == HOLD and held == a
                if near >> 4 == GOAL:
                    yield f"stand on {_word(near)}", (*rest, near), hand, kind == ON and near == a
            if hand:
                for side in range(4):
                    put, other, done = self.laid(hand, tile, side)
                    yield f"lay {_word(hand)} next to {_word(tile)}", (*rest, put, other), 0, done
        if hand:
            yield f"lay {_word(hand)} down", (*ground, hand), 0, False
            for side in range(4):  # in front of the agent, who sees it there
                put = self.next_to(hand, side, 4)
                yield f"lay {_word(hand)} down", (*ground, put), 0, put == a and kind == 11 + side


def _tidy(ground: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted(x for x in ground if x not in (0, NOTHING)))


def _code(tile: Any) -> int:
    return int(tile[0]) << 4 | int(tile[1])


def _word(code: int) -> str:
    return name_of((code >> 4, code & 15))
