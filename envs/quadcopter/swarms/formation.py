"""Quadcopter-Formation-v0: every drone to its slot in a formation that circles, without touching the others.

The slots are `offsets` (M, 3) from a centre that goes round a circle of `orbit_radius` with `orbit_rate`, from
`orbit_radius` ahead of `center`; by default a regular polygon of radius 0.5 m. Drones start at rest on the corners of a
polygon of `start_radius`, dealt out at random, so that paths cross. With e_i the way from a drone to its slot, each
earns

    r_i = exp(-2 |e_i|)

and a collision (default `collisions="terminate"`) costs `collision_penalty` and ends the episode, as does a drone
`arena` from its slot or within its radius of the ground. Time limit 10 s. Observation and the options of a swarm:
`swarm.py`; positions and velocities are relative to the slot's. Actions are velocities (`control/actions.py`).
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from jaxrl.environment import pytree, require_non_negative, require_positive, strongly_typed
from jaxrl.math import sincos

from ..dynamics import Drone
from ..rotations import add, norm
from ..tasks.task import State
from .swarm import Swarm, SwarmParams


@pytree
class Params(SwarmParams):
    max_steps: jax.Array = 480
    start_spread: jax.Array = 0.1  # m
    start_height: jax.Array = 1.0  # m
    start_radius: jax.Array = 0.7  # m
    collision_penalty: jax.Array = 10.0
    offsets: jax.Array = ()  # (M, 3) m, of each slot from the centre
    center: jax.Array = (0.0, 0.0, 1.0)  # m, of the circle
    orbit_radius: jax.Array = 0.5  # m
    orbit_rate: jax.Array = 0.5  # rad/s
    arena: jax.Array = 3.0  # m, from the slot


def polygon(count: int, radius: Any = 0.5) -> Float[Array, "M 3"]:
    """The corners of a regular polygon in the horizontal plane [m]."""
    angle = 2 * math.pi / count * jnp.arange(count, dtype=jnp.result_type(float))
    return radius * jnp.stack([jnp.cos(angle), jnp.sin(angle), 0 * angle], -1)


def slots(time: Any, params: Params) -> tuple[Any, Any]:
    """Position [m] and velocity [m/s] of all slots, three arrays (M,) each, `time` [s] after the start."""
    sine, cosine = sincos(params.orbit_rate * jnp.asarray(time, jnp.result_type(params.orbit_rate)))
    x, y, z = params.center
    center = (x + params.orbit_radius * cosine, y + params.orbit_radius * sine, z)
    speed = params.orbit_radius * params.orbit_rate
    zero = jnp.zeros_like(params.offsets[:, 0])
    velocity = (zero - speed * sine, zero + speed * cosine, zero)
    return tuple(c + params.offsets[:, i] for i, c in enumerate(center)), velocity


def reward(error: Any) -> Float[Array, " M"]:
    """Of drones `error` (three arrays) [m] from their slots."""
    return jnp.exp(-2 * norm(error))


@dataclasses.dataclass(frozen=True)
class Formation(Swarm):
    id: str = dataclasses.field(default="Quadcopter-Formation-v0", kw_only=True)
    Params = Params
    aims = (True, True)

    action: str = "velocity"
    collisions: str = "terminate"

    @property
    def default_params(self) -> Params:
        # Of many drones the polygons are larger, so that neither slots nor starts touch.
        wide = 0.5 / math.sin(math.pi / self.num_agents)  # the radius whose sides are 1 m
        slot, start = max(0.5, 0.36 * wide), max(0.7, 0.48 * wide)
        arena = max(3.0, 2 * (slot + start))
        params = super().default_params
        return strongly_typed(params.replace(offsets=polygon(self.num_agents, slot), start_radius=start, arena=arena))

    def start(self, key: Key[Array, ""], params: Params) -> tuple[Drone, Any]:
        deal_key, error_key = jax.random.split(key)
        corners = jax.random.permutation(deal_key, polygon(self.num_agents, params.start_radius))
        return self.standing(error_key, corners[:, 0], corners[:, 1], params), ()

    def _slots(self, time: Any, params: Params) -> tuple[Any, Any]:
        return slots(time * self.substeps * params.dt, params)

    def target(self, state: State, params: Params) -> tuple[Any, Any]:
        return self._slots(state.time, params)

    def errors(self, state: State, drone: Drone, params: Params) -> Any:
        """From the slots to the drones after the step [m]."""
        return add(drone.position, self._slots(state.time + 1, params)[0], -1)

    def rewards(self, state: State, drone: Drone, params: Params) -> Float[Array, " M"]:
        return reward(self.errors(state, drone, params))

    def crashed(self, state: State, drone: Drone, params: Params) -> Bool[Array, " M"]:
        lost = norm(self.errors(state, drone, params)) > params.arena
        return lost | (drone.position[2] < params.model.radius)

    def validate(self, params: Params) -> None:
        super().validate(params)
        require_positive(self, params, "start_radius", "arena")
        require_non_negative(self, params, "orbit_radius")
        shape = np.shape(params.offsets)
        if shape[-2:] != (self.num_agents, 3):
            raise ValueError(
                f"{self.id}: offsets have shape {shape}; {self.num_agents} drones need (.., {self.num_agents}, 3)."
            )
        size = 2 * np.asarray(params.model.radius)
        offsets = np.asarray(params.offsets)
        apart = np.linalg.norm(offsets[..., :, None, :] - offsets[..., None, :, :], axis=-1)
        apart = np.where(np.eye(self.num_agents, dtype=bool), np.inf, apart).min((-2, -1))
        if np.any(apart < size):
            raise ValueError(f"{self.id}: slots are {apart} m apart; drones of that model touch below {size} m.")
        side = 2 * np.asarray(params.start_radius) * math.sin(math.pi / self.num_agents)
        closest = side - 2 * math.sqrt(3) * np.asarray(params.start_spread)
        if np.any(closest < size):
            raise ValueError(
                f"{self.id}: start_radius={params.start_radius} with start_spread={params.start_spread}: two of "
                f"{self.num_agents} drones may start {closest} m apart; they touch below {size} m."
            )

    def marks(self, state: State, params: Params) -> list[Any]:
        position = self._slots(state.time, params)[0]
        return [tuple(float(x[i]) for x in position) for i in range(self.num_agents)]
