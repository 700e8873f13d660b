"""Breakout-MinAtar: keep a ball in play with a paddle and break three rows of bricks with it.

Young and Tian (2019), arXiv:1903.03176; rules of package `minatar` 1.0.15. The ball moves one cell diagonally each
step. Walls and the ceiling turn it; a brick turns it and is gone, unless the ball was on a brick one step earlier. On
the bottom row, a paddle under the ball's old column sends it up, a paddle under its new column sends it back the way it
came. When the ball comes to the bottom row and no brick is left, three new rows appear.

| observation plane, 10 x 10 boolean | |
|---|---|
| 0 paddle (bottom row), 1 ball, 3 brick | where they are |
| 2 trail | where the ball was |

Actions: 0 stay, 1 left, 2 right; without `minimal_actions` 0 stay, 1 left, 3 right, and 2 up, 4 down, 5 fire, which do
nothing. With `sticky_action_prob` the last action is repeated instead. Reward: 1 for a brick. Ends: the ball is lost.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Integer

from jaxrl.environment import NO_LIMIT, Transition, pytree

from .common import FULL, LEFT, RIGHT, MinAtar, bit, happens, unpack


@pytree
class Params:
    max_steps: jax.Array = NO_LIMIT
    sticky_action_prob: jax.Array = 0.1


@pytree
class State:
    time: jax.Array  # steps since reset
    last_action: jax.Array  # among all six
    paddle: jax.Array  # column
    ball_x: jax.Array
    ball_y: jax.Array
    dx: jax.Array  # 1 the ball moves right, -1 left
    dy: jax.Array  # 1 down, -1 up
    last_x: jax.Array  # where the ball was
    last_y: jax.Array
    bricks: jax.Array  # (3,) rows 1 .. 3, bit x set where there is a brick
    strike: jax.Array  # bool: the ball was on a brick


class Draws(NamedTuple):
    """What chance decides in one step."""

    sticky: jax.Array  # bool: the last action is repeated


def draw(key: Array, state: State, params: Params) -> Draws:
    """The random outcomes of one step."""
    return Draws(happens(jax.random.bits(key, (), jnp.uint32), params.sticky_action_prob))


def start(from_right: Bool[Array, ""]) -> State:
    """The first state; the ball comes down from the upper right or left corner."""
    number = jnp.int32
    ball_x = jnp.where(from_right, number(9), number(0))
    return State(
        time=number(0),
        last_action=number(0),
        paddle=number(4),
        ball_x=ball_x,
        ball_y=number(3),
        dx=jnp.where(from_right, number(-1), number(1)),
        dy=number(1),
        last_x=ball_x,
        last_y=number(3),
        bricks=jnp.full(3, FULL, jnp.int32),
        strike=jnp.bool_(False),
    )


def dynamics(
    state: State, action: Integer[Array, ""], draws: Draws, params: Params
) -> tuple[State, Float[Array, ""], Bool[Array, ""]]:
    """One step under one of all six actions: `(state, reward, terminated)`, the clock left alone."""
    action = jnp.where(draws.sticky, state.last_action, action)
    paddle = jnp.clip(state.paddle + (action == RIGHT) - (action == LEFT), 0, 9)

    x, y = state.ball_x + state.dx, state.ball_y + state.dy
    dx = jnp.where((x < 0) | (x > 9), -state.dx, state.dx)
    x = jnp.clip(x, 0, 9)

    ceiling = y < 0
    struck = jnp.where(jnp.arange(1, 4) == y, bit(x), 0)  # the ball's cell, in the rows of bricks
    on_brick = jnp.any(state.bricks & struck != 0)
    breaks = on_brick & ~state.strike
    bricks = jnp.where(breaks, state.bricks & ~struck, state.bricks)

    bottom = y == 9
    bricks = jnp.where(bottom & jnp.all(bricks == 0), FULL, bricks)
    under = bottom & (paddle == state.ball_x)
    edge = bottom & (paddle == x) & ~under
    lost = bottom & ~under & ~edge

    state = state.replace(
        last_action=action,
        paddle=paddle,
        ball_x=x,
        ball_y=jnp.where(breaks | under | edge, state.ball_y, jnp.maximum(y, 0)),
        dx=jnp.where(edge, -dx, dx),
        dy=jnp.where(ceiling | breaks | under | edge, -state.dy, state.dy),
        last_x=state.ball_x,
        last_y=state.ball_y,
        bricks=bricks,
        strike=on_brick,
    )
    return state, breaks.astype(jnp.result_type(float)), lost


def observe(state: State) -> Bool[Array, "10 10 4"]:
    """The four planes."""
    row = jnp.arange(10)
    paddle = jnp.where(row == 9, bit(state.paddle), 0)
    ball = jnp.where(row == state.ball_y, bit(state.ball_x), 0)
    trail = jnp.where(row == state.last_y, bit(state.last_x), 0)
    return unpack(jnp.stack([paddle, ball, trail, jnp.pad(state.bricks, (1, 6))], -1))


@dataclasses.dataclass(frozen=True)
class Breakout(MinAtar):
    id: str = dataclasses.field(default="Breakout-MinAtar", kw_only=True)
    Params = Params
    minimal = (0, 1, 3)
    channels = {"paddle": (86, 180, 233), "ball": (250, 250, 250), "trail": (110, 114, 135), "brick": (226, 120, 60)}

    def initial(self, key: Array, params: Params) -> State:
        return start((jax.random.bits(key, (), jnp.uint32) & 1) == 1)

    def transition(self, key: Array, state: State, action: Integer[Array, ""], params: Params) -> Transition:
        draws = draw(key, state, params)
        state, reward, terminated = dynamics(state, self.full_action(action), draws, params)
        return Transition(state, reward, terminated, jnp.bool_(False), {})

    def observe(self, key: Array, state: State, params: Params) -> Bool[Array, "10 10 4"]:
        return observe(state)
