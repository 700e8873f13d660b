"""Several different cells of a small grid at random; for one, see `jaxrl.math.choose`."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool, Integer, UInt32

from jaxrl.math import below, count, nth


def distinct(bits: UInt32[Array, " k"], allowed: Bool[Array, " n"]) -> Integer[Array, " k"]:
    """k different indices of True of `allowed`, every sequence of them equally likely; n where none is left."""
    total = count(allowed)
    ranks: list[Array] = []  # ascending
    order: list[Array] = []  # as drawn
    for i in range(bits.shape[0]):
        rank = below(bits[i], jnp.maximum(total - i, 0))
        for earlier in ranks:  # the rank among those not yet drawn, to the rank among all
            rank = rank + (rank >= earlier)
        rank = jnp.where(i < total, rank, total + i)
        order.append(rank)
        for j, other in enumerate(ranks):
            ranks[j], rank = jnp.minimum(other, rank), jnp.maximum(other, rank)
        ranks.append(rank)
    return nth(allowed, jnp.stack(order))
