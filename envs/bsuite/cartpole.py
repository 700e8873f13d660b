"""CartPole-bsuite: balance a pole for ten seconds near the middle of the track.

Osband et al. (2020), experiments `cartpole`, `cartpole_noise` and `cartpole_scale`; equations of Barto, Sutton and
Anderson (1983) as corrected by Florian (2007), explicit Euler of 0.01 s.

| observation, (1, 6) | range |
|---|---|
| x / x_max, x_dot / x_max | unbounded |
| sin theta, cos theta (theta = 0 upright) | [-1, 1] |
| theta_dot [rad/s] | unbounded |
| time / max_time | [0, 1.001] |

Action: 0, 1, 2 pushes with -10, 0, 10 N. Reward: 1 while cos theta > `height` and |x| < `x_max`, else 0, which ends the
episode, as does the time. The end by time is a termination (bsuite's discount there is 0, and the observation has a
clock). bsuite adds up its steps of 0.01 in float64 and stops *above* 10 s, so that an episode has up to 1,001 steps; a
clock that counts steps does the same in every precision.
"""

from __future__ import annotations

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Integer

from jaxrl.environment import NO_LIMIT, Environment, Hints, Transition, pytree
from jaxrl.math import sincos, wrap
from jaxrl.spaces import Box, Discrete


@pytree
class Params:
    max_steps: jax.Array = NO_LIMIT
    gravity: jax.Array = 9.8  # m/s^2
    mass_cart: jax.Array = 1.0  # kg
    mass_pole: jax.Array = 0.1  # kg
    length: jax.Array = 0.5  # m, half the pole
    force_mag: jax.Array = 10.0  # N
    dt: jax.Array = 0.01  # s
    max_time: jax.Array = 10.0  # s
    x_max: jax.Array = 3.0  # m
    height: jax.Array = 0.8  # cosine of the pole's angle above which it is upright
    init_range: jax.Array = 0.05  # half-width of the first x, x_dot, theta, theta_dot


@pytree
class State:
    time: jax.Array  # steps since reset
    x: jax.Array  # m
    x_dot: jax.Array  # m/s
    theta: jax.Array  # rad, in [0, 2 pi) after a step
    theta_dot: jax.Array  # rad/s


def dynamics(state: State, action: Integer[Array, ""], params: Params) -> State:
    """One Euler step of cart and pole (Florian 2007, eq. 23-24) under action 0, 1, 2; without the clock."""
    force = (action.astype(jnp.int32) - 1).astype(state.x.dtype) * params.force_mag
    sin, cos = sincos(state.theta)
    pole_moment, total_mass = params.mass_pole * params.length, params.mass_cart + params.mass_pole
    temp = (force + pole_moment * state.theta_dot**2 * sin) / total_mass
    theta_acc = (params.gravity * sin - cos * temp) / (params.length * (4 / 3 - params.mass_pole * cos**2 / total_mass))
    x_acc = temp - pole_moment * theta_acc * cos / total_mass
    return state.replace(
        x=state.x + params.dt * state.x_dot,
        x_dot=state.x_dot + params.dt * x_acc,
        theta=wrap(state.theta + params.dt * state.theta_dot, 0.0, 2 * math.pi),
        theta_dot=state.theta_dot + params.dt * theta_acc,
    )


def out_of_time(state: State, params: Params) -> Bool[Array, ""]:
    """Whether the step from `state`, before the clock ticks, ends after `max_time`."""
    return (state.time + 1) * params.dt > params.max_time


def first_state(key: Array, angle: float, params: Params) -> State:
    """A state drawn about `angle` [rad], at rest in the middle."""
    draws = jax.random.uniform(key, (4,), params.init_range.dtype, -params.init_range, params.init_range)
    x, x_dot, theta, theta_dot = draws
    return State(jnp.int32(0), x, x_dot, angle + theta, theta_dot)


def features(state: State, params: Params) -> Float[Array, "6"]:
    """The six numbers that both of bsuite's cart-poles observe."""
    sin, cos = sincos(state.theta)
    time = state.time * params.dt / params.max_time
    return jnp.stack([state.x / params.x_max, state.x_dot / params.x_max, sin, cos, state.theta_dot, time])


@dataclasses.dataclass(frozen=True)
class CartPole(Environment):
    id: str = dataclasses.field(default="CartPole-bsuite", kw_only=True)
    Params = Params
    action_names = ("push, 0 left, 1 none, 2 right",)
    hints = Hints(deterministic=True)

    def initial(self, key: Array, params: Params) -> State:
        return first_state(key, 0.0, params)

    def transition(self, key: Array, state: State, action: Integer[Array, ""], params: Params) -> Transition:
        late = out_of_time(state, params)
        state = dynamics(state, action, params)
        good = (sincos(state.theta)[1] > params.height) & (jnp.abs(state.x) < params.x_max)
        return Transition(state, good.astype(state.x.dtype), late | ~good, jnp.bool_(False), {})

    def observe(self, key: Array, state: State, params: Params) -> Float[Array, "1 6"]:
        return features(state, params)[None]

    def observation_space(self, params: Params) -> Box:
        high = jnp.array([[jnp.inf, jnp.inf, 1, 1, jnp.inf, 2]])
        return Box(-high.at[0, 5].set(0), high, (1, 6))

    def action_space(self, params: Params) -> Discrete:
        return Discrete(3)

    def validate(self, params: Params) -> None:
        for name in ("gravity", "mass_cart", "mass_pole", "length", "dt", "max_time", "x_max"):
            if not np.all(np.asarray(getattr(params, name)) > 0):
                raise ValueError(f"{self.id}: {name}={getattr(params, name)} must be positive.")
