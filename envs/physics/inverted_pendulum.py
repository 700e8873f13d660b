"""InvertedPendulum-v5: keep a pole upright on a cart. Gymnasium's task of this id, on MuJoCo's equations.

| observation | unit |
|---|---|
| cart's position; pole's angle | m, rad |
| their rates | m/s, rad/s |

Action: force on the cart in units of 100 N, in [-3, 3]. Steps of 0.04 s. Reward 1 a step; the end where |angle| >
0.2, without reward. Starts: every coordinate and rate uniform in +-0.01. Time limit 1,000 steps."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from jaxrl.environment import Transition, pytree, require_non_negative, require_positive

from .task import ModelTask, State, noise


@pytree
class Params:
    max_steps: jax.Array = 1000
    model: Any = None  # the model's numbers, by MuJoCo's names
    most_angle: jax.Array = 0.2  # rad
    reset_noise: jax.Array = 0.01


def fallen(obs: Float[Array, "4"], params: Params) -> Bool[Array, ""]:
    """Whether the pole is too far from upright, or a number is not finite."""
    return ~jnp.all(jnp.isfinite(obs)) | (jnp.abs(obs[1]) > params.most_angle)


@dataclasses.dataclass(frozen=True)
class InvertedPendulum(ModelTask):
    id: str = dataclasses.field(default="InvertedPendulum-v5", kw_only=True)
    Params = Params
    file = "inverted_pendulum.xml"
    frame_skip = 2
    observation_names = ("x [m]", "angle [rad]", "x_dot [m/s]", "angle_dot [rad/s]")
    action_names = ("force [100 N]",)

    def initial(self, key: Key[Array, ""], params: Params) -> State:
        rest, keys = params.model["qpos0"], jax.random.split(key)
        qpos, qvel = rest + noise(keys[0], rest, params.reset_noise), noise(keys[1], rest, params.reset_noise)
        return State(jnp.int32(0), qpos, qvel, jnp.zeros_like(rest))

    def transition(self, key: Array, state: State, action: Float[Array, "1"], params: Params) -> Transition:
        moved = self.advance(state, action, params.model)
        state = state.replace(qpos=moved.qpos, qvel=moved.qvel, qacc=moved.qacc)
        over = fallen(jnp.concatenate([moved.qpos, moved.qvel]), params)
        reward = jnp.where(over, 0.0, 1.0).astype(moved.qpos.dtype)
        return Transition(state, reward, over, jnp.bool_(False), {"reward/survive": reward})

    def observe(self, key: Array, state: State, params: Params) -> Float[Array, "4"]:
        return jnp.concatenate([state.qpos, state.qvel])

    def terminal(self, obs: Float[Array, "4"], params: Params) -> Bool[Array, ""]:
        return fallen(obs, params)

    def validate(self, params: Params) -> None:
        super().validate(params)
        require_positive(self, params, "most_angle")
        require_non_negative(self, params, "reset_noise")
