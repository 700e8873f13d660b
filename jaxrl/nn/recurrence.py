"""Hidden states of recurrent policies: carried from step to step, and stored to replay a rollout when learning.

`network.apply(weights, hidden, obs, start)` takes sequences (T, *batch, ...) and returns the last hidden state first.
`start` (T, *batch) is True at the first observation of an episode, before which the hidden state is reset.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array


class Carry(NamedTuple):
    """The carry of a recurrent policy. After an episode: `carry._replace(start=done)`."""

    start: Any  # (*batch,): the next observation is the first of an episode, so `hidden` is reset before it
    hidden: Any


class Past(NamedTuple):
    """What a rollout is replayed from: the `burn_in` steps before it, and the hidden state before these."""

    hidden: Any  # leaves (N, ...)
    obs: Any  # leaves (burn_in, N, ...)
    start: Array  # (burn_in, N)


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
