"""Quadcopter-VelocityTracking-v0: fly at a velocity that is asked for, and changes. After crazyflow's ReachVel.

The reference is uniform in +-`speed` along each axis of the world, and another every `hold` seconds; the first change
comes at a random time. It is `segments` velocities long and begins anew after that.

| observation | components | unit |
|---|---|---|
| position, rotation matrix, velocity minus the reference, body rates (`task.py`) | 18 | |
| the reference | 3 | m/s |

Actions: collective thrust and body rates (`action=` has others). Reward after the step, with the reference that was
observed before it,

    tracking exp(-|v - reference|) - rates |w|^2

and `-crash` where the drone is `lost` m/s off or below `floor`, which ends the episode. `CRAZYFLOW` has the weights of
crazyflow's reward, whose episodes have one reference, a floor and 10 s: `hold=inf`, `floor=0`, `max_steps=1000`. Time
limit 5 s. `info["success"]`: within `reached` of the reference.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from jaxrl.environment import Transition, pytree, require_non_negative, require_positive

from .. import dynamics, rotations
from ..dynamics import Drone
from ..scene import Scene
from .reach import between
from .task import FlightParams, QuadcopterTask, State


@pytree
class Weights:
    tracking: jax.Array = 1.0
    rates: jax.Array = 1e-3  # s^2/rad^2
    crash: jax.Array = 1.0


CRAZYFLOW = Weights().replace(rates=0.0)
"""exp(-|v - reference|), -1 at the end."""


@pytree
class Params(FlightParams):
    weights: Any = Weights()
    start_low: jax.Array = (-1.0, -1.0, 1.0)  # m, of the first position
    start_high: jax.Array = (1.0, 1.0, 2.0)
    start_velocity: jax.Array = 1.0  # m/s, largest along each axis
    speed: jax.Array = 1.0  # m/s, largest of a reference along each axis
    hold: jax.Array = 1.25  # s, of a reference
    floor: jax.Array = -math.inf  # m, height of
    lost: jax.Array = 10.0  # m/s
    reached: jax.Array = 0.2  # m/s


class Goal(NamedTuple):
    references: Any  # (segments, 3) m/s
    begun: Any  # in [0, 1): the share of the first one that is over


def reward(
    velocity: Any, reference: Any, body_rates: Any, weights: Weights
) -> tuple[Float[Array, "*batch"], Float[Array, "*batch"]]:
    """The terms `tracking` and `rates`; their sum counts."""
    error = rotations.norm(rotations.add(velocity, reference, -1))
    return weights.tracking * jnp.exp(-error), -weights.rates * rotations.dot(body_rates, body_rates)


@dataclasses.dataclass(frozen=True)
class VelocityTracking(QuadcopterTask):
    id: str = dataclasses.field(default="Quadcopter-VelocityTracking-v0", kw_only=True)
    Params = Params
    aims = (False, True)

    action: str = "body_rates"
    segments: int = 6  # references of an episode

    num_features = 3
    static_ranges = {"segments": (1, 10_000)}
    infinite = {"hold": math.inf}

    def start(self, key: Key[Array, ""], params: Params) -> tuple[Drone, Any]:
        u = jax.random.uniform(key, (7 + 3 * self.segments,))
        drone = dynamics.at_rest(params.model, between(u[:3], params.start_low, params.start_high))
        velocity = tuple(params.start_velocity * (2 * u[i] - 1) for i in range(3, 6))
        references = params.speed * (2 * u[7:].reshape(self.segments, 3) - 1)
        return drone._replace(velocity=velocity), Goal(references, u[6])

    def reference(self, state: State, params: Params) -> tuple:
        """Of now [m/s]."""
        passed = jnp.floor(state.time * (self.substeps * params.dt) / params.hold + state.goal.begun)
        now = passed.astype(jnp.int32) % self.segments
        # Under vmap a sum over a mask is cheaper than a gather.
        chosen = jnp.sum(jnp.where((jnp.arange(self.segments) == now)[:, None], state.goal.references, 0), 0)
        return tuple(chosen[i] for i in range(3))

    def target(self, state: State, params: Params) -> tuple[Any, Any]:
        return (0.0, 0.0, 0.0), self.reference(state, params)

    @property
    def feature_names(self) -> tuple[str, ...]:
        return tuple(f"v_{axis} wanted [m/s]" for axis in "xyz")

    def features(self, state: State, params: Params) -> tuple:
        return self.reference(state, params)

    def judge(self, state: State, action: Float[Array, "A"], drone: Drone, params: Params) -> Transition:
        reference = self.reference(state, params)
        error = rotations.norm(rotations.add(drone.velocity, reference, -1))
        crashed = (error > params.lost) | (drone.position[2] < params.floor)
        tracking, rates = reward(drone.velocity, reference, drone.body_rates, params.weights)
        tracking, rates = jnp.where(crashed, 0, tracking), jnp.where(crashed, 0, rates)
        crash = jnp.where(crashed, -params.weights.crash, 0)
        info = {
            "error": error,
            "success": error < params.reached,
            "reward/tracking": tracking,
            "reward/rates": rates,
            "reward/crash": crash,
        }
        return Transition(state.goal, tracking + rates + crash, crashed, jnp.bool_(False), info)

    def validate(self, params: Params) -> None:
        super().validate(params)
        require_positive(self, params, "lost", "reached")
        if not np.all(np.asarray(params.hold) > 0):
            raise ValueError(f"{self.id}: hold={params.hold} must be positive, or infinite.")
        require_non_negative(self, params, "speed", "start_velocity")

    def scene(self, state: State, params: Params) -> Scene:
        from jaxrl.canvas import GREEN

        position = [float(x) for x in state.drone.position]
        scene = Scene(position, 4.0, math.floor(position[2]) - 1.0)
        ahead = [x + float(v) for x, v in zip(position, self.reference(state, params), strict=True)]
        scene.path([position, ahead], GREEN, 2.0)
        return scene
