"""Recurrent layers over time-major sequences, GRU and LSTM, with gradients that are written by hand; and the hidden
states of recurrent policies, carried from step to step and stored to replay a rollout when learning.

A recurrent network's `apply(weights, hidden, obs, start)` takes sequences (T, *batch, ...) and returns the last hidden
state first. `start` (T, *batch) is True at the first observation of an episode, before which the hidden state is reset.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from jaxrl.math import fence
from jaxrl.nn.networks import Dense, encode, orthogonal
from jaxrl.spaces import Space


class Recurrent(nn.Module):
    """A GRU (Cho et al. 2014) or LSTM (Hochreiter & Schmidhuber 1997, forget bias 1) over time-major sequences.

    `start[t]` is True where `inputs[t]` is the first observation of an episode: the carry is zero before it. The inputs
    of the whole sequence are projected in one product; only the recurrent product is inside the scan.
    """

    features: int
    cell: str = "gru"
    forward_mode: bool = False  # also allows forward-mode derivatives (`jax.jvp`); slower

    def initial_carry(self, batch_shape: tuple[int, ...]) -> PyTree[Float[Array, "..."]]:
        """The carry before an episode: zeros (*batch_shape, features), a pair (hidden, cell) of them for an LSTM."""
        if self.cell not in ("gru", "lstm"):
            raise ValueError(f"cell={self.cell!r} is unknown; use gru or lstm.")
        zeros = jnp.zeros((*batch_shape, self.features))
        return zeros if self.cell == "gru" else (zeros, zeros)

    @nn.compact
    def __call__(
        self,
        carry: PyTree[Float[Array, "..."]],
        inputs: Float[Array, "T *batch features"],
        start: Bool[Array, "T *batch"],
    ) -> tuple[PyTree[Float[Array, "..."]], Float[Array, "T *batch hidden"]]:
        gates, size = (3 if self.cell == "gru" else 4), self.features
        kernels = [orthogonal(), (size, size)]
        recurrent = jnp.concatenate([self.param(f"recurrent_{i}", *kernels) for i in range(gates)], -1)
        bias = self.param("bias", _recurrent_bias(self.cell), (4 * size,))
        projected = Dense(gates * size, use_bias=False, name="input")(inputs)
        if self.forward_mode:
            run = _gru_forward if self.cell == "gru" else _lstm_forward
            return run(carry, projected, recurrent, bias, start)[0]
        return (gru if self.cell == "gru" else lstm)(carry, projected, recurrent, bias, start)


def _recurrent_bias(cell: str) -> Callable[..., Array]:
    """Zeros, but 1 for the LSTM's forget gate, which then keeps its memory from the start (Jozefowicz et al. 2015)."""

    def init(key: Array, shape: tuple[int, ...], dtype: Any = jnp.float32) -> Array:
        return jnp.zeros(shape, dtype).reshape(4, -1).at[1].set(1.0 if cell == "lstm" else 0.0).reshape(shape)

    return init


# Gradients of a sequence are written by hand: XLA's derivative of a scan accumulates the gradient of the recurrent
# matrix step by step and computes each gate several times. One product after the scan and stored gates take three
# quarters of the time (LSTM of 256 on 256 x 32 steps). Second derivatives work in reverse mode only.


@jax.custom_vjp
def gru(
    h: Float[Array, "*batch H"],
    projected: Float[Array, "T *batch three_H"],
    recurrent: Float[Array, "H three_H"],
    bias: Float[Array, " four_H"],
    start: Bool[Array, "T *batch"],
) -> tuple[Float[Array, "*batch H"], Float[Array, "T *batch H"]]:
    """`(last h', all h')` of r, z = sigmoid(x + hU + b), n = tanh(x + b + r (hU + b')), h' = (1 - z) n + z h.

    `projected` holds x for r, z and n; `bias` holds b for r, z and n, then b'. h is zero where `start`.
    """
    return _gru_forward(h, projected, recurrent, bias, start)[0]


def _gru_forward(h: Any, projected: Any, recurrent: Any, bias: Any, start: Any) -> Any:
    # Fused with their consumers the gates take several times as long on a CPU, so there is a fence. A single step, as
    # acting and exported policies take it, has no conditional.
    alone = fence if len(projected) > 1 else lambda x: x

    def step(h, inputs):
        x, start = inputs
        h = jnp.where(start[..., None], 0, h)
        x, product, both = x + bias[: x.shape[-1]], h @ recurrent, 2 * h.shape[-1]
        r, z = jnp.split(alone(nn.sigmoid(x[..., :both] + product[..., :both])), 2, -1)
        xn, hn = x[..., both:], product[..., both:] + bias[x.shape[-1] :]
        n = jnp.tanh(xn + r * hn)
        new = n + z * (h - n)
        return new, (new, (h, r, z, n, hn))

    last, (hidden, seen) = jax.lax.scan(step, h, (projected, start))
    return (last, hidden), (seen, recurrent, start)


def _gru_backward(residuals: Any, cotangents: Any) -> Any:
    (before, r, z, n, hn), recurrent, start = residuals
    dlast, dhidden = cotangents
    transposed = recurrent.T

    def step(dh, inputs):
        dhidden, h, r, z, n, hn, start = inputs
        dh = dh + dhidden
        dn = dh * (1 - z) * (1 - n * n)
        dr, dz = dn * hn * r * (1 - r), dh * (h - n) * z * (1 - z)
        product = jnp.concatenate([dr, dz, dn * r], -1)
        return jnp.where(start[..., None], 0, dh * z + product @ transposed), (product, dn)

    dh, (product, dn) = jax.lax.scan(step, dlast, (dhidden, before, r, z, n, hn, start), reverse=True)
    dr, dz, dhn = jnp.split(product, 3, -1)
    dx = jnp.concatenate([dr, dz, dn], -1)
    dbias = jnp.concatenate([_rows(dx).sum(0), _rows(dhn).sum(0)])
    return dh, dx, _rows(before).T @ _rows(product), dbias, None


gru.defvjp(_gru_forward, _gru_backward)


@jax.custom_vjp
def lstm(
    carry: tuple[Float[Array, "*batch H"], Float[Array, "*batch H"]],
    projected: Float[Array, "T *batch four_H"],
    recurrent: Float[Array, "H four_H"],
    bias: Float[Array, " four_H"],
    start: Bool[Array, "T *batch"],
) -> tuple[tuple[Float[Array, "*batch H"], Float[Array, "*batch H"]], Float[Array, "T *batch H"]]:
    """`(last (h', c'), all h')`: i, f, o = sigmoid(x + hU + b), g = tanh(x + hU + b), c' = f c + i g, h' = o tanh(c').

    `projected` holds x for i, f, g and o. h and c are zero where `start`.
    """
    return _lstm_forward(carry, projected, recurrent, bias, start)[0]


def _lstm_forward(carry: Any, projected: Any, recurrent: Any, bias: Any, start: Any) -> Any:
    def step(carry, inputs):
        x, start = inputs
        h, c = (jnp.where(start[..., None], 0, v) for v in carry)
        i, f, g, o = jnp.split(x + h @ recurrent + bias, 4, -1)
        i, f, g, o = nn.sigmoid(i), nn.sigmoid(f), jnp.tanh(g), nn.sigmoid(o)
        new = f * c + i * g
        out = jnp.tanh(new)
        return (o * out, new), (o * out, (h, c, i, f, g, o, out))

    last, (hidden, seen) = jax.lax.scan(step, carry, (projected, start))
    return (last, hidden), (seen, recurrent, start)


def _lstm_backward(residuals: Any, cotangents: Any) -> Any:
    (before, *seen), recurrent, start = residuals
    dlast, dhidden = cotangents
    transposed = recurrent.T

    def step(dcarry, inputs):
        (dh, dc), (dhidden, c, i, f, g, o, out, start) = dcarry, inputs
        dh = dh + dhidden
        dc = dc + dh * o * (1 - out * out)
        gates = dc * g * i * (1 - i), dc * c * f * (1 - f), dc * i * (1 - g * g), dh * out * o * (1 - o)
        product = jnp.concatenate(gates, -1)
        first = start[..., None]
        return (jnp.where(first, 0, product @ transposed), jnp.where(first, 0, dc * f)), product

    dcarry, product = jax.lax.scan(step, dlast, (dhidden, *seen, start), reverse=True)
    return dcarry, product, _rows(before).T @ _rows(product), _rows(product).sum(0), None


lstm.defvjp(_lstm_forward, _lstm_backward)


def _rows(x: Array) -> Array:
    return x.reshape(-1, x.shape[-1])


# ---- hidden states of recurrent policies


class Carry(NamedTuple):
    """The carry of a recurrent policy. After an episode: `carry._replace(start=done)`."""

    start: Any  # (*batch,): the next observation is the first of an episode, so `hidden` is reset before it
    hidden: Any


class Past(NamedTuple):
    """What a rollout is replayed from: the `burn_in` steps before it, and the hidden state before these."""

    hidden: Any  # leaves (N, ...)
    obs: Any  # leaves (burn_in, N, ...)
    start: Array  # (burn_in, N)


def check_carry(carry: Any, obs: Any, space: Space) -> None:
    """Raise ValueError where `act` got no carry, or one of another batch shape than its observations (*batch, ...)."""
    if not carry:
        raise ValueError("act: a recurrent policy needs a carry; the first is initial_carry(batch_shape).")
    batch = jax.eval_shape(lambda obs: encode(space, obs), obs).shape[:-1]
    if carry.start.shape != batch:
        raise ValueError(
            f"act: the carry has the batch shape {carry.start.shape}, the observations have {batch}; "
            f"initial_carry({batch}) begins one."
        )


def one_step(tree: Any) -> Any:
    """A sequence of length 1."""
    return jax.tree.map(lambda x: x[None], tree)


def first_past(hidden: Any, obs: Any, start: Array, burn_in: int) -> Past:
    """The `Past` of the first rollout. Its values are not used, as that rollout begins with the start of episodes."""
    return Past(hidden, *jax.tree.map(lambda x: x[None].repeat(burn_in, 0), (obs, start)))


def past_of(before: Any, after: Any, obs: Any, start: Array, burn_in: int) -> Past:
    """The `Past` of the next rollout, from the T steps of this one.

    `before` is the hidden state before the first step, `after` (T, ...) those after each step, without a reset.
    """
    kept = start.shape[0] - burn_in
    hidden = jax.tree.map(lambda first, h: jnp.concatenate([first[None], h])[kept], before, after)
    return Past(hidden, *jax.tree.map(lambda x: x[kept:], (obs, start)))


def burnt_in(weights: Any, past: Past, network: Any) -> Any:
    """The hidden states before a rollout, without a gradient: the stored ones, advanced over `past`.

    Kapturowski et al. (2019), "Recurrent experience replay in distributed reinforcement learning", section 3.
    """
    if not past.start.shape[0]:
        return past.hidden
    hidden: Any = network.apply(weights, past.hidden, past.obs, past.start)
    return jax.lax.stop_gradient(hidden[0])
