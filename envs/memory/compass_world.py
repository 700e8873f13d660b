"""CompassWorld: a room whose walls have colours that are seen from beside them only; face the one green cell.

Rafols, Ring, Sutton and Tanner (2005), "Using predictive representations to improve generalization in reinforcement
learning", as in POBAX (Tao et al. 2025, github taodav/pobax, `pobax/envs/jax/compass_world.py`, commit a5e1d62). A room
of `size` x `size` cells (8), walls included, so that 6 x 6 are free, rows from the north and columns from the west from
1 on. The north wall is orange, the east yellow, the south red, and the west blue but for the cell of the first row,
which is green.

    forward: (row, column)' = clip((row, column) + heading, 1, size - 2);   turns: heading' = heading +- 1 mod 4.

| observation | range | |
|---|---|---|
| orange, yellow, red, blue, green | 0, 1 | 1 for the colour of the wall in front; all 0 away from the walls |

| action | |
|---|---|
| 0, 1, 2 | forward, turn right, turn left |

Reward: 1 on facing the green wall, which ends the episode (`info["success"]`), else 0. It starts in any other place
and heading at equal chance. Time limit 1,000 steps, of ours: POBAX has none here.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Integer

from jaxrl.environment import Environment, Hints, Transition, pytree
from jaxrl.spaces import Box, Discrete

from . import drawing

NORTH, EAST, SOUTH, WEST = range(4)
FORWARD, RIGHT, LEFT = range(3)


@pytree
class Params:
    max_steps: jax.Array = 1000
    goal_reward: jax.Array = 1.0


@pytree
class State:
    time: jax.Array  # steps since reset
    row: jax.Array  # int32, 1 to size - 2, 1 the northernmost
    column: jax.Array  # int32, 1 to size - 2, 1 the westernmost
    heading: jax.Array  # int32, NORTH, EAST, SOUTH or WEST


def dynamics(state: State, action: Integer[Array, ""], size: int) -> State:
    """The state after `action`, without the clock."""
    forward = action == FORWARD
    heading = jnp.where(forward, state.heading, (state.heading + jnp.where(action == RIGHT, 1, 3)) % 4)
    south = forward & (state.heading == SOUTH), forward & (state.heading == NORTH)
    east = forward & (state.heading == EAST), forward & (state.heading == WEST)
    row = jnp.clip(state.row + south[0] - south[1], 1, size - 2)
    column = jnp.clip(state.column + east[0] - east[1], 1, size - 2)
    return state.replace(row=row.astype(jnp.int32), column=column.astype(jnp.int32), heading=heading.astype(jnp.int32))


def colours(state: State, size: int) -> Bool[Array, "5"]:
    """Which wall is in front: orange, yellow, red, blue, green; none away from the walls."""
    north = (state.heading == NORTH) & (state.row == 1)
    east = (state.heading == EAST) & (state.column == size - 2)
    south = (state.heading == SOUTH) & (state.row == size - 2)
    west = (state.heading == WEST) & (state.column == 1)
    return jnp.stack([north, east, south, west & (state.row != 1), west & (state.row == 1)])


def reward(success: Bool[Array, ""], params: Params) -> Float[Array, ""]:
    """`goal_reward` on facing the green wall."""
    return success * params.goal_reward


@dataclasses.dataclass(frozen=True)
class CompassWorld(Environment):
    size: int = 8
    id: str = dataclasses.field(default="CompassWorld-v0", kw_only=True)
    Params = Params
    hints = Hints(deterministic=True)
    static_ranges = {"size": (3, 10_000)}
    action_names = ("action, 0 forward, 1 right, 2 left",)
    observation_names = ("orange", "yellow", "red", "blue", "green")

    def initial(self, key: Array, params: Params) -> State:
        inner = self.size - 2
        # The goal is the last of the numbers that stand for places and headings, and is not drawn.
        number = jax.random.randint(key, (), 0, 4 * inner * inner - 1)
        heading, cell = number % 4, number // 4
        row, column = inner - cell // inner, inner - cell % inner
        return State(jnp.int32(0), row.astype(jnp.int32), column.astype(jnp.int32), heading.astype(jnp.int32))

    def transition(self, key: Array, state: State, action: Integer[Array, ""], params: Params) -> Transition:
        state = dynamics(state, action, self.size)
        success = colours(state, self.size)[4]
        return Transition(state, reward(success, params), success, jnp.bool_(False), {"success": success})

    def observe(self, key: Array, state: State, params: Params) -> Float[Array, "5"]:
        return colours(state, self.size).astype(jnp.float32)

    def observation_space(self, params: Params) -> Box:
        return Box(np.zeros(5), np.ones(5), (5,))

    def action_space(self, params: Params) -> Discrete:
        return Discrete(3)

    def render(self, state: State, params: Params) -> np.ndarray:
        return drawing.compass_world(self.size, state)
