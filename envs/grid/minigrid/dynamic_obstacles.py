"""MiniGrid-Dynamic-Obstacles: get to the goal among balls that move about.

`minigrid` 3.2.0, `DynamicObstaclesEnv`. One room with the goal in the far corner; the agent starts in the first one
facing right, or with `random_start` anywhere. Before each move of the agent every ball, one after the other, goes to a
random empty one of the eight cells around it, if there is any. To walk forward while a wall or ball is ahead, as it was
before the balls moved, is a collision: reward -1 and the end. Three actions: turn left, right, forward. It sees through
walls. `max_steps` 4 size^2. Mission: one, always 0. Observation, actions and reward else: see `engine`. Target: the
cells of the balls, kept up to date in the state.

The reference draws a cell up to 101 times and leaves a ball where it is if all are taken; here a free cell is always
found (with one free cell of nine, it misses it once in 150,000 moves).
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int32, Integer, UInt32

from jaxrl.environment import Transition
from jaxrl.math import below, choose, random_words
from jaxrl.spaces import Discrete

from ..engine import GridTask, ahead_of, move, place, success_reward, walled
from ..tiles import BALL, BLUE, FORWARD, GOAL, GREEN_GOAL, LEFT, NOTHING, Level, Params, State, kind_of, pack

Balls = Int32[Array, " n"]


def wander(bits: UInt32[Array, " n"], state: State, width: int) -> Balls:
    """Where the balls go, one after the other."""
    around = np.array([row * width + column for row in (-1, 0, 1) for column in (-1, 0, 1)], np.int32)

    def one(balls: Balls, drawn: tuple[Array, Array]) -> tuple[Balls, None]:
        i, bits = drawn
        mine = np.arange(balls.size) == i
        here = jnp.sum(jnp.where(mine, balls, 0), dtype=jnp.int32)
        cells = here + around
        there = state.grid.at[cells].get(mode="promise_in_bounds")
        was_ball = jnp.any(cells[:, None] == state.target, 1)
        taken = jnp.any(cells[:, None] == balls, 1) | (cells == state.position)
        free = ((there == NOTHING) | was_ball) & ~taken
        which = choose(bits, free)
        to = here + jnp.sum(jnp.where(np.arange(9) == which, around, 0), dtype=jnp.int32)
        return jnp.where(mine, to, balls), None

    return jax.lax.scan(one, state.target, (jnp.arange(bits.size, dtype=jnp.int32), bits))[0]


@dataclasses.dataclass(frozen=True)
class DynamicObstacles(GridTask):
    id: str = dataclasses.field(default="MiniGrid-Dynamic-Obstacles-8x8-v0", kw_only=True)
    size: int = 8
    num_obstacles: int = 4
    random_start: bool = False

    hints = GridTask.hints._replace(deterministic=False, noiseless=True)
    see_through_walls: bool = dataclasses.field(default=True, kw_only=True)
    static_ranges = {"size": (4, 100), "num_obstacles": (1, 1000)}

    def __post_init__(self) -> None:
        super().__post_init__()
        most = (self.size - 2) ** 2 - 2
        if not 1 <= self.num_obstacles <= most:
            raise ValueError(
                f"{self.id}: num_obstacles={self.num_obstacles} must be from 1 to {most} in a room of size={self.size}."
            )

    @property
    def shape(self) -> tuple[int, int]:
        return self.size, self.size

    @property
    def time_limit(self) -> int:
        return 4 * self.size**2

    def action_space(self, params: Params | Level) -> Discrete:
        return Discrete(3)

    def generate(self, key: Array, params: Params | Level) -> Level:
        agent, turn, *where = random_words(key, (2 + self.num_obstacles,))
        room = walled(self.size, self.size)
        room[-2, -2] = GREEN_GOAL
        grid = jnp.asarray(room.reshape(-1))
        position, direction = jnp.int32(self.size + 1), jnp.int32(0)
        if self.random_start:
            _, position = place(agent, grid, NOTHING)
            direction = below(turn, 4)
        free, ball = np.arange(self.size**2) != position, jnp.int32(pack(BALL, BLUE))
        grid, balls = jax.lax.scan(lambda grid, bits: place(bits, grid, ball, free), grid, jnp.stack(where))
        mission = jnp.zeros(1, jnp.int32)
        return Level(params.max_steps, grid.reshape(self.shape), position, direction, mission, balls)

    def transition(self, key: Array, state: State, action: Integer[Array, ""], params: Params | Level) -> Transition:
        bits = random_words(key, state.target.shape)
        return self.advance(state, action, wander(bits, state, self.size), params)

    def advance(self, state: State, action: Integer[Array, ""], balls: Balls, params: Params | Level) -> Transition:
        """The step in which the balls go to `balls`: what `transition` does with those it draws."""
        action = jnp.where(action > FORWARD, LEFT, action.astype(jnp.int32))
        ahead = kind_of(state.grid.at[ahead_of(state.position, state.direction, self.size)].get())
        hit = (action == FORWARD) & (ahead != kind_of(NOTHING)) & (ahead != GOAL)
        cells = np.arange(state.grid.size)[:, None]
        left, come = jnp.any(cells == state.target, 1), jnp.any(cells == balls, 1)
        grid = jnp.where(come, pack(BALL, BLUE), jnp.where(left, NOTHING, state.grid))
        state = state.replace(grid=grid, target=balls)
        after, success, failure = self.check(state, action, move(state, action, self.size))
        reward = jnp.where(hit, -1, jnp.where(success, success_reward(state.time, params.max_steps), 0))
        return Transition(after, reward, success | failure | hit, jnp.bool_(False), {})

    def validate(self, params: Params | Level) -> None:
        super().validate(params)
        if isinstance(params, Level):
            grid = np.asarray(params.grid).reshape(-1, self.size**2)
            for cells, balls in zip(grid, np.asarray(params.target).reshape(len(grid), -1), strict=True):
                found = np.flatnonzero(cells == pack(BALL, BLUE)).tolist()
                if sorted(balls.tolist()) != found:
                    raise ValueError(f"level: target={balls} must be the cells of the blue balls, {found}.")

    def mission_text(self, mission: Any) -> str:
        return "get to the green goal square"
