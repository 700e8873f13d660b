"""WindyWalk: three corridors to the goal, the shorter the windier.

After the grid world of Zouitine, Geist and Rachelson (2024), "Solving robust MDPs as a sequence of static RL problems"
(IWOCS), arXiv:2410.06212: a move in a corridor goes left instead with probability alpha in the top one, alpha^3 in the
middle one and alpha^6 in the bottom one, where alpha, in [0, 0.5], is what a robust policy does not know. The lengths
are ours, such that each corridor is best for some alpha: the top one below 0.092, the bottom one above 0.46.

```
S . . . ... . . . G     row 0: alpha
. # # # ... # # # .
. . . . ... . . . .     row 2: alpha^3
. # # # ... # # # .
. . . . ... . . . .     row 4: alpha^6
```

The observation is the number of one of 5 x 20 cells, row by row (walls are never entered). Actions: 0 up, 1 right, 2
down, 3 left; walls and the border stop a move. No wind in the first and last column. Reward -1 a step until the goal.
No time limit.
"""  # noqa: E501

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Integer

from jaxrl.canvas import GREEN, INK, PALE, WHITE
from jaxrl.environment import NO_LIMIT, Hints, pytree
from jaxrl.exact.mdp import Outcomes, TabularEnvironment, TabularState

from ..checks import require_probability, require_shape
from .drawing import draw_grid
from .grid import compass, moved

ROWS = 5
LEFT = 3


@pytree
class Params:
    alpha: jax.Array  # strength of the wind
    exponent: jax.Array  # (3,) of alpha in each corridor
    max_steps: jax.Array
    step_reward: jax.Array


@dataclasses.dataclass(frozen=True)
class WindyWalk(TabularEnvironment):
    id: str = dataclasses.field(default="WindyWalk-v0", kw_only=True)
    columns: int = 20
    num_actions: int = dataclasses.field(default=4, init=False)
    Params = Params
    action_names = ("action, 0 up, 1 right, 2 down, 3 left",)
    hints = Hints(reset="dense")
    static_ranges = {"columns": (2, 100_000)}

    @property
    def num_states(self) -> int:
        return ROWS * self.columns

    @property
    def default_params(self) -> Params:
        exponent, alpha, reward = (jnp.array(x, float) for x in ((1.0, 3.0, 6.0), 0.25, -1.0))
        return Params(alpha, exponent, jnp.int32(NO_LIMIT), reward)

    def outcomes(self, state: Integer[Array, ""], action: Integer[Array, ""], params: Params) -> Outcomes:
        row, column = state // self.columns, state % self.columns
        inside = (column > 0) & (column < self.columns - 1)
        wind = jnp.where(inside, params.alpha ** params.exponent[row // 2], 0)
        to = moved(state, *compass(jnp.stack([action, jnp.full_like(action, LEFT)])), ROWS, self.columns)
        to = jnp.where(wall(to, self.columns), state, to)
        return Outcomes(
            probability=jnp.stack([1 - wind, wind]),
            next_state=to.astype(jnp.int32),
            reward=jnp.broadcast_to(params.step_reward, (2,)),
            terminated=to == self.columns - 1,
        )

    def validate(self, params: Params) -> None:
        require_probability(self, params, "alpha")
        require_shape(self, params, "exponent", 3)

    def render(self, state: TabularState, params: Params) -> np.ndarray:
        walls = np.flatnonzero(wall(jnp.arange(self.num_states), self.columns)).tolist()
        colours = {**dict.fromkeys(walls, INK), 0: WHITE, self.columns - 1: GREEN}
        for corridor, exponent in enumerate(np.asarray(params.exponent)):
            shade = float(params.alpha) ** float(exponent)
            colour = tuple(round(p + (b - p) * shade) for p, b in zip(PALE, (46, 110, 196), strict=True))
            colours |= {c + 2 * corridor * self.columns: colour for c in range(1, self.columns - 1)}
        return draw_grid(ROWS, self.columns, colours, int(state.index), f"t = {int(state.time)}")


def wall(cell: Integer[Array, "*K"], columns: int) -> Bool[Array, "*K"]:
    """Whether a cell is between the corridors and not in the first or last column."""
    column = cell % columns
    return (cell // columns % 2 == 1) & (column > 0) & (column < columns - 1)
