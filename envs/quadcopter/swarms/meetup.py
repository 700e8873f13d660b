"""Quadcopter-Meetup-v0: drones meet in pairs, the first with the last, the second with the last but one.

gym-pybullet-drones 2021 (Panerati et al., "Learning to fly", IROS), MeetupAviary:

    r_i = -|p_i - p_{M-1-i}|^2

An odd one in the middle earns 0. It ends with the time limit of 5 s alone. Observation, action and the options of a
swarm: `swarm.py`; who meets is partner. Differences from upstream: those of `flock.py`. Upstream's bodies touch where
they meet; here they pass through each other, unless `collisions` says otherwise.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from jaxtyping import Array, Float

from ..dynamics import Drone
from ..tasks.task import State
from .swarm import Swarm


def reward(position: Any) -> Float[Array, " M"]:
    """Of each drone, from the positions of all: three arrays (M,) [m]."""
    x, y, z = (a - a[::-1] for a in position)
    return -(x**2 + y**2 + z**2)


@dataclasses.dataclass(frozen=True)
class Meetup(Swarm):
    id: str = dataclasses.field(default="Quadcopter-Meetup-v0", kw_only=True)

    has_partners = True

    def partners(self, x: Float[Array, " M"]) -> Float[Array, " M"]:
        return x[::-1]

    def rewards(self, state: State, drone: Drone, params: Any) -> Float[Array, " M"]:
        return reward(drone.position)
