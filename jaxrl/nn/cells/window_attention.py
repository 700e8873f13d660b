"""Causal attention to a sliding window of steps, with a cache of keys and values as its carry."""

from __future__ import annotations

from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxrl.nn.attention import attend
from jaxrl.nn.networks import Dense


class Cache(NamedTuple):
    """The last `window` steps, oldest first."""

    key: Array  # (*batch, window, features), not rotated
    value: Array  # (*batch, window, features)
    length: Array  # (*batch,), int32: how many of the last ones are of this episode


class WindowAttention(nn.Module):
    """A pre-norm transformer block whose queries see themselves and the `window` steps before, in their episode alone.

    Attention: Vaswani et al. (2017); positions turn queries and keys, so that scores depend on distances alone (Su et
    al. 2021, "RoFormer", eq. 34); the window: Beltagy et al. (2020), "Longformer". Carry: a `Cache`.
    """

    features: int
    window: int = 32
    heads: int = 4

    def initial_carry(self, batch_shape: tuple[int, ...]) -> Cache:
        """The carry before an episode: an empty cache. Raises ValueError where a head's width is no even number."""
        if self.features % (2 * self.heads):
            raise ValueError(f"attention: size {self.features} is no multiple of {2 * self.heads}, two for each head.")
        if self.window < 1:
            raise ValueError(f"attention: window={self.window} must be at least 1.")
        zeros = jnp.zeros((*batch_shape, self.window, self.features))
        return Cache(zeros, zeros, jnp.zeros(batch_shape, jnp.int32))

    @nn.compact
    def __call__(
        self, carry: Any, inputs: Float[Array, "T *batch features"], start: Bool[Array, "T *batch"]
    ) -> tuple[Any, Float[Array, "T *batch hidden"]]:
        n = self.features
        x = Dense(n, name="inputs")(inputs)
        query, key, value = jnp.split(Dense(3 * n, use_bias=False, name="query_key_value")(nn.LayerNorm()(x)), 3, -1)
        carry, mixed = attend_window(carry, query, key, value, start, self.heads)
        x = x + Dense(n, use_bias=False, name="out")(mixed)
        y = Dense(n, name="contract")(nn.gelu(Dense(4 * n, name="expand")(nn.LayerNorm()(x))))
        return carry, x + y


def attend_window(
    cache: Cache,
    query: Float[Array, "T *batch n"],
    key: Float[Array, "T *batch n"],
    value: Float[Array, "T *batch n"],
    start: Bool[Array, "T *batch"],
    heads: int,
) -> tuple[Cache, Float[Array, "T *batch n"]]:
    """`(cache, outputs)`: attention of each step to itself and the `window` before it since the last start.

    A sequence longer than the window is cut into blocks of its length, each of which sees itself and the one before.
    """
    steps, window = len(query), cache.key.shape[-2]
    ages = ages_of(cache.length, start)
    query, key, value = (jnp.moveaxis(x, 0, -2) for x in (query, key, value))
    key, value = (jnp.concatenate([old, x], -2) for old, x in ((cache.key, key), (cache.value, value)))
    value = jnp.where(jnp.isfinite(value), value, 0)  # a weight of 0 would not stop a NaN of an episode before
    cache = Cache(key[..., -window:, :], value[..., -window:, :], jnp.minimum(ages[-1] + 1, window))
    age = jnp.minimum(jnp.moveaxis(ages, 0, -1), window)
    size = min(steps, window)
    blocks = -(-steps // size)
    missing = blocks * size - steps
    query, key, value, age = (
        _lengthened(x, missing, axis) for x, axis in ((query, -2), (key, -2), (value, -2), (age, -1))
    )
    query, age = query.reshape(*age.shape[:-1], blocks, size, -1), age.reshape(*age.shape[:-1], blocks, size)
    key, value = (_with_the_one_before(x, blocks, size) for x in (key, value))  # (*batch, blocks, window + size, n)
    distance = window + jnp.arange(size)[:, None] - jnp.arange(window + size)
    visible = (distance >= 0) & (distance <= age[..., None])
    query, key, value = (x.reshape(*x.shape[:-1], heads, -1) for x in (query, key, value))
    query, key = rotate(query, jnp.arange(window, window + size)), rotate(key, jnp.arange(window + size))
    out = attend(query, key, value, visible, softmax=True)
    out = out.reshape(*out.shape[:-4], blocks * size, -1)[..., :steps, :]
    return cache, jnp.moveaxis(out, -2, 0)


def ages_of(length: Int[Array, "*batch"], start: Bool[Array, "T *batch"]) -> Int[Array, "T *batch"]:
    """How many steps of its episode are before each step, where `length` are before the sequence (or more)."""
    if len(start) == 1:  # acting
        return jnp.where(start, 0, length).astype(jnp.int32)
    time = jnp.arange(len(start)).reshape(-1, *(1,) * length.ndim)
    last = jax.lax.cummax(jnp.where(start, time, -1), 0)
    return jnp.where(last < 0, length + time, time - last).astype(jnp.int32)


def rotate(x: Float[Array, "*batch T h d"], position: Int[Array, " T"]) -> Float[Array, "*batch T h d"]:
    """`x` with each pair of features turned by position times 10,000^(-i / pairs), i = 0, 1, ... (Su et al. 2021)."""
    half = x.shape[-1] // 2
    angle = position[:, None, None] * 10_000.0 ** (-jnp.arange(half) / half)
    cosine, sine = jnp.cos(angle).astype(x.dtype), jnp.sin(angle).astype(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return jnp.concatenate([a * cosine - b * sine, a * sine + b * cosine], -1)


def _with_the_one_before(x: Array, blocks: int, size: int) -> Array:
    """Blocks of rows (*batch, window + blocks * size, n), each with the `window` rows before it."""
    if blocks == 1:
        return x[..., None, :, :]
    x = x.reshape(*x.shape[:-2], blocks + 1, size, x.shape[-1])  # more than one block: they are as long as the window
    return jnp.concatenate([x[..., :-1, :, :], x[..., 1:, :, :]], -2)


def _lengthened(x: Array, count: int, axis: int) -> Array:
    widths = [(0, 0)] * x.ndim
    widths[axis] = (0, count)
    return jnp.pad(x, widths)
