"""DMCartpoleSwingup-v0: swing a pole up and keep it so, in the middle of a rail. DM Control's cartpole swingup.

| observation | unit |
|---|---|
| cart's position; cosine and sine of the pole's angle, 0 upright | m |
| their rates | m/s, rad/s |

Action: force on the cart in units of 10 N, in [-1, 1]. Steps of 0.01 s. Reward, in [0, 1], the product of

    upright        (1 + cos angle) / 2
    centered       (1 + exp(ln 0.1 (x / 2)^2)) / 2
    small control  (4 + max(1 - action^2, 0)) / 5
    slow           (1 + exp(ln 0.1 (angle_dot / 5)^2)) / 2

No end but the limit of 1,000 steps. Starts: hanging; cart and angle off by normals of 0.01, rates normal of 0.01.
`CartPoleSwingUp-v0` is another task, of other equations.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from jaxrl.environment import Transition, pytree, require_non_negative, require_positive

from .task import ModelTask, State


@pytree
class Params:
    max_steps: jax.Array = 1000
    model: Any = None  # the model's numbers, by MuJoCo's names
    wide: jax.Array = 2.0  # m off the middle where `centered`'s bell is 0.1
    fast: jax.Array = 5.0  # rad/s where `slow`'s bell is 0.1
    start_noise: jax.Array = 0.01


def bell(x: Float[Array, ""], margin: Float[Array, ""]) -> Float[Array, ""]:
    """1 at 0, 0.1 at the margin: DM Control's `tolerance`."""
    return jnp.exp(math.log(0.1) * (x / margin) ** 2)


def reward_terms(
    x: Float[Array, ""], angle: Float[Array, ""], rate: Float[Array, ""], push: Float[Array, ""], params: Params
) -> dict[str, Float[Array, ""]]:
    """The factors of the reward."""
    return {
        "reward/upright": (1 + jnp.cos(angle)) / 2,
        "reward/centered": (1 + bell(x, params.wide)) / 2,
        "reward/small_control": (4 + jnp.maximum(1 - push**2, 0.0)) / 5,
        "reward/slow": (1 + bell(rate, params.fast)) / 2,
    }


@dataclasses.dataclass(frozen=True)
class CartpoleSwingup(ModelTask):
    id: str = dataclasses.field(default="DMCartpoleSwingup-v0", kw_only=True)
    Params = Params
    file = "cartpole_swingup.xml"
    frame_skip = 1
    observation_names = ("x [m]", "cos(angle)", "sin(angle)", "x_dot [m/s]", "angle_dot [rad/s]")
    action_names = ("force [10 N]",)

    def initial(self, key: Key[Array, ""], params: Params) -> State:
        rest = params.model["qpos0"]
        off = params.start_noise * jax.random.normal(key, (4,), rest.dtype)
        return State(jnp.int32(0), jnp.array([0.0, math.pi], rest.dtype) + off[:2], off[2:], jnp.zeros_like(rest))

    def transition(self, key: Array, state: State, action: Float[Array, "1"], params: Params) -> Transition:
        moved = self.advance(state, action, params.model)
        state = state.replace(qpos=moved.qpos, qvel=moved.qvel, qacc=moved.qacc)
        push = action[0].astype(moved.qpos.dtype)
        factors = reward_terms(moved.qpos[0], moved.qpos[1], moved.qvel[1], push, params)
        reward: Any = math.prod(factors.values())
        return Transition(state, reward, jnp.bool_(False), jnp.bool_(False), factors)

    def observe(self, key: Array, state: State, params: Params) -> Float[Array, "5"]:
        x, angle = state.qpos
        return jnp.concatenate([jnp.stack([x, jnp.cos(angle), jnp.sin(angle)]), state.qvel])

    def validate(self, params: Params) -> None:
        super().validate(params)
        require_positive(self, params, "wide", "fast")
        require_non_negative(self, params, "start_noise")
