"""Rulesets of rule worlds: a goal, production rules and first objects as integers, and how they are drawn and changed.

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

`generate` follows the procedure that Bauer et al. (2023), "Human-Timescale Adaptation in an Open-Ended Task Space",
ICML, arXiv:2301.07608, appendix A.2, describe and XLand-MiniGrid uses: a goal; a binary tree of rules that make the
goal's tiles, `depth` levels deep, a tile being among the first objects instead with probability `prune`; then objects
and up to `distractor_rules` rules that are of no use. What differs, so that **every ruleset can be solved**:
- all tiles of the tree differ, also the two of one goal or rule;
- goal tiles, which cannot be carried, take part in kinds without direction only (what has to be above one that lies
  below a wall never will be);
- a rule of no use takes tiles of the tree in one way only: laid next to a stray tile they are lost, which can be
  avoided, and its first objects are the stray tiles alone (a second copy of a goal's tile would be a short cut).

`benchmark(name)` is a million of them without two alike, regenerated from their numbers.
"""

from __future__ import annotations

import functools
import heapq
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Integer, UInt8, UInt32

from jaxrl.environment import pytree
from jaxrl.math import below, choose, fast_key

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
_COLORS = (1, 2, 3, 4, 5, 6, 9, 10, 11, 8)  # of generated tiles: all but black, the floor's
_CARRIED = np.array([shape << 4 | color for shape in PICKABLE for color in _COLORS])  # the 60 tiles that can be
_STANDING = np.array([GOAL << 4 | color for color in _COLORS])  # the 10 goal tiles
_NOTHING = FLOOR << 4 | BLACK
# The eleven kinds that are drawn: one in hand, five next to the agent, five of two tiles.
_GOAL_KINDS = np.array([1, 3, 11, 12, 13, 14, 4, 7, 8, 9, 10])
_RULE_KINDS = np.array([1, 2, 8, 9, 10, 11, 3, 4, 5, 6, 7])


@pytree
class Ruleset:
    """A task: the params of a rule world. R rules, K objects."""

    goal: jax.Array  # (5,) uint8
    rules: jax.Array  # (R, 7) uint8
    objects: jax.Array  # (K, 2) uint8


class Config(NamedTuple):
    """A distribution of rulesets. All but `prune` set shapes, so they are static."""

    depth: int  # levels of rules
    prune: Any  # probability that a tile is there from the start
    distractor_rules: int  # at most; as many as not are drawn with equal chance
    distractor_objects: int

    @property
    def num_rules(self) -> int:
        """R: rows for the whole tree and all distractors, one at least."""
        return max(2 ** (self.depth + 1) - 2 + self.distractor_rules, 1)

    @property
    def num_objects(self) -> int:
        """K: rows for the leaves of the whole tree and all distractors."""
        return 2 ** (self.depth + 1) + self.distractor_objects + 2 * self.distractor_rules


CONFIGS = {
    "trivial": Config(0, 0.0, 0, 3),
    "small": Config(1, 0.3, 2, 2),
    "medium": Config(2, 0.1, 3, 2),
    "high": Config(3, 0.1, 4, 1),
}
"""XLand-MiniGrid's benchmarks."""


def config_of(config: str | Config) -> Config:
    """A `Config` or the one of this name. Raises ValueError for an unknown name or a tree of too many tiles."""
    if isinstance(config, str):
        if config not in CONFIGS:
            raise ValueError(f"rulesets={config!r}: choose one of {', '.join(CONFIGS)}, or give a Config.")
        return CONFIGS[config]
    if not 0 <= config.depth <= 3 or config.distractor_rules < 0 or not 0 <= config.distractor_objects <= 8:
        raise ValueError(f"{config}: depth is from 0 to 3, distractor_rules at least 0, distractor_objects to 8.")
    return config


# ---- encodings


def packed(tiles: Integer[Array, "... 2"]) -> Integer[Array, "..."]:
    """Tiles as one number each, shape << 4 | colour, below 256."""
    return tiles[..., 0].astype(jnp.int32) << 4 | tiles[..., 1].astype(jnp.int32)


def unpacked(codes: Integer[Array, "..."]) -> UInt8[Array, "... 2"]:
    """The tiles of packed ones."""
    return jnp.stack([codes >> 4, codes & 15], -1).astype(jnp.uint8)


def _two(rule_kind: Any) -> Any:
    return (rule_kind >= 3) & (rule_kind <= 7)


def _goal_arity(kind: Any) -> tuple[Any, Any]:
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
    return Rule(kind, a, jnp.where(_two(kind), b, 0), jnp.where(_two(kind), c, b))


def put_together(rule: Rule) -> UInt8[Array, "... 7"]:
    """The encoding of rules; zeros where `kind` is 0."""
    second = jnp.where(_two(rule.kind), rule.b, rule.product)
    third = jnp.where(_two(rule.kind), rule.product, 0)
    tiles = jnp.concatenate([unpacked(x) for x in (rule.a, second, third)], -1)
    rows = jnp.concatenate([rule.kind[..., None].astype(jnp.uint8), tiles], -1)
    return jnp.where(rule.kind[..., None] > 0, rows, 0).astype(jnp.uint8)


# ---- the generator


def _shuffle(bits: UInt32[Array, " n"]) -> Integer[Array, " n"]:
    """A permutation of 0 .. n-1, n < 64: the ranks of random words. Pairs are compared; a sort costs more on a CPU."""
    words = bits & ~jnp.uint32(63) | np.arange(bits.size, dtype=np.uint32)
    return jnp.sum(words[None, :] < words[:, None], 1, dtype=jnp.int32)


def _compact(codes: Integer[Array, " n"], k: int) -> Integer[Array, " k"]:
    """The codes that are not 0, in order, then zeros."""
    place = jnp.where(codes > 0, jnp.cumsum(codes > 0) - 1, -1)
    return jnp.sum(jnp.where(place[None, :] == np.arange(k)[:, None], codes[None, :], 0), 1)


def generate(key: Array, config: str | Config = "medium") -> Ruleset:
    """Draw a ruleset. Tiles of the tree are numbered as in a heap: rule i makes tile i of tiles 2 i + 2 and 2 i + 3;
    tiles 0 and 1 are the goal's."""
    config = config_of(config)
    tiles, made = 2 ** (config.depth + 2) - 2, 2 ** (config.depth + 1) - 2
    strays, distractors = config.distractor_objects, config.distractor_rules
    free = len(_CARRIED) - tiles
    counts = (len(_CARRIED), len(_STANDING), 1 + made, made, tiles + strays, 1, 7 * distractors)
    bits = jax.random.bits(fast_key(key), (sum(counts),), jnp.uint32)
    order, colors, kinds, prune, stand, number, rest = jnp.split(bits, np.cumsum(counts)[:-1])

    kinds = below(kinds, len(_GOAL_KINDS))  # of the goal, then of the rules
    pruned = below(prune, 1 << 24) < jnp.asarray(config.prune * (1 << 24))
    # Level by level: which tiles are needed, and which of them a rule makes.
    needed = [jnp.stack([jnp.bool_(True), kinds[0] > 5])]
    used = []
    for level in range(config.depth):
        first = 2 ** (level + 1) - 2
        rows = slice(first, 2 * first + 2)
        used.append(needed[-1] & ~pruned[rows])
        needed.append(jnp.stack([used[-1], used[-1] & (kinds[1:][rows] > 5)], -1).reshape(-1))
    needed = jnp.concatenate(needed)
    used = jnp.concatenate([*used, jnp.zeros(tiles - made, bool)])

    # A seventh of the tiles that may are goal tiles, as goal tiles are of all shapes.
    may_stand = jnp.zeros(tiles, bool).at[0].set((kinds[0] == 1) | (kinds[0] == 6))
    may_stand = may_stand.at[2::2].set(kinds[1:] == 6) if made else may_stand
    may_stand = jnp.concatenate([may_stand & needed, jnp.ones(strays, bool)])
    standing = may_stand & (below(stand, 7) == 0)
    nth = jnp.cumsum(standing) - 1
    standing &= nth < len(_STANDING)
    order, colors = jnp.asarray(_CARRIED)[_shuffle(order)], jnp.asarray(_STANDING)[_shuffle(colors)]
    codes = jnp.where(standing, colors[jnp.minimum(nth, len(_STANDING) - 1)], order[: tiles + strays])
    codes, stray_objects = codes[:tiles], codes[tiles:]

    rule_kinds = jnp.where(used[:made], jnp.asarray(_RULE_KINDS)[kinds[1:]], 0)
    children = codes[2:].reshape(made, 2)
    main = Rule(rule_kinds, children[:, 0], children[:, 1], codes[:made])

    # Distractors: three distinct tiles x, y, z that the tree does not use; x may be one of the tree's if y is not.
    kind, x, y, z, dead_end, which, vanish = jnp.moveaxis(rest.reshape(distractors, 7), 1, 0)
    kind = below(kind, len(_RULE_KINDS))
    x, y, z = below(x, free), below(y, free - 1), below(z, free - 2)
    y += y >= x
    z += z >= jnp.minimum(x, y)
    z += z >= jnp.maximum(x, y)
    x, y, z = (order[tiles:][i] for i in (x, y, z))
    which = below(which, tiles)
    lost = (kind > 5) & (below(dead_end, 2) == 0) & needed[which]
    active = jnp.arange(distractors) < below(number, distractors + 1)
    product = jnp.where(below(vanish, len(_CARRIED) + 1) == 0, _NOTHING, z)
    kind_ids = jnp.where(active, jnp.asarray(_RULE_KINDS)[kind], 0)
    distracting = Rule(kind_ids, jnp.where(lost, codes[which], x), y, product)
    inputs = jnp.stack([jnp.where(active & ~lost, x, 0), jnp.where(active & (kind > 5), y, 0)], -1).reshape(-1)

    objects = _compact(jnp.where(needed & ~used, codes, 0), 2 ** (config.depth + 1))
    goal_tiles = unpacked(jnp.where(needed[:2], codes[:2], 0)).reshape(-1)
    goal = jnp.concatenate([jnp.asarray(_GOAL_KINDS, jnp.uint8)[kinds[:1]], goal_tiles])
    rules = jnp.concatenate([put_together(main), put_together(distracting)])
    rules = rules if rules.size else jnp.zeros((1, 7), jnp.uint8)
    return Ruleset(goal, rules, unpacked(jnp.concatenate([objects, stray_objects, inputs])))


# ---- what a ruleset needs


def needed_tiles(ruleset: Ruleset) -> tuple[Bool[Array, " R"], Bool[Array, "256"]]:
    """`(rules, tiles)` that the goal needs: rules that make a needed tile, the goal's tiles and their inputs."""
    goal, rules = ruleset.goal.astype(jnp.int32), take_apart(ruleset.rules)
    first, second = _goal_arity(goal[0])
    codes = np.arange(256)
    is_a, is_b = ((x[:, None] == codes) & (x[:, None] > 0) for x in (rules.a, rules.b))
    tiles = (codes == packed(goal[1:3])) & first | (codes == packed(goal[3:5])) & second

    def step(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        tiles, _ = carry
        main = (rules.kind > 0) & tiles[rules.product]
        new = tiles | jnp.any(main[:, None] & (is_a | is_b), 0)
        return new, jnp.any(new != tiles)

    tiles = jax.lax.while_loop(lambda carry: carry[1], step, (tiles, jnp.bool_(True)))[0]
    return (rules.kind > 0) & tiles[rules.product], tiles


def depth(ruleset: Ruleset) -> Integer[Array, ""]:
    """How many rules the longest chain that the goal needs has, by the shortest way to each tile; R + 1 where a tile of
    the goal cannot be made from the first objects at all."""
    goal, rules = ruleset.goal.astype(jnp.int32), take_apart(ruleset.rules)
    far = rules.kind.size + 1
    level = jnp.full(256, far).at[packed(ruleset.objects)].set(0)
    level = level.at[0].set(0)  # what is not asked for

    def step(_: Any, level: Array) -> Array:
        cost = 1 + jnp.maximum(level[rules.a], level[rules.b])
        return level.at[rules.product].min(jnp.where(rules.kind > 0, cost, far))

    level = jax.lax.fori_loop(0, rules.kind.size, step, level)
    first, second = _goal_arity(goal[0])
    wanted = [jnp.where(is_tile, packed(goal[i : i + 2]), 0) for i, is_tile in ((1, first), (3, second))]
    return jnp.maximum(level[wanted[0]], level[wanted[1]]).astype(jnp.int32)


# ---- level kit


def mutate(key: Array, ruleset: Ruleset) -> Ruleset:
    """A neighbour of `ruleset`, each of six changes equally likely; nothing changes where one is not possible.

    0 a stray object becomes another tile; 1 a rule of no use is dropped; 2 one is added; 3 the goal, or 4 a needed
    rule, becomes another kind with as many tiles; 5 an object that is needed is made by a new rule of a new tile
    instead. What `generate` draws stays solvable.
    """
    what, which, kind, new, other = jax.random.bits(key, (5,), jnp.uint32)
    what = below(what, 6)
    goal, rules = ruleset.goal.astype(jnp.int32), take_apart(ruleset.rules)
    objects = packed(ruleset.objects)
    main, tiles = needed_tiles(ruleset)
    codes = np.arange(256)
    seen = tiles | jnp.any(codes == jnp.concatenate([objects, rules.a, rules.b, rules.product])[:, None], 0)
    carried = jnp.asarray(np.isin(codes, _CARRIED))
    tile = choose(new, carried & ~seen)  # that is nowhere yet
    fresh = tile < 256
    stray = (objects > 0) & ~tiles[objects]
    row, slot = jnp.arange(rules.kind.size), jnp.arange(objects.size)

    swapped = jnp.where((what == 0) & fresh & (slot == choose(which, stray)), tile, objects)
    dropped = (what == 1) & (row == choose(which, (rules.kind > 0) & ~main))
    empty = (rules.kind == 0) & (row == choose(which, rules.kind == 0))
    source = choose(other, stray)
    added = (what == 2) & fresh & (source < objects.size) & empty

    # Another kind: of one tile, or of two. A goal tile takes no direction.
    def redrawn(old: Array, a: Array, two: Array, kinds: np.ndarray) -> Array:
        can_turn = a >> 4 != GOAL
        one_kind = jnp.where(can_turn, below(kind, 6), 1)
        two_kind = jnp.where(can_turn, 6 + below(kind, 5), 6)
        return jnp.where(old > 0, jnp.asarray(kinds)[jnp.where(two, two_kind, one_kind)], old)

    first, second = _goal_arity(goal[0])
    of_tiles = first & (goal[0] != ON) & (goal[0] != TILE_AT)
    goal_kind = jnp.where((what == 3) & of_tiles, redrawn(goal[0], packed(goal[1:3]), second, _GOAL_KINDS), goal[0])
    turned = (what == 4) & (row == choose(which, main))
    rule_kind = jnp.where(turned, redrawn(rules.kind, rules.a, _two(rules.kind), _RULE_KINDS), rules.kind)

    origin = choose(other, tiles[objects] & (objects > 0))
    grown = (what == 5) & fresh & (origin < objects.size) & empty
    objects_ = jnp.where(jnp.any(grown) & (slot == origin), tile, swapped)
    single = jnp.asarray(_RULE_KINDS)[below(kind, 6)]
    at = jnp.where(what == 2, source, origin)
    there = jnp.sum(jnp.where(slot == at, objects, 0))
    rule = Rule(
        jnp.where(dropped, 0, jnp.where(added | grown, single, rule_kind)),
        jnp.where(added, there, jnp.where(grown, tile, rules.a)),
        jnp.where(added | grown, 0, rules.b),
        jnp.where(added, tile, jnp.where(grown, there, rules.product)),
    )
    goal = jnp.concatenate([goal_kind[None].astype(jnp.uint8), ruleset.goal[1:]])
    return Ruleset(goal, put_together(rule), unpacked(objects_))


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

    first, second = _goal_arity(goal[..., 0])
    check("goal tile", goal[..., 1:3], first, (EMPTY, WALL))
    check("goal tile", goal[..., 3:5], second, (EMPTY, WALL))
    places = [(goal[..., 3:5], goal[..., 0] == TILE_AT), (goal[..., 1:3], goal[..., 0] == AGENT_AT)]
    for place, asked in places:
        if np.any(asked[..., None] & ((place < 0) | (place >= size))):
            raise ValueError(f"ruleset: the goal's place is outside of the {size} x {size} grid.")
    kind, two = rules[..., 0], _two(rules[..., 0])
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
        two = bool(_two(row[0]))
        lines.append("rule: " + RULES[int(row[0])].format(a=a, b=b, p=c if two else b))
    lines.append("objects: " + ", ".join(name_of(x) for x in objects[objects.any(-1)]))
    return "\n".join(lines)


# ---- search


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
    taken = [r if _two(r.kind) else Rule(r.kind, r.a, 0, r.b) for r in taken]
    makes: dict[int, Rule] = {}  # which rule makes a needed tile
    wanted = [goal_a, *([goal_b] if _goal_arity(np.int32(goal_kind))[1] else [])]
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
                    tile, other = _NOTHING, r.product
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
        return tuple(sorted(x for x in ground if x not in (0, _NOTHING)))

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


# ---- benchmarks

SIZE = 1_000_000
"""Rulesets of a benchmark."""


@pytree(static=("name", "start", "stop"))
class Benchmark:
    """Rulesets `start` to `stop` - 1 of a numbered million, all different; made by `benchmark`. Jit, vmap at will."""

    name: str
    start: int
    stop: int
    skipped: jax.Array  # (D,) int32: how many candidates are kept before each that is skipped

    def __len__(self) -> int:
        return self.stop - self.start

    def ruleset(self, index: int | Integer[Array, ""]) -> Ruleset:
        """Ruleset `index`, from 0 to `len` - 1, of this benchmark; an index outside is taken as the nearest one."""
        index = self.start + jnp.clip(jnp.asarray(index, jnp.int32), 0, len(self) - 1)
        return candidate(self.name, index + jnp.searchsorted(self.skipped, index, side="right").astype(jnp.int32))

    def sample(self, key: Array) -> Ruleset:
        """One of them, each equally likely."""
        return self.ruleset(jax.random.randint(key, (), 0, len(self)))

    def split(self, fraction: float = 0.8) -> tuple[Benchmark, Benchmark]:
        """`(train, test)`: the first `fraction` of the numbers, and the rest. The numbers are in no order."""
        middle = self.start + round(fraction * len(self))
        if not self.start < middle < self.stop:
            raise ValueError(f"split({fraction}): both parts of {len(self)} rulesets need one at least.")
        return self.replace(stop=middle), self.replace(start=middle)


def candidate(name: str, number: int | Integer[Array, ""]) -> Ruleset:
    """The `number`-th draw for a benchmark. Some are drawn twice, of which `Benchmark` takes the first."""
    config = name.removesuffix("-1m")
    seed = fast_key(jax.random.key(list(CONFIGS).index(config)))  # our threefry: the same bits under every setting
    return generate(jax.random.fold_in(seed, number), config)


def fingerprint(ruleset: Ruleset) -> UInt32[Array, "2"]:
    """64 bits that differ where rulesets do; the order of the objects does not count."""
    numbers = [ruleset.goal, ruleset.rules.reshape(-1), jnp.sort(packed(ruleset.objects))]
    words = jnp.concatenate([x.astype(jnp.uint32) for x in numbers])
    odd = jnp.asarray(_odd_words(words.size))
    mixed = (words + odd[:, :1].T) * odd[:, 1:].T  # (2, n)
    mixed ^= mixed >> 15
    mixed = mixed * jnp.uint32(0x2C1B3C6D)
    mixed ^= mixed >> 13
    total = jnp.sum(mixed * odd[:, :1].T, 1, dtype=jnp.uint32)
    return total


@functools.cache
def _odd_words(n: int) -> np.ndarray:
    return np.random.Generator(np.random.PCG64(0)).integers(0, 1 << 31, (n, 3), np.uint32) * 2 + 1


SKIPPED = Path(__file__).with_name("benchmarks.npz")


def benchmark(name: str) -> Benchmark:
    """`trivial-1m`, `small-1m`, `medium-1m` or `high-1m`: a million different rulesets of that `CONFIGS` entry.

    Nothing is stored but the few numbers whose draw had come before (`experiments/rule_worlds/run.py` finds them), so
    a ruleset costs one `generate`. Raises ValueError for another name.
    """
    names = [f"{config}-1m" for config in CONFIGS]
    if name not in names:
        raise ValueError(f"benchmark {name!r}: choose one of {', '.join(names)}.")
    with np.load(SKIPPED, allow_pickle=False) as data:
        skipped = np.cumsum(data[name].astype(np.int64)) - np.arange(data[name].size)
    return Benchmark(name, 0, SIZE, jnp.asarray(skipped, jnp.int32))
