"""Acrobot-v1: swing the free end of a two-link arm above a line by a motor in its elbow.

Sutton (1996), "Generalization in Reinforcement Learning: Successful Examples Using Sparse Coarse Coding"; the
equations of Sutton and Barto's book, one Runge-Kutta step of 0.2 s, as in Gymnasium's `Acrobot-v1`. Physics in
`two_link.py`.

| observation | unit | range |
|---|---|---|
| cos, sin of theta_1, first link, 0 hanging down | 1 | +-1 |
| cos, sin of theta_2, second link relative to the first | 1 | +-1 |
| theta_1_dot | rad/s | +-4 pi |
| theta_2_dot | rad/s | +-9 pi |

Action: 0, 1, 2 for a torque of -1, 0, +1 times `torque` [N m] in the elbow. Reward: -1 a step, 0 on the last. Ends:
the tip is more than `goal_height` above the shoulder.
"""

from __future__ import annotations

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Integer

from jaxrl.environment import Environment, Hints, Transition, pytree, require_non_negative, require_positive
from jaxrl.math import sincos, wrap
from jaxrl.spaces import Box, Discrete
from jaxrl.telemetry import Quantity

from .two_link import move


@pytree
class Params:
    max_steps: jax.Array = 500
    gravity: jax.Array = 9.8  # m/s^2
    mass_1: jax.Array = 1.0  # kg
    mass_2: jax.Array = 1.0  # kg
    length_1: jax.Array = 1.0  # m
    length_2: jax.Array = 1.0  # m, for the goal only: the dynamics know its centre of mass
    com_1: jax.Array = 0.5  # m, centre of mass from the joint
    com_2: jax.Array = 0.5  # m
    inertia_1: jax.Array = 1.0  # kg m^2, about the centre of mass
    inertia_2: jax.Array = 1.0  # kg m^2
    damping: jax.Array = 0.0  # N m s, in each joint
    torque: jax.Array = 1.0  # N m
    dt: jax.Array = 0.2  # s
    max_speed_1: jax.Array = 4 * math.pi  # rad/s
    max_speed_2: jax.Array = 9 * math.pi  # rad/s
    goal_height: jax.Array = 1.0  # m above the shoulder


@pytree
class State:
    time: jax.Array  # steps since reset
    theta_1: jax.Array  # rad
    theta_2: jax.Array  # rad
    theta_1_dot: jax.Array  # rad/s
    theta_2_dot: jax.Array  # rad/s


def dynamics(state: State, torque: Float[Array, ""], params: Params) -> State:
    """One step under a `torque` [N m] in the elbow; angles wrap to [-pi, pi), speeds are clipped."""
    motion = (state.theta_1, state.theta_2, state.theta_1_dot, state.theta_2_dot)
    theta_1, theta_2, theta_1_dot, theta_2_dot = move(motion, jnp.zeros_like(torque), torque, params, params.dt)
    return state.replace(
        theta_1=wrap(theta_1, -math.pi, math.pi),
        theta_2=wrap(theta_2, -math.pi, math.pi),
        theta_1_dot=jnp.clip(theta_1_dot, -params.max_speed_1, params.max_speed_1),
        theta_2_dot=jnp.clip(theta_2_dot, -params.max_speed_2, params.max_speed_2),
    )


def tip_height(state: State, params: Params) -> Float[Array, ""]:
    """Height [m] of the free end above the shoulder."""
    (sin_1, cos_1), (sin_2, cos_2) = sincos(state.theta_1), sincos(state.theta_2)
    return -params.length_1 * cos_1 - params.length_2 * (cos_1 * cos_2 - sin_1 * sin_2)


def reward(terminated: Bool[Array, ""]) -> Float[Array, ""]:
    """-1 for every step that does not reach the goal."""
    return terminated.astype(float) - 1


@dataclasses.dataclass(frozen=True)
class Acrobot(Environment):
    id: str = dataclasses.field(default="Acrobot-v1", kw_only=True)
    Params = Params
    hints = Hints(deterministic=True)
    observation_names = (
        "cos(theta_1)",
        "sin(theta_1)",
        "cos(theta_2)",
        "sin(theta_2)",
        "theta_1_dot [rad/s]",
        "theta_2_dot [rad/s]",
    )
    action_names = ("torque, 0 is -1, 1 is 0, 2 is 1",)

    def initial(self, key: Array, params: Params) -> State:
        theta_1, theta_2, theta_1_dot, theta_2_dot = jax.random.uniform(key, (4,), minval=-0.1, maxval=0.1)
        theta_1_dot = jnp.clip(theta_1_dot, -params.max_speed_1, params.max_speed_1)
        theta_2_dot = jnp.clip(theta_2_dot, -params.max_speed_2, params.max_speed_2)
        return State(jnp.int32(0), theta_1, theta_2, theta_1_dot, theta_2_dot)

    def transition(self, key: Array, state: State, action: Integer[Array, ""], params: Params) -> Transition:
        direction = jnp.asarray(action, state.theta_1.dtype) - 1  # as a float first: an unsigned 0 - 1 is 255
        state = dynamics(state, direction * params.torque, params)
        terminated = tip_height(state, params) > params.goal_height
        return Transition(state, reward(terminated), terminated, jnp.bool_(False), {})

    def observe(self, key: Array, state: State, params: Params) -> Float[Array, "6"]:
        (sin_1, cos_1), (sin_2, cos_2) = sincos(state.theta_1), sincos(state.theta_2)
        return jnp.stack([cos_1, sin_1, cos_2, sin_2, state.theta_1_dot, state.theta_2_dot])

    def telemetry(self, state: State, params: Params) -> dict[str, Quantity]:
        speeds = {
            f"theta_{i}_dot [rad/s]": Quantity(speed, low=-most, high=most)
            for i, speed, most in (
                (1, state.theta_1_dot, params.max_speed_1),
                (2, state.theta_2_dot, params.max_speed_2),
            )
        }
        return {"theta_1 [rad]": Quantity(state.theta_1), "theta_2 [rad]": Quantity(state.theta_2), **speeds}

    def observation_space(self, params: Params) -> Box:
        one = jnp.ones_like(params.max_speed_1)
        high = jnp.stack([one, one, one, one, params.max_speed_1, params.max_speed_2])
        return Box(-high, high, (6,))

    def action_space(self, params: Params) -> Discrete:
        return Discrete(3)

    def validate(self, params: Params) -> None:
        lengths = ("length_1", "length_2", "com_1", "com_2")
        require_positive(self, params, "mass_1", "mass_2", *lengths, "dt", "max_speed_1", "max_speed_2")
        require_non_negative(self, params, "gravity", "inertia_1", "inertia_2", "damping")
        if not np.all(np.asarray(params.dt) <= 2):
            raise ValueError(f"{self.id}: dt={params.dt} must be at most 2 s: a longer step of Runge-Kutta overflows.")

    def render(self, state: State, params: Params) -> np.ndarray:
        from .drawing import draw_hanging_arm

        return draw_hanging_arm(state, params, float(params.goal_height))
