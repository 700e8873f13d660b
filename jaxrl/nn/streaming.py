"""Parts of streaming learners: sparse initial weights, layer normalisation, and a step size that does not overshoot.

Elsayed, Vasan & Mahmood (2024), "Streaming deep reinforcement learning finally works" (arXiv:2410.14606).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from jaxrl.math import shuffled


def obgd(
    weights: PyTree,
    trace: PyTree,
    delta: Float[Array, ""],
    learning_rate: Float[Array, ""] | float,
    kappa: Float[Array, ""] | float,
    bounded: bool = True,
) -> tuple[PyTree, Float[Array, ""]]:
    """`(weights, step size)` after a step of overshooting-bounded gradient descent (paper, algorithm 3).

        M = learning_rate kappa max(|delta|, 1) |e|_1,    w <- w + learning_rate / max(M, 1) delta e

    e is the trace of the prediction's gradients, |e|_1 the sum over all its leaves and delta the error. Without
    `bounded` the step size is the learning rate: plain TD(lambda).
    """
    step_size = jnp.asarray(learning_rate, delta.dtype)
    if bounded:
        size = sum((jnp.sum(jnp.abs(e)) for e in jax.tree.leaves(trace)), jnp.zeros((), delta.dtype))
        step_size = step_size / jnp.maximum(step_size * kappa * jnp.maximum(jnp.abs(delta), 1) * size, 1)
    return jax.tree.map(lambda w, e: w + step_size * delta * e, weights, trace), step_size


def sparse(sparsity: float) -> Callable[..., Array]:
    """Initialiser of sparse kernels (fan_in, fan_out): ceil(sparsity * fan_in) random weights of each output are zero.

    The others are uniform in +-1 / sqrt(fan_in). At sparsity 0.9 a kernel of fewer than ten inputs is all zero.
    """

    def init(key: Key[Array, ""], shape: tuple[int, ...], dtype: Any = jnp.float32) -> Array:
        fan_in = shape[0]
        value_key, order_key = jax.random.split(key)
        bound = 1 / math.sqrt(fan_in)
        value = jax.random.uniform(value_key, shape, dtype, -bound, bound)
        rank = shuffled(order_key, shape[::-1]).T
        return jnp.where(rank < math.ceil(sparsity * fan_in), 0, value)

    return init


def layer_norm(x: Float[Array, "*batch features"]) -> Float[Array, "*batch features"]:
    """Zero mean and unit variance over the last axis (Ba et al. 2016), without gain and bias; epsilon 1e-5."""
    centred = x - jnp.mean(x, -1, keepdims=True)
    return centred * jax.lax.rsqrt(jnp.mean(centred * centred, -1, keepdims=True) + 1e-5)


class StreamMLP(nn.Module):
    """An MLP with sparse initial weights, zero biases, and layer normalisation before each leaky ReLU."""

    hidden: tuple[int, ...]
    out: int
    sparsity: float = 0.9
    layer_norm: bool = True

    @nn.compact
    def __call__(self, x: Float[Array, "*batch features"]) -> Float[Array, "*batch out"]:
        for width in self.hidden:
            x = nn.Dense(width, kernel_init=sparse(self.sparsity))(x)
            x = nn.leaky_relu(layer_norm(x) if self.layer_norm else x)
        return nn.Dense(self.out, kernel_init=sparse(self.sparsity))(x)
