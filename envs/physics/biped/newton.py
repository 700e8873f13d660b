"""The biped's constraints, contacts and limits of joints, and the accelerations by Newton steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxrl.math import fence

from ..planar.newton import softness
from ..planar.scalars import Matrix, Pair, Vector, dot
from .arrow import multiply, over_legs, product, solve
from .body import HIP, JOINT_WEIGHTS, LEG, RANGES, WEIGHTS, Track, ahead, limbs
from .contacts import RADII, touches


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


SOLREF, SOLIMP = (0.02, 1.0), (0.9, 0.95, 0.001, 0.5, 2.0)
"""MuJoCo's defaults of a soft constraint. It raises the first, a time, to two steps, which are never longer here."""

EDGES = (1.0, 1.0, 2.0)
"""Of the pyramid of friction: the two edges out of the plane are one row of twice the weight."""


def along(row: list[Any], vector: Vector) -> Any:
    """J v of contacts, (2, 8)."""
    return sum(x * (v if k < 3 else v[:, None]) for k, (x, v) in enumerate(zip(row, vector, strict=True)))


def contacts(q: Vector, rates: Vector, turns: Sequence[Pair], track: Track, friction: Any) -> Contacts:
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

    def row(way: Pair) -> list[Any]:
        parts = [way[0], way[1], dot(way, ahead(turns[0], HIP)), dot(way, thigh), dot(way, shank)]  # pyright: ignore
        return [x.reshape(2, 8) for x in parts]

    press, slip = row(normal), [friction * x for x in row((normal[1], -normal[0]))]
    scale = jnp.asarray(WEIGHTS[:, None], distance.dtype) * (2 * friction**2 * (1 + friction**2))
    weight, spring, damping = softness(0.0, SOLREF, SOLIMP, distance, 0.0, scale)
    weight, spring = weight.reshape(2, 8), spring.reshape(2, 8)
    pressing, slipping = damping * along(press, rates), damping * along(slip, rates)
    return Contacts(
        press, slip, weight, (spring - pressing - slipping, spring - pressing + slipping, spring - pressing)
    )


def limits(q: Vector, rates: Vector, joint: int) -> Limits:
    """Rows of the hips (0) or of the knees (1)."""
    low, high = RANGES[joint]
    angle, rate = q[3 + joint] - q[2 + joint], rates[3 + joint] - rates[2 + joint]
    sign = jnp.where(angle < 0.5 * (low + high), 1.0, -1.0).astype(angle.dtype)
    distance, scale = jnp.minimum(angle - low, high - angle), float(JOINT_WEIGHTS[joint])
    weight, spring, damping = softness(0.0, SOLREF, SOLIMP, distance, 0.0, scale)
    return Limits(sign, weight, spring - damping * sign * rate)


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
        gradient[i] = gradient[i] + over_legs(jnp.sum(pull * p + drag * s, 1), i, 3)
        left, right = both * p + skew * s, skew * p + square * s
        for j in range(i + 1):
            entry = jnp.sum(left * contact.press[j] + right * contact.slip[j], 1)
            hessian[i, j] = hessian[i, j] + over_legs(entry, i, 3)
    for n, (joint, stiff, pull) in enumerate(zip(joints, acting[3:], pulls[3:], strict=True)):
        i, above = 3 + n, 2 + n
        push = joint.sign * pull
        gradient[i], gradient[above] = gradient[i] + push, gradient[above] - over_legs(push, above, i)
        hessian[i, i], hessian[i, above] = hessian[i, i] + stiff, hessian[i, above] - stiff
        hessian[above, above] = hessian[above, above] + over_legs(stiff, above, i)
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
