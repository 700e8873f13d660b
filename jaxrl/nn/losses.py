"""Targets and losses that several algorithms share: pure functions of plain arrays, batch axis B, ensemble axis K."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

LARGEST_WEIGHT = 100.0
"""The largest weight of an action in `advantage_weighted_loss`, as in the authors' code of AWAC and IQL."""


def mean(x: Float[Array, " B"], mask: Bool[Array, " B"] | None = None) -> Float[Array, ""]:
    """The mean, with `mask` over the entries where it is True; zero (not NaN) where it is True nowhere."""
    return jnp.mean(x) if mask is None else jnp.sum(jnp.where(mask, x, 0)) / jnp.maximum(mask.sum(), 1)


def normalized(advantage: Float[Array, " B"], mask: Bool[Array, " B"] | None = None) -> Float[Array, " B"]:
    """Advantages shifted and scaled to mean 0 and standard deviation 1 over the entries where `mask` is True."""
    centred = advantage - mean(advantage, mask)
    variance = mean(centred**2, mask)
    return centred / jnp.sqrt(variance + 1e-16)  # 1e-16 keeps the derivative finite where all are equal


def td_target(
    reward: Float[Array, "*batch"],
    terminated: Bool[Array, "*batch"],
    next_value: Float[Array, "*batch"],
    gamma: Float[Array, ""] | float,
) -> Float[Array, "*batch"]:
    """r + gamma (1 - terminated) next_value (Sutton and Barto 2018, section 6.1)."""
    return reward + gamma * jnp.where(terminated, 0, next_value)


def critic_loss(q: Float[Array, "K B"], target: Float[Array, " B"]) -> Float[Array, ""]:
    """The sum over K critics of their mean squared errors (Fujimoto et al. 2018, algorithm 1)."""
    return jnp.sum(jnp.mean((q - target) ** 2, -1))


def masked_critic_loss(
    q: Float[Array, "K *batch"], target: Float[Array, "*batch"], mask: Bool[Array, "*batch"]
) -> Float[Array, ""]:
    """`critic_loss` whose means are over the entries where `mask` is True; zero where it is True nowhere."""
    return jnp.sum(jnp.where(mask, (q - target) ** 2, 0)) / jnp.maximum(mask.sum(), 1)


def expectile_loss(advantage: Float[Array, " B"], expectile: Float[Array, ""] | float) -> Float[Array, ""]:
    """mean |expectile - 1(u < 0)| u^2 of u = Q - V (Kostrikov et al. 2022, equation 5)."""
    return jnp.mean(jnp.where(advantage > 0, expectile, 1 - expectile) * advantage**2)


def advantage_weighted_loss(log_prob: Float[Array, " B"], exponent: Float[Array, " B"]) -> Float[Array, ""]:
    """-mean min(exp(exponent), 100) log pi(a | s): advantage-weighted cloning (Nair et al. 2020, equation 13).

    The exponent is the advantage divided by a temperature, or times its inverse; its gradient is stopped.
    """
    weight = jnp.minimum(jnp.exp(exponent), LARGEST_WEIGHT)
    return -jnp.mean(jax.lax.stop_gradient(weight) * log_prob)


def temperature_loss(
    log_alpha: Float[Array, ""], entropy: Float[Array, ""], target_entropy: Float[Array, ""] | float
) -> Float[Array, ""]:
    """log(alpha) (entropy - target_entropy): the temperature falls where the entropy is above its target.

    Haarnoja et al. 2018, equation 18, with log(alpha) in the place of alpha, as in most implementations.
    """
    return log_alpha * jax.lax.stop_gradient(entropy - target_entropy)


def half_square(error: Float[Array, "*batch"], huber: bool) -> Float[Array, "*batch"]:
    """Half the squared error; with `huber` the Huber loss, linear beyond 1 (Mnih et al. 2015, error clipping)."""
    error = jnp.abs(error)
    near = jnp.minimum(error, 1) if huber else error
    return 0.5 * near**2 + (error - near)
