"""What several controllers make of errors: integrals with limits, attitudes by their axes, the turn between two."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from jaxrl.math import sincos

from ..rotations import Quaternion, Vector, cross, dot, from_matrix, matrix, unit


def zeros(n: int) -> Any:
    return (jnp.zeros((), jnp.result_type(float)),) * n


def integrated(integral: Any, error: Any, gain: Any, limit: Any, dt: Any) -> Any:
    return tuple(jnp.clip(integral[i] + gain[i] * error[i] * dt, -limit[i], limit[i]) for i in range(len(error)))


def axes_of(q: Quaternion) -> Any:
    """The body's axes in the world: the columns of the rotation matrix."""
    return tuple(zip(*matrix(q), strict=True))


def quaternion_of(axes: Any) -> Quaternion:
    a, b, c = zip(*axes, strict=True)
    return from_matrix((a, b, c))


def rotation_error(wanted: Any, now: Any) -> Vector:
    """The vector of Rd'R - R'Rd, of attitudes given by their three axes: 2 sin(angle) about the axis of the turn."""
    return (
        dot(wanted[2], now[1]) - dot(now[2], wanted[1]),
        dot(wanted[0], now[2]) - dot(now[0], wanted[2]),
        dot(wanted[1], now[0]) - dot(now[1], wanted[0]),
    )


def heading_axes(force: Vector, yaw: Any) -> tuple[Vector, Vector, Vector]:
    """The axes of the attitude with z along `force` and y across the heading."""
    sine, cosine = sincos(jnp.asarray(yaw))
    z = unit(force)
    y = unit(cross(z, (cosine, sine, 0 * sine)))
    return cross(y, z), y, z
