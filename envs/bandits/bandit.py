"""What the bandits share: a state that is only a clock, an observation that says nothing, and the regret.

A bandit is an MDP of one state, so its observation is `Discrete(1)` and tabular learners run on it as they are. An
episode is one problem of `max_steps` rounds. `info["regret"]` is the expected reward lost in this round against the
best arm (pseudo-regret; Lattimore and Szepesvari 2020, "Bandit algorithms", section 4.4).
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Integer

from jaxrl.environment import Environment, Hints, pytree
from jaxrl.spaces import Discrete, Space


@pytree
class State:
    time: jax.Array  # rounds played


@dataclasses.dataclass(frozen=True)
class Bandit(Environment):
    """Base class: a subclass adds `Params`, `default_params` and `transition`."""

    arms: int = 10
    hints = Hints(reset="dense", fenced=False)  # a reset costs nothing
    static_ranges = {"arms": (2, 10_000)}

    def initial(self, key: Array, params: Any) -> State:
        return State(jnp.int32(0))

    def observe(self, key: Array, state: Any, params: Any) -> Array:
        return jnp.int32(0)

    def observation_space(self, params: Any) -> Space:
        return Discrete(1)

    def action_space(self, params: Any) -> Space:
        return Discrete(self.arms)


def pick(values: Float[Array, " K"], arm: Integer[Array, ""]) -> Float[Array, ""]:
    """The entry of `values` of one arm: a masked sum, which vectorises where indexing becomes a gather."""
    return jnp.sum(jnp.where(jnp.arange(len(values)) == arm, values, 0))


def regret(mean: Float[Array, " K"], arm: Integer[Array, ""]) -> Float[Array, ""]:
    """What the best arm would have gained more on average."""
    return jnp.max(mean) - pick(mean, arm)
