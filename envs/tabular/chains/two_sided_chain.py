"""TwoSidedChain: a good end near shaping rewards, a better one behind small costs.

`Chain-<n>-v0` of the code of Corrado and Hanna (2023), "On-policy policy gradient reinforcement learning without
on-policy sampling" (PROPS), arXiv:2311.08290.

The observation is the index of one of n = 7 states in a row; episodes start in the middle one, n // 2. Action 0 goes
one state to the left, 1 to the right. Reward of the state that is entered: 5 at the left end, 10 at the right end,
both of which end the episode; 0.01 on the left half, -0.01 on the right half, the middle included. The time limit is n
steps.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Integer

from jaxrl.environment import Hints, pytree, strongly_typed
from jaxrl.exact.mdp import Outcomes, TabularEnvironment, TabularState, certain


@pytree
class Params:
    max_steps: jax.Array = 7
    left: jax.Array = 5.0  # reward of the left end
    right: jax.Array = 10.0  # of the right end
    left_half: jax.Array = 0.01  # of the other states left of the middle
    right_half: jax.Array = -0.01  # of the rest


@dataclasses.dataclass(frozen=True)
class TwoSidedChain(TabularEnvironment):
    id: str = dataclasses.field(default="TwoSidedChain-v0", kw_only=True)
    num_states: int = 7
    num_actions: int = dataclasses.field(default=2, init=False)
    Params = Params
    hints = Hints(deterministic=True, reset="dense")
    static_ranges = {"num_states": (3, 1_000_000)}

    @property
    def default_params(self) -> Params:
        return strongly_typed(Params(max_steps=jnp.int32(self.num_states)))

    def outcomes(self, state: Integer[Array, ""], action: Integer[Array, ""], params: Params) -> Outcomes:
        last = self.num_states - 1
        cell = jnp.clip(state + jnp.where(action == 1, 1, -1), 0, last)
        inside = jnp.where(cell < self.num_states // 2, params.left_half, params.right_half)
        reward = jnp.where(cell == 0, params.left, jnp.where(cell == last, params.right, inside))
        return certain(cell, reward, (cell == 0) | (cell == last))

    def initial_distribution(self, params: Params) -> Float[Array, " S"]:
        return jnp.zeros(self.num_states).at[self.num_states // 2].set(1)

    def initial(self, key: Array, params: Params) -> TabularState:
        return TabularState(jnp.int32(0), jnp.int32(self.num_states // 2))
