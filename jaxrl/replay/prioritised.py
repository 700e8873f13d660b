"""Prioritised replay (Schaul et al. 2016, arXiv:1511.05952): a ring with a tree of sums."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from jaxrl.environment import pytree
from jaxrl.math import fence
from jaxrl.nn.distributions import invert_cdf
from jaxrl.replay.ring import Replay, Ring, ring_add, ring_init, take

_FAN = 8
"""Children of a node in the sum tree; of 2 to 128 the fastest at 1e4, 1e5 and 1e6 items."""


@pytree
class PrioritisedRing:
    """A ring buffer with priorities: `tree[0]` has priorities^alpha, `tree[i + 1]` sums of 8 entries of `tree[i]`."""

    ring: Ring
    tree: tuple[Any, ...]
    max_priority: jax.Array  # () largest priority so far, raised to alpha, which new items get


@functools.cache
def prioritised(capacity: int) -> Replay:
    """Proportional prioritised replay (Schaul et al. 2016, section 3.3) of `capacity` items.

    `init` and `add` as in `uniform`; a new item gets the largest priority given so far.

    `sample(key, state, batch_size, beta) -> (batch, indices, weights)`: item i is drawn, with replacement and
    stratified, with probability P[i] = p[i]^alpha / sum p^alpha; weights are (size P[i])^-beta divided by the largest
    of the batch.

    `update(state, indices, priorities, alpha, given=True) -> state` sets p = priorities, positive ones such as
    |TD error| + 1e-6, for the indices where `given`.

    alpha and beta may be traced. Both functions cost O(batch_size log capacity), in a sum tree.
    """

    def init(item: PyTree) -> PrioritisedRing:
        return PrioritisedRing(ring_init(item, capacity), tree_of(jnp.zeros(capacity)), jnp.float32(1))

    def add(state: PrioritisedRing, batch: PyTree) -> PrioritisedRing:
        ring, rows = ring_add(state.ring, batch)
        tree = set_leaves(state.tree, rows, jnp.broadcast_to(state.max_priority, rows.shape))
        return PrioritisedRing(ring, tree, state.max_priority)

    def sample(
        key: Key[Array, ""], state: PrioritisedRing, batch_size: int, beta: float | Float[Array, ""]
    ) -> tuple[PyTree, Int[Array, " B"], Float[Array, " B"]]:
        indices, weights = draw(key, state.tree, capacity, batch_size, beta)
        return take(state.ring.items, indices), indices, weights

    def update(
        state: PrioritisedRing,
        indices: Int[Array, " B"],
        priorities: Float[Array, " B"],
        alpha: float | Float[Array, ""],
        given: Bool[Array, " B"] | bool = True,
    ) -> PrioritisedRing:
        tree, largest = with_priorities(state.tree, state.max_priority, indices, priorities, alpha, given)
        return PrioritisedRing(state.ring, tree, largest)

    return Replay(init, add, sample, update)


def tree_of(leaves: Float[Array, " n"]) -> tuple[Array, ...]:
    """The sum tree of `leaves`, padded with zeros."""
    tree, level = [], leaves.astype(jnp.float32)
    while level.size > 1 or not tree:
        level = jnp.concatenate([level, jnp.zeros(-level.size % _FAN, jnp.float32)])
        tree.append(level)
        level = level.reshape(-1, _FAN).sum(-1)
    return tuple(tree)


def draw(
    key: Key[Array, ""], tree: tuple[Array, ...], size: int, n: int, beta: float | Float[Array, ""]
) -> tuple[Int[Array, " n"], Float[Array, " n"]]:
    """`n` of the first `size` leaves and their weights, as `prioritised` says."""
    # A new uniform number for each level: a single one has too few bits to reach each of 1e6 leaves fairly.
    u = jax.random.uniform(key, (len(tree), n), jnp.float32)
    u = u.at[0].set(jnp.minimum((jnp.arange(n) + u[0]) / n, 1 - jnp.finfo(u.dtype).eps))
    node = jnp.zeros(n, jnp.int32)
    for level, quantile in zip(reversed(tree), u, strict=True):
        # Fused into what is taken at the indices, the descent would be compiled and run anew for each leaf of an item.
        node = fence(node * _FAN + invert_cdf(quantile, take(level.reshape(-1, _FAN), node)))
    # Only in an empty tree the descent ends past the last leaf.
    indices = jnp.minimum(node, size - 1)
    mass = take(tree[0], indices)
    smallest = jnp.min(mass)  # zero only for an empty buffer
    return indices, jnp.where(smallest > 0, (mass / jnp.where(smallest > 0, smallest, 1)) ** -beta, 0)


def with_priorities(
    tree: tuple[Array, ...],
    max_priority: Array,
    indices: Int[Array, " B"],
    priorities: Float[Array, " B"],
    alpha: float | Float[Array, ""],
    given: Bool[Array, " B"] | bool,
) -> tuple[tuple[Array, ...], Array]:
    """`(tree, max_priority)` with priorities^alpha at `indices` where `given`."""
    scaled = (priorities**alpha).astype(jnp.float32)
    largest = jnp.maximum(max_priority, jnp.max(scaled, where=given, initial=0))
    # An index may occur twice and be given once, so entries that are not given are not written.
    return set_leaves(tree, indices, scaled, jnp.broadcast_to(given, indices.shape)), largest


def set_leaves(
    tree: tuple[Array, ...],
    indices: Int[Array, " B"],
    values: Float[Array, " B"],
    given: Bool[Array, " B"] | None = None,
) -> tuple[Array, ...]:
    """The sum tree with the `given` leaves replaced; sums are recomputed, so that rounding errors do not accumulate."""
    levels = []
    for level in tree:
        if given is None:
            level = level.at[indices].set(values, mode="promise_in_bounds")
        else:
            level = level.at[jnp.where(given, indices, level.size)].set(values, mode="drop")
        indices = indices // _FAN
        values = take(level.reshape(-1, _FAN), indices).sum(-1)
        levels.append(level)
    return tuple(levels)
