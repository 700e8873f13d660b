"""Linear recurrences h[t] = decay[t] h[t-1] + inputs[t] over time: what minGRU, LRU and S5 remember with."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Shaped

from jaxrl.math import on_cpu


def linear_scan(
    first: Shaped[Array, "*batch n"],
    decay: Shaped[Array, "..."],
    inputs: Shaped[Array, "T *batch n"],
    start: Bool[Array, "T *batch"],
    forward_mode: bool = False,
) -> Shaped[Array, "T *batch n"]:
    """All h of h[t] = decay[t] h[t-1] + inputs[t] with h[-1] = `first`, where h[t-1] counts as 0 at a `start`.

    `decay` broadcasts to `inputs`; all are real or all complex. On a CPU it is a loop of T steps, elsewhere an
    associative scan of 2 log2(T) (Blelloch 1990; resets as in Lu et al. 2023, "Structured state space models for
    in-context reinforcement learning"). The gradient is the same recurrence backwards and stores h alone; with
    `forward_mode` there is `jax.jvp`, too.
    """
    decay = jnp.where(start[..., None], 0, jnp.broadcast_to(decay, inputs.shape))
    if len(inputs) == 1:  # acting
        return decay * first + inputs
    if forward_mode:
        return _associative(first, decay, inputs)
    return _recurrence(first, decay, inputs)


@jax.custom_vjp
def _recurrence(first: Any, decay: Any, inputs: Any) -> Any:
    return on_cpu(_loop, _associative, first, decay, inputs)


def _loop(first: Any, decay: Any, inputs: Any) -> Any:
    def step(h, step_inputs):
        a, b = step_inputs
        h = a * h + b
        return h, h

    return jax.lax.scan(step, first, (decay, inputs))[1]


def _associative(first: Any, decay: Any, inputs: Any) -> Any:
    def after(earlier, later):
        (a, b), (c, d) = earlier, later
        return a * c, c * b + d

    inputs = inputs.at[0].add(decay[0] * first)
    return jax.lax.associative_scan(after, (decay, inputs))[1]


def _forward(first: Any, decay: Any, inputs: Any) -> Any:
    h = _recurrence(first, decay, inputs)
    return h, (first, decay, h)


def _backward(residuals: Any, dh: Any) -> Any:
    first, decay, h = residuals
    following = jnp.concatenate([decay[1:], jnp.zeros_like(decay[:1])])
    total = jnp.flip(_recurrence(jnp.zeros_like(first), jnp.flip(following, 0), jnp.flip(dh, 0)), 0)
    before = jnp.concatenate([first[None], h[:-1]])
    return total[0] * decay[0], total * before, total


_recurrence.defvjp(_forward, _backward)
