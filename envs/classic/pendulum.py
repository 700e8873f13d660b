"""Pendulum-v1: swing a rod up and hold it there, with a motor too weak to lift it at once.

Semi-implicit Euler on `theta_acc = 3 g / (2 l) sin(theta) + 3 / (m l^2) torque` (a uniform rod about its end), as in
Gymnasium's `Pendulum-v1`.

| observation | unit | range |
|---|---|---|
| cos(theta), 0 upright, counter-clockwise positive | 1 | +-1 |
| sin(theta) | 1 | +-1 |
| theta_dot | rad/s | +-8 |

Action: torque [N m], clipped to +-2. Reward: `-(theta^2 + 0.1 theta_dot^2 + 0.001 torque^2)` of the state before the
step, with theta in [-pi, pi) and the clipped torque: between -16.3 and 0. Never ends but for the time limit.
"""

from __future__ import annotations

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxrl.environment import Environment, Hints, Transition, pytree, require_non_negative, require_positive
from jaxrl.math import sincos, wrap
from jaxrl.spaces import Box
from jaxrl.telemetry import Quantity


@pytree
class Params:
    max_steps: jax.Array = 200
    gravity: jax.Array = 10.0  # m/s^2
    mass: jax.Array = 1.0  # kg
    length: jax.Array = 1.0  # m
    max_torque: jax.Array = 2.0  # N m
    max_speed: jax.Array = 8.0  # rad/s
    dt: jax.Array = 0.05  # s


@pytree
class State:
    time: jax.Array  # steps since reset
    theta: jax.Array  # rad, not wrapped
    theta_dot: jax.Array  # rad/s


def dynamics(state: State, torque: Float[Array, ""], params: Params) -> State:
    """One semi-implicit Euler step under a `torque` [N m]; the speed is clipped."""
    sin, _ = sincos(state.theta)
    weight = 3 * params.gravity / (2 * params.length) * sin
    theta_dot = state.theta_dot + (weight + 3 / (params.mass * params.length**2) * torque) * params.dt
    theta_dot = jnp.clip(theta_dot, -params.max_speed, params.max_speed)
    return state.replace(theta=state.theta + theta_dot * params.dt, theta_dot=theta_dot)


def reward(state: State, torque: Float[Array, ""]) -> Float[Array, ""]:
    """Minus the quadratic cost of a state and the torque [N m] applied in it."""
    return -(wrap(state.theta, -math.pi, math.pi) ** 2 + 0.1 * state.theta_dot**2 + 0.001 * torque**2)


def energy(state: State, params: Params) -> Float[Array, ""]:
    """Kinetic and potential energy [J] about the axle."""
    _, cos = sincos(state.theta)
    return params.mass * (params.length**2 * state.theta_dot**2 / 6 + params.gravity * params.length * cos / 2)


@dataclasses.dataclass(frozen=True)
class Pendulum(Environment):
    id: str = dataclasses.field(default="Pendulum-v1", kw_only=True)
    Params = Params
    # On a core as fast as `auto`, and compiled in half the time: a start costs two words of the step's hash.
    hints = Hints(deterministic=True, reset="dense", fenced=False)
    observation_names = ("cos(theta)", "sin(theta)", "theta_dot [rad/s]")
    action_names = ("torque [N m]",)

    def initial(self, key: Array, params: Params) -> State:
        theta, theta_dot = jax.random.uniform(key, (2,), minval=-1.0)
        return State(jnp.int32(0), theta * math.pi, jnp.clip(theta_dot, -params.max_speed, params.max_speed))

    def transition(self, key: Array, state: State, action: Float[Array, "1"], params: Params) -> Transition:
        torque = jnp.clip(action[0], -params.max_torque, params.max_torque)
        return Transition(
            dynamics(state, torque, params), reward(state, torque), jnp.bool_(False), jnp.bool_(False), {}
        )

    def observe(self, key: Array, state: State, params: Params) -> Float[Array, "3"]:
        sin, cos = sincos(state.theta)
        return jnp.stack([cos, sin, state.theta_dot])

    def telemetry(self, state: State, params: Params) -> dict[str, Quantity]:
        return {
            "theta [rad]": Quantity(wrap(state.theta, -math.pi, math.pi), jnp.zeros_like(state.theta)),
            "theta_dot [rad/s]": Quantity(state.theta_dot, low=-params.max_speed, high=params.max_speed),
        }

    def observation_space(self, params: Params) -> Box:
        high = jnp.stack([jnp.ones_like(params.max_speed), jnp.ones_like(params.max_speed), params.max_speed])
        return Box(-high, high, (3,))

    def action_space(self, params: Params) -> Box:
        return Box(-params.max_torque, params.max_torque, (1,))

    def validate(self, params: Params) -> None:
        require_positive(self, params, "mass", "length", "max_torque", "max_speed", "dt")
        require_non_negative(self, params, "gravity")

    def render(self, state: State, params: Params) -> np.ndarray:
        from .drawing import draw_pendulum

        return draw_pendulum(state, params)
