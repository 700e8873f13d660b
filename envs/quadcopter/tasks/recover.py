"""Quadcopter-Recover-v0: thrown into the air, any way up and spinning: be level and at rest before the floor comes.

| observation | components | unit |
|---|---|---|
| position, rotation matrix, velocity, body rates (`task.py`) | 18 | |

An episode starts `start_height` above the floor with an attitude uniform on SO(3) and velocities and rates up to
`start_velocity` and `start_rates` along each axis; rotors idle. Actions: collective thrust and body rates (`action=`
has others). Reward after the step (1 + cos tilt) / 2 * exp(-|v| / 2 - |w| / 5), in m/s and rad/s: one a step for a
drone at rest; -1 on the floor, which ends the episode. Time limit 3 s.

`info["success"]`: for the last `hold` seconds tilt, speed and rates have been below `calm_tilt`, `calm_speed` and
`calm_rates`. Not every start can be saved.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from jaxrl.environment import Transition, pytree, require_positive

from .. import rotations
from ..dynamics import Drone
from ..scene import Scene
from .hover import tilted
from .task import FlightParams, QuadcopterTask, State


@pytree
class Params(FlightParams):
    max_steps: jax.Array = 300
    start_height: jax.Array = (1.5, 2.5)  # m, least and greatest
    start_tilt: jax.Array = math.pi  # rad, largest turn
    start_velocity: jax.Array = 2.0  # m/s, largest along each axis
    start_rates: jax.Array = 10.0  # rad/s, likewise
    start_rpm: jax.Array = 0.2  # of `max_rpm`
    calm_tilt: jax.Array = 0.2  # rad
    calm_speed: jax.Array = 0.5  # m/s
    calm_rates: jax.Array = 1.0  # rad/s
    hold: jax.Array = 0.5  # s
    crash: jax.Array = 1.0  # what hitting the floor costs


def reward(quaternion: Any, velocity: Any, body_rates: Any) -> Float[Array, "*batch"]:
    """Upright, slow and still: from 0 to 1."""
    upright = 0.5 * (1 + rotations.up(quaternion)[2])
    return upright * jnp.exp(-rotations.norm(velocity) / 2 - rotations.norm(body_rates) / 5)


@dataclasses.dataclass(frozen=True)
class Recover(QuadcopterTask):
    id: str = dataclasses.field(default="Quadcopter-Recover-v0", kw_only=True)
    Params = Params
    aims = (False, True)

    action: str = "body_rates"

    def start(self, key: Key[Array, ""], params: Params) -> tuple[Drone, Any]:
        u = jax.random.uniform(key, (10,))
        s = 2 * u - 1
        low, high = params.start_height
        position = (jnp.zeros_like(u[0]), jnp.zeros_like(u[0]), low + (high - low) * u[0])
        turn = tilted((u[1], u[2], u[3]), params.start_tilt)
        velocity = tuple(params.start_velocity * s[i] for i in range(4, 7))
        rates = tuple(params.start_rates * s[i] for i in range(7, 10))
        rpm = (params.start_rpm * params.model.max_rpm,) * 4
        return Drone(position, turn, velocity, rates, rpm), jnp.int32(0)

    def judge(self, state: State, action: Float[Array, "A"], drone: Drone, params: Params) -> Transition:
        calm = (
            (rotations.up(drone.quaternion)[2] > jnp.cos(params.calm_tilt))
            & (rotations.norm(drone.velocity) < params.calm_speed)
            & (rotations.norm(drone.body_rates) < params.calm_rates)
        )
        steps = jnp.where(calm, state.goal + 1, 0)  # for how long
        crashed = drone.position[2] < 0
        gain = jnp.where(crashed, -params.crash, reward(drone.quaternion, drone.velocity, drone.body_rates))
        info = {"crashed": crashed, "success": (steps * self.substeps * params.dt >= params.hold) & ~crashed}
        return Transition(steps, gain, crashed, jnp.bool_(False), info)

    def validate(self, params: Params) -> None:
        super().validate(params)
        require_positive(self, params, "calm_tilt", "calm_speed", "calm_rates", "hold")
        low, high = (np.asarray(x) for x in params.start_height)
        if np.any(low > high) or np.any(low <= 0):
            raise ValueError(f"{self.id}: start_height={params.start_height} must be above the floor and in order.")
        if np.any(np.asarray(params.start_tilt) <= 0) or np.any(np.asarray(params.start_tilt) > math.pi):
            raise ValueError(f"{self.id}: start_tilt={params.start_tilt} must be in (0, pi].")

    def scene(self, state: State, params: Params) -> Scene:
        x, y, z = (float(a) for a in state.drone.position)
        scene = Scene((x, y, max(1.0, z)), 4.0)
        return scene
