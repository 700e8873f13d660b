"""How rulesets of rule worlds are drawn and changed, and what each needs.

What a ruleset says is in `rules.py`; how one is solved in `search.py`; a million of them in `benchmarks.py`.

`generate` follows the procedure that Bauer et al. (2023), "Human-Timescale Adaptation in an Open-Ended Task Space",
ICML, arXiv:2301.07608, appendix A.2, describe and XLand-MiniGrid uses: a goal; a binary tree of rules that make the
goal's tiles, `depth` levels deep, a tile being among the first objects instead with probability `prune`; then objects
and up to `distractor_rules` rules that are of no use. What differs, so that **every ruleset can be solved**:
- all tiles of the tree differ, also the two of one goal or rule;
- goal tiles, which cannot be carried, take part in kinds without direction only (what has to be above one that lies
  below a wall never will be);
- a rule of no use takes tiles of the tree in one way only: laid next to a stray tile they are lost, which can be
  avoided, and its first objects are the stray tiles alone (a second copy of a goal's tile would be a short cut).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Integer, UInt32

from jaxrl.math import below, choose, fast_key

from .rules import (
    GOAL,
    NOTHING,
    ON,
    PICKABLE,
    TILE_AT,
    Rule,
    Ruleset,
    goal_arity,
    has_two,
    packed,
    put_together,
    take_apart,
    unpacked,
)

_COLORS = (1, 2, 3, 4, 5, 6, 9, 10, 11, 8)  # of generated tiles: all but black, the floor's
_CARRIED = np.array([shape << 4 | color for shape in PICKABLE for color in _COLORS])  # the 60 tiles that can be
_STANDING = np.array([GOAL << 4 | color for color in _COLORS])  # the 10 goal tiles
# The eleven kinds that are drawn: one in hand, five next to the agent, five of two tiles.
_GOAL_KINDS = np.array([1, 3, 11, 12, 13, 14, 4, 7, 8, 9, 10])
_RULE_KINDS = np.array([1, 2, 8, 9, 10, 11, 3, 4, 5, 6, 7])


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
    product = jnp.where(below(vanish, len(_CARRIED) + 1) == 0, NOTHING, z)
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
    first, second = goal_arity(goal[0])
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
    first, second = goal_arity(goal[0])
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

    first, second = goal_arity(goal[0])
    of_tiles = first & (goal[0] != ON) & (goal[0] != TILE_AT)
    goal_kind = jnp.where((what == 3) & of_tiles, redrawn(goal[0], packed(goal[1:3]), second, _GOAL_KINDS), goal[0])
    turned = (what == 4) & (row == choose(which, main))
    rule_kind = jnp.where(turned, redrawn(rules.kind, rules.a, has_two(rules.kind), _RULE_KINDS), rules.kind)

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
