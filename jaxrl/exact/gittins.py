"""Gittins indices, exactly: of finite arms that rest when not pulled, and of Bernoulli arms with a Beta posterior.

Gittins (1979); Gittins, Glazebrook and Weber (2011), "Multi-armed bandit allocation indices", 2nd ed. The index of a
state is the constant reward rate at which one is indifferent between pulling on and retiring; pulling the arm of
highest index maximises the expected discounted reward. Finite arms: largest-remaining-index (Varaiya, Walrand and
Buyukkoc 1985). Bernoulli arms: calibration by bisection over backward induction, as in the book's chapter 8.
`bayes_value` is the optimum itself for two Bernoulli arms, with which an index or a learner can be compared.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxrl.exact.solvers import solve
from jaxrl.math import precise

Number = float | Float[Array, ""]


@precise
def gittins_index(transition: Float[Array, "S S"], reward: Float[Array, " S"], discount: Number) -> Float[Array, " S"]:
    """The Gittins index of each state of an arm that moves by `transition` and earns `reward` when it is pulled.

    States are ranked from the highest index: the next is the one with the best ratio of expected discounted reward to
    expected discounted time until the arm leaves the states ranked before it.
    """
    size = reward.shape[0]

    def rank(carry, _):
        ranked, index = carry
        going_on = discount * transition * ranked[None, :]  # the pulls last while the arm is in a ranked state
        # The ranked states' reward and time; the others' are one pull more.
        ratio = solve(
            jnp.eye(size, dtype=reward.dtype) - jnp.where(ranked[:, None], going_on, 0),
            jnp.stack([jnp.where(ranked, reward, 0), ranked.astype(reward.dtype)], 1),
        )
        total = jnp.stack([reward, jnp.ones_like(reward)], 1) + going_on @ ratio
        candidate = jnp.where(ranked, -jnp.inf, total[:, 0] / total[:, 1])
        best = jnp.argmax(candidate)
        return (ranked.at[best].set(True), index.at[best].set(candidate[best])), None

    (_, index), _ = jax.lax.scan(rank, (jnp.zeros(size, bool), jnp.zeros_like(reward)), None, length=size)
    return index


def gittins_bernoulli(successes: Number, failures: Number, discount: Number, horizon: int = 1000) -> Float[Array, ""]:
    """The Gittins index of a Bernoulli arm whose mean has the posterior Beta(successes, failures).

    `horizon` pulls are looked ahead, after which the arm is kept or left for good: a lower bound on the index, short by
    less than `discount**horizon`. Bisection ends at the resolution of the dtype. O(horizon^2); `vmap` it.
    """
    dtype = jnp.result_type(successes, failures, discount, float)
    a, b, discount = (jnp.asarray(x, dtype) for x in (successes, failures, discount))
    k = jnp.arange(horizon + 1, dtype=dtype)

    def advantage(rate):
        """Of one pull, then the best, over retiring at `rate`; values are multiplied by 1 - discount."""

        def back(value, t):
            mean = (a + k) / (a + b + t)
            pull = (1 - discount) * mean + discount * (mean * jnp.roll(value, -1) + (1 - mean) * value)
            return jnp.maximum(pull, rate), pull[0]

        last = jnp.maximum((a + k) / (a + b + horizon), rate)
        _, pull = jax.lax.scan(back, last, jnp.arange(horizon - 1, -1, -1, dtype=dtype))
        return pull[-1] - rate

    def halve(_, bounds):
        low, high = bounds
        middle = (low + high) / 2
        better = advantage(middle) > 0
        return jnp.where(better, middle, low), jnp.where(better, high, middle)

    bounds = (a / (a + b), jnp.ones((), dtype))
    return jax.lax.fori_loop(0, jnp.finfo(dtype).nmant, halve, bounds)[0]


def gittins_table(depth: int, discount: Number, horizon: int = 1000) -> Float[Array, "depth depth"]:
    """`table[s, f]`: the index after `s` successes and `f` failures from a uniform prior, Beta(1 + s, 1 + f)."""
    count = jnp.arange(1, depth + 1, dtype=jnp.result_type(discount, float))
    row = jax.vmap(lambda s: jax.lax.map(lambda f: gittins_bernoulli(s, f, discount, horizon), count))
    return row(count)


def bayes_value(discount: Number, horizon: int, choose: Callable[..., Array] | None = None) -> Float[Array, ""]:
    """The expected discounted reward of two Bernoulli arms with uniform priors, by induction on the joint posterior.

    Of the best policy; or of `choose(s1, f1, s2, f2)`, arrays of successes and failures, which gives true to pull the
    first arm. After `horizon` pulls the better posterior mean is pulled for good, so the value is within
    `discount**horizon / (1 - discount)` of that of the endless task. O(horizon^4) time, O(horizon^3) memory.
    """
    dtype = jnp.result_type(discount, float)
    discount = jnp.asarray(discount, dtype)
    # Of t pulls, n of the first arm; s1 and s2 successes. Entries with s1 > n or s2 > t - n are never reached.
    n, s1, s2 = (x.astype(dtype) for x in jnp.indices((horizon + 1,) * 3))

    def means(t):
        return (1 + s1) / (2 + n), (1 + s2) / (2 + jnp.maximum(t - n, s2))

    def back(value, t):
        p1, p2 = means(t)
        up = jnp.roll(value, -1, 0)
        first = p1 + discount * (p1 * jnp.roll(up, -1, 1) + (1 - p1) * up)
        second = p2 + discount * (p2 * jnp.roll(value, -1, 2) + (1 - p2) * value)
        if choose is None:
            return jnp.maximum(first, second), None
        return jnp.where(choose(s1, n - s1, s2, t - n - s2), first, second), None

    p1, p2 = means(jnp.asarray(horizon, dtype))
    last = jnp.maximum(p1, p2) / (1 - discount)
    value, _ = jax.lax.scan(back, last, jnp.arange(horizon - 1, -1, -1, dtype=dtype))
    return value[0, 0, 0]
