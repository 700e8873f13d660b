"""A planar biped on a track of stumps: rigid bodies, joint motors and contacts, as MuJoCo computes them.

A hull, two thighs and two shanks in the x-z plane; lengths, densities, joint ranges and motors are Box2D's of
Gymnasium's BipedalWalker. The equations are MuJoCo's (Todorov 2014, "Convex and analytically-invertible dynamics with
contacts and constraints"): generalised coordinates q = (x, z, pitch, hip, knee, hip, knee), soft contacts with a
pyramid of friction, soft joint limits, semi-implicit Euler with joint damping taken implicitly. `mjcf` writes the same
body as a MuJoCo model; the two agree to rounding.

The acceleration minimises Gauss's convex function

    1/2 (a - a_smooth)' M (a - a_smooth) + 1/2 sum_i D_i min(J_i a - r_i, 0)^2

over rows of contacts and limits, by Newton steps. In absolute angles neither leg knows of the other, so M and the
Hessian have the shape of an arrow and elimination from the feet up fills nothing in: a solution is a few dozen
products, elementwise in a batch, without a factorisation from a library.

Limbs are capsules. The lower end of each touches the ground and a face of a stump, its length two corners of stumps:
the deepest, of all stumps that it reaches. MuJoCo's own collisions find the same or nearby points.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxrl.environment import pytree
from jaxrl.math import fence, sincos

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

# MuJoCo's defaults of a soft constraint: time constant, damping ratio; impedance from, to, and the depth over which.
TIME_CONSTANT, DAMPING_RATIO = 0.02, 1.0  # MuJoCo raises the first to two steps where those are longer; we do not
SOFT, HARD, WIDTH = 0.9, 0.95, 0.001


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


# ---- vectors and symmetric matrices of the coordinates x, z, pitch and, for both legs, angles of thigh and shank

Vector = list[Any]  # of five, the last two (2,)
Matrix = dict[tuple[int, int], Any]  # of (i, j), j <= i
Turn = tuple[Any, Any]  # sine and cosine of an angle
Point = tuple[Any, Any]


def _both(x: Any, i: int, k: int) -> Any:
    """What belongs to the coordinates i and k: summed over the legs where i is of the hull and k of the legs."""
    return x[..., 0] + x[..., 1] if i < 3 <= k else x


def multiply(matrix: Matrix, vector: Vector) -> Vector:
    out: Vector = [0.0] * 5
    for (i, j), x in matrix.items():
        out[i] = out[i] + x * vector[j]
        if j < i:
            out[j] = out[j] + _both(x * vector[i], j, i)
    return out


def product(a: Vector, b: Vector) -> Any:
    return sum(_both(x * y, 0, k) for k, (x, y) in enumerate(zip(a, b, strict=True)))


def solve(matrix: Matrix, vector: Vector) -> Vector:
    """`x` of `matrix @ x = vector`, the matrix positive definite: LDL' from the feet up."""
    a, b = dict(matrix), list(vector)
    factors = {}
    for k in (4, 3, 2, 1, 0):
        inverse = 1 / a[k, k]
        factors[k] = inverse, [a[k, i] * inverse for i in range(k)]
        for i, factor in enumerate(factors[k][1]):
            b[i] = b[i] - _both(factor * b[k], i, k)
            for j in range(i + 1):
                a[i, j] = a[i, j] - _both(factor * a[k, j], i, k)
    for k in range(5):
        inverse, factor = factors[k]
        b[k] = b[k] * inverse - sum(x * y for x, y in zip(factor, b[:k], strict=True))
    return b


# ---- the body


def turned(turn: Turn, point: Point) -> Point:
    """`point` of a body turned counter-clockwise, with x ahead and z up."""
    sine, cosine = turn
    return cosine * point[0] - sine * point[1], sine * point[0] + cosine * point[1]


def down(turn: Turn, length: Any = 1.0) -> Point:
    """Along a leg that hangs straight down at the angle 0; its derivative by the angle is `ahead`."""
    return length * turn[0], -length * turn[1]


def ahead(turn: Turn, length: Any = 1.0) -> Point:
    return length * turn[1], length * turn[0]


def _dot(a: Point, b: Point) -> Any:
    return a[0] * b[0] + a[1] * b[1]


def _add(a: Point, b: Point, scale: float = 1.0) -> Point:
    return a[0] + scale * b[0], a[1] + scale * b[1]


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

    start: Point
    end: Point  # a knee, or the middle of a round foot


def limbs(q: Vector, turns: Sequence[Turn]) -> Limbs:
    """From absolute coordinates and (sine, cosine) of the angles: pitch, thighs, shanks."""
    hip = _add((q[0], q[1]), down(turns[0], HIP))
    knee = _add(hip, down(turns[1], LEG))
    foot = _add(knee, down(turns[2], FOOT))
    start = tuple(jnp.stack([jnp.broadcast_to(h, (2,)), k], 1) for h, k in zip(hip, knee, strict=True))
    return fence(Limbs(start, tuple(jnp.stack(x, 1) for x in zip(knee, foot, strict=True))))  # pyright: ignore


def inertia(turns: Sequence[Turn]) -> Matrix:
    """The mass matrix M."""
    pitch, thigh, shank = turns
    legs = 2 * (THIGH.mass + SHANK.mass)
    swing = (THIGH.mass / 2 + SHANK.mass) * LEG, SHANK.mass / 2 * LEG
    com = turned(pitch, TRUNK.com)
    shift = _add(ahead(pitch, legs * HIP), (-com[1], com[0]), TRUNK.mass)
    m: Matrix = {(0, 0): MASS, (1, 0): 0.0, (1, 1): MASS, (2, 0): shift[0], (2, 1): shift[1]}
    m[2, 2] = TRUNK.inertia + TRUNK.mass * _dot(TRUNK.com, TRUNK.com) + legs * HIP**2
    for i, turn in ((3, thigh), (4, shank)):
        m[i, 0], m[i, 1] = ahead(turn, swing[i - 3])
        m[i, 2] = swing[i - 3] * HIP * _dot(pitch, turn)  # the cosine of the difference
    m[3, 3] = THIGH.inertia + (THIGH.mass / 4 + SHANK.mass) * LEG**2
    m[4, 3] = swing[1] * LEG * _dot(thigh, shank)
    m[4, 4] = SHANK.inertia + SHANK.mass * LEG**2 / 4
    return m


def bias(turns: Sequence[Turn], rates: Vector, gravity: Any) -> Vector:
    """Centrifugal forces and weight: what M a must balance besides the applied forces."""
    pitch, thigh, shank = turns
    square = [-(x**2) for x in rates[2:]]
    com = turned(pitch, TRUNK.com)
    trunk = TRUNK.mass * com[0] * square[0], TRUNK.mass * (com[1] * square[0] + gravity)
    hip = _add(down(pitch, HIP * square[0]), (0.0, gravity))
    upper = _add(hip, down(thigh, LEG / 2 * square[1]))
    lower = _add(_add(hip, down(thigh, LEG * square[1])), down(shank, LEG / 2 * square[2]))
    both = _add((THIGH.mass * upper[0], THIGH.mass * upper[1]), lower, SHANK.mass)
    legs = _both(both[0], 0, 3), _both(both[1], 0, 3)
    return [
        *_add(trunk, legs),
        _dot((-com[1], com[0]), trunk) + _dot(ahead(pitch, HIP), legs),
        _dot(ahead(thigh, LEG), _add(both, upper, -THIGH.mass / 2)),
        _dot(ahead(shank, LEG / 2 * SHANK.mass), lower),
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


# ---- contacts


class Touch(NamedTuple):
    """Contacts of each leg's limbs: (2, 2, 4), on the ground, on a face, on two corners."""

    distance: Any  # m
    normal: Point  # which way the track pushes
    center: Point  # m, the point of the limb's axis that is nearest


RADII = np.array([THIGH_RADIUS, SHANK_RADIUS])


def window(
    track: Track, low: Float[Array, "*limbs"], count: int
) -> tuple[Float[Array, "*limbs {count}"], Float[Array, "*limbs {count}"]]:
    """Left edges and heights [m] of the first stumps that end beyond `low` [m]."""
    pitch = track.spacing + track.width
    first = jnp.floor((low - track.start - track.width) / pitch) + 1
    number = first[..., None] + jnp.arange(count, dtype=first.dtype)
    index = number.astype(jnp.int32)
    heights = track.heights[jnp.clip(index, 0, track.heights.shape[0] - 1)]
    return track.start + number * pitch, jnp.where(index >= 0, heights, -1.0).astype(heights.dtype)


def on_face(point: Point, radii: Float[Array, "2"], track: Track) -> tuple[Any, Point]:
    """Distance and normal of discs to the top or side of a stump, the deeper of two: a disc is narrower than a stump.

    Where a corner is nearest, the face is far.
    """
    left, height = window(track, point[0] - radii, 2)
    x, z = point[0][..., None], point[1][..., None]
    outside, above = jnp.maximum(left - x, x - left - track.width), z - height
    side = outside > above
    distance = jnp.where((outside > 0) & (above > 0), 2.0, jnp.where(side, outside, above))
    push = jnp.where(side, jnp.where(x > left + 0.5 * track.width, 1.0, -1.0), 0.0).astype(x.dtype)
    near = distance[..., 1] < distance[..., 0]
    distance, push = (jnp.where(near, a[..., 1], a[..., 0]) for a in (distance, push))
    return distance - radii, (push, 1 - jnp.abs(push))


def on_corners(limbs: Limbs, radii: Float[Array, "2"], track: Track) -> list[tuple[Any, Point, Point]]:
    """Distance, normal and center of the two deepest contacts of each limb with upper corners of stumps."""
    start, end = limbs
    way = end[0] - start[0], end[1] - start[1]
    inverse = 1 / _dot(way, way)
    # Four stumps are as many as a limb spans, for they and their gaps are 0.47 m.
    left, height = window(track, jnp.minimum(start[0], end[0]) - radii, 4)
    x, z = jnp.concatenate([left, left + track.width], -1), jnp.concatenate([height, height], -1)

    def nearest(x: Any, z: Any, start: Any, way: Any, inverse: Any) -> Point:
        share = jnp.clip(((x - start[0]) * way[0] + (z - start[1]) * way[1]) * inverse, 0.0, 1.0)
        return start[0] + share * way[0], start[1] + share * way[1]

    center = nearest(x, z, *jax.tree.map(lambda leaf: leaf[..., None], (start, way, inverse)))
    square = fence((center[0] - x) ** 2 + (center[1] - z) ** 2)
    out = []
    for _ in range(2):
        chosen = jnp.argmin(square, -1)[..., None] == jnp.arange(8)
        corner = jnp.sum(jnp.where(chosen, x, 0.0), -1), jnp.sum(jnp.where(chosen, z, 0.0), -1)
        square = jnp.where(chosen, jnp.inf, square)
        center = nearest(*corner, start, way, inverse)
        away = center[0] - corner[0], center[1] - corner[1]
        far = jnp.sqrt(jnp.maximum(_dot(away, away), 1e-12))
        out.append((far - radii, (away[0] / far, away[1] / far), center))
    return out


def touches(limbs: Limbs, track: Track) -> Touch:
    """All contacts."""
    end = limbs.end
    radii = jnp.asarray(RADII, end[0].dtype)
    flat = end[1] - radii, (jnp.zeros_like(end[1]), jnp.ones_like(end[1])), end
    found = flat, (*on_face(end, radii, track), end), *on_corners(limbs, radii, track)
    return Touch(*jax.tree.map(lambda *leaves: jnp.stack(leaves, -1), *fence(found)))


# ---- constraints


class Contacts(NamedTuple):
    """All contacts, (2, 8): four of the thigh and four of the shank of each leg; D is 0 where nothing touches."""

    press: list[Any]  # J along the normal, of each coordinate
    slip: list[Any]  # J along the track, times the coefficient of friction
    weight: Any  # D
    targets: tuple[Any, Any, Any]  # r of the pyramid's edges: forward, backward, and the two out of the plane


class Limits(NamedTuple):
    """Of hips and of knees, (2,) each: the angle, or less it, may not sink below a limit."""

    sign: Any
    weight: Any
    target: Any


EDGES = (1.0, 1.0, 2.0)
"""The two edges out of the plane are one row of twice the weight."""

DAMPING = 2 / (HARD * TIME_CONSTANT)


def along(row: list[Any], vector: Vector) -> Any:
    """J v of contacts, (2, 8)."""
    return sum(x * (v if k < 3 else v[:, None]) for k, (x, v) in enumerate(zip(row, vector, strict=True)))


def softness(distance: Any, scale: Any) -> tuple[Any, Any]:
    """D of a constraint so far from acting [m or rad], 0 where it does not, and the acceleration that springs back."""
    x = jnp.minimum(jnp.abs(distance) / WIDTH, 1.0)
    impedance = SOFT + (HARD - SOFT) * jnp.where(x < 0.5, 2 * x * x, 1 - 2 * (1 - x) ** 2)
    weight = impedance / ((1 - impedance) * scale)
    return jnp.where(distance < 0, weight, 0.0), -impedance * distance / (HARD * TIME_CONSTANT * DAMPING_RATIO) ** 2


def contacts(q: Vector, rates: Vector, turns: Sequence[Turn], track: Track, friction: Any) -> Contacts:
    """Rows of all contacts, in absolute coordinates."""
    ends = limbs(q, turns)
    distance, normal, center = touches(ends, track)
    reach = jnp.asarray(RADII[:, None], distance.dtype) + 0.5 * distance  # the contact is half way between the surfaces
    point = center[0] - reach * normal[0], center[1] - reach * normal[1]
    own = ends.start[1][..., None] - point[1], point[0] - ends.start[0][..., None]  # what the limb's own turning does
    is_shank = np.array([[False], [True]])
    swing = tuple(x[:, None, None] for x in ahead(turns[1], LEG))
    thigh = tuple(jnp.where(is_shank, s, x) for s, x in zip(swing, own, strict=True))
    shank = tuple(jnp.where(is_shank, x, 0.0) for x in own)

    def row(way: Point) -> list[Any]:
        parts = [way[0], way[1], _dot(way, ahead(turns[0], HIP)), _dot(way, thigh), _dot(way, shank)]  # pyright: ignore
        return [x.reshape(2, 8) for x in parts]

    press, slip = row(normal), [friction * x for x in row((normal[1], -normal[0]))]
    scale = jnp.asarray(WEIGHTS[:, None], distance.dtype) * (2 * friction**2 * (1 + friction**2))
    weight, spring = (x.reshape(2, 8) for x in softness(distance, scale))
    pressing, slipping = DAMPING * along(press, rates), DAMPING * along(slip, rates)
    return Contacts(
        press, slip, weight, (spring - pressing - slipping, spring - pressing + slipping, spring - pressing)
    )


def limits(q: Vector, rates: Vector, joint: int) -> Limits:
    """Rows of the hips (0) or of the knees (1)."""
    low, high = RANGES[joint]
    angle, rate = q[3 + joint] - q[2 + joint], rates[3 + joint] - rates[2 + joint]
    sign = jnp.where(angle < 0.5 * (low + high), 1.0, -1.0).astype(angle.dtype)
    weight, spring = softness(jnp.minimum(angle - low, high - angle), float(JOINT_WEIGHTS[joint]))
    return Limits(sign, weight, spring - DAMPING * sign * rate)


class Problem(NamedTuple):
    """To find accelerations."""

    m: Matrix
    force: Vector  # M a_smooth
    contacts: Contacts
    limits: tuple[Limits, Limits]


def rows(problem: Problem, a: Vector) -> list[Any]:
    """J a: of the three kinds of edges, (2, 8), of hips and of knees, (2,)."""
    press, slip = along(problem.contacts.press, a), along(problem.contacts.slip, a)
    return [press + slip, press - slip, press, *(x.sign * (a[3 + n] - a[2 + n]) for n, x in enumerate(problem.limits))]


def newton(problem: Problem, a: Vector) -> Vector:
    """A step from the accelerations `a` towards the least of Gauss's function."""
    m, force, contact, joints = problem
    targets = [*contact.targets, *(x.target for x in joints)]
    weights = [*(n * contact.weight for n in EDGES), *(x.weight for x in joints)]
    residuals = fence([x - target for x, target in zip(rows(problem, a), targets, strict=True)])
    acting = [jnp.where(r < 0, w, 0.0) for r, w in zip(residuals, weights, strict=True)]
    pulls = [x * r for x, r in zip(acting, residuals, strict=True)]
    forward, backward, out = acting[:3]
    pull, drag = pulls[0] + pulls[1] + pulls[2], pulls[0] - pulls[1]
    pull, drag, both, skew, square = fence(
        (pull, drag, forward + backward + out, forward - backward, forward + backward)
    )
    inertial = [x - f for x, f in zip(multiply(m, a), force, strict=True)]
    gradient, hessian = list(inertial), dict(m)
    for i, (p, s) in enumerate(zip(contact.press, contact.slip, strict=True)):
        gradient[i] = gradient[i] + _both(jnp.sum(pull * p + drag * s, 1), i, 3)
        left, right = both * p + skew * s, skew * p + square * s
        for j in range(i + 1):
            entry = jnp.sum(left * contact.press[j] + right * contact.slip[j], 1)
            hessian[i, j] = hessian[i, j] + _both(entry, i, 3)
    for n, (joint, stiff, pull) in enumerate(zip(joints, acting[3:], pulls[3:], strict=True)):
        i, above = 3 + n, 2 + n
        push = joint.sign * pull
        gradient[i], gradient[above] = gradient[i] + push, gradient[above] - _both(push, above, i)
        hessian[i, i], hessian[i, above] = hessian[i, i] + stiff, hessian[i, above] - stiff
        hessian[above, above] = hessian[above, above] + _both(stiff, above, i)
    hessian, gradient, inertial = fence((hessian, gradient, inertial))
    step = fence([-x for x in solve(hessian, gradient)])

    # Along the step the slope is linear but for rows that begin or cease to act: one secant from the step's end.
    changes = rows(problem, step)
    slope, bend = product(step, inertial), product(step, multiply(m, step))
    slope = slope + bend
    for r, d, w in zip(residuals, changes, weights, strict=True):
        stiff = jnp.where(r + d < 0, w, 0.0) * d
        slope, bend = slope + jnp.sum(stiff * (r + d)), bend + jnp.sum(stiff * d)
    share = jnp.maximum(1 - slope / jnp.maximum(bend, 1e-9), 0.0)
    return [x + share * s for x, s in zip(a, step, strict=True)]


# ---- a step


def substep(
    motion: tuple[Vector, Vector, Vector],
    drive: tuple[Any, Any],
    brake: tuple[Any, Any],
    track: Track,
    physics: Physics,
    dt: Any,
    iterations: int,
) -> tuple[Vector, Vector, Vector]:
    """`dt` on: coordinates, rates and accelerations, all absolute. A joint is turned by drive - brake * rate."""
    q, rates, guess = motion
    turns = fence([sincos(x) for x in q[2:]])
    m = inertia(turns)
    force = [-x for x in bias(turns, rates, physics.gravity)]
    damped = dict(m)
    for n, (push, damping) in enumerate(zip(drive, brake, strict=True)):
        i, above = 3 + n, 2 + n
        torque = push - damping * (rates[i] - rates[above])
        force[i], force[above] = force[i] + torque, force[above] - _both(torque, above, i)
        damped[i, i], damped[i, above] = damped[i, i] + dt * damping, damped[i, above] - dt * damping
        damped[above, above] = damped[above, above] + dt * _both(damping, above, i)
    ends = limits(q, rates, 0), limits(q, rates, 1)
    problem = Problem(m, force, contacts(q, rates, turns, track, physics.friction), ends)
    problem, m, damped = fence((problem, m, damped))

    def improve(a: Vector, _: None) -> tuple[Vector, None]:
        return newton(problem, a), None

    a, _ = jax.lax.scan(improve, guess, None, length=iterations)
    change = solve(damped, multiply(m, a))  # Euler's step with the joints' damping at its end
    rates = [v + dt * x for v, x in zip(rates, change, strict=True)]
    return [x + dt * v for x, v in zip(q, rates, strict=True)], rates, a


def motors(action: Float[Array, "4"], physics: Physics) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    """drive [N m] and brake [N m s] of hips and knees: |action| `torque` at rest, falling to 0 at full speed."""
    drive = physics.torque * action[0::2], physics.torque * action[1::2]
    return drive, (jnp.abs(drive[0]) / physics.hip_speed, jnp.abs(drive[1]) / physics.knee_speed)


def advance(
    qpos: Float[Array, "7"],
    qvel: Float[Array, "7"],
    qacc: Float[Array, "7"],
    action: Float[Array, "4"],
    track: Track,
    physics: Physics,
    dt: float | Float[Array, ""] = 0.02,
    substeps: int = 4,
    iterations: int = 6,
) -> tuple[Float[Array, "7"], Float[Array, "7"], Float[Array, "7"]]:
    """`dt` seconds on under one action in [-1, 1]: MuJoCo's qpos, qvel and qacc (the last only a first guess)."""
    drive, brake = motors(action, physics)

    def body(motion: Any, _: None) -> tuple[Any, None]:
        moved = substep(motion, drive, brake, track, physics, dt / substeps, iterations)
        return jax.tree.map(lambda new, old: new.astype(old.dtype), moved, motion), None

    motion, _ = jax.lax.scan(body, (absolute(qpos), absolute(qvel), absolute(qacc)), None, length=substeps)
    q, rates, a = motion
    return relative(q), relative(rates), relative(a)


# ---- the same in MuJoCo


def mjcf(track: Track | None = None, physics: Physics | None = None, dt: float = 0.005) -> str:
    """The body and `track` (none: flat ground) as a MuJoCo model: capsules on boxes, four motors.

    A motor's drive and brake depend on the action (`motors`): give `ctrl` the one and `dof_damping` the other.
    """
    physics = Physics() if physics is None else physics
    slide = f'friction="{float(physics.friction)!r} 0.005 0.0001" condim="3"'

    def limb(name: str, body: Body, radius: float, length: float, above: str, span: tuple[float, float]) -> str:
        return (
            f'<body name="{name}" pos="0 0 {above}"><joint name="{name}" axis="0 -1 0" range="{span[0]} {span[1]}"/>'
            f'<inertial pos="0 0 {body.com[1]!r}" mass="{body.mass!r}" diaginertia="1 {body.inertia!r} 1"/>'
            f'<geom name="{name}" type="capsule" fromto="0 0 0 0 0 {-length!r}" size="{radius!r}" contype="1" '
            f'conaffinity="0" {slide}/>'
        )

    legs = "".join(
        limb(f"thigh{n}", THIGH, THIGH_RADIUS, LEG, repr(-HIP), RANGES[0])
        + limb(f"shank{n}", SHANK, SHANK_RADIUS, FOOT, repr(-LEG), RANGES[1])
        + "</body></body>"
        for n in range(2)
    )
    stumps = ""
    if track is not None:
        pitch, width = float(track.spacing) + float(track.width), float(track.width)
        for n, height in enumerate(np.asarray(track.heights)):
            if height > 0:
                x, half = float(track.start) + n * pitch + 0.5 * width, 0.5 * float(height)
                stumps += (
                    f'<geom type="box" pos="{x!r} 0 {half!r}" size="{0.5 * width!r} 1 {half!r}" contype="0" '
                    f'conaffinity="1" {slide}/>'
                )
    hull = " ".join(f"{x!r} {y} {z!r}" for x, z in HULL for y in (-0.2, 0.2))
    gears = "".join(f'<motor joint="{limb}{n}"/>' for n in range(2) for limb in ("thigh", "shank"))
    return f"""<mujoco model="biped">
<compiler angle="radian" autolimits="true"/>
<option timestep="{dt!r}" gravity="0 0 {-float(physics.gravity)!r}" integrator="Euler" cone="pyramidal"/>
<asset><mesh name="hull" vertex="{hull}"/></asset>
<worldbody><geom name="ground" type="plane" size="100 1 1" contype="0" conaffinity="1" {slide}/>{stumps}
<body name="hull"><joint name="x" type="slide" axis="1 0 0"/><joint name="z" type="slide" axis="0 0 1"/>
<joint name="pitch" axis="0 -1 0"/>
<inertial pos="{TRUNK.com[0]!r} 0 {TRUNK.com[1]!r}" mass="{TRUNK.mass!r}" diaginertia="1 {TRUNK.inertia!r} 1"/>
<geom name="hull" type="mesh" mesh="hull" contype="0" conaffinity="0"/>{legs}</body></worldbody>
<actuator>{gears}</actuator></mujoco>"""
