"""Replay memories as pure functions over a pytree state: `init`, `add`, `sample` and, with priorities, `update`.

A memory is a ring: when it is full the oldest items are overwritten. `add` scatters only the new rows, so that in a
scan, or with a donated state, its cost does not depend on the capacity (a slice written in place is no faster, and
needs alignment). Equal arguments return the same functions, so that they share a jit cache. Sampling from an empty
memory returns zeros.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree, Shaped

from jaxrl.distributions import invert_cdf
from jaxrl.environment import pytree

_FAN = 8
"""Children of a node in the sum tree; of 2 to 128 the fastest at 1e4, 1e5 and 1e6 items."""


@pytree
class Ring:
    """The items of a memory and where the next one goes."""

    items: Any  # like one item, leaves (capacity, ...)
    position: jax.Array  # () int32, row of the next item
    size: jax.Array  # () int32, items held


@pytree
class PrioritisedRing:
    """A ring whose items have priorities: `tree[0]` these, to the power alpha, `tree[i + 1]` sums of 8 of `tree[i]`."""

    ring: Ring
    tree: tuple[Any, ...]
    max_priority: jax.Array  # () largest priority yet given, raised to alpha: what new items get


class Replay(NamedTuple):
    """A replay memory. See `uniform`, `prioritised`, `sequence` and `prioritised_sequence` for the signatures."""

    init: Callable[..., Any]
    add: Callable[..., Any]
    sample: Callable[..., Any]
    update: Callable[..., Any] | None = None


def _ring_init(item: PyTree, capacity: int) -> Ring:
    if capacity < 1:
        raise ValueError(f"replay: capacity={capacity}; it must be at least 1.")
    items = jax.tree.map(lambda x: jnp.zeros((capacity, *jnp.shape(x)), jnp.result_type(x)), item)
    return Ring(items, jnp.int32(0), jnp.int32(0))


def _ring_add(ring: Ring, batch: PyTree[Shaped[Array, "B ..."]]) -> tuple[Ring, Int[Array, " B"]]:
    """The ring with the batch in it, and the rows where it went."""
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


def _take(items: PyTree, rows: Int[Array, "..."]) -> PyTree:
    return jax.tree.map(lambda x: x.at[rows].get(mode="promise_in_bounds"), items)


@functools.cache
def uniform(capacity: int) -> Replay:
    """Uniform replay (Lin 1992) of `capacity` items.

    `init(item) -> state` of an example item (any pytree); `add(state, batch) -> state` with leaves (B, ...);
    `sample(key, state, batch_size) -> batch` with leaves (batch_size, ...), drawn with replacement.
    `add` raises ValueError when B > capacity.
    """

    def init(item: PyTree) -> Ring:
        return _ring_init(item, capacity)

    def add(state: Ring, batch: PyTree) -> Ring:
        return _ring_add(state, batch)[0]

    def sample(key: Key[Array, ""], state: Ring, batch_size: int) -> PyTree:
        return _take(state.items, jax.random.randint(key, (batch_size,), 0, state.size))

    return Replay(init, add, sample)


@functools.cache
def prioritised(capacity: int) -> Replay:
    """Proportional prioritised replay (Schaul et al. 2016, section 3.3) of `capacity` items.

    `init` and `add` as in `uniform`; a new item gets the largest priority given so far.

    `sample(key, state, batch_size, beta) -> (batch, indices, weights)`: item i is drawn, with replacement and
    stratified, with probability P[i] = p[i]^alpha / sum p^alpha; weights are (size P[i])^-beta divided by the largest
    of the batch.

    `update(state, indices, priorities, alpha) -> state` sets p = priorities, positive ones such as |TD error| + 1e-6.

    alpha and beta may be traced. Both functions cost O(batch_size log capacity), in a sum tree.
    """

    def init(item: PyTree) -> PrioritisedRing:
        ring, tree, nodes = _ring_init(item, capacity), [], capacity
        while nodes > 1 or not tree:
            nodes = -(-nodes // _FAN)
            tree.append(jnp.zeros(nodes * _FAN, jnp.float32))
        return PrioritisedRing(ring, tuple(tree), jnp.float32(1))

    def add(state: PrioritisedRing, batch: PyTree) -> PrioritisedRing:
        ring, rows = _ring_add(state.ring, batch)
        tree = _set_leaves(state.tree, rows, jnp.broadcast_to(state.max_priority, rows.shape))
        return PrioritisedRing(ring, tree, state.max_priority)

    def sample(
        key: Key[Array, ""], state: PrioritisedRing, batch_size: int, beta: float | Float[Array, ""]
    ) -> tuple[PyTree, Int[Array, " B"], Float[Array, " B"]]:
        # A fresh uniform a level: one for the whole descent has too few bits to reach each of 1e6 leaves fairly.
        u = jax.random.uniform(key, (len(state.tree), batch_size), jnp.float32)
        u = u.at[0].set(jnp.minimum((jnp.arange(batch_size) + u[0]) / batch_size, 1 - jnp.finfo(u.dtype).eps))
        node = jnp.zeros(batch_size, jnp.int32)
        for level, quantile in zip(reversed(state.tree), u, strict=True):
            node = node * _FAN + invert_cdf(quantile, _take(level.reshape(-1, _FAN), node))
        # Only an empty tree leads past the end.
        indices = jnp.minimum(node, capacity - 1)
        mass = _take(state.tree[0], indices)
        smallest = jnp.min(mass)  # zero of an empty memory alone
        weights = jnp.where(smallest > 0, (mass / jnp.where(smallest > 0, smallest, 1)) ** -beta, 0)
        return _take(state.ring.items, indices), indices, weights

    def update(
        state: PrioritisedRing,
        indices: Int[Array, " B"],
        priorities: Float[Array, " B"],
        alpha: float | Float[Array, ""],
    ) -> PrioritisedRing:
        scaled = (priorities**alpha).astype(jnp.float32)
        largest = jnp.maximum(state.max_priority, jnp.max(scaled))
        return PrioritisedRing(state.ring, _set_leaves(state.tree, indices, scaled), largest)

    return Replay(init, add, sample, update)


def _set_leaves(
    tree: tuple[Array, ...],
    indices: Int[Array, " B"],
    values: Float[Array, " B"],
    given: Bool[Array, " B"] | None = None,
) -> tuple[Array, ...]:
    """The sum tree with the `given` leaves replaced, and the sums above computed anew: rounding does not build up."""
    levels = []
    for level in tree:
        if given is None:
            level = level.at[indices].set(values, mode="promise_in_bounds")
        else:
            level = level.at[jnp.where(given, indices, level.size)].set(values, mode="drop")
        indices = indices // _FAN
        values = _take(level.reshape(-1, _FAN), indices).sum(-1)
        levels.append(level)
    return tuple(levels)


@functools.cache
def sequence(capacity: int, num_envs: int, length: int) -> Replay:
    """Uniform replay of sequences: `length` steps in a row of one of `num_envs` environments (Hausknecht & Stone 2015).

    `capacity` counts items, that is `capacity // num_envs` steps of every environment.

    `init(item) -> state`; `add(state, rollout) -> state` with leaves (T, num_envs, ...), for any T.

    `sample(key, state, batch_size) -> batch` with leaves (length, batch_size, ...), time-major, never across the write
    head (but across ends of episodes, which the items themselves should mark). At least `length` steps must be held.

    Raises ValueError when capacity is no multiple of num_envs or does not hold `length` steps.
    """
    if capacity % num_envs:
        raise ValueError(f"replay.sequence: capacity={capacity} is no multiple of num_envs={num_envs}.")
    steps = capacity // num_envs
    if not 1 <= length <= steps:
        raise ValueError(
            f"replay.sequence: length={length}; with {steps} steps an environment it must be 1 to {steps}."
        )

    def init(item: PyTree) -> Ring:
        return _ring_init(item, capacity)

    def add(state: Ring, rollout: PyTree) -> Ring:
        shape = jax.tree.leaves(rollout)[0].shape
        if shape[1:2] != (num_envs,):
            raise ValueError(f"replay.sequence: rollout leaves have shape {shape}; they must be (T, {num_envs}, ...).")
        return _ring_add(state, jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), rollout))[0]

    def sample(key: Key[Array, ""], state: Ring, batch_size: int) -> PyTree:
        start_key, env_key = jax.random.split(key)
        starts = jnp.maximum(state.size // num_envs - length + 1, 1)
        start = jax.random.randint(start_key, (batch_size,), 0, starts)
        env = jax.random.randint(env_key, (batch_size,), 0, num_envs)
        oldest = (state.position - state.size) // num_envs
        time = (oldest + start + jnp.arange(length)[:, None]) % steps
        return _take(state.items, time * num_envs + env)

    return Replay(init, add, sample)


@functools.cache
def prioritised_sequence(capacity: int, num_envs: int, length: int) -> Replay:
    """Proportional prioritised replay of sequences: what `sequence` holds, drawn as `prioritised` draws.

    A priority belongs to `length` steps in a row of one environment. It is zero until the last of them is there.

    `init(item) -> state`; `add(state, rollout) -> state` with leaves (T, num_envs, ...).

    `sample(key, state, batch_size, beta) -> (batch, indices, weights)` with leaves (length, batch_size, ...),
    time-major; at least `length` steps must be held.

    `update(state, indices, priorities, alpha, given) -> state`: as in `prioritised`, for the indices where `given`.

    Raises ValueError as `sequence` does, and when a rollout leaves no room for the length - 1 steps before it.
    """
    memory, flat = sequence(capacity, num_envs, length), prioritised(capacity)
    lag = (length - 1) * num_envs  # items before a sequence that starts at the oldest one is whole

    def add(state: PrioritisedRing, rollout: PyTree) -> PrioritisedRing:
        ring = memory.add(state.ring, rollout)
        steps, width = jax.tree.leaves(rollout)[0].shape[:2]
        count = steps * width
        if count + lag > capacity:
            raise ValueError(
                f"replay.prioritised_sequence: a rollout of {count} items and the {lag} before it do not fit a "
                f"capacity of {capacity}."
            )
        # Sequences that end in the new rows are whole now; those that start in the last rows are not yet.
        start = jnp.arange(-lag, count, dtype=jnp.int32)
        whole = (start < count - lag) & (start + state.ring.size >= 0)
        rows = (state.ring.position + start) % capacity
        tree = _set_leaves(state.tree, rows, jnp.where(whole, state.max_priority, 0))
        return PrioritisedRing(ring, tree, state.max_priority)

    def sample(
        key: Key[Array, ""], state: PrioritisedRing, batch_size: int, beta: float | Float[Array, ""]
    ) -> tuple[PyTree, Int[Array, " B"], Float[Array, " B"]]:
        _, indices, weights = flat.sample(key, state, batch_size, beta)
        rows = (indices + num_envs * jnp.arange(length, dtype=jnp.int32)[:, None]) % capacity
        return _take(state.ring.items, rows), indices, weights

    def update(
        state: PrioritisedRing,
        indices: Int[Array, " B"],
        priorities: Float[Array, " B"],
        alpha: float | Float[Array, ""],
        given: Bool[Array, " B"] | bool = True,
    ) -> PrioritisedRing:
        scaled = (priorities**alpha).astype(jnp.float32)
        largest = jnp.maximum(state.max_priority, jnp.max(scaled, where=given, initial=0))
        # An index may be there twice, given once: what is not given is not written at all.
        given = jnp.broadcast_to(given, indices.shape)
        return PrioritisedRing(state.ring, _set_leaves(state.tree, indices, scaled, given), largest)

    return Replay(flat.init, add, sample, update)
