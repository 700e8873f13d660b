"""Walker2d-v5: a torso on two legs walks forward. Gymnasium's task of this id, on MuJoCo's equations.

| observation | unit |
|---|---|
| height, pitch and the six joints' angles | m, rad |
| rates of these and of x, x's first, cut at +-10 | m/s, rad/s |

Action: torques of thigh, leg and foot, right and left, in units of 100 N m, in [-1, 1]. Steps of 0.008 s. Reward:

    speed + 1 while healthy - 0.001 sum(action^2)

The end where it is not healthy: height within 0.8 and 2 m, |pitch| below 1. Starts: coordinates and rates uniform in
+-0.005. Time limit 1,000 steps.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxrl.environment import pytree, require_non_negative, require_order, require_positive

from .runner import Runner, names_of
from .task import State


@pytree
class Params:
    max_steps: jax.Array = 1000
    model: Any = None  # the model's numbers, by MuJoCo's names
    forward: jax.Array = 1.0  # reward a metre a second
    control: jax.Array = 1e-3  # a square of the action
    healthy_reward: jax.Array = 1.0  # a step
    least_height: jax.Array = 0.8  # m
    most_height: jax.Array = 2.0  # m
    most_pitch: jax.Array = 1.0  # rad
    reset_noise: jax.Array = 5e-3


JOINTS = ("thigh", "leg", "foot", "left thigh", "left leg", "left foot")


def upright(z: Float[Array, ""], pitch: Float[Array, ""], params: Params) -> Bool[Array, ""]:
    return (z > params.least_height) & (z < params.most_height) & (jnp.abs(pitch) < params.most_pitch)


@dataclasses.dataclass(frozen=True)
class Walker2d(Runner):
    id: str = dataclasses.field(default="Walker2d-v5", kw_only=True)
    Params = Params
    file = "walker2d.xml"
    frame_skip = 4
    most_rate = 10.0
    infinite = {"least_height": -math.inf, "most_height": math.inf}
    observation_names = names_of(JOINTS)
    action_names = tuple(f"{name} [100 N m]" for name in JOINTS)

    def healthy(self, state: State, params: Params) -> Bool[Array, ""]:
        return upright(state.qpos[1], state.qpos[2], params)

    def terminal(self, obs: Float[Array, "17"], params: Params) -> Bool[Array, ""]:
        return ~upright(obs[0], obs[1], params)

    def reward_terms(
        self, speed: Float[Array, ""], action: Float[Array, "m"], safe: Bool[Array, ""], params: Params
    ) -> dict[str, Float[Array, ""]]:
        survive = jnp.where(safe, params.healthy_reward, 0.0).astype(speed.dtype)
        return {**super().reward_terms(speed, action, safe, params), "reward/survive": survive}

    def validate(self, params: Params) -> None:
        super().validate(params)
        require_non_negative(self, params, "control", "healthy_reward", "reset_noise")
        require_positive(self, params, "most_pitch")
        require_order(self, params, "least_height", "most_height")
