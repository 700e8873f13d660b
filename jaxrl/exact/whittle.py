"""The Whittle index of a restless arm, exactly, and whether the arm has one.

Whittle (1988): an arm at rest earns a subsidy on top of its reward; the index of a state is the subsidy at which an
optimal policy first rests there. That is well defined when the set of resting states grows with the subsidy, from none
to all (indexability). Both are found by following the optimal policy along the subsidy axis: under a fixed policy all
values are affine in the subsidy, so the next subsidy at which some state changes its mind is the root of a linear
equation, and the policy in between is known to be optimal. An indexable arm has exactly S changes, each towards rest;
a change back proves that it is not indexable (parametric simplex; the same recursion as the adaptive-greedy algorithm,
Nino-Mora 2007, and Akbarzadeh and Mahajan 2022). There is no tolerance to converge to: errors are those of 2 S linear
solves. O(S^4) an arm, for arms of a few dozen states; `vmap` it over arms.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Integer

from jaxrl.exact.solvers import solve
from jaxrl.math import precise


class Whittle(NamedTuple):
    """The index of each state (of an arm that is not indexable: a heuristic), and whether the arm is indexable."""

    index: Float[Array, " S"]
    indexable: Bool[Array, ""]


@precise
def _follow(transition: Array, reward: Array, evaluate) -> Whittle:
    """The path of optimal policies from subsidy -inf (all pulled) to +inf (all at rest).

    `evaluate(P, r)` gives the relative values of rewards `r` (S, 2) under chain `P`.
    """
    size = reward.shape[1]
    moves = transition[0] - transition[1]
    tolerance = 64 * jnp.finfo(reward.dtype).eps

    def change(carry, _):
        subsidy, rest, index, indexable = carry
        chain = jnp.where(rest[:, None], transition[0], transition[1])
        earned = jnp.stack([jnp.where(rest, reward[0], reward[1]), rest.astype(reward.dtype)], 1)
        value = evaluate(chain, earned)
        gain = jnp.stack([reward[0] - reward[1], jnp.ones(size, reward.dtype)], 1) + moves @ value
        root = jnp.maximum(-gain[:, 0] / jnp.where(gain[:, 1] == 0, 1, gain[:, 1]), subsidy)
        # A slope of zero up to rounding never brings a change.
        slope = tolerance * (1 + jnp.max(jnp.abs(value[:, 1])))
        to_rest = jnp.where(~rest & (gain[:, 1] > slope), root, jnp.inf)
        back = jnp.min(jnp.where(rest & (gain[:, 1] < -slope), root, jnp.inf))
        state = jnp.argmin(to_rest)
        # States that tie may look as if they went back until all of them have changed.
        margin = 16 * tolerance * (1 + jnp.max(jnp.abs(value[:, 0])) + jnp.abs(subsidy))
        known = jnp.isfinite(to_rest[state])
        indexable = indexable & known & ~(back < to_rest[state] - margin)
        subsidy = jnp.where(known, to_rest[state], subsidy)
        return (subsidy, rest.at[state].set(True), index.at[state].set(subsidy), indexable), None

    # Below this subsidy all are pulled: with every state pulled, resting once changes the subsidy's share by one.
    lowest = jnp.asarray(-jnp.inf, reward.dtype)
    first = (lowest, jnp.zeros(size, bool), jnp.zeros(size, reward.dtype), jnp.bool_(True))
    (_, _, index, indexable), _ = jax.lax.scan(change, first, None, length=size)
    return Whittle(index, indexable)


def whittle_index(
    transition: Float[Array, "2 S S"], reward: Float[Array, "2 S"], discount: float | Float[Array, ""]
) -> Whittle:
    """Whittle's index of one arm under a discount below 1.

    `transition[a]` and `reward[a]` are those at rest (a = 0) and pulled (a = 1). Float64 gives 1e-10 or better for
    discounts up to 0.99; `vmap` over arms.
    """

    def evaluate(chain, earned):
        return discount * solve(jnp.eye(chain.shape[0], dtype=chain.dtype) - discount * chain, earned)

    return _follow(transition, reward, evaluate)


def average_whittle_index(transition: Float[Array, "2 S S"], reward: Float[Array, "2 S"]) -> Whittle:
    """Whittle's index of one arm for the long-run average reward.

    Every stationary policy must have a single recurrent class; otherwise relative values do not exist and the result
    means nothing.
    """

    def evaluate(chain, earned):
        # Unknowns: the average in place of the first state's relative value, which is zero.
        system = (jnp.eye(chain.shape[0], dtype=chain.dtype) - chain).at[:, 0].set(1.0)
        return solve(system, earned).at[0].set(0.0)

    return _follow(transition, reward, evaluate)


def whittle_action(index: Float[Array, "M S"], arms: Integer[Array, " M"], budget: int) -> Integer[Array, " M"]:
    """Pull the (at most) `budget` arms of highest index among those whose index is not negative."""
    now = jnp.take_along_axis(index, arms[:, None], 1)[:, 0]
    _, best = jax.lax.top_k(now, budget)
    return jnp.zeros(now.shape, jnp.int32).at[best].set(1) * (now >= 0)
