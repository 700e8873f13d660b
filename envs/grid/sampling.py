"""Random cells of small grids, drawn so that a batch of them is fast on a CPU."""

from __future__ import annotations

import math

import jax.numpy as jnp
from jaxtyping import Array, Bool, Integer, UInt32

from jaxrl.math import below


def nth(allowed: Bool[Array, " n"], ranks: Integer[Array, " k"]) -> Integer[Array, " k"]:
    """The index of the True of `allowed` that has `ranks` others before it; n where there are not so many.

    By rows of about sqrt(n): a running count of all n costs XLA's CPU backend more than the rest of a step.
    """
    n = allowed.shape[0]
    width = max(1, math.isqrt(n))
    rows = jnp.pad(allowed, (0, -n % width)).reshape(-1, width)
    until = _running(jnp.sum(rows, 1, dtype=jnp.int32))
    row = jnp.sum(until <= ranks[:, None], 1, dtype=jnp.int32)
    before = jnp.max(jnp.where(until <= ranks[:, None], until, 0), 1)
    mine = jnp.any(rows & (jnp.arange(rows.shape[0]) == row[:, None])[..., None], 1)  # (k, width)
    column = jnp.sum(_running(mine.astype(jnp.int32)) <= (ranks - before)[:, None], 1, dtype=jnp.int32)
    return jnp.minimum(row * width + column, n)


def any_of(bits: UInt32[Array, ""], allowed: Bool[Array, " n"]) -> Integer[Array, ""]:
    """`jaxrl.math.choose`, by `nth`: the index of a True of `allowed`, each equally likely; n where there is none."""
    return nth(allowed, below(bits, jnp.sum(allowed, dtype=jnp.int32))[None])[0]


def distinct(bits: UInt32[Array, " k"], allowed: Bool[Array, " n"]) -> Integer[Array, " k"]:
    """k different indices of True of `allowed`, every sequence of them equally likely; n where none is left."""
    total = jnp.sum(allowed, dtype=jnp.int32)
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


def _running(x: Integer[Array, "*batch n"]) -> Integer[Array, "*batch n"]:
    """The cumulative sum of a few numbers, in n^2 additions that fuse with what reads it."""
    index = jnp.arange(x.shape[-1])
    return jnp.sum(jnp.where(index <= index[:, None], x[..., None, :], 0), -1, dtype=jnp.int32)
