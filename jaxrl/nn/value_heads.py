"""How a network's outputs can stand for a scalar value: as bins of a categorical distribution.

m outputs are logits over m equidistant `centres`, and the value is the mean of that distribution. Its target is a
distribution, and the loss the cross entropy; `two_hot` and `hl_gauss` make one of a scalar target (Farebrother et al.
2024, "Stop Regressing").

Where a range is asked for, its limits may be traced: settings of an algorithm that are leaves. No function stops the
gradients of its target.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.scipy.special import entr, ndtr
from jaxtyping import Array, Float

Scalar = Float[Array, ""] | float

SIGMA = 0.75
"""Standard deviation of HL-Gauss targets in bins: what Farebrother et al. (2024) found best; about six bins are hit."""


def padded_edges(
    v_min: Scalar, v_max: Scalar, num_bins: int, sigma: float = SIGMA, margin: float = 3.0
) -> Float[Array, " edges"]:
    """The num_bins + 1 equidistant edges of a support in which [v_min, v_max] lies `margin` standard deviations inside.

    So the Gaussian of each value there keeps 99.7 % of its mass, and the mean of its bins is not drawn inwards. `sigma`
    in bins. Raises ValueError when the margins leave no room: with the defaults, below 5 bins.
    """
    inside = num_bins - 2 * margin * sigma
    if inside <= 0:
        raise ValueError(f"num_bins={num_bins}: margins of {margin * sigma} bins on either side leave no room.")
    width = (v_max - v_min) / inside
    return v_min + width * (jnp.arange(num_bins + 1) - margin * sigma)


def midpoints(edges: Float[Array, " edges"]) -> Float[Array, " m"]:
    """The centres of the bins between `edges`."""
    return (edges[1:] + edges[:-1]) / 2


def expected_value(logits: Float[Array, "*batch m"], centres: Float[Array, " m"]) -> Float[Array, "*batch"]:
    """The mean of the distribution softmax(logits) over `centres`."""
    return jnp.sum(jax.nn.softmax(logits) * centres, -1)


def cross_entropy(logits: Float[Array, "*batch m"], target: Float[Array, "*batch m"]) -> Float[Array, "*batch"]:
    """-sum target log softmax(logits), nats. Less the `entropy` of the target it is the divergence KL(target || .)."""
    return -jnp.sum(target * jax.nn.log_softmax(logits), -1)


def entropy(probability: Float[Array, "*batch m"]) -> Float[Array, "*batch"]:
    """-sum p log p, nats, with 0 log 0 = 0."""
    return jnp.sum(entr(probability), -1)


def two_hot(y: Float[Array, "*batch"], centres: Float[Array, " m"]) -> Float[Array, "*batch m"]:
    """The mass on the two centres around `y` whose mean is `y`; all on the last one where `y` is beyond.

    `centres` are equidistant and ascend, at least two.
    """
    width = (centres[-1] - centres[0]) / (centres.shape[0] - 1)
    y = jnp.clip(y, centres[0], centres[-1])
    return jnp.maximum(1 - jnp.abs(y[..., None] - centres) / width, 0)


def hl_gauss(
    y: Float[Array, "*batch"], edges: Float[Array, " edges"], sigma: float = SIGMA
) -> Float[Array, "*batch m"]:
    """The mass that a normal distribution around `y` has in each bin, as a share of its mass in all of them.

    `edges` are equidistant and ascend; `sigma` in bins; a `y` beyond the ends counts as at them. (Imani & White 2018;
    Farebrother et al. 2024, section 3.1.)
    """
    width = (edges[-1] - edges[0]) / (edges.shape[0] - 1)
    y = jnp.clip(y, edges[0], edges[-1])
    cdf = ndtr((edges - y[..., None]) / (sigma * width))
    return (cdf[..., 1:] - cdf[..., :-1]) / (cdf[..., -1:] - cdf[..., :1])


def fractions(num: int) -> Float[Array, " num"]:
    """tau: the middles of `num` equal parts of [0, 1], where quantiles are estimated best (Dabney et al. 2018)."""
    return (jnp.arange(num) + 0.5) / num


def quantile_huber(
    quantiles: Float[Array, "*batch n"],
    fraction: Float[Array, "*#batch n"],
    targets: Float[Array, "*batch k"],
    kappa: Float[Array, ""] | float = 1.0,
) -> Float[Array, "*batch"]:
    """A sum over the n `quantiles`, each at its `fraction`, of its mean loss over the k `targets` (Dabney et al. 2018,
    equations 9 and 10).

    Divided by kappa > 0 as in the IQN paper, eq. 3: a small one is quantile regression.
    """
    u = targets[..., None, :] - quantiles[..., None]
    size = jnp.abs(u)
    near = jnp.minimum(size, kappa)
    huber = near * (size - near / 2) / kappa
    return jnp.sum(jnp.mean(jnp.abs(fraction[..., None] - (u < 0)) * huber, -1), -1)
