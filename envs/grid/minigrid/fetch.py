"""MiniGrid-Fetch: pick up the object that the mission names, and no other.

`minigrid` 3.2.0, `FetchEnv`. Keys and balls of random colours, some of them maybe alike, lie in one room; agent and
mission are random. Any object picked up ends the episode. It sees through walls. `max_steps` 5 size^2. Mission:
(wording, colour, kind). Observation, actions and reward: see `engine`.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Integer

from jaxrl.math import below, random_words

from ..engine import GridTask, Move, place, random_color, walled
from ..tiles import BALL, COLORS, KEY, KINDS, NOTHING, Level, Params, color_of, kind_of, pack

WORDINGS = ("get a", "go get a", "fetch a", "go fetch a", "you must fetch a")


@dataclasses.dataclass(frozen=True)
class Fetch(GridTask):
    id: str = dataclasses.field(default="MiniGrid-Fetch-8x8-N3-v0", kw_only=True)
    size: int = 8
    num_objects: int = 3

    see_through_walls: bool = dataclasses.field(default=True, kw_only=True)
    missions = (len(WORDINGS), len(COLORS), BALL + 1)
    static_ranges = {"size": (4, 100), "num_objects": (1, 1000)}

    def __post_init__(self) -> None:
        super().__post_init__()
        most = (self.size - 2) ** 2 - 1  # a cell is left free
        if self.num_objects > most:
            raise ValueError(f"{self.id}: num_objects={self.num_objects} must be from 1 to {most} in this room.")

    @property
    def shape(self) -> tuple[int, int]:
        return self.size, self.size

    @property
    def time_limit(self) -> int:
        return 5 * self.size**2

    def generate(self, key: Array, params: Params | Level) -> Level:
        n = self.num_objects
        bits = random_words(key, (3 * n + 4,))
        kind, color, where = bits[: 3 * n].reshape(3, n)
        agent, turn, which, wording = bits[3 * n :]
        objects = pack(KEY + below(kind, 2), random_color(color))
        grid = jnp.asarray(walled(self.size, self.size).reshape(-1))
        for i in range(n):
            grid, _ = place(where[i], grid, objects[i])
        _, position = place(agent, grid, NOTHING)
        wanted = jnp.sum(jnp.where(np.arange(n) == below(which, n), objects, 0), dtype=jnp.int32)
        mission = jnp.stack([below(wording, len(WORDINGS)), color_of(wanted), kind_of(wanted)])
        none = jnp.zeros(0, jnp.int32)
        return Level(params.max_steps, grid.reshape(self.shape), position, below(turn, 4), mission, none)

    def check(self, before: Any, action: Integer[Array, ""], move: Move) -> tuple[Any, Array, Array]:
        after, goal, lava = super().check(before, action, move)
        right = after.carrying & 0xFFFF == pack(after.mission[2], after.mission[1])
        return after, goal | right, lava | ((after.carrying != 0) & ~right)

    def mission_text(self, mission: Any) -> str:
        return f"{WORDINGS[mission[0]]} {COLORS[mission[1]]} {KINDS[mission[2]]}"
