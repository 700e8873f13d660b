"""MountainCar-v0: drive an underpowered car out of a valley by rocking it.

Moore (1990), "Efficient Memory-based Learning for Robot Control", in the form of Sutton and Barto and of Gymnasium's
`MountainCar-v0`. One step is one unit of time.

| observation | unit | range |
|---|---|---|
| position, along the road's horizontal axis | length | -1.2 .. 0.6 |
| velocity | length/step | +-0.07 |

Action: 0 pushes left, 1 coasts, 2 pushes right, with `force`. Reward: -1 every step. Ends: position at or beyond 0.5
and velocity at least `goal_velocity`. The left wall stops the car.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Integer

from jaxrl.environment import (
    Environment,
    Hints,
    Transition,
    pytree,
    require_non_negative,
    require_order,
    require_positive,
)
from jaxrl.math import sincos
from jaxrl.spaces import Box, Discrete

STARTS = -0.6, -0.4  # the positions an episode may start at: near the bottom of the valley


@pytree
class Params:
    max_steps: jax.Array = 200
    force: jax.Array = 0.001  # length/step^2
    gravity: jax.Array = 0.0025  # length/step^2
    min_position: jax.Array = -1.2
    max_position: jax.Array = 0.6
    max_speed: jax.Array = 0.07  # length/step
    goal_position: jax.Array = 0.5
    goal_velocity: jax.Array = 0.0  # length/step


@pytree
class State:
    time: jax.Array  # steps since reset
    position: jax.Array
    velocity: jax.Array  # length/step


def dynamics(state: State, push: Float[Array, ""], params: Params) -> State:
    """One step under an acceleration `push` along the road; walls clip the position, the left one stops the car."""
    _, slope = sincos(3 * state.position)
    velocity = jnp.clip(state.velocity + push - params.gravity * slope, -params.max_speed, params.max_speed)
    position = jnp.clip(state.position + velocity, params.min_position, params.max_position)
    velocity = jnp.where((position == params.min_position) & (velocity < 0), 0, velocity)
    return state.replace(position=position, velocity=velocity)


def at_goal(state: State, params: Params) -> Bool[Array, ""]:
    """Whether the car has reached the flag, fast enough."""
    return (state.position >= params.goal_position) & (state.velocity >= params.goal_velocity)


def check(env: Environment, params: Params) -> None:
    """Raise ValueError for a road or car that makes no sense."""
    require_positive(env, params, "force", "max_speed")
    require_non_negative(env, params, "gravity")
    require_order(env, params, "min_position", "goal_position")
    require_order(env, params, "goal_position", "max_position")
    if np.any(np.asarray(params.min_position) > STARTS[0]) or np.any(np.asarray(params.max_position) < STARTS[1]):
        raise ValueError(
            f"{env.id}: the car starts at {STARTS[0]} to {STARTS[1]}, which is not between the walls, "
            f"min_position={params.min_position} and max_position={params.max_position}."
        )


def observation_space(params: Params) -> Box:
    """Position and velocity within the walls and the speed limit."""
    low = jnp.stack([params.min_position, -params.max_speed])
    return Box(low, jnp.stack([params.max_position, params.max_speed]), (2,))


def initial(key: Array) -> State:
    """At rest near the bottom of the valley."""
    (position,) = jax.random.uniform(key, (1,), minval=STARTS[0], maxval=STARTS[1])
    return State(jnp.int32(0), position, jnp.zeros_like(position))


@dataclasses.dataclass(frozen=True)
class MountainCar(Environment):
    id: str = dataclasses.field(default="MountainCar-v0", kw_only=True)
    Params = Params
    hints = Hints(deterministic=True, fenced=False)
    observation_names = ("position [length]", "velocity [length/step]")
    action_names = ("push, 0 left, 1 none, 2 right",)

    def initial(self, key: Array, params: Params) -> State:
        return initial(key)

    def transition(self, key: Array, state: State, action: Integer[Array, ""], params: Params) -> Transition:
        direction = jnp.asarray(action, state.position.dtype) - 1  # as a float first: an unsigned 0 - 1 is 255
        state = dynamics(state, direction * params.force, params)
        return Transition(state, -jnp.ones_like(state.position), at_goal(state, params), jnp.bool_(False), {})

    def observe(self, key: Array, state: State, params: Params) -> Float[Array, "2"]:
        return jnp.stack([state.position, state.velocity])

    def terminal(self, obs: Float[Array, "2"], params: Params) -> Bool[Array, ""]:
        return at_goal(State(jnp.int32(0), *obs), params)

    def observation_space(self, params: Params) -> Box:
        return observation_space(params)

    def action_space(self, params: Params) -> Discrete:
        return Discrete(3)

    def validate(self, params: Params) -> None:
        check(self, params)

    def render(self, state: State, params: Params) -> np.ndarray:
        from .drawing import draw_mountain_car

        return draw_mountain_car(state, params)
