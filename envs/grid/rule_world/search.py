"""Whether a ruleset can be solved, and how: a search without geometry. Host only."""

from __future__ import annotations

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
    goal, rules, objects = (np.asarray(x) for x in (ruleset.goal, ruleset.rules, ruleset.objects))
    goal_kind, goal_a, goal_b = int(goal[0]), _code(goal[1:3]), _code(goal[3:5])
    if goal_kind in (TILE_AT, AGENT_AT):
        raise ValueError(f"solve: the goal {GOALS[goal_kind]!r} asks for a place, which this search has none of.")
    taken = [Rule(int(r[0]), _code(r[1:3]), _code(r[3:5]), _code(r[5:7])) for r in rules if r[0]]
    taken = [r if has_two(r.kind) else Rule(r.kind, r.a, 0, r.b) for r in taken]
    makes: dict[int, Rule] = {}  # which rule makes a needed tile
    wanted = [goal_a, *([goal_b] if goal_arity(np.int32(goal_kind))[1] else [])]
    needed = list(wanted)
    for tile in needed:
        rule = next((r for r in taken if r.product == tile), None)
        if rule:
            makes[tile] = rule
            needed += [x for x in (rule.a, rule.b) if x and x not in needed]

    def distance(ground: tuple[int, ...], hand: int) -> int:
        """How many needed rules have not been used yet."""
        have = [*ground, hand]

        def missing(tile: int, depth: int = 0) -> int:
            if tile in have:
                have.remove(tile)
                return 0
            if tile not in makes or depth > len(taken):
                return 10**6
            rule = makes[tile]
            return 1 + sum(missing(x, depth + 1) for x in (rule.a, rule.b) if x)

        return sum(missing(tile) for tile in wanted)

    def next_to(tile: int, side: int, action: int) -> int:
        """What a tile on one side of the agent is after a step (action 0) or after laying something down (4)."""
        for r in taken:
            if tile == r.a and ((r.kind == 2 and action == 0) or r.kind == 8 + side):
                tile = r.product
        return tile

    def approached(tile: int) -> set[tuple[int, bool]]:
        """`(tile, goal reached)` after a step to each side of it."""
        found = set()
        for side in range(4):
            new = next_to(tile, side, 0)
            found.add((new, new == goal_a and (goal_kind == NEAR or goal_kind == 11 + side)))
        return found

    def walked_on(tile: int) -> bool:
        return goal_kind == ON and tile == goal_a

    def taken_up(tile: int) -> int:
        for r in taken:
            if r.kind == 1 and r.a == tile:
                tile = r.product
        return tile

    def laid(tile: int, other: int, side: int) -> tuple[int, int, bool]:
        """`(tile, other, goal reached)` when `tile` is laid down with `other` on its side."""
        for r in taken:
            if 3 <= r.kind <= 7:
                by_a = tile == r.a and other == r.b and (r.kind == 3 or r.kind == 4 + side)
                by_b = tile == r.b and other == r.a and (r.kind == 3 or r.kind == 4 + (side + 2) % 4)
                if by_a or by_b:
                    tile, other = NOTHING, r.product
        by_a = tile == goal_a and other == goal_b and (goal_kind == TILES or goal_kind == 7 + side)
        by_b = tile == goal_b and other == goal_a and (goal_kind == TILES or goal_kind == 7 + (side + 2) % 4)
        return tile, other, by_a or by_b

    def successors(ground: tuple[int, ...], hand: int) -> Iterator[tuple[str, tuple[int, ...], int, bool]]:
        for tile in sorted(set(ground)):
            rest = list(ground)
            rest.remove(tile)
            for near, done in approached(tile):
                yield f"go to {_word(tile)}", (*rest, near), hand, done
                if hand == 0 and near >> 4 in PICKABLE:
                    held = taken_up(near)
                    yield f"take {_word(near)}", tuple(rest), held, goal_kind == HOLD and held == goal_a
                if near >> 4 == GOAL:
                    yield f"stand on {_word(near)}", (*rest, near), hand, walked_on(near)
            if hand:
                for side in range(4):
                    put, other, done = laid(hand, tile, side)
                    yield f"lay {_word(hand)} next to {_word(tile)}", (*rest, put, other), 0, done
        if hand:
            yield f"lay {_word(hand)} down", (*ground, hand), 0, False
            for side in range(4):  # in front of the agent, who sees it there
                put = next_to(hand, side, 4)
                yield f"lay {_word(hand)} down", (*ground, put), 0, put == goal_a and goal_kind == 11 + side

    def tidy(ground: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(sorted(x for x in ground if x not in (0, NOTHING)))

    counter = itertools.count()
    start = (tidy(tuple(_code(x) for x in objects)), 0)
    frontier: list[Any] = [(distance(*start), 0, next(counter), start, None)]
    seen: set[Any] = {start}
    while frontier and len(seen) < most_states:
        _, length, _, (ground, hand), path = heapq.heappop(frontier)
        for word, new_ground, new_hand, done in successors(ground, hand):
            state = (tidy(new_ground), new_hand)
            if done:
                steps = [word]
                while path:
                    steps.append(path[0])
                    path = path[1]
                return Plan(steps[::-1], len(seen))
            if state not in seen:
                seen.add(state)
                heapq.heappush(frontier, (distance(*state), length + 1, next(counter), state, (word, path)))
    return None


def _code(tile: Any) -> int:
    return int(tile[0]) << 4 | int(tile[1])


def _word(code: int) -> str:
    return name_of((code >> 4, code & 15))
