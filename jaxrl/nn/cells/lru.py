"""LRU, the linear recurrent unit: a stable complex diagonal recurrence."""

from __future__ import annotations

import math
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxrl.nn.cells.linear_scan import complex_scan
from jaxrl.nn.networks import Dense

RADII = 0.9, 0.999
"""Of the ring in which the eigenvalues begin: memories of ten to a thousand steps."""


class LRU(nn.Module):
    """h[t] = lambda h[t-1] + gamma B x[t], y = Re(C h) + D x (Orvieto et al. 2023, eqs. 5 to 7), and what is around it.

    "Resurrecting recurrent neural networks for long sequences", arXiv:2303.06349. |lambda| = exp(-exp(nu)) is below 1
    for any nu; gamma begins as sqrt(1 - |lambda|^2), with which h keeps the variance of x. Around it is the block of
    the paper's figure 1: normalised inputs, a gated linear unit (Dauphin et al. 2017) of GELU(y), a residual
    connection. Carry: a pair (real, imaginary) of (*batch, features).
    """

    features: int
    forward_mode: bool = False

    def initial_carry(self, batch_shape: tuple[int, ...]) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
        """The carry before an episode: zeros."""
        zeros = jnp.zeros((*batch_shape, self.features))
        return zeros, zeros

    @nn.compact
    def __call__(
        self, carry: Any, inputs: Float[Array, "T *batch features"], start: Bool[Array, "T *batch"]
    ) -> tuple[Any, Float[Array, "T *batch hidden"]]:
        n = self.features
        residual = Dense(n, name="inputs")(inputs)
        x = nn.LayerNorm()(residual)
        log_log_radius = self.param("nu", _nu, (n,))
        log_angle = self.param("theta", _theta, (n,))
        log_gamma = self.param("gamma", lambda key, shape: _log_gamma(log_log_radius), (n,))
        radius, angle = jnp.exp(-jnp.exp(log_log_radius)), jnp.exp(log_angle)
        decay = radius * jnp.cos(angle), radius * jnp.sin(angle)
        into = Dense(2 * n, use_bias=False, kernel_init=nn.initializers.normal(1 / math.sqrt(2 * n)), name="B")(x)
        real, imaginary = jnp.split(into, 2, -1)
        driven = jnp.exp(log_gamma) * real, jnp.exp(log_gamma) * imaginary
        h = complex_scan(carry, decay, driven, start, self.forward_mode)
        seen = jnp.concatenate(h, -1)
        out = Dense(n, use_bias=False, kernel_init=nn.initializers.normal(1 / math.sqrt(n)), name="C")(seen)
        y = nn.gelu(out + self.param("D", nn.initializers.normal(1.0), (n,)) * x)
        y = Dense(n, name="glu")(y) * nn.sigmoid(Dense(n, name="glu_gate")(y))
        return (h[0][-1], h[1][-1]), residual + y


def _nu(key: Array, shape: tuple[int, ...], dtype: Any = jnp.float32) -> Array:
    """Eigenvalues uniform in area on the ring (appendix A.2)."""
    low, high = RADII
    squared = jax.random.uniform(key, shape, dtype) * (high**2 - low**2) + low**2
    return jnp.log(-0.5 * jnp.log(squared))


def _theta(key: Array, shape: tuple[int, ...], dtype: Any = jnp.float32) -> Array:
    """The logarithm of angles uniform on the circle (appendix A.2).

    With small ones alone, which the paper has for its longest task, fewer seeds learned: with angles below pi / 10
    seven of ten solved TMazePassive-v0, with the whole circle ten (`experiments/memory/cells.py`).
    """
    return jnp.log(jax.random.uniform(key, shape, dtype, minval=1e-3) * 2 * math.pi)


def _log_gamma(nu: Any) -> Array:
    return 0.5 * jnp.log(-jnp.expm1(-2 * jnp.exp(nu)))
