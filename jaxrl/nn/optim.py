"""Optimisation whose settings are leaves and whose derivative is finite."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PyTree

from jaxrl.environment import pytree

# ---- optimisation whose settings are leaves and whose derivative is finite


def annealed(value: Array, step: Array, anneal_steps: Array) -> Array:
    """`value`, going linearly to zero at `anneal_steps` environment steps; constant where that is 0."""
    left = jnp.maximum(1 - step / jnp.maximum(anneal_steps, 1), 0).astype(value.dtype)
    return value * jnp.where(anneal_steps > 0, left, 1)


def safe_norm(tree: PyTree) -> Float[Array, ""]:
    """The 2-norm of all leaves together, with gradient zero (not NaN) at zero."""
    square = sum((jnp.sum(x * x) for x in jax.tree.leaves(tree)), jnp.zeros(()))
    return jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1)), 0)


def clip_by_global_norm(tree: PyTree, max_norm: Array | float) -> PyTree:
    """All leaves scaled by one factor, so that their common norm is at most `max_norm` (Pascanu et al. 2013)."""
    scale = jnp.minimum(1, max_norm / jnp.maximum(safe_norm(tree), 1e-12))
    return jax.tree.map(lambda x: x * scale, tree)


@pytree
class AdamState:
    count: jax.Array  # updates done
    mean: Any  # first moment, like the weights
    square: Any  # second moment


def adam_init(weights: PyTree) -> AdamState:
    """The optimiser's state before the first update."""
    return AdamState(jnp.int32(0), jax.tree.map(jnp.zeros_like, weights), jax.tree.map(jnp.zeros_like, weights))


def safe_adam(
    grads: PyTree, state: AdamState, learning_rate: Array | float, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8
) -> tuple[PyTree, AdamState]:
    """`(step to add to the weights, state)` of Adam (Kingma and Ba 2015, algorithm 1), differentiable twice.

    Equal to `optax.adam`; only the derivative of the square root at zero is finite here, which meta-gradients need.
    """
    count = state.count + 1
    mean = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, state.mean, grads)
    square = jax.tree.map(lambda v, g: b2 * v + (1 - b2) * g * g, state.square, grads)
    m_scale, v_scale = 1 / (1 - b1**count), 1 / (1 - b2**count)

    def step(m, v):
        v = v * v_scale
        root = jnp.where(v > 0, jnp.sqrt(jnp.where(v > 0, v, 1)), 0)
        return -learning_rate * (m * m_scale) / (root + eps)

    return jax.tree.map(step, mean, square), AdamState(count, mean, square)


def descend(
    flat: Float[Array, " P"],
    optimizer: AdamState,
    grads: PyTree,
    learning_rate: Array | float,
    max_grad_norm: Array | float = jnp.inf,
    **adam: float,
) -> tuple[Float[Array, " P"], AdamState, Float[Array, ""]]:
    """`(weights, optimizer, norm of the gradient)` after one Adam step on flattened weights, clipped by global norm.

    Adam works on one vector: on a CPU a kernel for every matrix and moment costs more than its arithmetic.
    """
    gradient = ravel_pytree(grads)[0]
    norm = safe_norm(gradient)
    change, optimizer = safe_adam(clip_by_global_norm(gradient, max_grad_norm), optimizer, learning_rate, **adam)
    return flat + change, optimizer, norm


def polyak(old: PyTree, new: PyTree, tau: Float[Array, ""] | float) -> PyTree:
    """The average that a target network follows: (1 - tau) old + tau new."""
    return jax.tree.map(lambda x, y: x + tau * (y - x), old, new)
