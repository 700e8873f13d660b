"""Linear recurrences h[t] = decay[t] h[t-1] + inputs[t] over time: what minGRU, LRU and S5 remember with."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Shaped

from jaxrl.math import on_cpu

Pair = tuple[Any, Any]
"""The real and the imaginary part of a complex array."""


def linear_scan(
    first: Shaped[Array, "*batch n"],
    decay: Shaped[Array, "..."],
    inputs: Shaped[Array, "T *batch n"],
    start: Bool[Array, "T *batch"],
    forward_mode: bool = False,
) -> Shaped[Array, "T *batch n"]:
    """All h of h[t] = decay[t] h[t-1] + inputs[t] with h[-1] = `first`; at a `start` h[t] = inputs[t].

    `decay` broadcasts to `inputs`; all are real or all complex. On a CPU it is a loop of T steps, elsewhere an
    associative scan of 2 log2(T) (Blelloch 1990; resets as in Lu et al. 2023, "Structured state space models for
    in-context reinforcement learning"). The gradient is the same recurrence backwards and stores h alone; with
    `forward_mode` there is `jax.jvp`, too, and the scan is the associative one everywhere.
    """
    start = start[..., None]
    dtype = jnp.result_type(first, decay, inputs)
    first, decay, inputs = first.astype(dtype), decay.astype(dtype), inputs.astype(dtype)
    decay = jnp.where(start, 0, jnp.broadcast_to(decay, inputs.shape))
    if len(inputs) == 1:  # acting
        return jnp.where(start, inputs, decay * first + inputs)
    if forward_mode:
        return _associative(first, decay, inputs, start)
    return _recurrence(first, decay, inputs, start)


def complex_scan(
    first: Pair,
    decay: Pair,
    inputs: Pair,
    start: Bool[Array, "T *batch"],
    forward_mode: bool = False,
) -> tuple[Float[Array, "T *batch n"], Float[Array, "T *batch n"]]:
    """`linear_scan` of complex numbers, given and returned as pairs of real arrays.

    One step has real arithmetic alone, so that policies can be exported to formats without complex numbers.
    """
    if len(inputs[0]) > 1:
        whole = [real + 1j * imaginary for real, imaginary in (first, decay, inputs)]
        h = linear_scan(whole[0], whole[1], whole[2], start, forward_mode)
        return h.real, h.imag
    real, imaginary = (jnp.where(start[..., None], 0, x) for x in first)
    return (
        decay[0] * real - decay[1] * imaginary + inputs[0],
        decay[0] * imaginary + decay[1] * real + inputs[1],
    )


@jax.custom_vjp
def _recurrence(first: Any, decay: Any, inputs: Any, start: Any) -> Any:
    return on_cpu(_loop, _associative, first, decay, inputs, start)


def _loop(first: Any, decay: Any, inputs: Any, start: Any, reverse: bool = False) -> Any:
    def step(h, step_inputs):
        a, b, new = step_inputs
        h = jnp.where(new, b, a * h + b)
        return h, h

    return jax.lax.scan(step, first, (decay, inputs, start), reverse=reverse)[1]


def _associative(first: Any, decay: Any, inputs: Any, start: Any, reverse: bool = False) -> Any:
    def after(earlier, later):
        (a, b, once), (c, d, new) = earlier, later
        return a * c, jnp.where(new, d, c * b + d), once | new

    edge = -1 if reverse else 0
    inputs = inputs.at[edge].set(jnp.where(start[edge], inputs[edge], decay[edge] * first + inputs[edge]))
    return jax.lax.associative_scan(after, (decay, inputs, start), reverse=reverse)[1]


def _forward(first: Any, decay: Any, inputs: Any, start: Any) -> Any:
    h = _recurrence(first, decay, inputs, start)
    return h, (first, decay, h, start)


def _backward(residuals: Any, dh: Any) -> Any:
    first, decay, h, start = residuals
    # What h[t] gives to h[t+1] is decay[t+1], nothing where t+1 is a start.
    following, last = (jnp.concatenate([x[1:], jnp.zeros_like(x[:1])]) for x in (decay, start))

    def loop(*args):
        return _loop(*args, reverse=True)

    def associative(*args):
        return _associative(*args, reverse=True)

    total = on_cpu(loop, associative, jnp.zeros_like(first), following, dh, last)
    before = jnp.concatenate([first[None], h[:-1]])
    return total[0] * decay[0], jnp.where(start, 0, total * before), total, None


_recurrence.defvjp(_forward, _backward)
