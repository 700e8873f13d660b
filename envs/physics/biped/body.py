"""The biped's sizes and masses, the numbers that can be varied, and its equations of motion."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxrl.environment import pytree
from jaxrl.math import fence

from ..planar.scalars import Matrix, Pair, Vector, dot, plus, times, turned
from .arrow import over_legs, product, solve

SCALE = 30.0
"""Pixels a metre in the reference, whose sizes are in pixels."""

HULL = tuple((x / SCALE, z / SCALE) for x, z in ((-30, 9), (6, 9), (34, 1), (34, -8), (-30, -8)))
"""Corners of the hull, about its origin [m]."""

HIP = 8 / SCALE
"""How far below the hull's origin the hips are [m]."""

LEG = 34 / SCALE
"""Length of a thigh and of a shank [m]."""

THIGH_RADIUS, SHANK_RADIUS = 4 / SCALE, 3.2 / SCALE
"""Half the widths of the reference's boxes, here radii of capsules [m]."""

FOOT = LEG - SHANK_RADIUS
"""From a knee to the middle of the round foot [m]."""

RANGES = ((-0.8, 1.1), (-1.6, -0.1))
"""Of the hips and of the knees [rad]."""


class Body(NamedTuple):
    mass: float  # kg
    inertia: float  # kg m^2, about the centre of mass
    com: tuple[float, float]  # m, from the body's origin


def _polygon(corners: Sequence[tuple[float, float]], density: float) -> Body:
    area = x = z = second = 0.0
    for (x0, z0), (x1, z1) in zip(corners, (*corners[1:], corners[0]), strict=True):
        cross = x1 * z0 - x0 * z1  # the corners go clockwise
        area += cross / 2
        x, z = x + cross * (x0 + x1) / 6, z + cross * (z0 + z1) / 6
        second += cross * (x0 * x0 + x0 * x1 + x1 * x1 + z0 * z0 + z0 * z1 + z1 * z1) / 12
    com = (x / area, z / area)
    return Body(density * area, density * (second - area * (com[0] ** 2 + com[1] ** 2)), com)


def _box(width: float, length: float) -> Body:
    return Body(width * length, width * length * (width**2 + length**2) / 12, (0.0, -length / 2))


TRUNK, THIGH, SHANK = _polygon(HULL, 5.0), _box(2 * THIGH_RADIUS, LEG), _box(2 * SHANK_RADIUS, LEG)
MASS = TRUNK.mass + 2 * (THIGH.mass + SHANK.mass)


@pytree
class Physics:
    """What of the body and the world is a number that can be varied."""

    gravity: jax.Array = 10.0  # m/s^2
    friction: jax.Array = math.sqrt(0.2 * 2.5)  # of legs on the track, as Box2D mixes the two
    torque: jax.Array = 80.0  # N m, of a motor at rest
    hip_speed: jax.Array = 4.0  # rad/s, at which a motor gives none
    knee_speed: jax.Array = 6.0  # rad/s


@pytree
class Track:
    """Stumps of equal width on flat ground, the first at `start`."""

    heights: jax.Array  # (K,) m; negative where there is none
    spacing: jax.Array  # m, between one and the next
    start: jax.Array  # m
    width: jax.Array  # m


def down(turn: Pair, length: Any = 1.0) -> Pair:
    """Along a leg that hangs straight down at the angle 0; its derivative by the angle is `ahead`."""
    return length * turn[0], -length * turn[1]


def ahead(turn: Pair, length: Any = 1.0) -> Pair:
    return length * turn[1], length * turn[0]


def absolute(q: Float[Array, "7"]) -> Vector:
    """Coordinates with absolute angles, of MuJoCo's with joint angles; likewise of their rates."""
    thigh = q[2] + q[3::2]
    return [q[0], q[1], q[2], thigh, thigh + q[4::2]]


def relative(q: Vector) -> Float[Array, "7"]:
    x, z, pitch, thigh, shank = fence(q)
    hip, knee = thigh - pitch, shank - thigh
    return jnp.stack([x, z, pitch, hip[0], knee[0], hip[1], knee[1]])


class Limbs(NamedTuple):
    """Ends of the limbs' axes [m]: coordinates (2, 2), of each leg its thigh and its shank."""

    start: Pair
    end: Pair  # a knee, or the middle of a round foot


def limbs(q: Vector, turns: Sequence[Pair]) -> Limbs:
    """From absolute coordinates and (sine, cosine) of the angles: pitch, thighs, shanks."""
    hip = plus((q[0], q[1]), down(turns[0], HIP))
    knee = plus(hip, down(turns[1], LEG))
    foot = plus(knee, down(turns[2], FOOT))
    start = tuple(jnp.stack([jnp.broadcast_to(h, (2,)), k], 1) for h, k in zip(hip, knee, strict=True))
    return fence(Limbs(start, tuple(jnp.stack(x, 1) for x in zip(knee, foot, strict=True))))  # pyright: ignore


def inertia(turns: Sequence[Pair]) -> Matrix:
    """The mass matrix M."""
    pitch, thigh, shank = turns
    legs = 2 * (THIGH.mass + SHANK.mass)
    swing = (THIGH.mass / 2 + SHANK.mass) * LEG, SHANK.mass / 2 * LEG
    com = turned(pitch, TRUNK.com)
    shift = plus(ahead(pitch, legs * HIP), times(TRUNK.mass, (-com[1], com[0])))
    m: Matrix = {(0, 0): MASS, (1, 0): 0.0, (1, 1): MASS, (2, 0): shift[0], (2, 1): shift[1]}
    m[2, 2] = TRUNK.inertia + TRUNK.mass * dot(TRUNK.com, TRUNK.com) + legs * HIP**2
    for i, turn in ((3, thigh), (4, shank)):
        m[i, 0], m[i, 1] = ahead(turn, swing[i - 3])
        m[i, 2] = swing[i - 3] * HIP * dot(pitch, turn)  # the cosine of the difference
    m[3, 3] = THIGH.inertia + (THIGH.mass / 4 + SHANK.mass) * LEG**2
    m[4, 3] = swing[1] * LEG * dot(thigh, shank)
    m[4, 4] = SHANK.inertia + SHANK.mass * LEG**2 / 4
    return m


def bias(turns: Sequence[Pair], rates: Vector, gravity: Any) -> Vector:
    """Centrifugal forces and weight: what M a must balance besides the applied forces."""
    pitch, thigh, shank = turns
    square = [-(x**2) for x in rates[2:]]
    com = turned(pitch, TRUNK.com)
    trunk = TRUNK.mass * com[0] * square[0], TRUNK.mass * (com[1] * square[0] + gravity)
    hip = plus(down(pitch, HIP * square[0]), (0.0, gravity))
    upper = plus(hip, down(thigh, LEG / 2 * square[1]))
    lower = plus(plus(hip, down(thigh, LEG * square[1])), down(shank, LEG / 2 * square[2]))
    both = plus(times(THIGH.mass, upper), times(SHANK.mass, lower))
    legs = over_legs(both[0], 0, 3), over_legs(both[1], 0, 3)
    return [
        *plus(trunk, legs),
        dot((-com[1], com[0]), trunk) + dot(ahead(pitch, HIP), legs),
        dot(ahead(thigh, LEG), plus(both, times(-THIGH.mass / 2, upper))),
        dot(ahead(shank, LEG / 2 * SHANK.mass), lower),
    ]


def _inverse_weights() -> tuple[tuple[float, float], tuple[float, float]]:
    """MuJoCo's scales of softness at q = 0: of the two limbs (their translation), of the two kinds of joint."""
    straight = np.zeros(2), np.ones(2)
    m = inertia([(0.0, 1.0), straight, straight])

    def inverse(direction: Vector) -> float:
        return float(product(direction, solve(m, direction)))

    def translation(*arms: float) -> float:  # of one leg's body, all of whose angles push it ahead
        one = np.array([1.0, 0.0])
        return (inverse([1.0, 0.0, *(arm * (one if k else 1.0) for k, arm in enumerate(arms))]) + vertical) / 3

    vertical = inverse([0.0, 1.0, 0.0, np.zeros(2), np.zeros(2)])
    left = np.array([1.0, 0.0])
    weights = inverse([0.0, 0.0, -1.0, left, 0 * left]), inverse([0.0, 0.0, 0.0, -left, left])
    return (translation(HIP, LEG / 2, 0.0), translation(HIP, LEG, LEG / 2)), weights


WEIGHTS, JOINT_WEIGHTS = (np.array(x) for x in _inverse_weights())
