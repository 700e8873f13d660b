"""Quadcopter-Reach-v0: fly to a random point and stay there, as crazyflow's ReachPos.

Schuck et al. (2025), crazyflow 0.1.0. Start and goal are random, the drone upright with a random velocity.

| observation | components | unit |
|---|---|---|
| position minus the goal, rotation matrix, velocity, body rates (`task.py`) | 18 | |
| height above the floor | 1 | m |

Actions: collective thrust and body rates (`action=` has others; crazyflow's is `attitude`). Reward after the step
exp(-2 |p - goal|), and -1 where the drone hits the floor, which ends the episode. Time limit 10 s. `info["success"]`:
within `reached` of the goal.

Here drone, physics and rate are learning-to-fly's; crazyflow's own are `physics=dynamics.CRAZYFLOW`, with
`model=models.CRAZYFLOW_0_1["cf2x_L250"]`, `dt=1 / 500` and `max_steps=5000` in the params.
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
from ..dynamics import Drone
from ..scene import Scene
from .task import FlightParams, QuadcopterTask, State


@pytree
class Params(FlightParams):
    max_steps: jax.Array = 1000
    start_low: jax.Array = (-1.0, -1.0, 1.0)  # m, of the first position
    start_high: jax.Array = (1.0, 1.0, 2.0)
    start_velocity: jax.Array = 1.0  # m/s, largest along each axis
    goal_low: jax.Array = (-1.0, -1.0, 0.5)  # m
    goal_high: jax.Array = (1.0, 1.0, 1.5)
    crash: jax.Array = 1.0  # what hitting the floor costs
    reached: jax.Array = 0.1  # m


def reward(position: Any, goal: Any) -> Float[Array, "*batch"]:
    """exp(-2 distance), distance in m."""
    return jnp.exp(-2 * rotations.norm(rotations.add(position, goal, -1)))


def between(u: Any, low: Any, high: Any) -> tuple:
    """Numbers `u` from [0, 1) in the box from `low` to `high`."""
    return tuple(a + (b - a) * x for x, a, b in zip(u, low, high, strict=True))


@dataclasses.dataclass(frozen=True)
class Reach(QuadcopterTask):
    id: str = dataclasses.field(default="Quadcopter-Reach-v0", kw_only=True)
    Params = Params
    aims = (True, True)

    action: str = "body_rates"

    num_features = 1

    def start(self, key: Key[Array, ""], params: Params) -> tuple[Drone, Any]:
        u = jax.random.uniform(key, (9,))
        drone = dynamics.at_rest(params.model, between(u[:3], params.start_low, params.start_high))
        velocity = tuple(params.start_velocity * (2 * u[i] - 1) for i in range(3, 6))
        return drone._replace(velocity=velocity), between(u[6:], params.goal_low, params.goal_high)

    def target(self, state: State, params: Params) -> tuple[Any, Any]:
        return state.goal, (0.0, 0.0, 0.0)

    @property
    def feature_names(self) -> tuple[str, ...]:
        return ("height [m]",)

    def features(self, state: State, params: Params) -> tuple:
        return (state.drone.position[2],)

    def judge(self, state: State, action: Float[Array, "A"], drone: Drone, params: Params) -> Transition:
        distance = rotations.norm(rotations.add(drone.position, state.goal, -1))
        crashed = drone.position[2] < 0
        gain = jnp.where(crashed, -params.crash, reward(drone.position, state.goal))
        info = {"distance": distance, "success": distance < params.reached}
        return Transition(state.goal, gain, crashed, jnp.bool_(False), info)

    def validate(self, params: Params) -> None:
        super().validate(params)
        require_positive(self, params, "reached")
        for what in ("start", "goal"):
            low, high = (np.asarray(getattr(params, f"{what}_{end}")) for end in ("low", "high"))
            if np.any(low > high) or np.any(low[2] < 0):
                raise ValueError(f"{self.id}: {what}_low={low} must be at most {what}_high={high}, heights from 0.")

    def scene(self, state: State, params: Params) -> Scene:
        scene = Scene((0.0, 0.0, 1.0), 4.0)
        scene.mark(state.goal)
        return scene
