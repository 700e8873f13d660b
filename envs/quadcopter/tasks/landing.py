"""Quadcopter-Landing-v0: come down on a pad, softly, and stay there. After crazyflow's Landing.

Schuck et al. (2025), crazyflow 0.1.0, whose drone hovers 0.1 m above the goal; here it lands, on a floor of springs
(`dynamics.contact_acceleration`).

| observation | components | unit |
|---|---|---|
| position minus the pad, rotation matrix, velocity, body rates (`task.py`) | 18 | |

Actions: collective thrust and body rates (`action=` has others; crazyflow's is `attitude`). Reward after the step
exp(-2 |p - pad| - 2 |v|): one a step for a drone that lies on the pad. Touching the floor faster than `touch_speed` or
tilted beyond `touch_tilt` is a crash: reward -1 and the end. Time limit 10 s. `info["success"]`: lies on the pad,
upright and slower than `touch_speed`.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from jaxrl.environment import Transition, pytree, require_positive

from .. import dynamics, rotations
from ..dynamics import Drone, Physics
from ..scene import Scene
from .reach import between
from .task import FlightParams, QuadcopterTask, State


@pytree
class Params(FlightParams):
    max_steps: jax.Array = 1000
    start_low: jax.Array = (-1.0, -1.0, 1.0)  # m, of the first position
    start_high: jax.Array = (1.0, 1.0, 2.0)
    start_velocity: jax.Array = 1.0  # m/s, largest along each axis
    pad: jax.Array = (0.0, 0.0, 0.0)  # m, its centre on the floor
    pad_radius: jax.Array = 0.3  # m
    touch_speed: jax.Array = 0.5  # m/s, most at touch-down
    touch_tilt: jax.Array = 0.5  # rad, most while it touches
    crash: jax.Array = 1.0  # what a crash costs


def reward(position: Any, velocity: Any, pad: Any) -> Float[Array, "*batch"]:
    """exp(-2 distance) exp(-2 speed), in m and m/s."""
    return jnp.exp(-2 * (rotations.norm(rotations.add(position, pad, -1)) + rotations.norm(velocity)))


@dataclasses.dataclass(frozen=True)
class Landing(QuadcopterTask):
    id: str = dataclasses.field(default="Quadcopter-Landing-v0", kw_only=True)
    Params = Params
    aims = (True, True)

    physics: Physics = dynamics.L2F.replace(floor="contact")
    action: str = "body_rates"

    def start(self, key: Key[Array, ""], params: Params) -> tuple[Drone, Any]:
        u = jax.random.uniform(key, (6,))
        drone = dynamics.at_rest(params.model, between(u[:3], params.start_low, params.start_high))
        return drone._replace(velocity=tuple(params.start_velocity * (2 * u[i] - 1) for i in range(3, 6))), ()

    def target(self, state: State, params: Params) -> tuple[Any, Any]:
        return params.pad, (0.0, 0.0, 0.0)

    def judge(self, state: State, action: Float[Array, "A"], drone: Drone, params: Params) -> Transition:
        touching = drone.position[2] <= 0
        fell = touching & (state.drone.position[2] > 0)
        tilted = rotations.up(drone.quaternion)[2] < jnp.cos(params.touch_tilt)
        impact = rotations.norm(state.drone.velocity)  # after the step the floor has slowed it down
        crashed = touching & (tilted | (fell & (impact > params.touch_speed)))
        x, y, _ = rotations.add(drone.position, params.pad, -1)
        aside = rotations.norm((x, y))
        slow = rotations.norm(drone.velocity) < params.touch_speed
        info = {
            "distance": aside,
            "crashed": crashed,
            "success": touching & ~crashed & ~tilted & slow & (aside < params.pad_radius),
        }
        gain = jnp.where(crashed, -params.crash, reward(drone.position, drone.velocity, params.pad))
        return Transition((), gain, crashed, jnp.bool_(False), info)

    def validate(self, params: Params) -> None:
        super().validate(params)
        require_positive(self, params, "pad_radius", "touch_speed", "touch_tilt")
        if np.any(np.asarray(params.pad[2]) != 0):
            raise ValueError(f"{self.id}: pad={params.pad}; it lies on the floor, at z = 0.")
        low, high = np.asarray(params.start_low), np.asarray(params.start_high)
        if np.any(low > high) or np.any(low[2] <= 0):
            raise ValueError(f"{self.id}: start_low={low} must be above the floor and at most start_high={high}.")

    def scene(self, state: State, params: Params) -> Scene:
        scene = Scene((0.0, 0.0, 0.8), 4.0)
        angle = np.linspace(0, 2 * np.pi, 33)
        ring = float(params.pad_radius) * np.stack([np.cos(angle), np.sin(angle), 0 * angle], -1)
        scene.path(ring + np.array([float(x) for x in params.pad]))
        return scene
