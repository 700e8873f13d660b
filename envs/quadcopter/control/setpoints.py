"""What a controller of a quadcopter is asked for."""

from __future__ import annotations

from typing import Any, NamedTuple

ZERO = (0.0, 0.0, 0.0)


class Setpoint(NamedTuple):
    """Where to be, and how to move there: in the world. What a controller does not use it ignores."""

    position: Any = ZERO  # m
    velocity: Any = ZERO  # m/s
    acceleration: Any = ZERO  # m/s^2
    yaw: Any = 0.0  # rad
    yaw_rate: Any = 0.0  # rad/s
    jerk: Any = ZERO  # m/s^3
    snap: Any = ZERO  # m/s^4


class Rates(NamedTuple):
    thrust: Any  # N, of all rotors
    body_rates: Any  # rad/s, in the body


class Attitude(NamedTuple):
    thrust: Any  # N, of all rotors
    quaternion: Any  # w, x, y, z, body to world
    body_rates: Any = ZERO  # rad/s at which it turns, in the body
