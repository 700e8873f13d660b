"""Quadcopter-Flock-v0: the first drone hovers at (0, 0, 1), each other one at the height of the one before it.

gym-pybullet-drones 2021 (Panerati et al., "Learning to fly", IROS), FlockAviary:

    r_0 = -|(0, 0, 1) - p_0|^2        r_i = -(z_{i-1} - z_i)^2

It ends with the time limit of 5 s alone. Observation, action and the options of a swarm: `swarm.py`; a drone's partner
is the one before it, the leader's itself. Differences from upstream: rotors at hover speed at the start, observations
are not scaled to [-1, 1], there is no damping of the air (`physics=` adds it), and the floor is a damped spring.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..dynamics import Drone
from ..tasks.task import State
from .swarm import Swarm

TARGET = (0.0, 0.0, 1.0)  # m, of the leader


def reward(position: Any) -> Float[Array, " M"]:
    """Of each drone, from the positions of all: three arrays (M,) [m]."""
    x, y, z = (a - target for a, target in zip(position, TARGET, strict=True))
    leader = -(x[:1] ** 2 + y[:1] ** 2 + z[:1] ** 2)
    return jnp.concatenate([leader, -((z[:-1] - z[1:]) ** 2)])


@dataclasses.dataclass(frozen=True)
class Flock(Swarm):
    id: str = dataclasses.field(default="Quadcopter-Flock-v0", kw_only=True)

    has_partners = True

    def partners(self, x: Float[Array, " M"]) -> Float[Array, " M"]:
        return jnp.concatenate([x[:1], x[:-1]])

    def target(self, state: State, params: Any) -> tuple[Any, Any]:
        return TARGET, (0.0, 0.0, 0.0)

    def rewards(self, state: State, drone: Drone, params: Any) -> Float[Array, " M"]:
        return reward(drone.position)

    def marks(self, state: State, params: Any) -> list[Any]:
        return [TARGET]
