"""MountainCar-bsuite: an underpowered car rocks out of a valley, with a clock in the observation.

Osband et al. (2020), experiments `mountain_car`, `mountain_car_noise`, `mountain_car_scale`; the car of Moore (1990).
Observation, (1, 3): position in [-1.2, 0.6], velocity in [-0.07, 0.07] a step, time / episode_length in [0, 1].
Action: 0, 1, 2 pushes left, not, right. Reward: -1 every step. Ends at the flag (position >= 0.5) or after 1,000 steps
(a termination: bsuite's discount there is 0).
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Integer

from jaxrl.environment import NO_LIMIT, Environment, Hints, Transition, pytree, require_non_negative
from jaxrl.math import sincos
from jaxrl.spaces import Box, Discrete


@pytree
class Params:
    max_steps: jax.Array = NO_LIMIT
    episode_length: jax.Array = 1000  # steps
    min_position: jax.Array = -1.2
    max_position: jax.Array = 0.6
    goal_position: jax.Array = 0.5
    max_speed: jax.Array = 0.07  # a step
    force: jax.Array = 0.001
    gravity: jax.Array = 0.0025
    first_low: jax.Array = -0.6  # the first position is uniform between these
    first_high: jax.Array = -0.4


@pytree
class State:
    time: jax.Array  # steps since reset
    position: jax.Array
    velocity: jax.Array  # a step


def dynamics(state: State, action: Integer[Array, ""], params: Params) -> State:
    """One step of the car; the left wall stops it. Without the clock."""
    push = (action.astype(jnp.int32) - 1).astype(state.position.dtype)
    velocity = state.velocity + push * params.force - params.gravity * sincos(3 * state.position)[1]
    velocity = jnp.clip(velocity, -params.max_speed, params.max_speed)
    position = jnp.clip(state.position + velocity, params.min_position, params.max_position)
    velocity = jnp.where(position == params.min_position, jnp.maximum(velocity, 0), velocity)
    return state.replace(position=position, velocity=velocity)


@dataclasses.dataclass(frozen=True)
class MountainCar(Environment):
    id: str = dataclasses.field(default="MountainCar-bsuite", kw_only=True)
    Params = Params
    action_names = ("push, 0 left, 1 none, 2 right",)
    hints = Hints(deterministic=True)

    def initial(self, key: Array, params: Params) -> State:
        position = jax.random.uniform(key, (), params.first_low.dtype, params.first_low, params.first_high)
        return State(jnp.int32(0), position, jnp.zeros_like(position))

    def transition(self, key: Array, state: State, action: Integer[Array, ""], params: Params) -> Transition:
        late = state.time + 1 >= params.episode_length
        state = dynamics(state, action, params)
        reward = -jnp.ones_like(state.position)
        return Transition(state, reward, late | (state.position >= params.goal_position), jnp.bool_(False), {})

    def observe(self, key: Array, state: State, params: Params) -> Float[Array, "1 3"]:
        # Compiled as a product with the inverse, the quotient may exceed 1 in the last digit.
        time = jnp.minimum(state.time / params.episode_length, 1).astype(state.position.dtype)
        return jnp.stack([state.position, state.velocity, time])[None]

    def observation_space(self, params: Params) -> Box:
        zero, one = jnp.zeros(()), jnp.ones(())
        low = jnp.stack([params.min_position, -params.max_speed, zero])
        return Box(low[None], jnp.stack([params.max_position, params.max_speed, one])[None], (1, 3))

    def action_space(self, params: Params) -> Discrete:
        return Discrete(3)

    def validate(self, params: Params) -> None:
        if not np.all(np.asarray(params.episode_length) > 0):
            raise ValueError(f"{self.id}: episode_length={params.episode_length} must be positive.")
        require_non_negative(self, params, "max_speed")
        first = np.stack(np.broadcast_arrays(params.first_low, params.first_high))
        if np.any(first < np.asarray(params.min_position)) or np.any(first > np.asarray(params.max_position)):
            raise ValueError(
                f"{self.id}: first_low={params.first_low} and first_high={params.first_high} are not between the "
                f"walls, min_position={params.min_position} and max_position={params.max_position}."
            )
