"""Replay buffers as pure functions over a pytree state: `init`, `add`, `sample` and, with priorities, `update`.

A buffer is a ring: when it is full the oldest items are overwritten. `add` scatters only the new rows, so that in a
scan, or with a donated state, its cost does not depend on the capacity (a slice written in place is no faster, and
needs alignment). Equal arguments return the same functions, so that they share a jit cache. Sampling from an empty
buffer returns zeros.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key, PyTree, Shaped

from jaxrl.environment import pytree


@pytree
class Ring:
    """The items of a ring buffer and the position of the next one."""

    items: Any  # like one item, leaves (capacity, ...)
    position: jax.Array  # () int32, row of the next item
    size: jax.Array  # () int32, items held


class Replay(NamedTuple):
    """A replay buffer, or a dataset in its place. See `uniform`, `prioritised` and `sequence` for the signatures."""

    init: Callable[..., Any]
    add: Any  # a function; None for a dataset, to which nothing is added
    sample: Callable[..., Any]
    update: Callable[..., Any] | None = None
    returns: tuple[float, float] | None = None  # lowest and highest return of a dataset's episodes; None: unknown
    normalizer: Callable[[Any], Any] | None = None  # obs -> statistics of a dataset's observations; None: unknown


def ring_init(item: PyTree, capacity: int) -> Ring:
    if capacity < 1:
        raise ValueError(f"replay: capacity={capacity}; it must be at least 1.")
    items = jax.tree.map(lambda x: jnp.zeros((capacity, *jnp.shape(x)), jnp.result_type(x)), item)
    return Ring(items, jnp.int32(0), jnp.int32(0))


def ring_add(ring: Ring, batch: PyTree[Shaped[Array, "B ..."]]) -> tuple[Ring, Int[Array, " B"]]:
    """`(ring, rows)`: the ring with the batch added, and the rows of the batch."""
    capacity = jax.tree.leaves(ring.items)[0].shape[0]
    count = jax.tree.leaves(batch)[0].shape[0]
    if count > capacity:
        raise ValueError(f"replay: a batch of {count} items does not fit a capacity of {capacity}.")
    rows = (ring.position + jnp.arange(count, dtype=jnp.int32)) % capacity

    def write(old, new):
        if new.shape != (count, *old.shape[1:]) or not jnp.can_cast(new.dtype, old.dtype, "same_kind"):
            allowed = f"{old.dtype}{(count, *old.shape[1:])}"
            raise ValueError(f"replay: a leaf of the batch is {new.dtype}{new.shape}; it must be {allowed}.")
        return old.at[rows].set(new.astype(old.dtype), unique_indices=True, mode="promise_in_bounds")

    items = jax.tree.map(write, ring.items, batch)
    position = (ring.position + count) % capacity
    return Ring(items, position, jnp.minimum(ring.size + count, capacity)), rows


def take(items: PyTree, rows: Int[Array, "..."]) -> PyTree:
    return jax.tree.map(lambda x: x.at[rows].get(mode="promise_in_bounds"), items)


class Kept(NamedTuple):
    """A batch of which some rows are stored: what `add` of a replay `kept` takes."""

    items: Any  # leaves (B, ...)
    mask: Array  # (B,): stored where True


@functools.cache
def kept(capacity: int) -> Replay:
    """Uniform replay as `uniform` is, to which `add(state, batch: Kept) -> state` adds the rows of its mask alone."""

    def add(state: Ring, batch: Kept) -> Ring:
        # Rows to store first, in their order; after them what the ring holds there already.
        order = jnp.argsort(~batch.mask, stable=True)
        count, numbers = jnp.sum(batch.mask, dtype=jnp.int32), jnp.arange(len(order), dtype=jnp.int32)
        old = take(state.items, (state.position + numbers) % capacity)

        def chosen(new: Array, old: Array) -> Array:
            return jnp.where((numbers < count).reshape(-1, *[1] * (new.ndim - 1)), new[order].astype(old.dtype), old)

        ring, _ = ring_add(state, jax.tree.map(chosen, batch.items, old))
        return Ring(ring.items, (state.position + count) % capacity, jnp.minimum(state.size + count, capacity))

    return uniform(capacity)._replace(add=add)


@functools.cache
def uniform(capacity: int) -> Replay:
    """Uniform replay (Lin 1992) of `capacity` items.

    `init(item) -> state` of an example item (any pytree); `add(state, batch) -> state` with leaves (B, ...);
    `sample(key, state, batch_size) -> batch` with leaves (batch_size, ...), drawn with replacement.
    `add` raises ValueError when B > capacity.
    """

    def init(item: PyTree) -> Ring:
        return ring_init(item, capacity)

    def add(state: Ring, batch: PyTree) -> Ring:
        return ring_add(state, batch)[0]

    def sample(key: Key[Array, ""], state: Ring, batch_size: int) -> PyTree:
        return take(state.items, jax.random.randint(key, (batch_size,), 0, state.size))

    return Replay(init, add, sample)
