"""CartPoleSwingup-bsuite: swing a hanging pole up and hold it still in the middle; every push costs.

Osband et al. (2020), experiment `cartpole_swingup`, whose settings make the rewarded region smaller and smaller. The
dynamics, actions and first six observations are those of `CartPole-bsuite`; then follow +1 or -1 for |x| < `x_good` and
for |theta_dot| < `theta_dot_good`: (1, 8). Reward: 1 while both hold and cos theta > `height`, less `move_cost` for a
push. Ends when |x| > `x_max` or after 1,001 steps (a termination, see `cartpole`).
"""

from __future__ import annotations

import dataclasses
import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Integer

from jaxrl.environment import Transition, pytree
from jaxrl.math import sincos
from jaxrl.spaces import Box

from .cartpole import CartPole, State, dynamics, features, first_state, out_of_time
from .cartpole import Params as CartPoleParams


@pytree
class Params(CartPoleParams):
    height: jax.Array = 0.5  # cosine of the pole's angle above which it is upright
    x_good: jax.Array = 1.0  # m
    theta_dot_good: jax.Array = 1.0  # rad/s
    move_cost: jax.Array = 0.1


@dataclasses.dataclass(frozen=True)
class CartPoleSwingup(CartPole):
    id: str = dataclasses.field(default="CartPoleSwingup-bsuite", kw_only=True)
    Params = Params

    def initial(self, key: Array, params: Params) -> State:
        return first_state(key, math.pi, params)

    def transition(self, key: Array, state: State, action: Integer[Array, ""], params: Params) -> Transition:
        late = out_of_time(state, params)
        state = dynamics(state, action, params)
        upright = sincos(state.theta)[1] > params.height
        still = jnp.abs(state.theta_dot) < params.theta_dot_good
        good = upright & still & (jnp.abs(state.x) < params.x_good)
        reward = good.astype(state.x.dtype) - (action != 1) * params.move_cost
        return Transition(state, reward, late | (jnp.abs(state.x) > params.x_max), jnp.bool_(False), {})

    def observe(self, key: Array, state: State, params: Params) -> Float[Array, "1 8"]:
        good = jnp.stack([jnp.abs(state.x) < params.x_good, jnp.abs(state.theta_dot) < params.theta_dot_good])
        return jnp.concatenate([features(state, params), jnp.where(good, 1, -1).astype(state.x.dtype)])[None]

    def observation_space(self, params: Params) -> Box:
        high = jnp.array([[jnp.inf, jnp.inf, 1, 1, jnp.inf, 2, 1, 1]])
        return Box(-high.at[0, 5].set(0), high, (1, 8))
