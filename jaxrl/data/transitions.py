"""What a replay buffer and a dataset hold of a step."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxrl.spaces import Discrete, Space


class Transition(NamedTuple):
    """What a replay buffer holds of a step."""

    obs: Any  # with its privileged part, which critics see
    action: Array  # in units of the box, [-1, 1] a side; discrete ones as they are
    reward: Array
    terminated: Array  # bootstrap unless it is set: a truncated episode goes on in next_obs
    next_obs: Any  # of the true successor, before a reset


class Stored(NamedTuple):
    """What a learner draws from a dataset, `Transition`'s fields first. What it does not read is not gathered."""

    obs: Any
    action: Array  # in units of the box; discrete ones as they are
    reward: Array
    terminated: Array
    next_obs: Any
    next_action: Array  # the dataset's at the next step; at the last step of an episode that step's own
    return_to_go: Array  # discounted rewards from here to the end of the episode
    return_bound: Array  # what the return is at least, had no episode been cut: see datasets.return_bounds


Batch = Transition | Stored
"""Leaves (B, ...)."""


def example(obs: Any, space: Space) -> Transition:
    """One transition of zeros, from observations (N, ...): what a replay buffer is made from."""
    obs = jax.tree.map(lambda x: x[0], obs)
    reward = jnp.zeros((), jnp.result_type(float))
    action = jnp.int32(0) if isinstance(space, Discrete) else jnp.zeros(space.shape, reward.dtype)
    return Transition(obs, action, reward, jnp.bool_(False), obs)
