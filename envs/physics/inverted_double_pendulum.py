"""InvertedDoublePendulum-v5: keep two poles upright on a cart. Gymnasium's task of this id, on MuJoCo's equations.

| observation | unit |
|---|---|
| cart's position | m |
| sines, then cosines of both joints' angles | |
| the three rates, cut at +-10 | m/s, rad/s |
| the rail's force on the cart at its ends, cut at +-10 | N |

Action: force on the cart in units of 500 N, in [-1, 1]. Steps of 0.05 s. Reward:

    10 while the tip is above 1 m - 0.01 x^2 - (z - 2)^2 - 0.001 v1^2 - 0.005 v2^2

with the tip's place (x, z) and the joints' rates. The end where it is not above 1 m. Starts: coordinates uniform in
+-0.1, rates normal of 0.1. Time limit 1,000 steps.

As in Gymnasium the tip and the rail's force are those of MuJoCo's last evaluation of forces, a part of a Runge-Kutta
step before the state."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from jaxrl.environment import Transition, pytree, require_non_negative

from . import planar
from .task import ModelTask, State, noise, planned

TIP = (0.0, 0.6)
"""Of the upper pole, in its own axes [m]."""


@pytree
class Params:
    max_steps: jax.Array = 1000
    model: Any = None  # the model's numbers, by MuJoCo's names
    healthy_reward: jax.Array = 10.0
    least_height: jax.Array = 1.0  # m, of the tip
    reset_noise: jax.Array = 0.1


@pytree
class RailState(State):
    rail_force: jax.Array  # N


def reward_terms(
    tip: Float[Array, "2"], qvel: Float[Array, "3"], fallen: Array, params: Params
) -> dict[str, Float[Array, ""]]:
    alive = jnp.where(fallen, 0.0, params.healthy_reward).astype(tip.dtype)
    return {
        "reward/survive": alive,
        "reward/distance": -(0.01 * tip[0] ** 2 + (tip[1] - 2) ** 2),
        "reward/velocity": -(1e-3 * qvel[1] ** 2 + 5e-3 * qvel[2] ** 2),
    }


@dataclasses.dataclass(frozen=True)
class InvertedDoublePendulum(ModelTask):
    id: str = dataclasses.field(default="InvertedDoublePendulum-v5", kw_only=True)
    Params = Params
    file = "inverted_double_pendulum.xml"
    frame_skip = 5
    observation_names = (
        "x [m]",
        "sin angle 1",
        "sin angle 2",
        "cos angle 1",
        "cos angle 2",
        "x_dot [m/s]",
        "angle 1_dot [rad/s]",
        "angle 2_dot [rad/s]",
        "rail force [N]",
    )
    action_names = ("force [500 N]",)

    def initial(self, key: Key[Array, ""], params: Params) -> RailState:
        rest, keys = params.model["qpos0"], jax.random.split(key)
        qpos = rest + noise(keys[0], rest, params.reset_noise)
        qvel = params.reset_noise * jax.random.normal(keys[1], rest.shape, rest.dtype)
        return RailState(jnp.int32(0), qpos, qvel, jnp.zeros_like(rest), jnp.zeros_like(rest[0]))

    def transition(self, key: Array, state: RailState, action: Float[Array, "1"], params: Params) -> Transition:
        moved = self.advance(state, action, params.model)
        state = state.replace(qpos=moved.qpos, qvel=moved.qvel, qacc=moved.qacc, rail_force=moved.held[0])
        tip = planar.place(planned(self.file), params.model, moved.seen, 2, TIP)
        fallen = tip[1] <= params.least_height
        terms = reward_terms(tip, moved.qvel, fallen, params)
        reward: Any = sum(terms.values())
        return Transition(state, reward, fallen, jnp.bool_(False), terms)

    def observe(self, key: Array, state: RailState, params: Params) -> Float[Array, "9"]:
        angles = state.qpos[1:]
        seen = [state.qpos[:1], jnp.sin(angles), jnp.cos(angles), state.qvel, state.rail_force[None]]
        return jnp.concatenate([*seen[:3], *(jnp.clip(x, -10, 10) for x in seen[3:])])

    def validate(self, params: Params) -> None:
        super().validate(params)
        require_non_negative(self, params, "healthy_reward", "least_height", "reset_noise")
