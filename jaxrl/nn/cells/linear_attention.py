"""Gated linear attention: a matrix of associations that forgets by learned gates."""

from __future__ import annotations

import math
from typing import Any

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxrl.nn.cells.linear_scan import linear_scan
from jaxrl.nn.networks import Dense

CHUNK = 16
"""Steps whose outputs are computed at once; between chunks the state is carried by a loop."""
GATE = 16
"""The gates' log sigmoids are divided by this number, so that gates begin near 1 (Yang et al. 2024)."""
LEAST = -8.0
"""The least logarithm of a step's decay: a factor of 0.0003."""


class LinearAttention(nn.Module):
    """S[t] = diag(a) S[t-1] + k v^T, o[t] = S[t]^T q, for each head (Yang et al. 2024, eq. 3), and what is around it.

    "Gated linear attention transformers with hardware-efficient training", arXiv:2312.06635. a = sigmoid(..)^(1/16) is
    a gate for each row of S. Outputs are normalised for each head, by their root mean square where the paper has a
    layer norm, then gated and added to the inputs. Carry: (*batch, heads, features / heads, features / heads).
    """

    features: int
    heads: int = 4
    forward_mode: bool = False

    def initial_carry(self, batch_shape: tuple[int, ...]) -> Float[Array, "..."]:
        """The carry before an episode: zeros. Raises ValueError where heads do not divide the features."""
        if self.features % self.heads:
            raise ValueError(f"linear_attention: size {self.features} is no multiple of {self.heads} heads.")
        width = self.features // self.heads
        return jnp.zeros((*batch_shape, self.heads, width, width))

    @nn.compact
    def __call__(
        self, carry: Any, inputs: Float[Array, "T *batch features"], start: Bool[Array, "T *batch"]
    ) -> tuple[Any, Float[Array, "T *batch hidden"]]:
        n, heads = self.features, self.heads
        residual = Dense(n, name="inputs")(inputs)
        x = nn.LayerNorm()(residual)
        q, k, v, gate = (Dense(n, use_bias=False, name=name)(x) for name in ("query", "key", "value", "out_gate"))
        log_decay = nn.log_sigmoid(Dense(n, name="forget")(x)) / GATE
        q, k, v, log_decay = (y.reshape(*y.shape[:-1], heads, n // heads) for y in (q, k, v, log_decay))
        carry, out = gated_linear_attention(carry, q / math.sqrt(n // heads), k, v, log_decay, start, self.forward_mode)
        out = nn.RMSNorm(name="head_norm")(out).reshape(x.shape)
        return carry, residual + Dense(n, use_bias=False, name="out")(out * nn.silu(gate))


def gated_linear_attention(
    state: Float[Array, "*batch h d e"],
    query: Float[Array, "T *batch h d"],
    key: Float[Array, "T *batch h d"],
    value: Float[Array, "T *batch h e"],
    log_decay: Float[Array, "T *batch h d"],
    start: Bool[Array, "T *batch"],
    forward_mode: bool = False,
) -> tuple[Float[Array, "*batch h d e"], Float[Array, "T *batch h e"]]:
    """`(last state, outputs)` of S[t] = exp(log_decay) S[t-1] + k v^T, o[t] = S[t]^T q; S is 0 before a `start`.

    In chunks (section 4): within one by a masked product of queries and keys, which sees no step before a start; what
    is older comes from the state. Queries and keys are scaled by decays from the chunk's middle, whose exponents are at
    most CHUNK / 2 times LEAST, so that float32 holds them; a log_decay below LEAST counts as LEAST.
    """
    steps, batch = len(query), start.shape[1:]
    size = min(steps, CHUNK)

    def chunks(x: Array) -> Array:
        """(T, *batch, ...) as (chunks, *batch, ..., size)."""
        x = jnp.pad(x, [(0, -steps % size)] + [(0, 0)] * (x.ndim - 1))
        return jnp.moveaxis(x.reshape(-1, size, *x.shape[1:]), 1, -1)

    def summed(x: Array, axis: int) -> Array:
        return x if size == 1 else jnp.cumsum(x, axis)

    # A weight of 0 would not stop a NaN of an episode before.
    value = jnp.where(jnp.isfinite(value), value, 0)
    log_decay = jnp.maximum(jnp.where(jnp.isnan(log_decay), LEAST, log_decay), LEAST)
    # Steps that fill the last chunk have no key and no decay: they leave the state as it is.
    q, k, v, log_decay = (jnp.swapaxes(chunks(x), -1, -2) for x in (query, key, value, log_decay))
    # (chunks, *batch, h, size, d)
    episode = summed(chunks(start).astype(jnp.int32), -1)[..., None, :]  # (chunks, *batch, 1, size)
    total = summed(log_decay, -2)  # of log decays since the chunk began
    middle = total - total[..., size // 2, None, :]
    scores = (q * jnp.exp(middle)) @ jnp.swapaxes(k * jnp.exp(-middle), -1, -2)
    seen = (episode[..., None] == episode[..., None, :]) & jnp.tril(jnp.ones((size, size), bool))
    kept = k * jnp.exp(total[..., -1:, :] - total)
    kept = jnp.where((episode == episode[..., -1:])[..., None], kept, 0)
    added = jnp.swapaxes(kept, -1, -2) @ v
    flat = (len(q), *batch, -1)
    decay = jnp.broadcast_to(jnp.exp(total[..., -1, :, None]), added.shape)
    resets = episode[..., 0, -1] > 0
    first, decay, driven = state.reshape(*batch, -1), decay.reshape(flat), added.reshape(flat)
    after = linear_scan(first, decay, driven, resets, forward_mode).reshape(added.shape)
    before = jnp.concatenate([state[None], after[:-1]])
    out = jnp.where(seen, scores, 0) @ v + jnp.where((episode == 0)[..., None], (q * jnp.exp(total)) @ before, 0)
    out = jnp.moveaxis(jnp.swapaxes(out, -1, -2), -1, 1)
    return after[-1], out.reshape(-1, *out.shape[2:])[:steps]
