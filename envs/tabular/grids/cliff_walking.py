"""CliffWalking: along the edge it is short, and a step too far costs 100 and starts again.

Sutton and Barto (2018), example 6.6; the tables are those of Gymnasium's `CliffWalking-v1` and, with `slippery=True`,
`CliffWalkingSlippery-v1`.

The observation is the number of one of 4 x 12 cells, row by row; the start is the lower left one, the goal the lower
right one, the cliff all cells between them. Actions: 0 up, 1 right, 2 down, 3 left; the border stops a move. Reward:
-1 a step, -100 for stepping into the cliff, which leads back to the start. Reaching the goal ends the episode; no time
limit. On slippery ground each move goes, with `success_rate` = 1/3, where it should, else to one of the two sides at
equal chance.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Integer

from jaxrl.canvas import GREEN, INK
from jaxrl.environment import NO_LIMIT, Hints, pytree
from jaxrl.exact.mdp import Outcomes, TabularEnvironment, TabularState

from ..checks import require_probability
from .drawing import draw_grid
from .grid import compass, moved, slip


@pytree
class Params:
    max_steps: jax.Array = NO_LIMIT
    step_reward: jax.Array = -1.0
    fall_reward: jax.Array = -100.0
    success_rate: jax.Array = 1 / 3  # on slippery ground only


@dataclasses.dataclass(frozen=True)
class CliffWalking(TabularEnvironment):
    id: str = dataclasses.field(default="CliffWalking-v1", kw_only=True)
    rows: int = 4
    columns: int = 12
    slippery: bool = False
    num_actions: int = dataclasses.field(default=4, init=False)
    Params = Params
    action_names = ("action, 0 up, 1 right, 2 down, 3 left",)
    static_ranges = {"rows": (2, 1000), "columns": (2, 1000)}

    @property
    def num_states(self) -> int:
        return self.rows * self.columns

    @property
    def hints(self) -> Hints:  # pyright: ignore[reportIncompatibleVariableOverride]
        return Hints(deterministic=not self.slippery, reset="dense")

    def outcomes(self, state: Integer[Array, ""], action: Integer[Array, ""], params: Params) -> Outcomes:
        way, probability = slip(action, params.success_rate) if self.slippery else (action[None], jnp.ones(1))
        cell = moved(state, *compass(way), self.rows, self.columns)
        goal, start = self.num_states - 1, self.num_states - self.columns
        falls = (cell > start) & (cell < goal)
        return Outcomes(
            probability,
            jnp.where(falls, start, cell).astype(jnp.int32),
            jnp.where(falls, params.fall_reward, params.step_reward),
            cell == goal,
        )

    def initial_distribution(self, params: Params) -> Float[Array, " S"]:
        return jnp.zeros(self.num_states).at[self.num_states - self.columns].set(1)

    def initial(self, key: Array, params: Params) -> TabularState:
        return TabularState(jnp.int32(0), jnp.int32(self.num_states - self.columns))

    def validate(self, params: Params) -> None:
        require_probability(self, params, "success_rate")

    def render(self, state: TabularState, params: Params) -> np.ndarray:
        goal, start = self.num_states - 1, self.num_states - self.columns
        colours = {goal: GREEN, **dict.fromkeys(range(start + 1, goal), INK)}
        return draw_grid(self.rows, self.columns, colours, int(state.index), f"t = {int(state.time)}")
