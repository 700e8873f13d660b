"""An archive without cells: descriptors that were kept, and how far from them a descriptor is.

The novelty of a point is the mean distance to its k nearest among what is known (Lehman and Stanley 2011, "Abandoning
objectives: evolution through the search for novelty alone"). A point that is among them itself is not counted as its
own neighbour; that is said by index, as leaving out the nearest would leave out a stranger where it is not.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxrl.environment import pytree


@pytree
class Kept:
    """The latest C points that were kept."""

    genome: jax.Array  # (C, D)
    fitness: jax.Array  # (C,)
    descriptor: jax.Array  # (C, B)
    count: jax.Array  # int32: kept so far; beyond C the oldest are overwritten

    @property
    def present(self) -> Bool[Array, " C"]:
        return jnp.arange(self.fitness.shape[0]) < self.count


def empty(capacity: int, genome_size: int, descriptors: int) -> Kept:
    """An archive of at most `capacity` points. Raises ValueError below 1."""
    if capacity < 1:
        raise ValueError(f"capacity={capacity}: it must be at least 1.")
    dtype = jnp.result_type(float)
    return Kept(
        jnp.zeros((capacity, genome_size), dtype),
        jnp.zeros(capacity, dtype),
        jnp.zeros((capacity, descriptors), dtype),
        jnp.int32(0),
    )


def keep(
    archive: Kept,
    genome: Float[Array, "N D"],
    fitness: Float[Array, " N"],
    descriptor: Float[Array, "N B"],
    mask: Bool[Array, " N"],
) -> Kept:
    """The archive with the points of `mask`, of which one batch holds at most its capacity; what is NaN or infinite is
    not kept."""
    C = archive.fitness.shape[0]
    mask = mask & jnp.isfinite(fitness) & jnp.all(jnp.isfinite(descriptor), -1)
    rank = jnp.cumsum(mask, dtype=jnp.int32) - 1
    # Of more than there is room for, the last: two writes to one place have no order.
    mask = mask & (rank >= rank[-1] + 1 - C)
    row = jnp.where(mask, (archive.count + rank) % C, C)
    return archive.replace(
        genome=archive.genome.at[row].set(genome.astype(archive.genome.dtype), mode="drop"),
        fitness=archive.fitness.at[row].set(fitness.astype(archive.fitness.dtype), mode="drop"),
        descriptor=archive.descriptor.at[row].set(descriptor.astype(archive.descriptor.dtype), mode="drop"),
        count=archive.count + jnp.maximum(rank[-1] + 1, 0),
    )


def novelty(
    point: Float[Array, "N B"],
    known: Float[Array, "M B"],
    present: Bool[Array, " M"],
    k: int,
    itself: Int[Array, " N"] | None = None,
) -> Float[Array, " N"]:
    """The mean distance of each point to its `k` nearest of the `known` that are present, or to all if they are fewer.

    `itself` is the row of a point among the known, or anything outside of them. Infinite where nothing is known; the
    novelty of a point that is not finite is -inf.
    """
    M = known.shape[0]
    difference = point[:, None] - known
    distance = jnp.sqrt(jnp.sum(difference * difference, -1))
    counted = jnp.broadcast_to(present & jnp.all(jnp.isfinite(known), -1), distance.shape)
    if itself is not None:
        counted = counted & (jnp.arange(M) != itself[:, None])
    near = -jax.lax.top_k(jnp.where(counted, -distance, -jnp.inf), min(k, M))[0]
    found = jnp.isfinite(near)
    number = found.sum(-1)
    mean = jnp.sum(jnp.where(found, near, 0), -1) / jnp.maximum(number, 1)
    finite = jnp.all(jnp.isfinite(point), -1)
    return jnp.where(finite, jnp.where(number > 0, mean, jnp.inf), -jnp.inf)


def fittest(value: Float[Array, " N"], count: int) -> Int[Array, " count"]:
    """The rows of the highest values, the first of equals first; NaN counts as the lowest."""
    return jax.lax.top_k(jnp.where(jnp.isnan(value), -jnp.inf, value), count)[1]
