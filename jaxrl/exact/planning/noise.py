"""Noise whose successive values agree, for plans that reach further than white noise does."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from jaxrl.math import precise


@precise
def colored_noise(key: Key[Array, ""], shape: tuple[int, ...], beta: Float[Array, ""] | float) -> Float[Array, "..."]:
    """Normal noise (..., H, A) of unit variance whose power falls as frequency^-beta along H; 0: white.

    Successive actions that agree reach further states (Pinneri et al. 2020, iCEM, section 3.1, after Timmer and König
    1995; the constant has the power of the lowest frequency). By a real Fourier basis, as a matrix product.
    """
    basis, amplitude = _spectrum(shape[-2], beta)
    noise = jax.random.normal(key, shape, amplitude.dtype) * amplitude[:, None]
    return jnp.einsum("...fa,ft->...ta", noise, basis)


@precise
def whitened(x: Float[Array, "*K H A"], beta: Float[Array, ""] | float) -> Float[Array, "*K H A"]:
    """What `colored_noise` colored, white again: the inner product of two is one by the inverse covariance."""
    basis, amplitude = _spectrum(x.shape[-2], beta)
    return jnp.einsum("ft,...ta->...fa", basis, x) / amplitude[:, None]


def _spectrum(H: int, beta: Float[Array, ""] | float) -> tuple[Float[Array, "H H"], Float[Array, " H"]]:
    """An orthonormal real Fourier basis, frequencies by row, and the amplitude of each."""
    time, order = np.arange(H), np.arange(H)
    frequency = (order + 1) // 2  # 0, 1, 1, 2, 2, ...: a cosine and a sine each
    angle = 2 * np.pi * np.outer(frequency, time) / H
    basis = np.where(order[:, None] % 2, np.cos(angle), np.where(order[:, None] == 0, 1.0, np.sin(angle)))
    basis = basis / np.sqrt((basis**2).sum(1, keepdims=True))
    amplitude = jnp.asarray(np.maximum(frequency, 1), jnp.result_type(float)) ** (-beta / 2)
    return jnp.asarray(basis, amplitude.dtype), amplitude / jnp.sqrt(jnp.mean(amplitude**2))
