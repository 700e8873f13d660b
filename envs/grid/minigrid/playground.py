"""MiniGrid-Playground: nine rooms full of objects, and nothing to be done.

`minigrid` 3.2.0, `PlaygroundEnv`. 19 x 19 cells: 3 x 3 rooms, a door of random colour in each wall between two of
them, and twelve keys, balls and boxes. No reward, no end but the time limit, `max_steps` 100. Mission: one, always 0,
without words. Observation and actions: see `engine`.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxrl.math import below, random_words

from ..engine import GridTask, place, random_color, walled
from ..tiles import CLOSED, DOOR, GREY_WALL, KEY, NOTHING, Level, Params, pack

OBJECTS = 12
# First cell of each wall's stretch that may have its door, and the step along it: six upright walls, six level ones.
_FIRST = np.array(
    [(6 * j + 1) * 19 + 6 * (i + 1) for i in range(2) for j in range(3)]
    + [6 * (j + 1) * 19 + 6 * i + 1 for i in range(3) for j in range(2)],
    np.int32,
)
_STEP = np.array([19] * 6 + [1] * 6, np.int32)


@dataclasses.dataclass(frozen=True)
class Playground(GridTask):
    id: str = dataclasses.field(default="MiniGrid-Playground-v0", kw_only=True)

    @property
    def shape(self) -> tuple[int, int]:
        return 19, 19

    @property
    def time_limit(self) -> int:
        return 100

    def generate(self, key: Array, params: Params | Level) -> Level:
        bits = random_words(key, (2 * 12 + 3 * OBJECTS + 2,))
        along, paint = bits[:24].reshape(2, 12)
        kind, color, where = bits[24:-2].reshape(3, OBJECTS)
        rooms = walled(19, 19)
        rooms[[6, 12]] = rooms[:, [6, 12]] = GREY_WALL
        cells = np.arange(19 * 19, dtype=np.int32)
        at = (_FIRST + _STEP * below(along, 4))[:, None] == cells
        doors = jnp.sum(jnp.where(at, pack(DOOR, random_color(paint), CLOSED)[:, None], 0), 0, dtype=jnp.int32)
        grid = jnp.where(doors > 0, doors, rooms.reshape(-1))
        _, position = place(bits[-2], grid, NOTHING)
        objects = pack(KEY + below(kind, 3), random_color(color))
        free = cells != position
        grid, _ = jax.lax.scan(lambda grid, x: (place(x[0], grid, x[1], free)[0], None), grid, (where, objects))
        mission, none = jnp.zeros(1, jnp.int32), jnp.zeros(0, jnp.int32)
        return Level(params.max_steps, grid.reshape(19, 19), position, below(bits[-1], 4), mission, none)

    def mission_text(self, mission: Any) -> str:
        return ""
