"""Replay of sequences, drawn uniformly or by priority, which never cross the write position of the ring."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from jaxrl.replay.prioritised import PrioritisedRing, prioritised, set_leaves, with_priorities
from jaxrl.replay.ring import Replay, Ring, ring_add, ring_init, take


@functools.cache
def sequence(capacity: int, num_envs: int, length: int) -> Replay:
    """Uniform replay of sequences of `length` steps of one of `num_envs` environments (Hausknecht & Stone 2015).

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
        return ring_init(item, capacity)

    def add(state: Ring, rollout: PyTree) -> Ring:
        shape = jax.tree.leaves(rollout)[0].shape
        if shape[1:2] != (num_envs,):
            raise ValueError(f"replay.sequence: rollout leaves have shape {shape}; they must be (T, {num_envs}, ...).")
        return ring_add(state, jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), rollout))[0]

    def sample(key: Key[Array, ""], state: Ring, batch_size: int) -> PyTree:
        start_key, env_key = jax.random.split(key)
        starts = jnp.maximum(state.size // num_envs - length + 1, 1)
        start = jax.random.randint(start_key, (batch_size,), 0, starts)
        env = jax.random.randint(env_key, (batch_size,), 0, num_envs)
        oldest = (state.position - state.size) // num_envs
        time = (oldest + start + jnp.arange(length)[:, None]) % steps
        return take(state.items, time * num_envs + env)

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
    windows, flat = sequence(capacity, num_envs, length), prioritised(capacity)
    lag = (length - 1) * num_envs  # items before a sequence that starts at the oldest one is whole

    def add(state: PrioritisedRing, rollout: PyTree) -> PrioritisedRing:
        ring = windows.add(state.ring, rollout)
        steps, width = jax.tree.leaves(rollout)[0].shape[:2]
        count = steps * width
        if count + lag > capacity:
            raise ValueError(
                f"replay.prioritised_sequence: a rollout of {count} items and the {lag} before it do not fit a "
                f"capacity of {capacity}."
            )
        # Sequences that end in the new rows are complete now; those that start in the last rows are not yet.
        start = jnp.arange(-lag, count, dtype=jnp.int32)
        whole = (start < count - lag) & (start + state.ring.size >= 0)
        rows = (state.ring.position + start) % capacity
        tree = set_leaves(state.tree, rows, jnp.where(whole, state.max_priority, 0))
        return PrioritisedRing(ring, tree, state.max_priority)

    def sample(
        key: Key[Array, ""], state: PrioritisedRing, batch_size: int, beta: float | Float[Array, ""]
    ) -> tuple[PyTree, Int[Array, " B"], Float[Array, " B"]]:
        _, indices, weights = flat.sample(key, state, batch_size, beta)
        rows = (indices + num_envs * jnp.arange(length, dtype=jnp.int32)[:, None]) % capacity
        return take(state.ring.items, rows), indices, weights

    def update(
        state: PrioritisedRing,
        indices: Int[Array, " B"],
        priorities: Float[Array, " B"],
        alpha: float | Float[Array, ""],
        given: Bool[Array, " B"] | bool = True,
    ) -> PrioritisedRing:
        tree, largest = with_priorities(state.tree, state.max_priority, indices, priorities, alpha, given)
        return PrioritisedRing(state.ring, tree, largest)

    return Replay(flat.init, add, sample, update)
