"""Categorical and quantile value heads: a network's outputs as a distribution of a scalar value.

m outputs are logits over m equidistant `centres`; the value is the mean of that distribution. The target is a
distribution, too, and the loss the cross entropy; `two_hot` and `hl_gauss` turn a scalar target into a distribution
(Farebrother et al. 2024, "Stop Regressing").

Limits of a range may be traced, as leaves of a Hyper. No function here stops the gradient of its target.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.scipy.special import entr, ndtr
from jaxtyping import Array, Float

Scalar = Float[Array, ""] | float

SIGMA = 0.75
"""Standard deviation of HL-Gauss targets in bins: the best of Farebrother et al. (2024), on about six bins."""


def padded_edges(
    v_min: Scalar, v_max: Scalar, num_bins: int, sigma: float = SIGMA, margin: float = 3.0
) -> Float[Array, " edges"]:
    """The num_bins + 1 equidistant edges of a support that exceeds [v_min, v_max] by `margin` sigma on either side.

    The Gaussian of each value in the range then keeps 99.7 % of its mass, and the mean of its bins is not biased
    inwards. `sigma` is in bins. Raises ValueError where the margins leave no room: with the defaults, below 5 bins.
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
    """-sum target log softmax(logits), nats. Minus the `entropy` of the target it is KL(target || softmax(logits))."""
    return -jnp.sum(target * jax.nn.log_softmax(logits), -1)


def entropy(probability: Float[Array, "*batch m"]) -> Float[Array, "*batch"]:
    """-sum p log p, nats, with 0 log 0 = 0."""
    return jnp.sum(entr(probability), -1)


def two_hot(y: Float[Array, "*batch"], centres: Float[Array, " m"]) -> Float[Array, "*batch m"]:
    """The distribution on the two centres around `y` whose mean is `y`; outside the range, all mass on the end.

    `centres` are equidistant and ascending, at least two.
    """
    width = (centres[-1] - centres[0]) / (centres.shape[0] - 1)
    y = jnp.clip(y, centres[0], centres[-1])
    return jnp.maximum(1 - jnp.abs(y[..., None] - centres) / width, 0)


def hl_gauss(
    y: Float[Array, "*batch"], edges: Float[Array, " edges"], sigma: float = SIGMA
) -> Float[Array, "*batch m"]:
    """The mass of a normal distribution around `y` in each bin, normalised to 1 over all bins.

    `edges` are equidistant and ascending; `sigma` is in bins; `y` is clipped to the range of the edges (Imani & White
    2018; Farebrother et al. 2024, section 3.1).
    """
    width = (edges[-1] - edges[0]) / (edges.shape[0] - 1)
    y = jnp.clip(y, edges[0], edges[-1])
    cdf = ndtr((edges - y[..., None]) / (sigma * width))
    return (cdf[..., 1:] - cdf[..., :-1]) / (cdf[..., -1:] - cdf[..., :1])


def fractions(num: int) -> Float[Array, " num"]:
    """tau: the midpoints of `num` equal parts of [0, 1], the quantile levels of QR-DQN (Dabney et al. 2018)."""
    return (jnp.arange(num) + 0.5) / num


def quantile_huber(
    quantiles: Float[Array, "*batch n"],
    fraction: Float[Array, "*#batch n"],
    targets: Float[Array, "*batch k"],
    kappa: Float[Array, ""] | float = 1.0,
) -> Float[Array, "*batch"]:
    """The quantile Huber loss: a sum over n `quantiles` at levels `fraction`, a mean over k `targets`.

    Dabney et al. 2018, equations 9 and 10, divided by kappa > 0 as in the IQN paper, eq. 3: with a small kappa it is
    quantile regression.
    """
    u = targets[..., None, :] - quantiles[..., None]
    size = jnp.abs(u)
    near = jnp.minimum(size, kappa)
    huber = near * (size - near / 2) / kappa
    return jnp.sum(jnp.mean(jnp.abs(fraction[..., None] - (u < 0)) * huber, -1), -1)
