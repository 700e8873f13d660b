"""MiniGrid-Memory: remember the object seen at the start, and go to the same one at the end of a hallway.

`minigrid` 3.2.0, `MemoryEnv`. A green key or ball lies in a small room on the left; from there a hallway, with
`random_length` of random length, leads to a fork with a key at one end and a ball at the other. The agent starts
somewhere on the way, facing right. The episode ends in front of an object of the fork, with success if it is the same.
Picking up does what toggling does: nothing here. `max_steps` 5 size^2. Mission: one, always 0. Observation, actions
and reward: see `engine`. Target: (cell of success, cell of failure).
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Integer

from jaxrl.environment import Transition
from jaxrl.math import below, random_words

from ..engine import GridTask, Move, put, walled
from ..tiles import BALL, GREEN, GREY_WALL, KEY, PICKUP, TOGGLE, Level, Params, pack


@dataclasses.dataclass(frozen=True)
class Memory(GridTask):
    id: str = dataclasses.field(default="MiniGrid-MemoryS11-v0", kw_only=True)
    size: int = 11
    random_length: bool = False
    static_ranges = {"size": (7, 101)}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.size % 2 == 0:
            raise ValueError(f"{self.id}: size={self.size} must be odd.")

    @property
    def shape(self) -> tuple[int, int]:
        return self.size, self.size

    @property
    def time_limit(self) -> int:
        return 5 * self.size**2

    def generate(self, key: Array, params: Params | Level) -> Level:
        length, start, seen, upper = random_words(key, (4,))
        size, middle = self.size, self.size // 2
        fork = 4 + below(length, size - 6) if self.random_length else jnp.int32(size - 3)  # where the hallway ends
        row, column = np.divmod(np.arange(size * size, dtype=np.int32), size)
        hallway = (np.abs(row - middle) == 1) & (column >= 4) & (column < fork)
        room = (np.abs(row - middle) == 2) & (column >= 1) & (column <= 4)
        across = ((column == fork) & (row != middle)) | (column == fork + 2)
        grid = jnp.where(hallway | room | across, GREY_WALL, walled(size, size).reshape(-1))

        seen, upper = KEY + below(seen, 2), KEY + below(upper, 2)
        ends = jnp.stack([fork + 1 + (middle - 2) * size, fork + 1 + (middle + 2) * size])
        grid = put(grid, 1 + (middle - 1) * size, pack(seen, GREEN))
        grid = put(put(grid, ends[0], pack(upper, GREEN)), ends[1], pack(KEY + BALL - upper, GREEN))
        before = ends + jnp.array([size, -size], jnp.int32)
        target = jnp.where(seen == upper, before, before[::-1])
        position = middle * size + 1 + below(start, fork)
        mission = jnp.zeros(1, jnp.int32)
        return Level(params.max_steps, grid.reshape(self.shape), position, jnp.int32(0), mission, target)

    def transition(self, key: Array, state: Any, action: Integer[Array, ""], params: Params | Level) -> Transition:
        return super().transition(key, state, jnp.where(action == PICKUP, TOGGLE, action), params)

    def check(self, before: Any, action: Integer[Array, ""], move: Move) -> tuple[Any, Array, Array]:
        after, goal, lava = super().check(before, action, move)
        success, failure = (after.position == after.target[i] for i in range(2))
        return after, goal | success, lava | failure

    def mission_text(self, mission: Any) -> str:
        return "go to the matching object at the end of the hallway"
