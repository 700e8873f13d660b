"""Exact dynamic programmes of combinatorial problems: the knapsack, the shortest tour, the shortest routes.

    knapsack    best[c] over items in turn (Bellman 1957): O(n C) for an integer capacity C
    held_karp   shortest way through each set of cities to each of its members (Held and Karp 1962; Bellman 1962):
                O(n^2 2^n)
    routes      the shortest closed way through each set of customers, as held_karp, then the cheapest partition into
                sets whose demands fit into a vehicle: O(n 4^n) here

All are pure: `vmap` and `jit` them.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Integer

MAX_CITIES, MAX_CUSTOMERS = 20, 10


def distances(places: Float[Array, "n 2"]) -> Float[Array, "n n"]:
    """Euclidean ones, of all pairs."""
    gap = places[:, None] - places
    return jnp.sqrt(gap[..., 0] ** 2 + gap[..., 1] ** 2)


def knapsack(
    values: Integer[Array, " n"], weights: Integer[Array, " n"], capacity: Integer[Array, ""], max_capacity: int
) -> tuple[Integer[Array, ""], Bool[Array, " n"]]:
    """`(the best value, which items have it)` of integer values, and weights of at least 1.

    `max_capacity` is static and bounds `capacity`. Where several sets are best, it is the one of later items.
    """
    room = jnp.arange(max_capacity + 1)

    def item(best: Array, each: tuple[Array, Array]) -> tuple[Array, Array]:
        value, weight = each
        # best[c - weight] by a slice, which a gather would be slower than: C zeros are in front.
        before = jax.lax.dynamic_slice(jnp.pad(best, (max_capacity + 1, 0)), (max_capacity + 1 - weight,), best.shape)
        taken = (room >= weight) & (before + value > best)
        return jnp.where(taken, before + value, best), taken

    best, taken = jax.lax.scan(item, jnp.zeros(max_capacity + 1, values.dtype), (values, weights))

    def back(left: Array, each: tuple[Array, Array]) -> tuple[Array, Array]:
        weight, row = each
        return left - jnp.where(row[left], weight, 0), row[left]

    capacity = jnp.asarray(capacity)
    chosen = jax.lax.scan(back, capacity, (weights, taken), reverse=True)[1]
    return best[capacity], chosen


def _ways(distance: Float[Array, "n n"]) -> Float[Array, "sets others"]:
    """The shortest way from place 0 through each set of the others that ends in each member; inf for no member.

    A set is a number whose bit i is place i + 1.
    """
    m = distance.shape[0] - 1
    between, bits = distance[1:, 1:], 1 << np.arange(m)
    sets = np.arange(2**m)
    size = ((sets[:, None] & bits) > 0).sum(1)
    # The sets by size, each row as long as the longest: a loop over rows compiles once, and nothing is folded.
    rows = [sets[size == members] for members in range(2, m + 1)]
    longest = max(map(len, rows), default=1)
    rows = np.array([np.resize(row, longest) for row in rows], np.int32).reshape(-1, longest)
    cost = jnp.full((2**m, m), jnp.inf, distance.dtype).at[bits, np.arange(m)].set(distance[0, 1:])

    def grow(cost: Array, which: Array) -> tuple[Array, None]:
        last = (which[:, None] & bits) > 0
        without = jnp.where(last, which[:, None] ^ bits, 0)
        arrived = jnp.min(cost[without] + between.T, -1)  # (sets, last, the one before)
        return cost.at[which].set(jnp.where(last, arrived, jnp.inf)), None

    return jax.lax.scan(grow, cost, jnp.asarray(rows))[0]


def held_karp(distance: Float[Array, "n n"]) -> tuple[Float[Array, ""], Integer[Array, " n"]]:
    """`(the length of the shortest closed tour, the places in its order, 0 first)`; distances may differ by direction.

    Raises ValueError for more than MAX_CITIES places, or fewer than 2.
    """
    n = distance.shape[0]
    if not 2 <= n <= MAX_CITIES:
        raise ValueError(f"held_karp: {n} places; it takes from 2 to {MAX_CITIES}, as it visits 2^n sets.")
    cost = _ways(distance)
    closed = cost[-1] + distance[1:, 0]

    def back(carry: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], Array]:
        left, last = carry
        rest = left ^ (1 << last)
        before = jnp.argmin(cost[rest] + distance[1:, 1:][:, last])
        return (rest, before), last + 1

    start = jnp.asarray(2 ** (n - 1) - 1), jnp.argmin(closed)
    order = jax.lax.scan(back, start, length=n - 1)[1]
    return jnp.min(closed), jnp.concatenate([jnp.zeros(1, order.dtype), order[::-1]])


def routes(
    distance: Float[Array, "places places"], demands: Integer[Array, " n"], capacity: Integer[Array, ""]
) -> Float[Array, ""]:
    """The least length of routes from place 0 that serve all customers, each route within the capacity.

    Raises ValueError for more than MAX_CUSTOMERS customers.
    """
    n = demands.shape[0]
    if not 1 <= n <= MAX_CUSTOMERS:
        raise ValueError(f"routes: {n} customers; it takes from 1 to {MAX_CUSTOMERS}, as it visits 4^n pairs of sets.")
    sets = np.arange(2**n)
    members = (sets[:, None] >> np.arange(n)) & 1
    closed = jnp.min(_ways(distance) + distance[1:, 0], -1)
    route = jnp.where(members @ demands <= capacity, closed, jnp.inf).at[0].set(0)
    inside = (sets[:, None] & sets) == sets  # (set, part)
    rest = sets[:, None] & ~sets

    def one_more(least: Array, _: None) -> tuple[Array, None]:
        return jnp.min(jnp.where(inside, route + least[rest], jnp.inf), 1), None

    return jax.lax.scan(one_more, route, length=n - 1)[0][-1]
