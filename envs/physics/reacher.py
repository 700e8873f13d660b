"""Reacher-v5: an arm of two links brings its tip to a target. Gymnasium's task of this id, on MuJoCo's equations.

| observation | unit |
|---|---|
| cosines, then sines of both joints' angles | |
| target's place | m |
| the joints' rates | rad/s |
| from the target to the tip | m |

Action: torques of both joints in units of 200 N m, in [-1, 1] (joints have a damping of 1 N m s and an armature of 1
kg m^2). Steps of 0.02 s. Reward: less the distance from tip to target, less the square of the action. No end of its
own. Starts: angles uniform in +-0.1, rates in +-0.005, the target uniform in a disc of 0.2 m. Time limit 50 steps.

As in Gymnasium tip and target are those of MuJoCo's last evaluation of forces, a part of a Runge-Kutta step before the
state. `classic/reacher.py` is another task.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from jaxrl.environment import Transition, pytree, require_non_negative

from . import planar
from .task import ModelTask, State, noise, planned

FINGERTIP, TARGET = 2, 3  # links


@pytree
class Params:
    max_steps: jax.Array = 50
    model: Any = None  # the model's numbers, by MuJoCo's names
    distance_weight: jax.Array = 1.0
    control_weight: jax.Array = 1.0
    reset_noise: jax.Array = 0.1  # rad, of the joints' angles
    rate_noise: jax.Array = 0.005  # rad/s
    target_radius: jax.Array = 0.2  # m, of the disc of targets


@pytree
class ReacherState(State):
    reach: jax.Array  # (2,) m, from the target to the tip


@dataclasses.dataclass(frozen=True)
class Reacher(ModelTask):
    id: str = dataclasses.field(default="Reacher-v5", kw_only=True)
    Params = Params
    file = "reacher.xml"
    frame_skip = 2
    observation_names = (
        "cos angle 1",
        "cos angle 2",
        "sin angle 1",
        "sin angle 2",
        "target x [m]",
        "target y [m]",
        "angle 1_dot [rad/s]",
        "angle 2_dot [rad/s]",
        "tip - target x [m]",
        "tip - target y [m]",
    )
    action_names = ("torque 1 [200 N m]", "torque 2 [200 N m]")

    def reach(self, qpos: Float[Array, "4"], params: Params) -> Float[Array, "2"]:
        """From the target to the tip [m]."""
        tip, target = (planar.place(planned(self.file), params.model, qpos, n, (0.0, 0.0)) for n in (FINGERTIP, TARGET))
        return tip - target

    def initial(self, key: Key[Array, ""], params: Params) -> ReacherState:
        rest, keys = params.model["qpos0"], jax.random.split(key, 4)
        angles = rest[:2] + noise(keys[0], rest[:2], params.reset_noise)
        radius = params.target_radius * jnp.sqrt(jax.random.uniform(keys[1], dtype=rest.dtype))
        turn = 2 * jnp.pi * jax.random.uniform(keys[2], dtype=rest.dtype)
        qpos = jnp.concatenate([angles, jnp.stack([radius * jnp.cos(turn), radius * jnp.sin(turn)])])
        qvel = jnp.concatenate([noise(keys[3], rest[:2], params.rate_noise), jnp.zeros_like(rest[:2])])
        return ReacherState(jnp.int32(0), qpos, qvel, jnp.zeros_like(rest), self.reach(qpos, params))

    def transition(self, key: Array, state: ReacherState, action: Float[Array, "2"], params: Params) -> Transition:
        moved = self.advance(state, action, params.model)
        reach = self.reach(moved.seen, params)
        state = state.replace(qpos=moved.qpos, qvel=moved.qvel, qacc=moved.qacc, reach=reach)
        terms = {
            "reward/distance": -params.distance_weight * jnp.sqrt(jnp.maximum(jnp.sum(reach**2), 1e-20)),
            "reward/control": -params.control_weight * jnp.sum(action**2).astype(reach.dtype),
        }
        reward: Any = sum(terms.values())
        return Transition(state, reward, jnp.bool_(False), jnp.bool_(False), terms)

    def observe(self, key: Array, state: ReacherState, params: Params) -> Float[Array, "10"]:
        angles = state.qpos[:2]
        return jnp.concatenate([jnp.cos(angles), jnp.sin(angles), state.qpos[2:], state.qvel[:2], state.reach])

    def validate(self, params: Params) -> None:
        super().validate(params)
        names = "distance_weight", "control_weight", "reset_noise", "rate_noise", "target_radius"
        require_non_negative(self, params, *names)
