"""Catch-bsuite: a ball falls down a board of 10 x 5 fields; the paddle on the bottom row must be under it.

Osband et al. (2020), experiments `catch`, `catch_noise` and `catch_scale`. Observation: (rows, columns), 1 where the
ball or the paddle is, else 0. Action: 0, 1, 2 moves the paddle left, not, right. Reward: 0, and +1 or -1 (caught or
not) on the step on which the ball reaches the paddle's row, which ends the episode: `rows - 1` steps.
`info["regret"]`: 1 minus the last reward.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Integer

from jaxrl.environment import NO_LIMIT, Environment, Hints, Transition, pytree
from jaxrl.spaces import Box, Discrete


@pytree
class Params:
    max_steps: jax.Array = NO_LIMIT
    caught: jax.Array = 1.0  # reward
    missed: jax.Array = -1.0  # reward


@pytree
class State:
    time: jax.Array  # steps since reset
    ball_x: jax.Array  # column
    ball_y: jax.Array  # row, 0 at the top
    paddle_x: jax.Array  # column


@dataclasses.dataclass(frozen=True)
class Catch(Environment):
    rows: int = 10
    columns: int = 5
    id: str = dataclasses.field(default="Catch-bsuite", kw_only=True)
    Params = Params
    action_names = ("paddle, 0 left, 1 stay, 2 right",)
    hints = Hints(deterministic=True, reset="dense")  # one random word a slot: 1.3 to 1.4 times as fast as sparse
    static_ranges = {"rows": (2, 1000), "columns": (1, 1000)}

    def initial(self, key: Array, params: Params) -> State:
        # Half the random words of `randint`, at a bias below columns / 2**32.
        column = jax.random.bits(key, (), jnp.uint32) % jnp.uint32(self.columns)
        return State(jnp.int32(0), column.astype(jnp.int32), jnp.int32(0), jnp.int32(self.columns // 2))

    def transition(self, key: Array, state: State, action: Integer[Array, ""], params: Params) -> Transition:
        paddle = jnp.clip(state.paddle_x + action.astype(jnp.int32) - 1, 0, self.columns - 1)
        ball_y = state.ball_y + 1
        end = ball_y == self.rows - 1
        last = jnp.where(paddle == state.ball_x, params.caught, params.missed)
        reward = jnp.where(end, last, 0)
        regret = jnp.where(end, params.caught - last, 0)
        state = state.replace(ball_y=ball_y, paddle_x=paddle)
        return Transition(state, reward, end, jnp.bool_(False), {"regret": regret})

    def observe(self, key: Array, state: State, params: Params) -> Float[Array, "rows columns"]:
        field = jnp.arange(self.rows * self.columns).reshape(self.rows, self.columns)
        ball = state.ball_y * self.columns + state.ball_x
        paddle = (self.rows - 1) * self.columns + state.paddle_x
        return ((field == ball) | (field == paddle)).astype(jnp.float32)

    def observation_space(self, params: Params) -> Box:
        return Box(0.0, 1.0, (self.rows, self.columns))

    def action_space(self, params: Params) -> Discrete:
        return Discrete(3)

    def render(self, state: State, params: Params) -> np.ndarray:
        board = np.asarray(self.observe(jax.random.key(0), state, params))
        picture = np.full((self.rows, self.columns, 3), 30, np.uint8)
        picture[board > 0] = (235, 235, 235)
        picture[-1, int(state.paddle_x)] = (80, 160, 240)
        return picture.repeat(24, 0).repeat(24, 1)
