"""MiniGrid-RedBlueDoors: open the red door, then the blue one.

`minigrid` 3.2.0, `RedBlueDoorEnv`. In a square room in the middle of a grid twice as wide as high, a red door is at a
random place of the left wall, a blue one of the right; the agent starts anywhere between. The episode ends when the
blue door is opened, with success if the red one is open by then. `max_steps` 20 size^2. Mission: one, always 0.
Observation, actions and reward: see `engine`. Target: (cell of the red door, cell of the blue one).
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Integer

from jaxrl.math import below, random_words

from ..engine import GridTask, Move, place, put, walled
from ..tiles import BLUE, CLOSED, DOOR, GREY_WALL, NOTHING, OPEN, RED, Level, Params, pack


def opened(state: Any) -> Bool[Array, "2"]:
    """Whether the red and the blue door are open."""
    return state.grid[state.target] & 0xF00FF == pack(DOOR, 0, OPEN)


@dataclasses.dataclass(frozen=True)
class RedBlueDoors(GridTask):
    id: str = dataclasses.field(default="MiniGrid-RedBlueDoors-8x8-v0", kw_only=True)
    size: int = 8
    static_ranges = {"size": (4, 100)}

    @property
    def shape(self) -> tuple[int, int]:
        return self.size, 2 * self.size

    @property
    def time_limit(self) -> int:
        return 20 * self.size**2

    def generate(self, key: Array, params: Params | Level) -> Level:
        red, blue, agent, turn = random_words(key, (4,))
        size = self.size
        left, right = size // 2, size // 2 + size - 1
        room = walled(size, 2 * size)
        room[:, [left, right]] = GREY_WALL
        red, blue = (1 + below(red, size - 2)) * 2 * size + left, (1 + below(blue, size - 2)) * 2 * size + right
        grid = put(jnp.asarray(room.reshape(-1)), red, pack(DOOR, RED, CLOSED))
        grid = put(grid, blue, pack(DOOR, BLUE, CLOSED))
        column = np.arange(2 * size * size) % (2 * size)
        _, position = place(agent, grid, NOTHING, (column > left) & (column < right))
        mission, target = jnp.zeros(1, jnp.int32), jnp.stack([red, blue])
        return Level(params.max_steps, grid.reshape(self.shape), position, below(turn, 4), mission, target)

    def check(self, before: Any, action: Integer[Array, ""], move: Move) -> tuple[Any, Array, Array]:
        after, goal, lava = super().check(before, action, move)
        (red_before, blue_before), (red, blue) = opened(before), opened(after)
        success, failure = blue & red_before, (blue & ~red_before) | (~blue & red & blue_before)
        return after, goal | success, lava | failure

    def mission_text(self, mission: Any) -> str:
        return "open the red door then the blue door"
