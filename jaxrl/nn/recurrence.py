"""What recurrent policies carry from step to step, and from where a rollout of theirs is replayed.

Networks are called as `network.apply(weights, hidden, obs, start)` with sequences (T, *batch, ...), and give the hidden
state after them first. `start` (T, *batch) is True at the first observation of an episode: before that one the hidden
state is forgotten.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array


class Carry(NamedTuple):
    """What is carried from step to step. After an episode: `carry._replace(start=done)`."""

    start: Any  # (*batch,): the next observation is the first of an episode, so forget `hidden` before it
    hidden: Any


class Past(NamedTuple):
    """From where a rollout is replayed: the hidden state before the last `burn_in` steps, and these."""

    hidden: Any  # leaves (N, ...)
    obs: Any  # leaves (burn_in, N, ...)
    start: Array  # (burn_in, N)


def one_step(tree: Any) -> Any:
    """A sequence of length 1."""
    return jax.tree.map(lambda x: x[None], tree)


def first_past(hidden: Any, obs: Any, start: Array, burn_in: int) -> Past:
    """Before the first rollout, which starts with episodes, nothing is remembered: what is in here does not matter."""
    return Past(hidden, *jax.tree.map(lambda x: x[None].repeat(burn_in, 0), (obs, start)))


def past_of(before: Any, after: Any, obs: Any, start: Array, burn_in: int) -> Past:
    """What the next rollout is replayed from, of the T steps of this one.

    `before` is the hidden state at its begin, `after` (T, ...) those after each step, without a reset.
    """
    kept = start.shape[0] - burn_in
    hidden = jax.tree.map(lambda first, h: jnp.concatenate([first[None], h])[kept], before, after)
    return Past(hidden, *jax.tree.map(lambda x: x[kept:], (obs, start)))


def burnt_in(weights: Any, past: Past, network: Any) -> Any:
    """The hidden states before a rollout: as stored or, after the steps of `past`, of the present weights; no gradient.

    Kapturowski et al. (2019), "Recurrent experience replay in distributed reinforcement learning", section 3.
    """
    if not past.start.shape[0]:
        return past.hidden
    hidden: Any = network.apply(weights, past.hidden, past.obs, past.start)
    return jax.lax.stop_gradient(hidden[0])
