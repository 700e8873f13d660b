"""What rulesets of rule worlds say: a goal, production rules and first objects, as integers and in words.

Encodings, tiles, kinds of goals and rules are those of XLand-MiniGrid (Nikulin et al. 2024, "XLand-MiniGrid: Scalable
Meta-Reinforcement Learning Environments in JAX", NeurIPS, arXiv:2312.12044; `xminigrid` 0.9.1), so a ruleset of either
library is a ruleset of the other. A tile is (shape, colour); what every number means:

| | |
|---|---|
| shapes | 0 empty (nothing), 1 floor, 2 wall, 3 ball, 4 square, 5 pyramid, 6 goal, 7 key, |
| | 8 locked, 9 closed, 10 open door, 11 hex, 12 star |
| colours | 0 none, 1 red, 2 green, 3 blue, 4 purple, 5 yellow, 6 grey, 7 black, 8 orange, 9 white, 10 brown, 11 pink |
| goal | (id, tile a, tile b): 0 none, 1 hold a, 2 stand on a, 3 next to a, 4 a next to b, 5 a at (row, column) b, |
| | 6 the agent at (row, column) a, 7-10 b above, right of, below, left of a, 11-14 a above ... the agent |
| rule | (id, inputs, product): 0 none, 1 holding a turns it into p, 2 next to a: a turns into p, 3 a next to b: the |
| | tile ahead vanishes, the other turns into p, 4-7 b above, right of, below, left of a, 8-11 a above ... the agent |

A rule with one input is (id, a, p, 0, 0), with two (id, a, b, p), padded to seven numbers. Rows of zeros are no rules.
The product (1, 7), black floor, is nothing on the ground. Rows of zeros among the objects are no objects.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Integer, UInt8, UInt32

from jaxrl.environment import pytree

EMPTY, FLOOR, WALL, BALL, SQUARE, PYRAMID, GOAL, KEY, LOCKED, CLOSED, OPEN, HEX, STAR = range(13)
SHAPES = tuple("empty floor wall ball square pyramid goal key locked closed open hex star".split())
BLACK = 7
COLORS = tuple("none red green blue purple yellow grey black orange white brown pink".split())
HOLD, ON, NEAR, TILES, TILE_AT, AGENT_AT = range(1, 7)  # goals; 7-10 TILES with a direction, 11-14 NEAR with one
GOALS = (
    *("none", "hold {a}", "stand on {a}", "stand next to {a}", "put {a} next to {b}", "{a} at {b}", "stand at {a}"),
    *(f"put {{b}} {side} {{a}}" for side in ("above", "right of", "below", "left of")),
    *(f"stand {side} {{a}}" for side in ("below", "left of", "above", "right of")),
)
RULES = (
    *("none", "{a} in hand -> {p}", "next to {a} -> {p}", "{a} next to {b} -> {p}"),
    *(f"{{b}} {side} {{a}} -> {{p}}" for side in ("above", "right of", "below", "left of")),
    *(f"{side} {{a}} -> {{p}}" for side in ("below", "left of", "above", "right of")),
)
PICKABLE = (BALL, SQUARE, PYRAMID, KEY, STAR, HEX)
NOTHING = FLOOR << 4 | BLACK


@pytree
class Ruleset:
    """A task: the params of a rule world. R rules, K objects."""

    goal: jax.Array  # (5,) uint8
    rules: jax.Array  # (R, 7) uint8
    objects: jax.Array  # (K, 2) uint8


# ---- encodings


def packed(tiles: Integer[Array, "... 2"]) -> Integer[Array, "..."]:
    """Tiles as one number each, shape << 4 | colour, below 256."""
    return tiles[..., 0].astype(jnp.int32) << 4 | tiles[..., 1].astype(jnp.int32)


def unpacked(codes: Integer[Array, "..."]) -> UInt8[Array, "... 2"]:
    """The tiles of packed ones."""
    return jnp.stack([codes >> 4, codes & 15], -1).astype(jnp.uint8)


def has_two(rule_kind: Any) -> Any:
    return (rule_kind >= 3) & (rule_kind <= 7)


def goal_arity(kind: Any) -> tuple[Any, Any]:
    """Which of a goal's fields are tiles."""
    second = (kind == TILES) | ((kind >= 7) & (kind <= 10))
    return (kind > 0) & (kind != AGENT_AT), second


class Rule(NamedTuple):
    """Rules taken apart: tiles packed, `b` 0 where there is one input."""

    kind: Any
    a: Any
    b: Any
    product: Any

    def words(self) -> UInt32[Array, "..."]:
        """Each rule in one number."""
        kind, a, b, product = (x.astype(jnp.uint32) for x in self)
        return kind | a << 8 | b << 16 | product << 24


def of_words(words: UInt32[Array, "..."]) -> Rule:
    """Rules from `Rule.words`, uint32."""
    return Rule(*(words >> shift & 255 for shift in (0, 8, 16, 24)))


def take_apart(rules: Integer[Array, "... 7"]) -> Rule:
    """The fields of encoded rules, int32."""
    kind = rules[..., 0].astype(jnp.int32)
    a, b, c = (packed(rules[..., i : i + 2]) for i in (1, 3, 5))
    return Rule(kind, a, jnp.where(has_two(kind), b, 0), jnp.where(has_two(kind), c, b))


def put_together(rule: Rule) -> UInt8[Array, "... 7"]:
    """The encoding of rules; zeros where `kind` is 0."""
    second = jnp.where(has_two(rule.kind), rule.b, rule.product)
    third = jnp.where(has_two(rule.kind), rule.product, 0)
    tiles = jnp.concatenate([unpacked(x) for x in (rule.a, second, third)], -1)
    rows = jnp.concatenate([rule.kind[..., None].astype(jnp.uint8), tiles], -1)
    return jnp.where(rule.kind[..., None] > 0, rows, 0).astype(jnp.uint8)


def validate(ruleset: Ruleset, size: int = 25) -> None:
    """Raise ValueError for a ruleset that makes no sense in a grid of `size` x `size`. Host only; may be batched."""
    goal, rules, objects = (np.asarray(x) for x in (ruleset.goal, ruleset.rules, ruleset.objects))
    for name, array, tail in (("goal", goal, (5,)), ("rules", rules, (7,)), ("objects", objects, (2,))):
        if array.shape[-1:] != tail or (name != "goal" and array.ndim < 2):
            raise ValueError(f"ruleset: {name} has shape {array.shape}; its last axis has {tail[0]} numbers.")
        if not np.issubdtype(array.dtype, np.integer):
            raise ValueError(f"ruleset: {name} is {array.dtype}; it is made of integers.")
    for name, kind, most in (("goal", goal[..., 0], len(GOALS) - 1), ("rule", rules[..., 0], len(RULES) - 1)):
        if np.any((kind < 0) | (kind > most)):
            raise ValueError(
                f"ruleset: a {name} of kind {kind[(kind < 0) | (kind > most)].flat[0]}; it is 0 to {most}."
            )

    def check(what: str, tiles: Any, asked: Any, forbidden: tuple[int, ...]) -> None:
        shape, color = tiles[..., 0], tiles[..., 1]
        wrong = asked & ((shape < 0) | (shape > STAR) | (color < 0) | (color >= len(COLORS)))
        if np.any(wrong):
            raise ValueError(f"ruleset: {what} {tiles[wrong][0].tolist()} is no (shape 0 to 12, colour 0 to 11).")
        wrong = asked & np.isin(shape, forbidden)
        if np.any(wrong):
            raise ValueError(f"ruleset: {what} {name_of(tiles[wrong][0])!r} may not be one of {_names(forbidden)}.")

    first, second = goal_arity(goal[..., 0])
    check("goal tile", goal[..., 1:3], first, (EMPTY, WALL))
    check("goal tile", goal[..., 3:5], second, (EMPTY, WALL))
    places = [(goal[..., 3:5], goal[..., 0] == TILE_AT), (goal[..., 1:3], goal[..., 0] == AGENT_AT)]
    for place, asked in places:
        if np.any(asked[..., None] & ((place < 0) | (place >= size))):
            raise ValueError(f"ruleset: the goal's place is outside of the {size} x {size} grid.")
    kind, two = rules[..., 0], has_two(rules[..., 0])
    # Rules that turn walls into something would let the agent walk out.
    check("input of a rule", rules[..., 1:3], kind > 0, (EMPTY, WALL))
    check("input of a rule", rules[..., 3:5], two, (EMPTY, WALL))
    check("product", rules[..., 3:5], (kind > 0) & ~two, ())
    check("product", rules[..., 5:7], two, ())
    check("object", objects, objects.any(-1), (EMPTY,))


def _names(shapes: tuple[int, ...]) -> str:
    return ", ".join(SHAPES[i] for i in shapes)


def name_of(tile: Any) -> str:
    """`red ball` and the like; black floor is `nothing`."""
    shape, color = (int(x) for x in tile)
    return "nothing" if (shape, color) == (FLOOR, BLACK) else f"{COLORS[color]} {SHAPES[shape]}"


def describe(ruleset: Ruleset) -> str:
    """A ruleset in words: the goal, a line for each rule, the first objects. Host only."""
    goal, rules, objects = (np.asarray(x) for x in (ruleset.goal, ruleset.rules, ruleset.objects))
    places = {TILE_AT: ("a", "b"), AGENT_AT: ("a",)}.get(int(goal[0]), ())
    place = {"a": goal[1:3], "b": goal[3:5]}
    words = {
        name: str(tuple(x.tolist())) if name in places[-1:] else name_of(x) if x[0] <= STAR else ""
        for name, x in place.items()
    }
    lines = ["goal: " + GOALS[int(goal[0])].format(**words)]
    for row in rules[rules[:, 0] > 0]:
        a, b, c = (name_of(row[i : i + 2]) for i in (1, 3, 5))
        two = bool(has_two(row[0]))
        lines.append("rule: " + RULES[int(row[0])].format(a=a, b=b, p=c if two else b))
    lines.append("objects: " + ", ".join(name_of(x) for x in objects[objects.any(-1)]))
    return "\n".join(lines)
