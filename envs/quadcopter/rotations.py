"""Rotations as tuples of scalars, which a batch turns into `(N,)` arrays that fuse.

A quaternion is (w, x, y, z) of unit length and turns body into world coordinates; q and -q are the same attitude. Euler
angles are roll, pitch, yaw [rad] with R = Rz(yaw) Ry(pitch) Rx(roll). Functions take anything that indexes: tuples, or
arrays with the components in front.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from jaxrl.math import sincos

Vector = Any
"""Three scalars."""
Quaternion = Any
"""Four scalars: w, x, y, z."""

TINY = 1e-24  # added to a squared norm, so that its square root has a derivative at zero


def dot(a: Vector, b: Vector) -> Array:
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


def cross(a: Vector, b: Vector) -> Vector:
    return a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]


def add(a: Any, b: Any, scale: Any = 1) -> Any:
    """a + scale b, for any number of components."""
    return tuple(x + scale * y for x, y in zip(a, b, strict=True))


def norm(a: Any) -> Array:
    """Euclidean length, of any number of components; its derivative at zero is zero."""
    return jnp.sqrt(sum(x * x for x in a) + TINY)


def unit(a: Any) -> Any:
    """`a` divided by its length."""
    scale = 1 / norm(a)
    return tuple(x * scale for x in a)


def product(p: Quaternion, q: Quaternion) -> Quaternion:
    """Hamilton's p q: first the turn q, then p."""
    pw, px, py, pz = p
    qw, qx, qy, qz = q
    return (
        pw * qw - px * qx - py * qy - pz * qz,
        pw * qx + px * qw + py * qz - pz * qy,
        pw * qy - px * qz + py * qw + pz * qx,
        pw * qz + px * qy - py * qx + pz * qw,
    )


def conjugate(q: Quaternion) -> Quaternion:
    """The inverse turn."""
    return q[0], -q[1], -q[2], -q[3]


def exponential(rotation: Vector) -> Quaternion:
    """The turn by |rotation| [rad] about the axis `rotation`."""
    angle = norm(rotation)
    sine, cosine = sincos(0.5 * angle)
    scale = sine / angle
    return cosine, scale * rotation[0], scale * rotation[1], scale * rotation[2]


def logarithm(q: Quaternion) -> Vector:
    """The rotation vector [rad], of length at most pi, whose `exponential` is q or -q."""
    sign = jnp.where(q[0] < 0, -1, 1)
    sine = norm(q[1:])
    scale = 2 * sign * jnp.arctan2(sine, sign * q[0]) / sine
    return q[1] * scale, q[2] * scale, q[3] * scale


def rotate(q: Quaternion, v: Vector) -> Vector:
    """Body to world."""
    t = cross(q[1:], v)
    u = cross(q[1:], t)
    return tuple(v[i] + 2 * (q[0] * t[i] + u[i]) for i in range(3))


def unrotate(q: Quaternion, v: Vector) -> Vector:
    """World to body."""
    return rotate(conjugate(q), v)


def up(q: Quaternion) -> Vector:
    """The body's z axis in the world."""
    w, x, y, z = q
    return 2 * (x * z + w * y), 2 * (y * z - w * x), 1 - 2 * (x * x + y * y)


def matrix(q: Quaternion) -> tuple[Vector, Vector, Vector]:
    """The rotation matrix, body to world, as three rows."""
    w, x, y, z = q
    return (
        (1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)),
        (2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)),
        (2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)),
    )


def from_matrix(rows: tuple[Vector, Vector, Vector]) -> Quaternion:
    """The quaternion, w >= 0, of a rotation matrix given as three rows (Bar-Itzhack's four cases, the safest taken)."""
    (a, b, c), (d, e, f), (g, h, i) = rows
    candidates = (
        (1 + a + e + i, h - f, c - g, d - b),
        (h - f, 1 + a - e - i, b + d, c + g),
        (c - g, b + d, 1 - a + e - i, f + h),
        (d - b, c + g, f + h, 1 - a - e + i),
    )
    largest = jnp.argmax(jnp.stack([candidates[k][k] for k in range(4)]), 0)
    best = candidates[0]
    for k in range(1, 4):
        best = tuple(jnp.where(largest == k, new, old) for new, old in zip(candidates[k], best, strict=True))
    q = unit(best)
    sign = jnp.where(q[0] < 0, -1, 1)
    return tuple(sign * x for x in q)


def euler(q: Quaternion) -> Vector:
    """Roll, pitch and yaw [rad]; pitch within +-pi/2."""
    w, x, y, z = q
    roll = jnp.arctan2(2 * (w * x + y * z), 1 - 2 * (x * x + y * y))
    pitch = jnp.arcsin(jnp.clip(2 * (w * y - x * z), -1, 1))
    yaw = jnp.arctan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))
    return roll, pitch, yaw


def from_euler(roll: Any, pitch: Any, yaw: Any) -> Quaternion:
    """The quaternion of roll, pitch and yaw [rad]."""
    (sr, cr), (sp, cp), (sy, cy) = (sincos(0.5 * jnp.asarray(angle)) for angle in (roll, pitch, yaw))
    return (
        cr * cp * cy + sr * sp * sy,
        sr * cp * cy - cr * sp * sy,
        cr * sp * cy + sr * cp * sy,
        cr * cp * sy - sr * sp * cy,
    )
