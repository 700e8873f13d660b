"""Running statistics of observations and rewards, and fixed ones of a dataset.

Running statistics are part of the learner's state; in an environment's state a reset would wipe them.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PyTree

from jaxrl import environment
from jaxrl.environment import pytree

_MAX_COUNT = 2**30
_EPSILON = 1e-8


@pytree
class Moments:
    """Mean and population variance of one leaf, each as a float and its rounding error (compensated sums, Kahan 1965).

    Without the rounding errors an average over 1e8 samples stops changing in float32, as its steps fall below half a
    unit in the last place.
    """

    mean: jax.Array  # the leaf's shape
    mean_rest: jax.Array
    var: jax.Array
    var_rest: jax.Array


@pytree
class Statistics:
    """Running moments of a pytree of observations."""

    count: jax.Array  # () int32, samples seen; it stops at 2**30, after which old samples lose weight
    moments: Any  # the structure of one observation: Moments for each floating-point leaf, None for others


def _is_float(x: Any) -> bool:
    return jnp.issubdtype(jnp.result_type(x), jnp.floating)


def init(example: PyTree) -> Statistics:
    """Statistics before the first sample (mean 0, variance 1) of observations like `example`, without batch axes."""

    def moments(x):
        if not _is_float(x):
            return None
        zeros = jnp.zeros(jnp.shape(x), jnp.promote_types(jnp.result_type(x), jnp.float32))
        return Moments(zeros, zeros, zeros + 1, zeros)

    return Statistics(jnp.int32(0), jax.tree.map(moments, example))


def _add(total: Array, rest: Array, x: Array) -> tuple[Array, Array]:
    """`(sum, error)`: total + rest + x rounded to a float, and the rounding error (Knuth's two-sum)."""
    x = x + rest
    new = total + x
    virtual = new - total
    return new, (total - (new - virtual)) + (x - virtual)


def update(stats: Statistics, batch: PyTree, axes: tuple[int, ...] = (0,)) -> Statistics:
    """The statistics after a batch of observations, whose batch axes are `axes`.

    Exact for batches of any size (Chan, Golub & LeVeque 1983). Raises ValueError unless `axes` are the leading ones.
    """
    if sorted(axes) != list(range(len(axes))):
        raise ValueError(f"normalize.update: axes={axes} must be the leading ones, (0, ..., k).")
    size = math.prod(jax.tree.leaves(batch)[0].shape[: len(axes)])
    count = jnp.minimum(stats.count, _MAX_COUNT - size) + size
    weight = size / count.astype(jnp.float32)

    def merge(x: Array, old: Moments | None) -> Moments | None:
        if old is None:
            return None
        x = x.astype(old.mean.dtype)
        # Sums of deviations from the running mean keep their digits where the mean is large.
        deviation = (x - old.mean) - old.mean_rest
        shift = jnp.mean(deviation, axes)
        batch_var = jnp.mean(jnp.square(deviation - shift), axes)
        mean = _add(old.mean, old.mean_rest, weight * shift)
        change = weight * ((batch_var - old.var) - old.var_rest + (1 - weight) * jnp.square(shift))
        var, var_rest = _add(old.var, old.var_rest, change)
        # With a fused multiply-add, 1 - 1 may fall just below zero.
        # The first batch replaces the initial 1: 1 + (var - 1) would cost a small variance its digits.
        first = stats.count == 0
        return Moments(*mean, jnp.where(first, batch_var, jnp.maximum(var, 0)), jnp.where(first, 0, var_rest))

    return Statistics(count, jax.tree.map(merge, batch, stats.moments))


def of_data(data: PyTree, weights: Float[np.ndarray, " n"] | None = None, epsilon: float = 1e-3) -> Statistics:
    """Weighted statistics of stored observations, leaves (n, ...); computed on the host, with leaves of numpy.

    `epsilon` is added to their standard deviations, as Fujimoto and Gu (2021) do, against division by zero.
    """

    def moments(x: Any) -> Moments | None:
        if not _is_float(x):
            return None
        kind, x = jnp.promote_types(x.dtype, jnp.float32), np.asarray(x, np.float64)
        mean = np.average(x, 0, weights)
        deviation = np.sqrt(np.average(np.square(x - mean), 0, weights)) + epsilon
        leaves: list[Any] = []
        for value in (mean, np.square(deviation) - _EPSILON):  # `normalize` adds _EPSILON
            near = np.asarray(value, kind)
            leaves += [near, np.asarray(value - near, kind)]
        return Moments(*leaves)

    count: Any = np.int32(min(len(jax.tree.leaves(data)[0]), _MAX_COUNT))
    return Statistics(count, jax.tree.map(moments, data))


def visible(stats: Statistics | None) -> Statistics | None:
    """The statistics of an observation without its privileged part, which is absent at deployment."""
    return None if stats is None else stats.replace(moments=environment.visible(stats.moments))


def normalize(stats: Statistics | None, x: PyTree, clip: float | Float[Array, ""] | None = 10.0) -> PyTree:
    """Observations (any batch axes), centred, divided by their standard deviation and clipped to +-clip.

    Leaves that are not floating-point (masks, discrete observations) are unchanged; so is everything without
    statistics, or before their first sample.
    """
    if stats is None:
        return x

    def leaf(x: Array, m: Moments | None) -> Array:
        if m is None:
            return x
        z = ((x - m.mean) - m.mean_rest) * jax.lax.rsqrt(m.var + _EPSILON)
        z = z if clip is None else jnp.clip(z, -clip, clip)
        return jnp.where(stats.count > 0, z, x).astype(x.dtype)

    return jax.tree.map(leaf, x, stats.moments)


@pytree
class RewardScaler:
    """Divides rewards by the running standard deviation of the discounted return (Engstrom et al. 2020, section 3)."""

    returns: jax.Array  # (N,) discounted return so far of each environment's episode
    stats: Statistics  # of those returns, at all steps

    @staticmethod
    def init(num_envs: int) -> RewardScaler:
        """A scaler before its first rollout: it leaves rewards unchanged."""
        return RewardScaler(jnp.zeros(num_envs), init(jnp.zeros(())))

    def update(
        self, reward: Float[Array, "T N"], done: Bool[Array, "T N"], gamma: float | Float[Array, ""]
    ) -> RewardScaler:
        """The scaler after a rollout; `done` where an episode terminated or was truncated."""

        def step(returns, inputs):
            reward, done = inputs
            returns = gamma * returns + reward
            return jnp.where(done, 0, returns), returns

        returns, history = jax.lax.scan(step, self.returns, (reward, done))
        return RewardScaler(returns, update(self.stats, history, (0, 1)))

    def restarted(self, mask: Bool[Array, " N"]) -> RewardScaler:
        """The scaler after the episodes in the slots of `mask` were cut: their discounted returns start at 0 again."""
        return RewardScaler(jnp.where(mask, 0, self.returns), self.stats)

    def scale(self, reward: Float[Array, "..."], clip: float | Float[Array, ""] = 10.0) -> Float[Array, "..."]:
        """Rewards in units of the returns' standard deviation, clipped to +-clip. They are not centred."""
        return jnp.clip(reward * jax.lax.rsqrt(self.stats.moments.var + _EPSILON), -clip, clip)


# ---- one sample at a time


def deviation(stats: Statistics) -> Float[Array, "..."]:
    """The sample standard deviation (divided by n - 1) of an array's statistics; 1 before they have two samples."""
    n = stats.count
    var = stats.moments.var * n / jnp.maximum(n - 1, 1)
    return jnp.sqrt(jnp.where(n < 2, 1, var) + _EPSILON)


def seen(stats: Statistics | None, x: Array) -> Statistics | None:
    """The statistics of an array after one more sample; None stays None."""
    return None if stats is None else update(stats, x[None])


def standardized(stats: Statistics | None, x: Float[Array, "*batch F"]) -> Float[Array, "*batch F"]:
    """`x` centred and divided by its sample standard deviation, not clipped; unchanged without statistics."""
    if stats is None:
        return x
    return (((x - stats.moments.mean) - stats.moments.mean_rest) / deviation(stats)).astype(x.dtype)


@pytree
class ReturnScale:
    """Divides rewards by the sample deviation of the discounted return, one step at a time."""

    returns: jax.Array  # () discounted sum of the episode's rewards so far
    stats: Statistics  # of those sums, at all steps

    @staticmethod
    def init() -> ReturnScale:
        zero = jnp.zeros((), jnp.result_type(float))
        return ReturnScale(zero, init(zero))

    def update(self, reward: Float[Array, ""], first: Bool[Array, ""], gamma: float | Float[Array, ""]) -> ReturnScale:
        """The scale after one reward; `first` where it is an episode's first."""
        returns = jnp.where(first, 0, gamma * self.returns) + reward
        return ReturnScale(returns, update(self.stats, returns[None]))

    @property
    def scale(self) -> Float[Array, ""]:
        """The divisor of rewards."""
        return deviation(self.stats)
