"""Quadcopter-LeaderFollower-v0: the first drone hovers at (0, 0, 0.5), all others at the height of the first.

gym-pybullet-drones 2021 (Panerati et al., "Learning to fly", IROS), LeaderFollowerAviary:

    r_0 = -|(0, 0, 0.5) - p_0|^2        r_i = -(z_0 - z_i)^2 / M

It ends with the time limit of 5 s alone. Observation, action and the options of a swarm: `swarm.py`; everyone's partner
is the leader. Differences from upstream: those of `flock.py`.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..dynamics import Drone
from ..tasks.task import State
from .swarm import Swarm

TARGET = (0.0, 0.0, 0.5)  # m, of the leader


def reward(position: Any) -> Float[Array, " M"]:
    """Of each drone, from the positions of all: three arrays (M,) [m]."""
    x, y, z = (a - target for a, target in zip(position, TARGET, strict=True))
    leader = -(x[:1] ** 2 + y[:1] ** 2 + z[:1] ** 2)
    return jnp.concatenate([leader, -((z[0] - z[1:]) ** 2) / len(z)])


@dataclasses.dataclass(frozen=True)
class LeaderFollower(Swarm):
    id: str = dataclasses.field(default="Quadcopter-LeaderFollower-v0", kw_only=True)

    has_partners = True

    def partners(self, x: Float[Array, " M"]) -> Float[Array, " M"]:
        return jnp.broadcast_to(x[0], x.shape)

    def target(self, state: State, params: Any) -> tuple[Any, Any]:
        return TARGET, (0.0, 0.0, 0.0)

    def rewards(self, state: State, drone: Drone, params: Any) -> Float[Array, " M"]:
        return reward(drone.position)

    def marks(self, state: State, params: Any) -> list[Any]:
        return [TARGET]
