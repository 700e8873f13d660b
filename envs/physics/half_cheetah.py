"""HalfCheetah-v5: a long torso on two sprung legs runs forward. Gymnasium's task of this id, on MuJoCo's equations.

| observation | unit |
|---|---|
| height, pitch and the six joints' angles | m, rad |
| rates of these and of x, x's first | m/s, rad/s |

Action: torques of thigh, shin and foot, back and front, in units of 120, 90, 60, 120, 60 and 30 N m, in [-1, 1].
Steps of 0.05 s. Reward:

    speed - 0.1 sum(action^2)

No end of its own. Starts: coordinates uniform in +-0.1, rates normal of 0.1. Time limit 1,000 steps.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from jaxrl.environment import Transition, pytree, require_non_negative
from jaxrl.spaces import Box

from .task import ModelTask, State, noise


@pytree
class Params:
    max_steps: jax.Array = 1000
    model: Any = None  # the model's numbers, by MuJoCo's names
    forward: jax.Array = 1.0  # reward a metre a second
    control: jax.Array = 0.1  # a square of the action
    reset_noise: jax.Array = 0.1


def reward_terms(speed: Float[Array, ""], action: Float[Array, "6"], params: Params) -> dict[str, Float[Array, ""]]:
    """What the reward is the sum of."""
    return {
        "reward/forward": params.forward * speed,
        "reward/control": (-params.control * jnp.sum(action**2)).astype(speed.dtype),
    }


@dataclasses.dataclass(frozen=True)
class HalfCheetah(ModelTask):
    id: str = dataclasses.field(default="HalfCheetah-v5", kw_only=True)
    Params = Params
    file = "half_cheetah.xml"
    frame_skip = 5
    observation_names = (
        "z [m]",
        "pitch [rad]",
        *(
            f"{name} [rad]"
            for name in ("back thigh", "back shin", "back foot", "front thigh", "front shin", "front foot")
        ),
        "x_dot [m/s]",
        "z_dot [m/s]",
        "pitch_dot [rad/s]",
        *(
            f"{name}_dot [rad/s]"
            for name in ("back thigh", "back shin", "back foot", "front thigh", "front shin", "front foot")
        ),
    )
    action_names = tuple(
        f"{name} [{gear} N m]"
        for name, gear in zip(
            ("back thigh", "back shin", "back foot", "front thigh", "front shin", "front foot"),
            (120, 90, 60, 120, 60, 30),
            strict=True,
        )
    )

    def initial(self, key: Key[Array, ""], params: Params) -> State:
        rest, keys = params.model["qpos0"], jax.random.split(key)
        qpos = rest + noise(keys[0], rest, params.reset_noise)
        qvel = params.reset_noise * jax.random.normal(keys[1], rest.shape, rest.dtype)
        return State(jnp.int32(0), qpos, qvel, jnp.zeros_like(rest))

    def transition(self, key: Array, state: State, action: Float[Array, "6"], params: Params) -> Transition:
        moved = self.advance(state, action, params.model)
        speed = (moved.qpos[0] - state.qpos[0]) / (self.frame_skip * params.model["timestep"])
        state = state.replace(qpos=moved.qpos, qvel=moved.qvel, qacc=moved.qacc)
        terms = reward_terms(speed, action, params)
        reward: Any = sum(terms.values())
        info = {"x [m]": moved.qpos[0], "x_dot [m/s]": speed, **terms}
        return Transition(state, reward, jnp.bool_(False), jnp.bool_(False), info)

    def observe(self, key: Array, state: State, params: Params) -> Float[Array, "17"]:
        return jnp.concatenate([state.qpos[1:], state.qvel])

    def observation_space(self, params: Params) -> Box:
        return Box(-jnp.inf, jnp.inf, (17,))

    def validate(self, params: Params) -> None:
        super().validate(params)
        require_non_negative(self, params, "control", "reset_noise")
