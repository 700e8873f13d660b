"""CartPole-v1: keep a pole upright on a cart by pushing left or right.

Barto, Sutton and Anderson (1983), "Neuronlike adaptive elements that can solve difficult learning control problems";
equations as corrected by Florian (2007), explicit Euler, as in Gymnasium's `CartPole-v1`.

| observation | unit | range |
|---|---|---|
| x, cart position | m | +-4.8 (ends beyond +-2.4) |
| x_dot, cart velocity | m/s | unbounded |
| theta, pole angle, 0 upright, clockwise positive | rad | +-0.418 (ends beyond +-0.209) |
| theta_dot, pole angular velocity | rad/s | unbounded |

Action: 0 pushes left, 1 pushes right, with `force_mag` [N]. Reward: 1 every step. Ends: cart or pole out of bounds.
"""

from __future__ import annotations

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Integer

from jaxrl.environment import Environment, Hints, Transition, pytree
from jaxrl.math import sincos
from jaxrl.spaces import Box, Discrete
from jaxrl.telemetry import Quantity


@pytree
class Params:
    max_steps: jax.Array = 500
    gravity: jax.Array = 9.8  # m/s^2
    mass_cart: jax.Array = 1.0  # kg
    mass_pole: jax.Array = 0.1  # kg
    length: jax.Array = 0.5  # m, half the pole
    force_mag: jax.Array = 10.0  # N
    dt: jax.Array = 0.02  # s
    x_max: jax.Array = 2.4  # m
    theta_max: jax.Array = 12 * 2 * math.pi / 360  # rad

    @property
    def total_mass(self) -> Array:
        return self.mass_cart + self.mass_pole


@pytree
class State:
    time: jax.Array  # steps since reset
    x: jax.Array  # m
    x_dot: jax.Array  # m/s
    theta: jax.Array  # rad
    theta_dot: jax.Array  # rad/s


def dynamics(state: State, force: Float[Array, ""], params: Params) -> State:
    """One Euler step of cart and pole under a horizontal `force` [N] on the cart (Florian 2007, eq. 23-24)."""
    sin, cos = sincos(state.theta)
    pole_moment = params.mass_pole * params.length
    temp = (force + pole_moment * state.theta_dot**2 * sin) / params.total_mass
    theta_acc = (params.gravity * sin - cos * temp) / (
        params.length * (4 / 3 - params.mass_pole * cos**2 / params.total_mass)
    )
    x_acc = temp - pole_moment * theta_acc * cos / params.total_mass
    return state.replace(
        x=state.x + params.dt * state.x_dot,
        x_dot=state.x_dot + params.dt * x_acc,
        theta=state.theta + params.dt * state.theta_dot,
        theta_dot=state.theta_dot + params.dt * theta_acc,
    )


def out_of_bounds(state: State, params: Params) -> Array:
    """Whether the cart has left the track or the pole has fallen."""
    return (jnp.abs(state.x) > params.x_max) | (jnp.abs(state.theta) > params.theta_max)


@dataclasses.dataclass(frozen=True)
class CartPole(Environment):
    id: str = dataclasses.field(default="CartPole-v1", kw_only=True)
    Params = Params
    # A start costs four words of the step's hash: 1.8 times as fast on a core as `sparse`, and compiled in half.
    hints = Hints(deterministic=True, reset="dense")
    infinite = {"x_max": math.inf, "theta_max": math.inf}
    observation_names = ("x [m]", "x_dot [m/s]", "theta [rad]", "theta_dot [rad/s]")
    action_names = ("push, 0 left, 1 right",)

    def initial(self, key: Array, params: Params) -> State:
        x, x_dot, theta, theta_dot = jax.random.uniform(key, (4,), minval=-0.05, maxval=0.05)
        return State(jnp.int32(0), x, x_dot, theta, theta_dot)

    def transition(self, key: Array, state: State, action: Integer[Array, ""], params: Params) -> Transition:
        state = dynamics(state, jnp.where(action == 1, params.force_mag, -params.force_mag), params)
        reward = jnp.ones_like(state.x)
        return Transition(state, reward, out_of_bounds(state, params), jnp.bool_(False), {})

    def observe(self, key: Array, state: State, params: Params) -> Float[Array, "4"]:
        return jnp.stack([state.x, state.x_dot, state.theta, state.theta_dot])

    def terminal(self, obs: Float[Array, "4"], params: Params) -> Bool[Array, ""]:
        return out_of_bounds(State(jnp.int32(0), *obs), params)

    def telemetry(self, state: State, params: Params) -> dict[str, Quantity]:
        return {
            "x [m]": Quantity(state.x, low=-params.x_max, high=params.x_max),
            "x_dot [m/s]": Quantity(state.x_dot),
            "theta [rad]": Quantity(state.theta, low=-params.theta_max, high=params.theta_max),
            "theta_dot [rad/s]": Quantity(state.theta_dot),
        }

    def observation_space(self, params: Params) -> Box:
        inf = jnp.asarray(jnp.inf)
        high = jnp.stack([2 * params.x_max, inf, 2 * params.theta_max, inf])
        return Box(-high, high, (4,))

    def action_space(self, params: Params) -> Discrete:
        return Discrete(2)

    def validate(self, params: Params) -> None:
        for name in ("gravity", "mass_cart", "mass_pole", "length", "dt", "x_max", "theta_max"):
            if not np.all(np.asarray(getattr(params, name)) > 0):
                raise ValueError(f"CartPole: {name}={getattr(params, name)} must be positive.")
        for name in ("x_max", "theta_max"):
            if not np.all(np.asarray(getattr(params, name)) >= 0.05):
                raise ValueError(
                    f"{self.id}: {name}={getattr(params, name)} must be at least 0.05, where episodes start."
                )

    def render(self, state: State, params: Params) -> np.ndarray:
        from .drawing import draw_cart_pole

        return draw_cart_pole(state, params)
