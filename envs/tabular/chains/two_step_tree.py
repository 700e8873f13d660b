"""TwoStepTree: two binary choices, the best leaf beside the worst.

`TwoStep-v0` of the code of Corrado and Hanna (2023), "On-policy policy gradient reinforcement learning without
on-policy sampling" (PROPS), arXiv:2311.08290. (It is not the two-step task of Daw et al. 2011.)

The observation is the number of a node: 0 the root, 1 and 2 its children, 3 to 6 the leaves from left to right. Action
0 goes left, 1 right. The leaves pay 2, 0.5, 1, 1 and end the episode.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Integer

from jaxrl.environment import NO_LIMIT, Hints, pytree
from jaxrl.exact.mdp import Outcomes, TabularEnvironment, certain

from ..checks import require_shape


@pytree
class Params:
    reward: jax.Array  # (4,) of each leaf
    max_steps: jax.Array


@dataclasses.dataclass(frozen=True)
class TwoStepTree(TabularEnvironment):
    id: str = dataclasses.field(default="TwoStepTree-v0", kw_only=True)
    num_states: int = dataclasses.field(default=7, init=False)
    num_actions: int = dataclasses.field(default=2, init=False)
    Params = Params
    hints = Hints(deterministic=True, reset="dense")

    @property
    def default_params(self) -> Params:
        return Params(jnp.array([2, 0.5, 1, 1], float), jnp.int32(NO_LIMIT))

    def outcomes(self, state: Integer[Array, ""], action: Integer[Array, ""], params: Params) -> Outcomes:
        child = jnp.minimum(2 * state + 1 + action, 6)
        reward = jnp.sum(jnp.where(jnp.arange(3, 7) == child, params.reward, 0))
        return certain(child, reward, child >= 3)

    def validate(self, params: Params) -> None:
        require_shape(self, params, "reward", 4)
