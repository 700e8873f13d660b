"""The records of one step: `Transition` in a replay buffer, `Stored` from a dataset."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxrl.spaces import Discrete, Space


class Transition(NamedTuple):
    """One step, as a replay buffer holds it."""

    obs: Any  # with its privileged part, which critics see
    action: Array  # in units of the box, [-1, 1] a side; discrete ones as they are
    reward: Array
    terminated: Array  # bootstrap from next_obs where it is False, also where the episode was truncated
    next_obs: Any  # of the true successor: the final observation where the episode ended


class Stored(NamedTuple):
    """One step, as a learner draws it from a dataset: the fields of `Transition`, then further ones.

    XLA gathers only the fields that the learner reads.
    """

    obs: Any
    action: Array  # in units of the box; discrete ones as they are
    reward: Array
    terminated: Array
    next_obs: Any
    next_action: Array  # the dataset's action at the next step; at the last step of an episode its `action`
    return_to_go: Array  # discounted rewards from here to the end of the episode
    return_bound: Array  # lower bound of the return without truncation, see datasets.return_bounds


Batch = Transition | Stored
"""A batch of steps, leaves (B, ...)."""


def example(obs: Any, space: Space) -> Transition:
    """A Transition of zeros, without batch axes, from observations (N, ...): gives a replay buffer its shapes."""
    obs = jax.tree.map(lambda x: x[0], obs)
    reward = jnp.zeros((), jnp.result_type(float))
    action = jnp.int32(0) if isinstance(space, Discrete) else jnp.zeros(space.shape, reward.dtype)
    return Transition(obs, action, reward, jnp.bool_(False), obs)
