"""Multi-head attention and the transformer block."""

from __future__ import annotations

import math
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxrl.nn.networks import Dense


def attend(
    query: Float[Array, "... q h d"],
    key: Float[Array, "... k h d"],
    value: Float[Array, "... k h d"],
    visible: Any,
    softmax: bool,
) -> Float[Array, "... q h d"]:
    """Attention of h heads to the keys that `visible` (bool, (..., q, k)) admits, at least one for each query.

    With `softmax` as Vaswani et al. (2017), eq. 1; without it the weights are the ReLU of the scores, divided by the
    number of visible keys (Lin, Bai and Mei 2024, section 2).
    """
    scores = jnp.einsum("...qhd,...khd->...hqk", query, key) / math.sqrt(query.shape[-1])
    visible = visible[..., None, :, :]
    if softmax:
        weight = jax.nn.softmax(jnp.where(visible, scores, -jnp.inf), -1)
    else:
        weight = jnp.where(visible, jax.nn.relu(scores), 0) / jnp.sum(visible, -1, keepdims=True)
    return jnp.einsum("...hqk,...khd->...qhd", weight, value)


class Block(nn.Module):
    """A transformer block: attention and a two-layer perceptron, each with a residual connection."""

    width: int
    hidden: int
    heads: int
    softmax: bool
    first: bool  # the first block, which does not normalise its input

    def setup(self) -> None:
        self.project = Dense(3 * self.width, use_bias=False)
        self.out = Dense(self.width, use_bias=False)
        self.expand, self.contract = Dense(self.hidden), Dense(self.width)
        self.norm_mlp = nn.LayerNorm()
        if not self.first:
            self.norm_attention = nn.LayerNorm()

    def split(self, x: Array) -> list[Array]:
        """Query, key and value of tokens (..., width), each (..., width)."""
        return jnp.split(self.project(x if self.first else self.norm_attention(x)), 3, -1)

    def mix(self, x: Array, query: Array, key: Array, value: Array, visible: Array) -> Array:
        query, key, value = (y.reshape(*y.shape[:-1], self.heads, -1) for y in (query, key, value))
        x = x + self.out(attend(query, key, value, visible, self.softmax).reshape(x.shape))
        return x + self.contract(nn.relu(self.expand(self.norm_mlp(x))))
