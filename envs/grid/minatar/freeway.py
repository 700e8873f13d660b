"""Freeway-MinAtar: walk a chicken up across eight lanes of traffic, again and again.

Young and Tian (2019), arXiv:1903.03176; rules of package `minatar` 1.0.15. The chicken, in column 4, can move a cell
every `player_speed` steps. In each row 1 .. 8 a car moves a cell every 2 to 6 steps, left or right, and comes in
again on the other side. A car that meets the chicken sends it back to the bottom, and so does the top, where there is a
reward and all cars draw new speeds and directions.

| observation plane, 10 x 10 boolean | |
|---|---|
| 0 chicken, 1 car | where they are |
| 2 .. 6 speed 1 .. 5 | the cell behind each car, in the plane of its speed: steps that it waits between moves |

Actions: 0 stay, 1 up, 2 down; without `minimal_actions` 0 stay, 2 up, 4 down, and 1 left, 3 right, 5 fire, which do
nothing. With `sticky_action_prob` the last action is repeated instead. Reward: 1 at the top. Ends: with step
`time_limit` + 1 = 2501, a termination as in the package.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Integer, UInt32

from jaxrl.environment import NO_LIMIT, Transition, pytree

from .common import DOWN, UP, MinAtar, bit, happens, unpack


@pytree
class Params:
    max_steps: jax.Array = NO_LIMIT
    sticky_action_prob: jax.Array = 0.1
    player_speed: jax.Array = 3  # steps from one move of the chicken to the next
    time_limit: jax.Array = 2500  # steps after which the game ends with the next


@pytree
class State:
    time: jax.Array  # steps since reset
    last_action: jax.Array  # among all six
    y: jax.Array  # of the chicken
    move_timer: jax.Array
    car_x: jax.Array  # (8,) of the car in row i + 1
    car_timer: jax.Array  # (8,)
    car_speed: jax.Array  # (8,) 1 .. 5, steps between moves less one; negative where it moves left


class Draws(NamedTuple):
    """What chance decides in one step."""

    sticky: jax.Array  # bool: the last action is repeated
    speeds: jax.Array  # (8,) new `car_speed`, used if the chicken reaches the top


def draw_speeds(speed: UInt32[Array, ""], direction: UInt32[Array, ""]) -> Integer[Array, "8"]:
    """Speeds 1 .. 5 and signs, uniform; of `direction` the 8 low bits are used."""
    # Digits to base 5 of a fraction of 32 bits: joint probabilities are right to 5^8 / 2^32 = 1e-4 of their value.
    rest = speed * np.uint32(5) ** np.arange(8, dtype=np.uint32)
    digit = ((rest >> 16) * 5 + ((rest & 0xFFFF) * 5 >> 16)) >> 16
    left = (direction >> np.arange(8, dtype=np.uint32)) & 1 == 1
    size = digit.astype(jnp.int32) + 1
    return jnp.where(left, -size, size)


def draw(key: Array, state: State, params: Params) -> Draws:
    """The random outcomes of one step."""
    first, second = jax.random.bits(key, (2,), jnp.uint32)
    return Draws(happens(first, params.sticky_action_prob), draw_speeds(second, first))


def start(speeds: Integer[Array, "8"], params: Params) -> State:
    """The first state: all cars on the left, the chicken at the bottom."""
    speeds = speeds.astype(jnp.int32)
    return State(
        time=jnp.int32(0),
        last_action=jnp.int32(0),
        y=jnp.int32(9),
        move_timer=params.player_speed,
        car_x=jnp.zeros(8, jnp.int32),
        car_timer=jnp.abs(speeds),
        car_speed=speeds,
    )


def dynamics(
    state: State, action: Integer[Array, ""], draws: Draws, params: Params
) -> tuple[State, Float[Array, ""], Bool[Array, ""]]:
    """One step under one of all six actions: `(state, reward, terminated)`, the clock left alone."""
    action = jnp.where(draws.sticky, state.last_action, action)
    ready = state.move_timer == 0
    walks = ready & ((action == UP) | (action == DOWN))
    y = jnp.clip(state.y + (ready & (action == DOWN)) - (ready & (action == UP)), 0, 9)
    move_timer = jnp.where(walks, params.player_speed, state.move_timer)

    top = y == 0
    y = jnp.where(top, 9, y)
    speed = jnp.where(top, draws.speeds, state.car_speed)
    timer = jnp.where(top, jnp.abs(draws.speeds), state.car_timer)

    # Only the car of the chicken's row can meet it, where it is or where it moves to.
    moves = timer == 0
    x = jnp.where(moves, state.car_x + jnp.where(speed > 0, 1, -1), state.car_x)
    x = jnp.where(x < 0, 9, jnp.where(x > 9, 0, x))
    hit = jnp.any((jnp.arange(1, 9) == y) & ((state.car_x == 4) | (x == 4)))

    state = state.replace(
        last_action=action,
        y=jnp.where(hit, 9, y),
        move_timer=move_timer - (move_timer > 0),
        car_x=x,
        car_timer=jnp.where(moves, jnp.abs(speed), timer - 1),
        car_speed=speed,
    )
    return state, top.astype(jnp.result_type(float)), state.time >= params.time_limit


def observe(state: State) -> Bool[Array, "10 10 7"]:
    """The seven planes."""
    chicken = jnp.where(jnp.arange(10) == state.y, 1 << 4, 0)
    behind = jnp.where(state.car_speed > 0, state.car_x - 1, state.car_x + 1)
    behind = jnp.where(behind < 0, 9, jnp.where(behind > 9, 0, behind))
    trails = jnp.where(jnp.abs(state.car_speed)[:, None] == jnp.arange(1, 6), bit(behind)[:, None], 0)
    cars = jnp.concatenate([bit(state.car_x)[:, None], trails], -1)
    return unpack(jnp.concatenate([chicken[:, None], jnp.pad(cars, ((1, 1), (0, 0)))], -1))


@dataclasses.dataclass(frozen=True)
class Freeway(MinAtar):
    id: str = dataclasses.field(default="Freeway-MinAtar", kw_only=True)
    Params = Params
    minimal = (0, 2, 4)
    channels = {
        "chicken": (250, 220, 90),
        "car": (213, 62, 79),
        "speed1": (140, 146, 170),
        "speed2": (118, 123, 146),
        "speed3": (97, 101, 122),
        "speed4": (77, 80, 99),
        "speed5": (58, 61, 77),
    }

    def initial(self, key: Array, params: Params) -> State:
        speed, direction = jax.random.bits(key, (2,), jnp.uint32)
        return start(draw_speeds(speed, direction), params)

    def transition(self, key: Array, state: State, action: Integer[Array, ""], params: Params) -> Transition:
        draws = draw(key, state, params)
        state, reward, terminated = dynamics(state, self.full_action(action), draws, params)
        return Transition(state, reward, terminated, jnp.bool_(False), {})

    def observe(self, key: Array, state: State, params: Params) -> Bool[Array, "10 10 7"]:
        return observe(state)

    def validate(self, params: Params) -> None:
        super().validate(params)
        self.check_positive(params, "time_limit")
