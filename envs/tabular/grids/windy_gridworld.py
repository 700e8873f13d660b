"""WindyGridworld: wind in the middle columns lifts whoever leaves them.

Sutton and Barto (2018), example 6.5. The observation is the number of one of 7 x 10 cells, row by row; the start is
row 3, column 0, the goal row 3, column 7. Actions: 0 up, 1 right, 2 down, 3 left; a move also goes up by the wind of
the column that it starts in, (0, 0, 0, 1, 1, 1, 2, 2, 1, 0) cells, as far as the border. Reward -1 a step until the
goal; the best way takes 15 steps. No time limit.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Integer

from jaxrl.canvas import GREEN, PALE, WHITE
from jaxrl.environment import NO_LIMIT, Hints, pytree
from jaxrl.exact.mdp import Outcomes, TabularEnvironment, TabularState, certain

from ..checks import require_index, require_shape
from .drawing import draw_grid
from .grid import compass, moved

ROWS, COLUMNS = 7, 10


@pytree
class Params:
    wind: jax.Array  # (10,) int32, cells up in each column
    start: jax.Array  # int32, cell
    goal: jax.Array  # int32, cell
    max_steps: jax.Array
    step_reward: jax.Array


@dataclasses.dataclass(frozen=True)
class WindyGridworld(TabularEnvironment):
    id: str = dataclasses.field(default="WindyGridworld-v0", kw_only=True)
    num_states: int = dataclasses.field(default=ROWS * COLUMNS, init=False)
    num_actions: int = dataclasses.field(default=4, init=False)
    Params = Params
    action_names = ("action, 0 up, 1 right, 2 down, 3 left",)
    hints = Hints(deterministic=True, reset="dense")

    @property
    def default_params(self) -> Params:
        wind = jnp.array([0, 0, 0, 1, 1, 1, 2, 2, 1, 0], jnp.int32)
        return Params(wind, jnp.int32(30), jnp.int32(37), jnp.int32(NO_LIMIT), jnp.array(-1.0, float))

    def outcomes(self, state: Integer[Array, ""], action: Integer[Array, ""], params: Params) -> Outcomes:
        down, right = compass(action)
        cell = moved(state, down - params.wind[state % COLUMNS], right, ROWS, COLUMNS)
        return certain(cell, params.step_reward, cell == params.goal)

    def initial_distribution(self, params: Params) -> Float[Array, " S"]:
        return jnp.zeros(self.num_states, params.step_reward.dtype).at[params.start].set(1)

    def initial(self, key: Array, params: Params) -> TabularState:
        return TabularState(jnp.int32(0), params.start)

    def validate(self, params: Params) -> None:
        require_shape(self, params, "wind", COLUMNS)
        require_index(self, params, "start", self.num_states)
        require_index(self, params, "goal", self.num_states)

    def render(self, state: TabularState, params: Params) -> np.ndarray:
        windy = {cell: PALE if params.wind[cell % COLUMNS] == 0 else (200, 214, 234) for cell in range(70)}
        colours = {**windy, int(params.start): WHITE, int(params.goal): GREEN}
        return draw_grid(ROWS, COLUMNS, colours, int(state.index), f"t = {int(state.time)}")
