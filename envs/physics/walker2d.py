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
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from jaxrl.environment import Transition, pytree, require_non_negative, require_order, require_positive
from jaxrl.spaces import Box

from .task import ModelTask, State, noise


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


def healthy(state: State, params: Params) -> Bool[Array, ""]:
    """Whether the episode goes on."""
    z, pitch = state.qpos[1], state.qpos[2]
    upright = (z > params.least_height) & (z < params.most_height)
    return upright & (jnp.abs(pitch) < params.most_pitch)


def reward_terms(
    speed: Float[Array, ""], action: Float[Array, "6"], safe: Bool[Array, ""], params: Params
) -> dict[str, Float[Array, ""]]:
    """What the reward is the sum of."""
    return {
        "reward/forward": params.forward * speed,
        "reward/control": (-params.control * jnp.sum(action**2)).astype(speed.dtype),
        "reward/survive": jnp.where(safe, params.healthy_reward, 0.0).astype(speed.dtype),
    }


@dataclasses.dataclass(frozen=True)
class Walker2d(ModelTask):
    id: str = dataclasses.field(default="Walker2d-v5", kw_only=True)
    Params = Params
    file = "walker2d.xml"
    frame_skip = 4
    observation_names = (
        "z [m]",
        "pitch [rad]",
        *(f"{name} [rad]" for name in ("thigh", "leg", "foot", "left thigh", "left leg", "left foot")),
        "x_dot [m/s]",
        "z_dot [m/s]",
        "pitch_dot [rad/s]",
        *(f"{name}_dot [rad/s]" for name in ("thigh", "leg", "foot", "left thigh", "left leg", "left foot")),
    )
    action_names = tuple(
        f"{name} [100 N m]" for name in ("thigh", "leg", "foot", "left thigh", "left leg", "left foot")
    )

    def initial(self, key: Key[Array, ""], params: Params) -> State:
        rest, keys = params.model["qpos0"], jax.random.split(key)
        qpos = rest + noise(keys[0], rest, params.reset_noise)
        qvel = noise(keys[1], rest, params.reset_noise)
        return State(jnp.int32(0), qpos, qvel, jnp.zeros_like(rest))

    def transition(self, key: Array, state: State, action: Float[Array, "6"], params: Params) -> Transition:
        moved = self.advance(state, action, params.model)
        speed = (moved.qpos[0] - state.qpos[0]) / (self.frame_skip * params.model["timestep"])
        state = state.replace(qpos=moved.qpos, qvel=moved.qvel, qacc=moved.qacc)
        safe = healthy(state, params)
        terms = reward_terms(speed, action, safe, params)
        reward: Any = sum(terms.values())
        return Transition(
            state, reward, ~safe, jnp.bool_(False), {"x [m]": moved.qpos[0], "x_dot [m/s]": speed, **terms}
        )

    def observe(self, key: Array, state: State, params: Params) -> Float[Array, "17"]:
        return jnp.concatenate([state.qpos[1:], jnp.clip(state.qvel, -10, 10)])

    def observation_space(self, params: Params) -> Box:
        return Box(-jnp.inf, jnp.inf, (17,))

    def validate(self, params: Params) -> None:
        super().validate(params)
        require_non_negative(self, params, "control", "healthy_reward", "reset_noise")
        require_positive(self, params, "most_pitch")
        require_order(self, params, "least_height", "most_height")
