"""Quadcopter-GpdHover-v0: rise to 1 m and stay there, as gym-pybullet-drones' HoverAviary.

Panerati et al. (2021), "Learning to fly: a gym environment with PyBullet physics for reinforcement learning of
multi-agent quadcopter control"; the rules are those of its main branch (commit 90b178a, 2026-05). 30 actions a second,
each held for 8 physics steps; the explicit dynamics (`physics=dynamics.GPD_PYB, model=models.CF2X_LINKS` is the other
kind it has).

| observation | components | frame, unit |
|---|---|---|
| position | 3 | world, m |
| roll, pitch, yaw | 3 | rad |
| velocity | 3 | world, m/s |
| angular velocity | 3 | world, rad/s |
| the last 15 actions, oldest first | 15 A | 1 |

Actions (`action=`): `rpm_band` (4, the default), `one_d_rpm` (1), `pid` (3), `vel` (4), `one_d_pid` (1); any other of
`control/actions.py` too. Every episode starts at rest at the same place. Reward max(0, 2 - |e|^4) of the error e [m]
after the step. The episode ends within 0.1 mm of the target; it is cut 1.5 m to the side, above 2 m, beyond 0.4 rad of
roll or pitch, and after 242 steps (8 s, as upstream counts them): a perfect one is worth 484. Upstream stops training
at 474 (`one_d_rpm`) or 467.

Upstream's action buffer and PID remember the episode before; a reset here knows nothing of it.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from jaxrl.environment import Transition, pytree, require_positive

from .. import dynamics, models, rotations
from ..dynamics import Drone
from ..scene import Scene
from .task import FlightParams, QuadcopterTask, State


@pytree
class Params(FlightParams):
    max_steps: jax.Array = 242
    model: Any = models.CF2X
    dt: jax.Array = 1 / 240
    start: jax.Array = (0.0, 0.0, 0.1125)  # m
    target: jax.Array = (0.0, 0.0, 1.0)  # m
    reached: jax.Array = 1e-4  # m, from the target: the end
    arena: jax.Array = 1.5  # m, most of |x| and |y|
    ceiling: jax.Array = 2.0  # m
    max_tilt: jax.Array = 0.4  # rad, most of |roll| and |pitch|


def reward(position: Any, target: Any) -> Float[Array, "*batch"]:
    """max(0, 2 - distance^4), distances in m."""
    error = rotations.add(position, target, -1)
    return jnp.maximum(2 - rotations.dot(error, error) ** 2, 0)


def lost(drone: Drone, params: Params) -> Bool[Array, "*batch"]:
    """Too far, too high or too tilted."""
    roll, pitch, _ = rotations.euler(drone.quaternion)
    x, y, z = drone.position
    aside = jnp.maximum(jnp.abs(x), jnp.abs(y)) > params.arena
    return aside | (z > params.ceiling) | (jnp.maximum(jnp.abs(roll), jnp.abs(pitch)) > params.max_tilt)


@dataclasses.dataclass(frozen=True)
class GpdHover(QuadcopterTask):
    id: str = dataclasses.field(default="Quadcopter-GpdHover-v0", kw_only=True)
    Params = Params
    aims = (True, True)
    sensors = (3, 3, 3, 3)
    measured_names = (
        *(f"{axis} [m]" for axis in "xyz"),
        *(f"{angle} [rad]" for angle in ("roll", "pitch", "yaw")),
        *(f"v_{axis} [m/s]" for axis in "xyz"),
        *(f"world rate_{axis} [rad/s]" for axis in "xyz"),
    )

    physics: dynamics.Physics = dynamics.GPD_DYN
    action: str = "rpm_band"
    substeps: int = 8
    history: int = 15

    def start(self, key: Key[Array, ""], params: Params) -> tuple[Drone, Any]:
        return dynamics.at_rest(params.model, params.start, rpm=0.0), ()

    def target(self, state: State, params: Params) -> tuple[Any, Any]:
        return tuple(params.target), (0.0, 0.0, 0.0)

    def measured(self, state: State, params: Params) -> list:
        drone = state.drone
        rates = rotations.rotate(drone.quaternion, drone.body_rates)
        return [*drone.position, *rotations.euler(drone.quaternion), *drone.velocity, *rates]

    def judge(self, state: State, action: Float[Array, "A"], drone: Drone, params: Params) -> Transition:
        distance = rotations.norm(rotations.add(drone.position, params.target, -1))
        gain = reward(drone.position, params.target)
        return Transition((), gain, distance < params.reached, lost(drone, params), {"distance": distance})

    def validate(self, params: Params) -> None:
        super().validate(params)
        require_positive(self, params, "reached", "arena", "max_tilt")

    def scene(self, state: State, params: Params) -> Scene:
        aside = float(params.arena)
        scene = Scene.of_arena((-aside, -aside, 0.0), (aside, aside, params.ceiling))
        for target in np.stack([np.asarray(x) for x in params.target]).reshape(-1, 3):
            scene.mark(target)
        return scene
