"""Gaussian mixtures with full covariances: expectation-maximisation, Akaike's criterion, sampling.

The procedure is that of scikit-learn's `GaussianMixture` with its default settings: responsibilities from k-means begun
by greedy k-means++ (Arthur and Vassilvitskii 2007), then EM (Dempster, Laird and Rubin 1977) until the mean
log-likelihood changes by less than `tolerance`, with `RIDGE` on the diagonal of every covariance. The number of
components is a value and not a shape: a mixture has room for `capacity` of them, those not in use have weight zero, so
that fits with different numbers are one `vmap` (`fit_best`). All factorisations are plain operations, since batched
LAPACK calls can deadlock on a CPU: meant for a few dimensions.

Deviation: a cluster that k-means empties keeps its centre, instead of the point farthest from its own.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Integer

from jaxrl.environment import pytree
from jaxrl.math import precise

RIDGE = 1e-6
"""On the diagonal of covariances; data should be scaled to about 1."""


@pytree
class Mixture:
    """K components of d dimensions."""

    weight: jax.Array  # (K,), sum to one; zero: not in use
    mean: jax.Array  # (K, d)
    covariance: jax.Array  # (K, d, d)


def cholesky(a: Float[Array, "d d"]) -> Float[Array, "d d"]:
    """The lower triangular L with L L' = a, for a small positive definite matrix."""
    index = jnp.arange(len(a))

    def add_column(j, lower):
        column = a[:, j] - (lower * lower[j]).sum(1)
        # Rounding can take what the ridge adds from a nearly singular matrix, and more.
        column = jnp.where(index == j, jnp.maximum(column, 0.1 * RIDGE), column)
        column = column / jnp.sqrt(column[j])
        return lower + jnp.where(index[:, None] < j, 0, column[:, None]) * (index == j)

    return jax.lax.fori_loop(0, len(a), add_column, jnp.zeros_like(a))


def lower_inverse(lower: Float[Array, "d d"]) -> Float[Array, "d d"]:
    """The inverse of a lower triangular matrix, row by row."""
    index = jnp.arange(len(lower))

    def add_row(i, inverse):
        row = (index == i) - (lower[i, :, None] * inverse).sum(0)
        return inverse + jnp.where(index[:, None] == i, row / lower[i, i], 0)

    return jax.lax.fori_loop(0, len(lower), add_row, jnp.zeros_like(lower))


@precise
def log_densities(mixture: Mixture, x: Float[Array, "n d"]) -> Float[Array, "n K"]:
    """log of weight times density of every component; -inf for those not in use."""
    K, d = mixture.mean.shape
    whiten = jax.vmap(lambda covariance: lower_inverse(cholesky(covariance)))(mixture.covariance)
    middle = jnp.einsum("kij,kj->ki", whiten, mixture.mean)
    # One matrix product for all components: three times as fast on a CPU as one each.
    z = (x @ whiten.reshape(K * d, d).T).reshape(-1, K, d) - middle
    scale = jnp.log(jnp.diagonal(whiten, axis1=1, axis2=2)).sum(1) - d * math.log(2 * math.pi) / 2
    used = mixture.weight > 0
    log_weight = jnp.where(used, jnp.log(jnp.where(used, mixture.weight, 1)), -jnp.inf)
    return log_weight + scale - jnp.square(z).sum(2) / 2


def log_likelihood(mixture: Mixture, x: Float[Array, "n d"]) -> Float[Array, ""]:
    """Mean log density of the points."""
    return jax.nn.logsumexp(log_densities(mixture, x), axis=1).mean()


def aic(mixture: Mixture, x: Float[Array, "n d"]) -> Float[Array, ""]:
    """Akaike's information criterion, lower is better: 2 (free parameters - log likelihood)."""
    n, d = x.shape
    used = (mixture.weight > 0).sum()
    parameters = used * (d * (d + 1) / 2 + d) + used - 1
    return 2 * (parameters - n * log_likelihood(mixture, x))


@precise
def maximise(x: Float[Array, "n d"], share: Float[Array, "n K"], used: Bool[Array, " K"]) -> Mixture:
    """The M step: the mixture of which the points have these shares; components not in use get weight 0."""
    n, d = x.shape
    count = share.sum(0) + 10 * jnp.finfo(x.dtype).eps
    mean = share.T @ x / count[:, None]
    # Not the second moment less the mean's square: in float32 its error would be near the ridge.
    away = jnp.sqrt(share.T)[..., None] * (x - mean[:, None])  # (K, n, d)
    covariance = jnp.einsum("kni,knj->kij", away, away) / count[:, None, None]
    eye = jnp.eye(d, dtype=x.dtype)
    weight = jnp.where(used, count / n, 0)
    return Mixture(
        weight=weight / weight.sum(),
        mean=jnp.where(used[:, None], mean, 0),
        covariance=jnp.where(used[:, None, None], covariance + RIDGE * eye, eye),
    )


def em_step(mixture: Mixture, x: Float[Array, "n d"]) -> tuple[Mixture, Float[Array, ""]]:
    """`(next mixture, mean log-likelihood of this one)`: an E and an M step."""
    densities = log_densities(mixture, x)
    total = jax.nn.logsumexp(densities, axis=1)
    return maximise(x, jnp.exp(densities - total[:, None]), mixture.weight > 0), total.mean()


def _square_distances(x: Float[Array, "n d"], y: Float[Array, "m d"]) -> Float[Array, "n m"]:
    return jnp.square(x[:, None] - y).sum(-1)


def spread_centres(
    key: Array, x: Float[Array, "n d"], components: Integer[Array, ""] | int, capacity: int
) -> Float[Array, "K d"]:
    """Greedy k-means++: each next centre is the best of 2 + log k points drawn in proportion to the squared distance.

    Best: leaves the smallest sum of squared distances to the closest centre. Rows from `components` on are no centres.
    """
    first_key, others_key = jax.random.split(key)
    first = x[jax.random.randint(first_key, (), 0, len(x))]
    trials = 2 + int(math.log(capacity))
    tried = jnp.arange(trials) < 2 + jnp.floor(jnp.log(jnp.asarray(components, x.dtype)))

    def add(closest, shares):
        running = jnp.cumsum(closest)
        drawn = jnp.searchsorted(running, shares * running[-1])
        candidates = x[jnp.minimum(drawn, len(x) - 1)]
        after = jnp.minimum(closest, _square_distances(candidates, x))
        best = jnp.argmin(jnp.where(tried, after.sum(1), jnp.inf))
        return after[best], candidates[best]

    closest = jnp.square(x - first).sum(1)
    _, others = jax.lax.scan(add, closest, jax.random.uniform(others_key, (capacity - 1, trials), x.dtype))
    return jnp.concatenate([first[None], others])


@precise
def k_means(
    x: Float[Array, "n d"], centres: Float[Array, "K d"], used: Bool[Array, " K"], max_iterations: int = 300
) -> Int[Array, " n"]:
    """Lloyd's algorithm until no point changes its cluster: the cluster of each point."""

    def assign(centres):
        return jnp.argmin(jnp.where(used, _square_distances(x, centres), jnp.inf), axis=1)

    def going(carry):
        _, _, changed, i = carry
        return changed & (i < max_iterations)

    def move(carry):
        centres, cluster, _, i = carry
        share = jax.nn.one_hot(cluster, len(centres), dtype=x.dtype)
        count = share.sum(0)[:, None]
        centres = jnp.where(count > 0, share.T @ x / jnp.maximum(count, 1), centres)
        after = assign(centres)
        return centres, after, jnp.any(after != cluster), i + 1

    return jax.lax.while_loop(going, move, (centres, assign(centres), jnp.bool_(True), 0))[1]


def fit(
    key: Array,
    x: Float[Array, "n d"],
    components: Integer[Array, ""] | int,
    capacity: int,
    max_iterations: int = 100,
    tolerance: float = 1e-3,
) -> Mixture:
    """A mixture of `components`, at most `capacity`, fitted to the points by EM."""
    used = jnp.arange(capacity) < components
    cluster = k_means(x, spread_centres(key, x, components, capacity), used)
    start = maximise(x, jax.nn.one_hot(cluster, capacity, dtype=x.dtype), used)

    def going(carry):
        _, _, change, i = carry
        return (change >= tolerance) & (i < max_iterations)

    def step(carry):
        mixture, before, _, i = carry
        mixture, now = em_step(mixture, x)
        return mixture, now, jnp.abs(now - before), i + 1

    unknown = jnp.asarray(-jnp.inf, x.dtype)
    return jax.lax.while_loop(going, step, (start, unknown, -unknown, 0))[0]


def fit_best(key: Array, x: Float[Array, "n d"], smallest: int = 2, largest: int = 10) -> Mixture:
    """Of the mixtures with `smallest` to `largest` components the one with the lowest AIC; has room for `largest`.

    Raises ValueError for numbers that cannot be.
    """
    if not 1 <= smallest <= largest <= len(x):
        raise ValueError(f"from {smallest} to {largest} components for {len(x)} points: each needs a point, and one.")
    numbers = jnp.arange(smallest, largest + 1)
    keys = jax.random.split(key, len(numbers))
    candidates = jax.vmap(lambda key, k: fit(key, x, k, largest))(keys, numbers)
    scores = jax.vmap(aic, (0, None))(candidates, x)
    best = jnp.argmin(jnp.where(jnp.isnan(scores), jnp.inf, scores))
    return jax.tree.map(lambda leaf: leaf[best], candidates)


@precise
def sample(key: Array, mixture: Mixture, n: int, preference: Float[Array, " K"] | None = None) -> Float[Array, "n d"]:
    """`n` points: of components in proportion to `preference`, by default their weights.

    Where no component in use has any preference, each is as likely.
    """
    which_key, normal_key = jax.random.split(key)
    used = mixture.weight > 0
    preference = jnp.where(used, mixture.weight if preference is None else preference, 0)
    preference = jnp.where(jnp.any(preference > 0), preference, used)
    logits = jnp.where(preference > 0, jnp.log(jnp.where(preference > 0, preference, 1)), -jnp.inf)
    which = jax.random.categorical(which_key, logits, shape=(n,))
    mean = mixture.mean
    z = jax.random.normal(normal_key, (n, mean.shape[1]), mean.dtype)
    return mean[which] + jnp.einsum("nij,nj->ni", jax.vmap(cholesky)(mixture.covariance)[which], z)
