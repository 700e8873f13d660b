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
from jaxtyping import Array, Float, Key

from jaxrl.environment import pytree, require_non_negative

from .runner import Runner, names_of


@pytree
class Params:
    max_steps: jax.Array = 1000
    model: Any = None  # the model's numbers, by MuJoCo's names
    forward: jax.Array = 1.0  # reward a metre a second
    control: jax.Array = 0.1  # a square of the action
    reset_noise: jax.Array = 0.1


JOINTS = ("back thigh", "back shin", "back foot", "front thigh", "front shin", "front foot")
GEARS = (120, 90, 60, 120, 60, 30)


@dataclasses.dataclass(frozen=True)
class HalfCheetah(Runner):
    id: str = dataclasses.field(default="HalfCheetah-v5", kw_only=True)
    Params = Params
    file = "half_cheetah.xml"
    frame_skip = 5
    observation_names = names_of(JOINTS)
    action_names = tuple(f"{name} [{gear} N m]" for name, gear in zip(JOINTS, GEARS, strict=True))

    def start_rates(self, key: Key[Array, ""], rest: Float[Array, "n"], params: Params) -> Float[Array, "n"]:
        return params.reset_noise * jax.random.normal(key, rest.shape, rest.dtype)

    def validate(self, params: Params) -> None:
        super().validate(params)
        require_non_negative(self, params, "control", "reset_noise")
