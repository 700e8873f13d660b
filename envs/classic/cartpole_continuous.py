"""CartPoleContinuous-v0: CartPole with a force of any size up to the limit.

State, observation, dynamics, reward, end and time limit of `cartpole.py`; only the action differs, so that agents for
continuous control can be compared on the oldest task there is.

Action: in [-1, 1], clipped, times `force_mag` [N]; positive pushes right. Reward: 1 every step. Ends: cart or pole out
of bounds.
"""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxrl.environment import Transition
from jaxrl.spaces import Box

from .cartpole import CartPole, Params, State, dynamics, out_of_bounds


@dataclasses.dataclass(frozen=True)
class CartPoleContinuous(CartPole):
    id: str = dataclasses.field(default="CartPoleContinuous-v0", kw_only=True)
    action_names = ("force, 1 is force_mag",)

    def transition(self, key: Array, state: State, action: Float[Array, "1"], params: Params) -> Transition:
        state = dynamics(state, jnp.clip(action[0], -1, 1) * params.force_mag, params)
        return Transition(state, jnp.ones_like(state.x), out_of_bounds(state, params), jnp.bool_(False), {})

    def action_space(self, params: Params) -> Box:  # pyright: ignore[reportIncompatibleMethodOverride]
        return Box(-1.0, 1.0, (1,))
