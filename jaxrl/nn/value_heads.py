"""How a network's outputs can stand for a scalar value: bins of a categorical distribution, or quantiles.

Categorical: m outputs are logits over m equidistant `centres`, and the value is the mean of that distribution. Its
target is a distribution, and the loss the cross entropy. `two_hot` and `hl_gauss` make one of a scalar target
(Farebrother et al. 2024, "Stop Regressing"), `project` makes one of a distribution elsewhere (C51). Quantile: m outputs
are values, the i-th of which learns to be the quantile at the fraction (2i + 1) / 2m.

Where a range is asked for, its limits may be traced: settings of an algorithm that are leaves. Of these
functions only `critic_loss` stops the gradients of its target.
"""

from __future__ import annotations

from typing import Any

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


def project(
    values: Float[Array, "*batch k"], probability: Float[Array, "*batch k"], centres: Float[Array, " m"]
) -> Float[Array, "*batch m"]:
    """The distribution of `values` moved onto `centres`, the mass of each value split as by `two_hot`.

    Of values reward + discount * centres and the successor's probabilities it is the categorical Bellman projection
    (Bellemare et al. 2017, eq. 7 and algorithm 1). The mean is kept unless values lie beyond the centres.
    """
    return jnp.sum(probability[..., None] * two_hot(values, centres), -2)


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
    """The middles of `num` equal parts of [0, 1], where quantiles are best estimated (Dabney et al. 2018, lemma 2)."""
    return (jnp.arange(num) + 0.5) / num


def quantile_huber(
    quantiles: Float[Array, "*batch n"],
    fraction: Float[Array, "*#batch n"],
    targets: Float[Array, "*batch k"],
    kappa: Scalar = 1.0,
) -> Float[Array, "*batch"]:
    """The quantile Huber loss: a sum over the n `quantiles`, each at its `fraction`, of its mean over the k `targets`.

    |fraction - [u < 0]| L(u) / kappa with u = target - quantile and L = u^2 / 2 up to kappa, linear beyond (Dabney et
    al. 2018, eq. 9 and 10; divided by kappa > 0 as in the IQN paper, eq. 3: a small one is quantile regression).
    """
    u = targets[..., None, :] - quantiles[..., None]
    size = jnp.abs(u)
    near = jnp.minimum(size, kappa)
    huber = near * (size - near / 2) / kappa
    return jnp.sum(jnp.mean(jnp.abs(fraction[..., None] - (u < 0)) * huber, -1), -1)


# ---- one switch for all of them

CRITICS = ("mse", "huber", "two_hot", "hl_gauss", "c51", "quantile")
SCALAR = ("mse", "huber")  # those with one output an action
CATEGORICAL = ("two_hot", "hl_gauss", "c51")  # those of bins between two limits


def half_square(error: Float[Array, "*batch"], huber: bool) -> Float[Array, "*batch"]:
    """Half the squared error; with `huber` up to 1, and linear beyond."""
    error = jnp.abs(error)
    near = jnp.minimum(error, 1) if huber else error
    return 0.5 * near**2 + (error - near)


def bins(critic: str, num: int, support: tuple[Any, Any]) -> Float[Array, " num"]:
    """The values that the outputs of a critic with bins or atoms stand for; `support` is `(v_min, v_max)`."""
    v_min, v_max = support
    return midpoints(padded_edges(v_min, v_max, num)) if critic == "hl_gauss" else jnp.linspace(v_min, v_max, num)


def action_values(outputs: Float[Array, "..."], critic: str, support: Any = ()) -> Float[Array, "..."]:
    """The values that a network's outputs stand for: (...) if an action has one output, else of (..., m)."""
    if critic in SCALAR:
        return outputs
    if critic == "quantile":
        return jnp.mean(outputs, -1)
    return expected_value(outputs, bins(critic, outputs.shape[-1], support))


def critic_loss(
    outputs: Float[Array, "B ..."],
    reward: Float[Array, " B"],
    discount: Float[Array, " B"],
    next_outputs: Float[Array, "B ..."],
    critic: str,
    support: Any = (),
) -> tuple[Float[Array, " B"], Float[Array, " B"]]:
    """The loss of each transition and its priority; both outputs are of one action, (B,) or (B, m)."""
    next_outputs = jax.lax.stop_gradient(next_outputs)
    if critic == "quantile":
        targets = reward[:, None] + discount[:, None] * next_outputs
        each = quantile_huber(outputs, fractions(outputs.shape[-1]), targets)
        return each, each
    target = reward + discount * action_values(next_outputs, critic, support)
    if critic in SCALAR:
        return half_square(outputs - target, critic == "huber"), jnp.abs(outputs - target)
    num = outputs.shape[-1]
    if critic == "hl_gauss":
        probability = hl_gauss(target, padded_edges(support[0], support[1], num))
    elif critic == "two_hot":
        probability = two_hot(target, bins(critic, num, support))
    else:
        atoms = bins(critic, num, support)
        probability = project(reward[:, None] + discount[:, None] * atoms, jax.nn.softmax(next_outputs), atoms)
    each = cross_entropy(outputs, probability)
    return each, each - entropy(probability)
