"""Quadcopter-Hover-v0: hold a position from rotor speed commands, as trained in learning-to-fly.

Eschmann, Albani and Loianno (2024), "Learning to fly in seconds". The motors lag by 0.15 s, so the last 32 actions are
observed; a force and a torque that the policy cannot see last an episode; sensors are noisy. Observation and action:
`task.py` (146 numbers; `privileged=True` gives the critic's 28).

An episode starts in the target with probability `guidance`, else within 0.2 m of it at any tilt below 90 degrees;
always with velocities up to 1 m/s and rates up to 1 rad/s. Reward, of the state *before* the step and the action,

    constant - 1/2 (w_p |p|^2 + w_q (1 - q_w^2) + w_v |v|^2 + w_a |a - baseline|^2)

and 0 where the step leaves the box of +-0.6 m, which ends the episode. Time limit 500 steps of 0.01 s.

Upstream draws attitudes by rejection; `tilted` inverts the same distribution.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from jaxrl.environment import Transition, pytree, require_non_negative, require_positive
from jaxrl.math import sincos

from .. import rotations
from ..dynamics import Drone
from ..scene import Scene
from .task import FlightParams, QuadcopterTask, State


@pytree
class Weights:
    """Of the reward; leaves, so a curriculum can raise them."""

    constant: jax.Array = 2.0
    position: jax.Array = 5.0  # 1/m^2
    orientation: jax.Array = 5.0
    velocity: jax.Array = 0.01  # s^2/m^2
    action: jax.Array = 0.01
    baseline: jax.Array = 0.334  # the action at which the Crazyflie hovers by `rpm`; of other levels and drones another


EVALUATION = Weights().replace(position=40.0, orientation=5.0, velocity=1.0, action=1.0)
"""The weights that learning-to-fly evaluates with."""


@pytree
class Params(FlightParams):
    force_std: jax.Array = 0.05
    torque_std: jax.Array = 1e-4
    weights: Any = Weights()
    guidance: jax.Array = 0.1  # share of episodes that start in the target, upright
    start_position: jax.Array = 0.2  # m, largest on each axis
    start_tilt: jax.Array = math.pi / 2  # rad, largest turn
    start_velocity: jax.Array = 1.0  # m/s, largest on each axis
    start_rates: jax.Array = 1.0  # rad/s, likewise
    arena: jax.Array = 0.6  # m, half the side of the box that ends an episode
    target: jax.Array = (0.0, 0.0, 0.0)  # m


def rewards(
    position: Any, quaternion: Any, velocity: Any, action: Float[Array, "*batch A"], weights: Weights
) -> dict[str, Float[Array, "*batch"]]:
    """The terms, of a state relative to the target and the action taken in it."""
    effort = sum((action[..., i] - weights.baseline) ** 2 for i in range(action.shape[-1]))
    return {
        "constant": weights.constant,
        "position": -0.5 * weights.position * rotations.dot(position, position),
        "orientation": -0.5 * weights.orientation * (1 - quaternion[0] ** 2),
        "velocity": -0.5 * weights.velocity * rotations.dot(velocity, velocity),
        "action": -0.5 * weights.action * effort,
    }


def tilted(uniform: Any, most: Any) -> rotations.Quaternion:
    """A turn uniform on SO(3) among those of at most `most` [rad], from three uniform numbers.

    Its angle t has density (1 - cos t) / (most - sin most): Newton's method on t - sin t.
    """
    goal = uniform[0] * (most - jnp.sin(most))
    angle = jnp.minimum(jnp.cbrt(6 * goal), most)  # t - sin t ~ t^3 / 6 is below t^3 / 6: this is a start from below
    for _ in range(4):
        angle = angle - (angle - jnp.sin(angle) - goal) / jnp.maximum(1 - jnp.cos(angle), 1e-9)
    height = 2 * uniform[1] - 1
    radius = jnp.sqrt(jnp.maximum(1 - height * height, 0))
    sine, cosine = sincos(2 * math.pi * uniform[2])
    half, upright = sincos(0.5 * jnp.clip(angle, 0, most))
    return upright, half * radius * cosine, half * radius * sine, half * height


@dataclasses.dataclass(frozen=True)
class Hover(QuadcopterTask):
    id: str = dataclasses.field(default="Quadcopter-Hover-v0", kw_only=True)
    Params = Params
    aims = (True, True)

    history: int = 32
    noise: bool = True

    def start(self, key: Key[Array, ""], params: Params) -> tuple[Drone, Any]:
        u = jax.random.uniform(key, (13,))
        s = 2 * u - 1
        guided = u[12] < params.guidance
        position = tuple(jnp.where(guided, 0, params.start_position * s[i]) + params.target[i] for i in range(3))
        turn = tilted((u[9], u[10], u[11]), params.start_tilt)
        turn = tuple(jnp.where(guided, float(i == 0), turn[i]) for i in range(4))
        velocity = tuple(params.start_velocity * s[i] for i in range(3, 6))
        rates = tuple(params.start_rates * s[i] for i in range(6, 9))
        rpm = (0.5 * params.model.max_rpm,) * 4
        return Drone(position, turn, velocity, rates, rpm), ()

    def target(self, state: State, params: Params) -> tuple[Any, Any]:
        return tuple(params.target), (0.0, 0.0, 0.0)

    def judge(self, state: State, action: Float[Array, "A"], drone: Drone, params: Params) -> Transition:
        before = rotations.add(state.drone.position, tuple(params.target), -1)
        after = rotations.add(drone.position, tuple(params.target), -1)
        worst = jnp.maximum(jnp.maximum(jnp.abs(after[0]), jnp.abs(after[1])), jnp.abs(after[2]))
        terminated = worst > params.arena
        terms = rewards(before, state.drone.quaternion, state.drone.velocity, action, params.weights)
        terms = {f"reward/{name}": jnp.where(terminated, 0, term) for name, term in terms.items()}
        info = {"distance": rotations.norm(after), **terms}
        gain: Any = sum(terms.values())
        return Transition((), gain, terminated, jnp.bool_(False), info)

    def validate(self, params: Params) -> None:
        super().validate(params)
        require_positive(self, params, "arena", "start_tilt")
        require_non_negative(self, params, "start_position", "start_velocity", "start_rates")
        if np.any(np.asarray(params.start_tilt) > math.pi):
            raise ValueError(f"{self.id}: start_tilt={params.start_tilt} must be at most pi.")
        if not np.all((np.asarray(params.guidance) >= 0) & (np.asarray(params.guidance) <= 1)):
            raise ValueError(f"{self.id}: guidance={params.guidance} is a share, from 0 to 1.")
        if not np.all(np.isfinite(np.asarray(params.target))):
            raise ValueError(f"{self.id}: target={params.target} must be finite.")

    def scene(self, state: State, params: Params) -> Scene:
        target = np.array([float(x) for x in params.target])
        scene = Scene.of_arena(target - float(params.arena), target + float(params.arena))
        scene.mark(target)
        return scene
