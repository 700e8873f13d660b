"""S5: a diagonal state-space model that begins as a compression of the past into Legendre polynomials."""

from __future__ import annotations

import functools
import math
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxrl.nn.cells.linear_scan import Pair, complex_scan
from jaxrl.nn.networks import Dense

STEPS = 1e-3, 1e-1
"""The range of the initial time steps; Smith et al. (2023), appendix B.1.3."""


class S5(nn.Module):
    """x' = Lambda x + B u, y = 2 Re(C x) + D u, discretised by zero-order hold, and what is around it.

    Smith, Warrington & Linderman (2023), "Simplified state space layers for sequence modeling", arXiv:2208.04933; with
    resets in Lu et al. (2023), arXiv:2303.03982. Lambda begins with the eigenvalues of the normal part of HiPPO-LegS
    (section 3.3); of each conjugate pair one is kept. The block: normalised inputs, a gate on GELU(y) (appendix G.1), a
    residual connection. Carry: a pair (real, imaginary) of (*batch, features / 2).
    """

    features: int
    forward_mode: bool = False

    def initial_carry(self, batch_shape: tuple[int, ...]) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
        """The carry before an episode: zeros. Raises ValueError for an odd number of features."""
        if self.features % 2:
            raise ValueError(f"s5: size {self.features} is odd; a state is made of conjugate pairs.")
        zeros = jnp.zeros((*batch_shape, self.features // 2))
        return zeros, zeros

    @nn.compact
    def __call__(
        self, carry: Any, inputs: Float[Array, "T *batch features"], start: Bool[Array, "T *batch"]
    ) -> tuple[Any, Float[Array, "T *batch hidden"]]:
        n = self.features
        eigenvalues, vectors = _hippo(n)
        residual = Dense(n, name="inputs")(inputs)
        u = nn.LayerNorm()(residual)
        real = self.param("real", lambda key, shape: jnp.asarray(eigenvalues.real, jnp.float32), (n // 2,))
        imaginary = self.param("imaginary", lambda key, shape: jnp.asarray(eigenvalues.imag, jnp.float32), (n // 2,))
        log_step = self.param("log_step", _log_step, (n // 2,))
        # The real part stays below zero, whatever the optimiser does.
        decay, hold = held(jnp.minimum(real, -1e-4), imaginary, jnp.exp(log_step))
        into = Dense(n, use_bias=False, kernel_init=functools.partial(_into_eigenbasis, vectors), name="B")(u)
        into = into[..., : n // 2], into[..., n // 2 :]
        driven = hold[0] * into[0] - hold[1] * into[1], hold[0] * into[1] + hold[1] * into[0]
        x = complex_scan(carry, decay, driven, start, self.forward_mode)
        seen = jnp.concatenate(x, -1)
        out = Dense(n, use_bias=False, kernel_init=functools.partial(_out_of_eigenbasis, vectors), name="C")(seen)
        y = nn.gelu(out + self.param("D", nn.initializers.normal(1.0), (n,)) * u)
        return (x[0][-1], x[1][-1]), residual + y * nn.sigmoid(Dense(n, name="gate")(y))


def held(real: Any, imaginary: Any, step: Any) -> tuple[Pair, Pair]:
    """Zero-order hold: exp(lambda step) and (exp(lambda step) - 1) / lambda (Smith et al. 2023, eq. 6), as pairs."""
    radius, angle = jnp.exp(real * step), imaginary * step
    decay = radius * jnp.cos(angle), radius * jnp.sin(angle)
    # exp(lambda step) - 1 without the difference of numbers near 1.
    grown = jnp.expm1(real * step) * jnp.cos(angle) - 2 * jnp.sin(angle / 2) ** 2, decay[1]
    size = real**2 + imaginary**2
    hold = (grown[0] * real + grown[1] * imaginary) / size, (grown[1] * real - grown[0] * imaginary) / size
    return decay, hold


@functools.cache
def _hippo(n: int) -> tuple[np.ndarray, np.ndarray]:
    """The n/2 eigenvalues above the real axis, and eigenvectors (n, n/2), of the normal part of HiPPO-LegS."""
    p = np.sqrt(np.arange(n) + 0.5)
    lower = np.tril(np.outer(p, p) * 2, -1)
    skew = (lower.T - lower) / 2  # of A + p p^T = -1/2 + skew
    imaginary, vectors = np.linalg.eigh(-1j * skew)
    return -0.5 + 1j * imaginary[n // 2 :], vectors[:, n // 2 :]


def _log_step(key: Array, shape: tuple[int, ...], dtype: Any = jnp.float32) -> Array:
    low, high = map(math.log, STEPS)
    return jax.random.uniform(key, shape, dtype, low, high)


def _into_eigenbasis(vectors: np.ndarray, key: Array, shape: tuple[int, ...], dtype: Any = jnp.float32) -> Array:
    """V^H B as columns (real, imaginary), B (n, n) with variance 1 / n."""
    b = jax.random.normal(key, (vectors.shape[0], shape[0]), dtype) / math.sqrt(shape[0])
    return jnp.concatenate([vectors.real.T.astype(dtype) @ b, -vectors.imag.T.astype(dtype) @ b]).T


def _out_of_eigenbasis(vectors: np.ndarray, key: Array, shape: tuple[int, ...], dtype: Any = jnp.float32) -> Array:
    """2 Re(C V x) as a product with rows (real, imaginary) of x, C (n, n) with variance 1 / n."""
    c = jax.random.normal(key, (shape[1], vectors.shape[0]), dtype) / math.sqrt(vectors.shape[0])
    return 2 * jnp.concatenate([c @ vectors.real.astype(dtype), -c @ vectors.imag.astype(dtype)], -1).T
