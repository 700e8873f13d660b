"""Hopper-v5: a torso on one leg hops forward. Gymnasium's task of this id, on MuJoCo's equations.

| observation | unit |
|---|---|
| height, pitch and the three joints' angles | m, rad |
| rates of these and of x, x's first, cut at +-10 | m/s, rad/s |

Action: torques of thigh, leg and foot in units of 200 N m, in [-1, 1]. Steps of 0.008 s. Reward:

    speed + 1 while healthy - 0.001 sum(action^2)

The end where it is not healthy: height above 0.7 m, |pitch| below 0.2, and every rate and coordinate but x and z
within +-100. Starts: coordinates and rates uniform in +-0.005. Time limit 1,000 steps.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxrl.environment import pytree, require_non_negative, require_positive

from .runner import Runner, names_of
from .task import State


@pytree
class Params:
    max_steps: jax.Array = 1000
    model: Any = None  # the model's numbers, by MuJoCo's names
    forward: jax.Array = 1.0  # reward a metre a second
    control: jax.Array = 1e-3  # a square of the action
    healthy_reward: jax.Array = 1.0  # a step
    least_height: jax.Array = 0.7  # m
    most_pitch: jax.Array = 0.2  # rad
    most_state: jax.Array = 100.0  # of every other coordinate and rate
    reset_noise: jax.Array = 5e-3


def upright(places: Float[Array, "5"], rates: Float[Array, "6"], params: Params) -> Bool[Array, ""]:
    """Whether the episode goes on with all coordinates but x's, and these rates."""
    z, pitch = places[:2]
    sound = jnp.all(jnp.abs(jnp.concatenate([places[1:], rates])) < params.most_state)
    return sound & (z > params.least_height) & (jnp.abs(pitch) < params.most_pitch)


@dataclasses.dataclass(frozen=True)
class Hopper(Runner):
    id: str = dataclasses.field(default="Hopper-v5", kw_only=True)
    Params = Params
    file = "hopper.xml"
    frame_skip = 4
    most_rate = 10.0
    observation_names = names_of(("thigh", "leg", "foot"))
    action_names = ("thigh [200 N m]", "leg [200 N m]", "foot [200 N m]")

    def healthy(self, state: State, params: Params) -> Bool[Array, ""]:
        return upright(state.qpos[1:], state.qvel, params)

    def terminal(self, obs: Float[Array, "11"], params: Params) -> Bool[Array, ""]:
        """But for rates beyond `most_state`, which are not seen: observed ones are cut."""
        return ~upright(obs[:5], obs[5:], params)

    def reward_terms(
        self, speed: Float[Array, ""], action: Float[Array, "m"], safe: Bool[Array, ""], params: Params
    ) -> dict[str, Float[Array, ""]]:
        survive = jnp.where(safe, params.healthy_reward, 0.0).astype(speed.dtype)
        return {**super().reward_terms(speed, action, safe, params), "reward/survive": survive}

    def validate(self, params: Params) -> None:
        super().validate(params)
        require_non_negative(self, params, "control", "healthy_reward", "least_height", "reset_noise")
        require_positive(self, params, "most_pitch", "most_state")
