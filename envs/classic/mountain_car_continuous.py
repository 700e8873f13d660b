"""MountainCarContinuous-v0: MountainCar with a throttle, and a cost for using it.

As in Gymnasium's `MountainCarContinuous-v0`, which keeps its state in float32. The road, the observation and the walls
are MountainCar's (`mountain_car.py`); the flag is at 0.45.

Action: throttle in [-1, 1], clipped, times `force`. Reward: `-0.1 throttle^2`, of the throttle *before* clipping, and
+100 on reaching the flag. Ends: position at or beyond 0.45 and velocity at least `goal_velocity`.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxrl.environment import Environment, Hints, Transition, pytree, require_non_negative
from jaxrl.spaces import Box

from . import mountain_car
from .mountain_car import State, at_goal, dynamics


@pytree
class Params(mountain_car.Params):
    max_steps: jax.Array = 999
    force: jax.Array = 0.0015  # length/step^2 at full throttle
    goal_position: jax.Array = 0.45
    goal_reward: jax.Array = 100.0
    throttle_cost: jax.Array = 0.1


def reward(terminated: Bool[Array, ""], throttle: Float[Array, ""], params: Params) -> Float[Array, ""]:
    """The goal's reward minus the cost of the throttle as commanded."""
    return terminated * params.goal_reward - params.throttle_cost * throttle**2


@dataclasses.dataclass(frozen=True)
class MountainCarContinuous(Environment):
    id: str = dataclasses.field(default="MountainCarContinuous-v0", kw_only=True)
    Params = Params
    hints = Hints(deterministic=True)
    observation_names = ("position [length]", "velocity [length/step]")
    action_names = ("throttle",)

    def initial(self, key: Array, params: Params) -> State:
        return mountain_car.initial(key)

    def transition(self, key: Array, state: State, action: Float[Array, "1"], params: Params) -> Transition:
        state = dynamics(state, jnp.clip(action[0], -1, 1) * params.force, params)
        terminated = at_goal(state, params)
        return Transition(state, reward(terminated, action[0], params), terminated, jnp.bool_(False), {})

    def observe(self, key: Array, state: State, params: Params) -> Float[Array, "2"]:
        return jnp.stack([state.position, state.velocity])

    def terminal(self, obs: Float[Array, "2"], params: Params) -> Bool[Array, ""]:
        return at_goal(State(jnp.int32(0), *obs), params)

    def observation_space(self, params: Params) -> Box:
        return mountain_car.observation_space(params)

    def action_space(self, params: Params) -> Box:
        return Box(-1.0, 1.0, (1,))

    def validate(self, params: Params) -> None:
        mountain_car.check(self, params)
        require_non_negative(self, params, "throttle_cost")

    def render(self, state: State, params: Params) -> np.ndarray:
        from .drawing import draw_mountain_car

        return draw_mountain_car(state, params)
