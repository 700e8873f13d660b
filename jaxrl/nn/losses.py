"""Targets and losses that several algorithms share: pure functions of plain arrays, batch axis B, ensemble axis K."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

LARGEST_WEIGHT = 100.0
"""Of one action in `advantage_weighted_loss`, as in the authors' code of AWAC and IQL."""


def mean(x: Float[Array, " B"], mask: Bool[Array, " B"] | None = None) -> Float[Array, ""]:
    """The mean over what `mask` keeps, of all without one; zero (not NaN) where the mask keeps nothing."""
    return jnp.mean(x) if mask is None else jnp.sum(jnp.where(mask, x, 0)) / jnp.maximum(mask.sum(), 1)


def normalized(advantage: Float[Array, " B"], mask: Bool[Array, " B"] | None = None) -> Float[Array, " B"]:
    """Advantages of mean zero and standard deviation one over what `mask` keeps."""
    centred = advantage - mean(advantage, mask)
    variance = mean(centred**2, mask)
    return centred / jnp.sqrt(variance + 1e-16)  # the sum keeps the derivative finite where all are equal


def td_target(
    reward: Float[Array, "*batch"],
    terminated: Bool[Array, "*batch"],
    next_value: Float[Array, "*batch"],
    gamma: Float[Array, ""] | float,
) -> Float[Array, "*batch"]:
    """r + gamma (1 - terminated) next_value (Sutton and Barto 2018, section 6.1)."""
    return reward + gamma * jnp.where(terminated, 0, next_value)


def critic_loss(q: Float[Array, "K B"], target: Float[Array, " B"]) -> Float[Array, ""]:
    """The mean squared error of each of K critics, added up (Fujimoto et al. 2018, algorithm 1)."""
    return jnp.sum(jnp.mean((q - target) ** 2, -1))


def expectile_loss(advantage: Float[Array, " B"], expectile: Float[Array, ""] | float) -> Float[Array, ""]:
    """mean |expectile - 1(u < 0)| u^2 of u = Q - V (Kostrikov et al. 2022, equation 5)."""
    return jnp.mean(jnp.where(advantage > 0, expectile, 1 - expectile) * advantage**2)


def advantage_weighted_loss(log_prob: Float[Array, " B"], exponent: Float[Array, " B"]) -> Float[Array, ""]:
    """-mean min(exp(exponent), 100) log pi(a | s): cloning of actions by weight (Nair et al. 2020, equation 13).

    The exponent is the advantage in units of a temperature; no gradient passes it.
    """
    weight = jnp.minimum(jnp.exp(exponent), LARGEST_WEIGHT)
    return -jnp.mean(jax.lax.stop_gradient(weight) * log_prob)


def temperature_loss(
    log_alpha: Float[Array, ""], entropy: Float[Array, ""], target_entropy: Float[Array, ""] | float
) -> Float[Array, ""]:
    """log alpha (H - target): the temperature falls where the policy is more random than the target.

    Haarnoja et al. 2018, equation 18, with the logarithm of alpha in its place, as in most implementations.
    """
    return log_alpha * jax.lax.stop_gradient(entropy - target_entropy)


def half_square(error: Float[Array, "*batch"], huber: bool) -> Float[Array, "*batch"]:
    """Half the squared error; with `huber` up to 1, and linear beyond (Mnih et al. 2015, error clipping)."""
    error = jnp.abs(error)
    near = jnp.minimum(error, 1) if huber else error
    return 0.5 * near**2 + (error - near)
