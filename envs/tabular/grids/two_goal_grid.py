"""TwoGoalGrid: a goal in each of two corners, the farther-paying one as near as the other.

`GridWorld-5x5-v0` of the code of Corrado and Hanna (2023), "On-policy policy gradient reinforcement learning without
on-policy sampling" (PROPS), arXiv:2311.08290.

The observation is the number of one of n x n cells, n = 5, row by row; episodes start in the middle. Actions: 0 up, 1
down, 2 left, 3 right; the border stops a move. Reward of the cell that is entered: 0.5 in the upper left corner, 1 in
the lower right one, both of which end the episode, and -0.01 elsewhere. The time limit is 3 n steps.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Integer

from jaxrl.canvas import BLUE, GREEN
from jaxrl.environment import Hints, pytree, strongly_typed
from jaxrl.exact.mdp import Outcomes, TabularEnvironment, TabularState, certain

from .drawing import draw_grid
from .grid import moved


@pytree
class Params:
    max_steps: jax.Array = 15
    first_corner: jax.Array = 0.5  # reward of the upper left one
    last_corner: jax.Array = 1.0  # of the lower right one
    step_reward: jax.Array = -0.01  # of every other cell


@dataclasses.dataclass(frozen=True)
class TwoGoalGrid(TabularEnvironment):
    id: str = dataclasses.field(default="TwoGoalGrid-v0", kw_only=True)
    size: int = 5
    num_actions: int = dataclasses.field(default=4, init=False)
    Params = Params
    action_names = ("action, 0 up, 1 down, 2 left, 3 right",)
    hints = Hints(deterministic=True, reset="dense")
    static_ranges = {"size": (3, 1000)}

    @property
    def num_states(self) -> int:
        return self.size * self.size

    @property
    def middle(self) -> int:
        """The cell that episodes start in."""
        return (self.size - 1) // 2 * (self.size + 1)

    @property
    def default_params(self) -> Params:
        return strongly_typed(Params(max_steps=jnp.int32(3 * self.size)))

    def outcomes(self, state: Integer[Array, ""], action: Integer[Array, ""], params: Params) -> Outcomes:
        sign = jnp.where(action % 2 == 1, 1, -1)
        cell = moved(state, jnp.where(action < 2, sign, 0), jnp.where(action < 2, 0, sign), self.size, self.size)
        last = self.num_states - 1
        corner = jnp.where(cell == last, params.last_corner, params.step_reward)
        return certain(cell, jnp.where(cell == 0, params.first_corner, corner), (cell == 0) | (cell == last))

    def initial_distribution(self, params: Params) -> Float[Array, " S"]:
        return jnp.zeros(self.num_states).at[self.middle].set(1)

    def initial(self, key: Array, params: Params) -> TabularState:
        return TabularState(jnp.int32(0), jnp.int32(self.middle))

    def render(self, state: TabularState, params: Params) -> np.ndarray:
        colours = {0: BLUE, self.num_states - 1: GREEN}
        return draw_grid(self.size, self.size, colours, int(state.index), f"t = {int(state.time)}")
