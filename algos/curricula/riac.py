"""RIAC: a teacher that splits the task space into regions and samples those where its student's competence changes.

Baranes and Oudeyer (2009), "R-IAC: Robust intrinsically motivated exploration and active learning", IEEE Transactions
on Autonomous Mental Development 1(3), as adapted by Portelas et al. (2019, arXiv:1910.07224) and its code. A task is a
point x of the unit box, and its reward r is the return mapped to [0, 1]. Regions are boxes, the nodes of a binary tree.
A region holds the last `region_size + 1` pairs (x, r) whose x fell into it, and its absolute learning progress

    ALP = |mean r of the older half of its last `region_size` pairs - mean r of the newer half|, 0 for fewer than 3

    sample   a region is drawn, any node and not only leaves, in proportion to ALP, or uniformly if all of these are 0
             with probability 1 - random_share - mutation_share: x is uniform in the region
             with probability random_share: x is uniform in the unit box
             with probability mutation_share: x is drawn from N(x_w, mutation^2) and clipped to the region, x_w the task
             of lowest reward in it
    update   for one task after another (`with_task`): the pair (x, r) is added to every region around x; a leaf with
             more than `region_size` pairs is cut in two. Of `attempts` random cuts, each across a random coordinate at
             a random place, that leave at least `region_size / 20` pairs and a width of `min_width` on both sides, the
             one of highest n_1 n_2 |ALP_1 - ALP_2| is taken, n the number of pairs on a side. If there is none, the
             leaf forgets its oldest quarter
             at the end of a batch: ALP of the regions that got pairs is recomputed

Deviations: n_1 and n_2 are numbers of pairs, as in the 2009 paper (in the code both are 2, by mistake). A new region
starts with its own ALP (in the code with that of the last attempt). Cuts that leave too few pairs on a side are drawn
again, but at most three times as often as there are attempts. There is room for `max_regions`; a leaf that finds none
left forgets its oldest quarter. Tasks are handed out and come back in batches; tasks whose episode did not finish do
not count. The mutation's deviation is in the unit box, that of the authors' code in the task space. Results:
experiments/teachers. Usage: as `alp_gmm`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxrl.calls import recorded
from jaxrl.curriculum.protocol import Curriculum, LevelBatch, Outcomes
from jaxrl.curriculum.teaching import check_returns, dimensions_of, new_levels_at, unit
from jaxrl.environment import is_concrete, pytree, strongly_typed
from jaxrl.math import nth, rarely


@dataclasses.dataclass(frozen=True)
class Config:
    """Static settings, those of the paper's code."""

    dimensions: int | None = None  # D of the box; None: `level_at.dimensions`, which `Ranges` have
    region_size: int = 200  # pairs that a leaf holds before it splits
    attempts: int = 50  # random cuts of which the best splits a region
    max_regions: int = 512  # nodes of the tree

    def __post_init__(self) -> None:
        if self.region_size < 4 or self.attempts < 1 or self.max_regions < 1:
            raise ValueError(
                f"region_size={self.region_size} is at least 4, attempts={self.attempts} and "
                f"max_regions={self.max_regions} at least 1."
            )

    @property
    def smallest(self) -> float:
        """Fewest pairs on each side of a cut."""
        return self.region_size / 20


@pytree
class Hyper:
    """Dynamic settings; the returns of the paper's walkers are from -150 to 350."""

    return_low: jax.Array  # return that maps to reward 0
    return_high: jax.Array  # return that maps to reward 1
    random_share: jax.Array = 0.2  # probability of a uniform task
    mutation_share: jax.Array = 0.1  # probability of a task near the worst of a region
    mutation: jax.Array = 0.1  # standard deviation of such a task around the worst, in the unit box
    min_width: jax.Array = 1 / 15  # of a region, in the unit box


@pytree
class Tree:
    """R regions, of which the first `size` exist. Region 0 is the unit box."""

    low: jax.Array  # (R, D)
    high: jax.Array  # (R, D)
    alp: jax.Array  # (R,)
    leaf: jax.Array  # (R,) bool: not cut so far
    x: jax.Array  # (R, W, D) tasks of the pairs, a ring of W = region_size + 1 places for each region
    reward: jax.Array  # (R, W) rewards of the pairs, likewise
    oldest: jax.Array  # (R,) int32, place of the oldest pair in the ring
    held: jax.Array  # (R,) int32, number of pairs in the ring
    size: jax.Array  # int32


@pytree
class State:
    tree: Tree
    params: Any  # of the level distribution
    hyper: Hyper


def progress(
    reward: Float[Array, "*batch W"], rank: Int[Array, "*batch W"], count: Int[Array, "*batch"], window: int
) -> Float[Array, "*batch"]:
    """ALP of the last `window` of `count` rewards. `rank` is the order in time, 0 for the oldest.

    Rewards of rank `count` or above are ignored.
    """
    recent = jnp.minimum(count, window)
    half = recent // 2
    begin, middle, end = (c[..., None] for c in (count - recent, count - half, count))
    older = jnp.where((begin <= rank) & (rank < middle), reward, 0).sum(-1) / jnp.maximum(recent - half, 1)
    newer = jnp.where((middle <= rank) & (rank < end), reward, 0).sum(-1) / jnp.maximum(half, 1)
    return jnp.where(count > 2, jnp.abs(older - newer), 0)


class Split(NamedTuple):
    """The two halves of a region, below and above a cut."""

    valid: Array  # bool: there is a cut that leaves enough on both sides
    low: Array  # (2, D)
    high: Array  # (2, D)
    alp: Array  # (2,)
    x: Array  # (2, W, D) tasks of the pairs of each half, the oldest first
    reward: Array  # (2, W) rewards of the pairs, likewise
    held: Array  # (2,) number of pairs


def best_split(
    key: Array,
    x: Float[Array, "W D"],
    reward: Float[Array, " W"],
    low: Float[Array, " D"],
    high: Float[Array, " D"],
    config: Config,
    min_width: Array | float,
) -> Split:
    """The best of `attempts` random cuts of the region [low, high] that holds these W pairs, the oldest first."""
    dim_key, place_key = jax.random.split(key)
    draws, (W, D) = 4 * config.attempts, x.shape
    dim = jax.random.randint(dim_key, (draws,), 0, D)
    place = low[dim] + jax.random.uniform(place_key, (draws,)) * (high - low)[dim]
    below = x.T[dim] <= place[:, None]  # (draws, W)
    sides = jnp.stack([below, ~below])  # (2, draws, W)
    rank, count = jnp.where(sides, jnp.cumsum(sides, -1) - 1, W), sides.sum(-1, dtype=jnp.int32)
    populated = count.min(0) >= config.smallest
    counted = populated & (jnp.cumsum(populated) <= config.attempts)
    wide = jnp.minimum(place - low[dim], high[dim] - place) >= min_width
    alp = progress(jnp.broadcast_to(reward, sides.shape), rank, count, config.region_size)
    score = jnp.where(counted & wide, count.prod(0) * jnp.abs(alp[0] - alp[1]), -1)
    best = jnp.argmax(score)
    at = jnp.arange(D) == dim[best]
    side, rank = jnp.arange(2)[:, None], rank[:, best]
    return Split(
        valid=score[best] >= 0,
        low=jnp.stack([low, jnp.where(at, place[best], low)]),
        high=jnp.stack([jnp.where(at, place[best], high), high]),
        alp=alp[:, best],
        x=jnp.zeros((2, W, D)).at[side, rank].set(x, mode="drop"),
        reward=jnp.zeros((2, W)).at[side, rank].set(reward, mode="drop"),
        held=count[:, best],
    )


def no_split(W: int, D: int) -> Split:
    """A `Split` that is not valid."""
    box, held = jnp.zeros((2, D)), jnp.zeros(2, jnp.int32)
    return Split(jnp.bool_(False), box, box, box[:, 0], jnp.zeros((2, W, D)), jnp.zeros((2, W)), held)


def in_order(ring: Float[Array, "W *d"], oldest: Array) -> Float[Array, "W *d"]:
    """The entries of a region's ring, the oldest first."""
    return ring[(oldest + jnp.arange(len(ring))) % len(ring)]


def add(tree: Tree, x: Float[Array, " D"], reward: Array, finished: Array) -> tuple[Tree, Array]:
    """`(tree, node)`: the tree with a pair added to every region around x, and the leaf that must be cut, or -1."""
    R, W = tree.reward.shape
    inside = finished & (jnp.arange(R) < tree.size) & jnp.all((tree.low <= x) & (x <= tree.high), 1)
    full = inside & (tree.held == W)
    slot = jnp.where(inside, (tree.oldest + tree.held) % W, W)  # past the end: dropped
    tree = tree.replace(
        x=tree.x.at[jnp.arange(R), slot].set(x, mode="drop"),
        reward=tree.reward.at[jnp.arange(R), slot].set(reward, mode="drop"),
        oldest=jnp.where(full, (tree.oldest + 1) % W, tree.oldest),
        held=jnp.where(inside & ~full, tree.held + 1, tree.held),
    )
    too_many = inside & tree.leaf & (tree.held == W)
    return tree, jnp.where(jnp.any(too_many), jnp.argmax(too_many), -1)


def visited(tree: Tree, x: Float[Array, "n D"], finished: Bool[Array, " n"]) -> Bool[Array, " R"]:
    """Which regions any of the finished tasks fell into."""
    inside = jnp.all((tree.low[:, None] <= x) & (x <= tree.high[:, None]), 2) & finished
    return jnp.any(inside, 1) & (jnp.arange(len(inside)) < tree.size)


def refresh(tree: Tree, stale: Bool[Array, " R"], at_once: int = 32) -> Tree:
    """The tree with ALP of the stale regions recomputed, in groups of `at_once`, as a batch falls into few regions."""
    R, W = tree.reward.shape

    def some(carry):
        alp, stale = carry
        nodes = nth(stale, jnp.arange(at_once))  # R, past the end, where there are fewer
        rank = (jnp.arange(W) - tree.oldest[nodes][:, None]) % W
        alp = alp.at[nodes].set(progress(tree.reward[nodes], rank, tree.held[nodes], W - 1), mode="drop")
        return alp, stale & (jnp.arange(R) > nodes[-1])

    return tree.replace(alp=jax.lax.while_loop(lambda carry: jnp.any(carry[1]), some, (tree.alp, stale))[0])


def divide(tree: Tree, node: Array, split: Split) -> Tree:
    """The tree with leaf `node` cut in two; node -1 changes nothing.

    If the split is not valid or the tree is full, the leaf forgets its oldest quarter instead.
    """
    R, W = tree.reward.shape
    cut = (node >= 0) & split.valid & (tree.size + 2 <= R)
    children = jnp.where(cut, tree.size + jnp.arange(2), R)  # past the end: dropped
    parent, forgetful = jnp.where(cut, node, R), jnp.where((node >= 0) & ~cut, node, R)
    forgotten = (W - 1) // 4

    def put(old, new):
        return old.at[children].set(new, mode="drop")

    return tree.replace(
        low=put(tree.low, split.low),
        high=put(tree.high, split.high),
        alp=put(tree.alp, split.alp),
        leaf=put(tree.leaf, True).at[parent].set(False, mode="drop"),
        x=put(tree.x, split.x),
        reward=put(tree.reward, split.reward),
        oldest=put(tree.oldest, 0).at[forgetful].add(forgotten, mode="drop") % W,
        held=put(tree.held, split.held).at[forgetful].add(-forgotten, mode="drop"),
        size=tree.size + 2 * cut,
    )


def with_task(
    key: Array,
    tree: Tree,
    x: Float[Array, " D"],
    reward: Float[Array, ""],
    finished: Bool[Array, ""],
    config: Config,
    min_width: Array | float,
) -> Tree:
    """The tree after one task: its pair is added to every region around it, and a leaf with too many pairs is cut."""
    tree, node = add(tree, x, reward, finished)
    xs, rewards = (in_order(ring[node], tree.oldest[node]) for ring in (tree.x, tree.reward))
    low, high = tree.low[node], tree.high[node]

    def cut():
        return best_split(key, xs, rewards, low, high, config, min_width)

    return divide(tree, node, rarely(node >= 0, cut, no_split(*xs.shape)))


def points(key: Array, tree: Tree, hyper: Hyper, n: int) -> Float[Array, "n D"]:
    """The next n tasks."""
    R, W, D = tree.x.shape
    mode_key, region_key, x_key, noise_key = jax.random.split(key, 4)
    weight = jnp.where(jnp.any(tree.alp > 0), tree.alp, jnp.arange(R) < tree.size)
    region = jax.random.categorical(region_key, jnp.where(weight > 0, jnp.log(weight), -jnp.inf), shape=(n,))
    mode = jax.random.uniform(mode_key, (n, 1))
    uniform = jax.random.uniform(x_key, (n, D))
    low, high = tree.low[region], tree.high[region]

    reward = jax.vmap(in_order)(tree.reward[region], tree.oldest[region])
    reward = jnp.where(jnp.arange(W) < tree.held[region][:, None], reward, jnp.inf)
    worst = (tree.oldest[region] + jnp.argmin(reward, 1)) % W  # the oldest one of several
    worst = tree.x[region, worst]
    mutated = jnp.clip(worst + hyper.mutation * jax.random.normal(noise_key, (n, D)), low + 1e-5, high - 1e-5)

    mutates = (mode < hyper.mutation_share) & (tree.held[region] > 0)[:, None]
    anywhere = mode < hyper.mutation_share + hyper.random_share
    return jnp.where(mutates, mutated, jnp.where(anywhere, uniform, low + uniform * (high - low)))


@recorded
def make(level_at: Callable[[Any, Array], Any], config: Config, hyper: Hyper) -> Curriculum:
    """RIAC over the levels `level_at(params, x)`, x (D,) in the unit box.

    Raises ValueError for settings out of range.
    """
    defaults = strongly_typed(hyper)
    _check(defaults)
    D = dimensions_of(level_at, config.dimensions)
    R, W = config.max_regions, config.region_size + 1

    def init(key: Array, hyper: Hyper, params: Any) -> State:
        _check(hyper)
        none, empty = jnp.zeros(R), jnp.zeros(R, jnp.int32)
        tree = Tree(
            low=jnp.zeros((R, D)),
            high=jnp.ones((R, D)),
            alp=none,
            leaf=jnp.arange(R) == 0,
            x=jnp.zeros((R, W, D)),
            reward=jnp.zeros((R, W)),
            oldest=empty,
            held=empty,
            size=jnp.int32(1),
        )
        return State(tree, strongly_typed(params), hyper)

    def sample(key: Array, state: State, wanted: Bool[Array, " n"]) -> tuple[LevelBatch, State]:
        x = points(key, state.tree, state.hyper, len(wanted))
        return new_levels_at(level_at, state.params, x), state

    def update(key: Array, state: State, batch: LevelBatch, outcomes: Outcomes) -> State:
        hyper, x, finished = state.hyper, batch.note, outcomes.episodes > 0
        reward = unit(outcomes.episode_return, hyper.return_low, hyper.return_high)

        def step(tree, task):
            key, x, reward, finished = task
            return with_task(key, tree, x, reward, finished, config, hyper.min_width), None

        tree, _ = jax.lax.scan(step, state.tree, (jax.random.split(key, len(reward)), x, reward, finished))
        return state.replace(tree=refresh(tree, visited(tree, x, finished)))

    return Curriculum(
        init, sample, update, "riac", (level_at, config), defaults, metrics=lambda state: {"regions": state.tree.size}
    )


def _check(hyper: Hyper) -> None:
    check_returns(hyper)
    if not is_concrete(hyper):
        return
    shares = np.asarray(hyper.random_share) + np.asarray(hyper.mutation_share)
    if np.any(np.asarray(hyper.mutation_share) < 0) or np.any(shares > 1):
        raise ValueError(
            f"random_share={hyper.random_share} and mutation_share={hyper.mutation_share}: neither is below 0, and "
            "together they are at most 1."
        )
    if not np.all(np.asarray(hyper.min_width) > 0) or not np.all(np.asarray(hyper.mutation) > 0):
        raise ValueError(f"min_width={hyper.min_width} and mutation={hyper.mutation} must be above 0.")
