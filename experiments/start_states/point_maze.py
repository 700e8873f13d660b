"""A point in a spiral corridor that is paid for the goal alone: the maze of the experiment, as an environment.

The observation is where it is [cells], scaled to [-1, 1]; the action, in [-1, 1]^2 and clipped, moves it by `speed`
times that, x first, and not into a wall. Reward 1 within half a cell of the goal, which ends the episode.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl import Environment, Transition, pytree
from jaxrl.environment import Hints
from jaxrl.spaces import Box

MAP = """
#########
#S......#
#######.#
#.....#.#
#.###.#.#
#.#G..#.#
#.#####.#
#.......#
#########
"""
ROWS = np.array([list(row) for row in MAP.split()])
WALLS = ROWS == "#"
FREE = np.argwhere(~WALLS) + 0.5  # centres of the open cells
START, GOAL = (np.argwhere(ROWS == c)[0] + 0.5 for c in "SG")


@pytree
class Params:
    max_steps: jax.Array = 150
    speed: jax.Array = 0.5  # cells a step


@pytree
class State:
    time: jax.Array
    position: jax.Array  # (2,) row and column


@dataclasses.dataclass(frozen=True)
class PointMaze(Environment):
    id: str = dataclasses.field(default="PointMaze", kw_only=True)
    Params = Params
    hints = Hints(deterministic=True)

    def initial(self, key, params):
        return State(jnp.int32(0), jnp.asarray(START, jnp.result_type(float)))

    def transition(self, key, state, action, params):
        move = params.speed * jnp.clip(action, -1, 1)
        row, column = state.position
        row = jnp.where(wall(row + move[0], column), row, row + move[0])
        column = jnp.where(wall(row, column + move[1]), column, column + move[1])
        position = jnp.stack([row, column])
        there = jnp.sum((position - GOAL) ** 2) < 0.25
        return Transition(state.replace(position=position), jnp.where(there, 1.0, 0.0), there, jnp.bool_(False), {})

    def observe(self, key, state, params):
        return 2 * state.position / len(WALLS) - 1

    def observation_space(self, params):
        return Box(-1.0, 1.0, (2,))

    def action_space(self, params):
        return Box(-1.0, 1.0, (2,))


def wall(row, column):
    return jnp.asarray(WALLS)[jnp.floor(row).astype(int), jnp.floor(column).astype(int)]


def at(positions) -> State:
    """States at positions (n, 2)."""
    return State(jnp.zeros(len(positions), jnp.int32), jnp.asarray(positions, jnp.result_type(float)))
