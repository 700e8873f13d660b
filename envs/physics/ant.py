"""Ant-v5: a ball on four legs runs forward. Gymnasium's task of this id, on MJX.

| observation | unit |
|---|---|
| height, quaternion (w first) and the eight joints' angles | m, rad |
| rates of x, y, z; of turning in the torso's axes; of the joints | m/s, rad/s |
| of the 13 bodies what contacts turn and push with, about the ant's middle, cut at +-1 | N m, N |

Action: torques of hip and ankle of the right back, left front, right front and left back leg in units of 150 N m, in
[-1, 1]. Steps of 0.05 s. Reward:

    speed + 1 while healthy - 0.5 sum(action^2) - 0.0005 sum(cut contact forces^2)

The end where it is not healthy: height outside [0.2, 1] m, or a number that is not finite. Starts: coordinates uniform
in +-0.1, rates normal of 0.1, no contact forces. Time limit 1,000 steps.

Speed is that of the torso's place in MuJoCo's last evaluation of forces, a part of a step late, as in Gymnasium.
The quaternion of a start is not of length 1, as in Gymnasium. An ant moves in space: there are no planar equations.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from jaxrl.environment import Transition, pytree, require_non_negative, require_positive
from jaxrl.telemetry import Quantity

from . import on_mjx
from .task import ModelTask, mjx_model, noise

JOINTS = tuple(f"{kind}_{leg}" for leg in range(1, 5) for kind in ("hip", "ankle"))
LEGS, PARTS = ("front_left", "front_right", "back_left", "back_right"), ("leg", "thigh", "shank")
BODIES = ("torso", *(f"{leg}_{part}" for leg in LEGS for part in PARTS))
WRENCH = ("turn_x [N m]", "turn_y [N m]", "turn_z [N m]", "push_x [N]", "push_y [N]", "push_z [N]")


def names_of_forces() -> tuple[str, ...]:
    return tuple(f"{body}_{what}" for body in BODIES for what in WRENCH)


@pytree
class Params:
    max_steps: jax.Array = 1000
    model: Any = None  # the model's numbers, by MuJoCo's names
    forward: jax.Array = 1.0  # reward a metre a second
    control: jax.Array = 0.5  # a square of the action
    contact: jax.Array = 5e-4  # a square of the contact forces
    healthy_reward: jax.Array = 1.0  # a step
    least_height: jax.Array = 0.2  # m
    most_height: jax.Array = 1.0  # m
    most_force: jax.Array = 1.0  # N and N m, where contact forces are cut
    reset_noise: jax.Array = 0.1


@pytree
class State:
    time: jax.Array  # steps since reset
    qpos: jax.Array  # (15,) x, y, z, quaternion, joints: m and rad
    qvel: jax.Array  # (14,) rates of x, y, z; of turning; of the joints
    qacc: jax.Array  # (14,) the last accelerations: a first guess of the next
    seen_x: jax.Array  # m, of the torso when forces were last computed, a part of a step ago: what speed is measured by
    forces: jax.Array  # (13, 6) of contacts on the bodies, MuJoCo's cfrc_ext: turning, pushing


def upright(z: Float[Array, ""], params: Params) -> Bool[Array, ""]:
    return (z >= params.least_height) & (z <= params.most_height)


@dataclasses.dataclass(frozen=True)
class Ant(ModelTask):
    engine: str = "mjx"
    id: str = dataclasses.field(default="Ant-v5", kw_only=True)
    Params = Params
    engines = ("mjx",)
    file = "ant.xml"
    frame_skip = 5
    observation_names = (
        "z [m]",
        *(f"quaternion_{x}" for x in "wxyz"),
        *(f"{name} [rad]" for name in JOINTS),
        *(f"{x}_dot [m/s]" for x in "xyz"),
        *(f"turning_{x} [rad/s]" for x in "xyz"),
        *(f"{name}_dot [rad/s]" for name in JOINTS),
        *names_of_forces(),
    )
    action_names = tuple(f"{kind}_{leg} [150 N m]" for leg in (4, 1, 2, 3) for kind in ("hip", "ankle"))

    def initial(self, key: Key[Array, ""], params: Params) -> State:
        rest, keys = params.model["qpos0"], jax.random.split(key)
        qvel = params.reset_noise * jax.random.normal(keys[1], params.model["dof_damping"].shape, rest.dtype)
        qpos = rest + noise(keys[0], rest, params.reset_noise)
        forces = jnp.zeros((len(BODIES), 6), rest.dtype)
        return State(jnp.int32(0), qpos, qvel, jnp.zeros_like(qvel), qpos[0], forces)

    def transition(self, key: Array, state: State, action: Float[Array, "8"], params: Params) -> Transition:
        from mujoco import mjx

        data, seen = self.mjx_step(state, action, params.model)
        kind = state.qpos.dtype
        m = on_mjx.with_numbers(mjx_model(self.file, kind == jnp.float64), params.model)
        forces = mjx.rne_postconstraint(m, data)._impl.cfrc_ext[1:].astype(kind)
        speed = (seen[0] - state.seen_x) / (self.frame_skip * params.model["timestep"])
        qpos, qvel, qacc = (x.astype(kind) for x in (data.qpos, data.qvel, data.qacc))
        state = state.replace(qpos=qpos, qvel=qvel, qacc=qacc, seen_x=seen[0], forces=forces)
        cut = jnp.clip(forces, -params.most_force, params.most_force)
        safe = jnp.all(jnp.isfinite(qpos)) & jnp.all(jnp.isfinite(qvel)) & upright(qpos[2], params)
        terms = {
            "reward/forward": params.forward * speed,
            "reward/survive": jnp.where(safe, params.healthy_reward, 0.0).astype(kind),
            "reward/control": -params.control * jnp.sum(action**2).astype(kind),
            "reward/contact": -params.contact * jnp.sum(cut**2),
        }
        reward: Any = sum(terms.values())
        info = {"x [m]": qpos[0], "y [m]": qpos[1], "x_dot [m/s]": speed, **terms}
        return Transition(state, reward, ~safe, jnp.bool_(False), info)

    def observe(self, key: Array, state: State, params: Params) -> Float[Array, "105"]:
        cut = jnp.clip(state.forces, -params.most_force, params.most_force)
        return jnp.concatenate([state.qpos[2:], state.qvel, cut.reshape(-1)])

    def terminal(self, obs: Float[Array, "105"], params: Params) -> Bool[Array, ""]:
        return ~(jnp.all(jnp.isfinite(obs)) & upright(obs[0], params))

    def telemetry(self, state: State, params: Params) -> dict[str, Quantity]:
        places = {name: Quantity(state.qpos[i]) for i, name in enumerate(("x [m]", "y [m]", "z [m]"))}
        return {**places, **{f"{name} [rad]": Quantity(state.qpos[7 + i]) for i, name in enumerate(JOINTS)}}

    def validate(self, params: Params) -> None:
        super().validate(params)
        require_non_negative(self, params, "control", "contact", "healthy_reward", "least_height", "reset_noise")
        require_positive(self, params, "most_height", "most_force")
