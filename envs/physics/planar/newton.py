"""Constraints, contacts and limits of joints, and the accelerations by Newton steps."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from .compile import Plan, Round
from .equations import Frames, multiply, solve, velocity
from .scalars import Matrix, Numbers, Pair, Scalar, Vector, add, dot, minus, mul, plus, settle, sub, times, turned


class Contact(NamedTuple):
    press: dict[int, Scalar]  # J along the normal, of the degrees of freedom that matter
    slip: dict[int, Scalar]  # J along the surface, times the coefficient of friction
    weight: Scalar  # D of an edge of the pyramid, 0 where nothing touches
    targets: tuple[Scalar, Scalar, Scalar]  # r of the edges: forward, backward, and the two out of the plane


class Limit(NamedTuple):
    """The coordinate, or less it, may not sink below a limit."""

    dof: int
    sign: Scalar
    weight: Scalar
    target: Scalar


def softness(
    step: Scalar, solref: tuple[float, ...], solimp: tuple[float, ...], distance: Scalar, margin: float, scale: Scalar
) -> tuple[Scalar, Scalar, Scalar]:
    """D of a constraint so far from acting, 0 where it does not; the acceleration that springs back; its damping."""
    width, power = solimp[2], solimp[4]
    low, high, middle = (min(max(x, 1e-4), 0.9999) for x in (solimp[0], solimp[1], solimp[3]))
    if width <= 1e-15:
        low, high, width = 0.5 * (low + high), 0.5 * (low + high), 1.0
    depth = distance - margin
    x = jnp.minimum(jnp.abs(depth) / width, 1.0)
    if power == 1 or low == high:
        y = x
    elif power == 2 and middle == 0.5:
        y = jnp.where(x < 0.5, 2 * x * x, 1 - 2 * (1 - x) ** 2)
    else:
        below, above = 1 / middle ** (power - 1), 1 / (1 - middle) ** (power - 1)
        y = jnp.where(x < middle, below * x**power, 1 - above * (1 - x) ** power)
    impedance = float(low) + float(high - low) * y
    if solref[0] > 0:
        time = jnp.maximum(solref[0], 2 * step)  # as MuJoCo keeps it safe
        stiffness, damping = 1 / (high * time * solref[1]) ** 2, 2 / (high * time)
    else:
        stiffness, damping = -solref[0] / high**2, -solref[1] / high
    weight = impedance / ((1 - impedance) * scale)
    return jnp.where(distance < margin, weight, 0.0), -stiffness * impedance * depth, damping


def ends(plan: Plan, model: Numbers, at: Frames, shape: Round) -> list[Pair]:
    """Of a capsule's axis, or a sphere's centre, about the tree's origin."""
    geom, link = shape.geom, shape.link
    middle = model["geom_pos"][geom, plan.axes[0]], model["geom_pos"][geom, plan.axes[1]]
    if shape.direction is None:
        return [plus(at.places[link], turned(at.turns[link], middle))]
    half = times(model["geom_size"][geom, 1], shape.direction)
    return [plus(at.places[link], turned(at.turns[link], both)) for both in (plus(middle, half), minus(middle, half))]


def nearest(a: list[Pair], b: list[Pair]) -> tuple[Pair, Pair]:
    """The nearest points of two segments (of two points, or one)."""
    if len(a) == 1 and len(b) == 1:
        return a[0], b[0]

    def foot(point: Pair, segment: list[Pair]) -> Pair:
        if len(segment) == 1:
            return segment[0]
        way = minus(segment[1], segment[0])
        share = jnp.clip(dot(minus(point, segment[0]), way) / jnp.maximum(dot(way, way), 1e-20), 0.0, 1.0)
        return plus(segment[0], times(share, way))

    # Two segments of a plane that do not cross are nearest at an end of one of them. Axes that cross are a capsule's
    # radius too deep, and of two that are parallel MuJoCo makes two contacts; neither is looked for.
    pairs = [(p, foot(p, b)) for p in a] + [(foot(p, a), p) for p in b]
    best, least = pairs[0], dot(*(minus(*pairs[0]),) * 2)
    for pair in pairs[1:]:
        square = dot(*(minus(*pair),) * 2)
        best = jax.tree.map(lambda new, old, closer=square < least: jnp.where(closer, new, old), pair, best)
        least = jnp.minimum(square, least)
    return best


def contacts(plan: Plan, model: Numbers, at: Frames, rates: Vector) -> list[Contact]:
    found = []  # touch, distance, normal from the first to the second, place about the tree's origin
    for touch in plan.touches:
        radius = model["geom_size"][touch.second.geom, 0]
        if isinstance(touch.first, int):
            height = at.origins[touch.second.link][1] - model["geom_pos"][touch.first, plan.axes[1]]
            for end in ends(plan, model, at, touch.second):
                distance = end[1] + height - radius
                found.append((touch, distance, (0.0, 1.0), (end[0], end[1] - radius - 0.5 * distance)))
        else:
            other = model["geom_size"][touch.first.geom, 0]
            a, b = nearest(ends(plan, model, at, touch.first), ends(plan, model, at, touch.second))
            way = minus(b, a)
            far = jnp.sqrt(jnp.maximum(dot(way, way), 1e-20))
            normal, distance = times(1 / far, way), far - radius - other
            found.append((touch, distance, normal, plus(a, times(other + 0.5 * distance, normal))))
    out = []
    for touch, distance, normal, place in found:
        links = [(1.0, plan.links[touch.second.link])]
        geoms = [touch.second.geom]
        if isinstance(touch.first, int):
            geoms.append(touch.first)
        else:
            links.append((-1.0, plan.links[touch.first.link]))
            geoms.append(touch.first.geom)
        press: dict[int, Scalar] = {}
        slip: dict[int, Scalar] = {}
        invweight: Scalar = 0.0
        friction = jnp.maximum(*(model["geom_friction"][geom, 0] for geom in geoms))
        friction = jnp.maximum(friction, 1e-5 if friction.dtype == jnp.float64 else 1e-2)  # float32 loses less
        along = normal[1], mul(-1.0, normal[0])
        for sign, link in links:
            invweight = add(invweight, model["body_invweight0"][link.body, 0])
            for dof in link.path:
                motion: Any = at.motions[dof]
                moves = velocity(motion, place)
                press[dof] = add(press.get(dof, 0.0), mul(sign, dot(normal, moves)))
                if touch.frictional:
                    slip[dof] = add(slip.get(dof, 0.0), mul(sign, mul(friction, dot(along, moves))))
        if touch.frictional:
            scale = invweight * 2 * friction**2 * (1 + friction**2)
        else:  # four equal edges make one row
            scale = 4 * invweight
        weight, spring, damping = softness(model["timestep"], touch.solref, touch.solimp, distance, touch.margin, scale)
        pressing = damping * add(*(mul(x, rates[i]) for i, x in press.items()))
        slipping = add(*(mul(x, rates[i]) for i, x in slip.items()))
        slipping = mul(damping, slipping)
        targets = sub(spring - pressing, slipping), add(spring - pressing, slipping), spring - pressing
        out.append(Contact(press, slip, weight, targets))
    return out


def limits(plan: Plan, model: Numbers, q: Vector, rates: Vector) -> list[Limit]:
    out = []
    for joint in (joint for link in plan.links for joint in link.joints if joint.limited):
        (low, high), x = model["jnt_range"][joint.dof], q[joint.dof]
        sign = jnp.where(x < 0.5 * (low + high), 1.0, -1.0).astype(x.dtype)
        distance, scale = jnp.minimum(x - low, high - x), model["dof_invweight0"][joint.dof]
        weight, spring, damping = softness(model["timestep"], joint.solref, joint.solimp, distance, joint.margin, scale)
        out.append(Limit(joint.dof, sign, weight, spring - damping * sign * rates[joint.dof]))
    return out


class Problem(NamedTuple):
    """To find accelerations."""

    m: Matrix
    force: Vector  # M a_smooth
    contacts: list[Contact]
    limits: list[Limit]


def _rows(problem: Problem, a: Vector) -> list[tuple[Scalar, ...]]:
    """J a of every contact's edges (forward, backward, out of the plane) and of every limit."""
    out: list[tuple[Scalar, ...]] = []
    for contact in problem.contacts:
        press, slip = (add(*(mul(x, a[i]) for i, x in row.items())) for row in (contact.press, contact.slip))
        out.append((add(press, slip), sub(press, slip), press))
    return out + [(limit.sign * a[limit.dof],) for limit in problem.limits]


EDGES = (1.0, 1.0, 2.0)
"""The two edges out of the plane are one row of twice the weight."""


def newton(plan: Plan, problem: Problem, a: Vector) -> Vector:
    """A step from the accelerations `a` towards the least of Gauss's function."""
    m, force = problem.m, problem.force
    targets = [*(c.targets for c in problem.contacts), *((x.target,) for x in problem.limits)]
    weights = [*(tuple(n * c.weight for n in EDGES) for c in problem.contacts), *((x.weight,) for x in problem.limits)]
    rows = _rows(problem, a)
    residuals = settle([tuple(x - t for x, t in zip(*both, strict=True)) for both in zip(rows, targets, strict=True)])
    acting = [
        tuple(jnp.where(r < 0, w, 0.0) for r, w in zip(*both, strict=True))
        for both in zip(residuals, weights, strict=True)
    ]
    pulls = [tuple(x * r for x, r in zip(*both, strict=True)) for both in zip(acting, residuals, strict=True)]
    acting, pulls = settle((acting, pulls))
    inertial = [sub(x, f) for x, f in zip(multiply(m, a), force, strict=True)]
    gradient = [[x] for x in inertial]
    hessian = {at: [x] for at, x in m.items()}
    count = len(problem.contacts)
    for contact, active, pull in zip(problem.contacts, acting[:count], pulls[:count], strict=True):
        normal, drag = pull[0] + pull[1] + pull[2], pull[0] - pull[1]
        both, skew, square = active[0] + active[1] + active[2], active[0] - active[1], active[0] + active[1]
        for i, p in contact.press.items():
            s = contact.slip.get(i, 0.0)
            gradient[i].append(add(mul(normal, p), mul(drag, s)))
            first, second = add(mul(both, p), mul(skew, s)), add(mul(skew, p), mul(square, s))
            for j, other in contact.press.items():
                if j <= i:
                    hessian[i, j].append(add(mul(first, other), mul(second, contact.slip.get(j, 0.0))))
    for limit, (stiff,), (pull,) in zip(problem.limits, acting[count:], pulls[count:], strict=True):
        gradient[limit.dof].append(limit.sign * pull)
        hessian[limit.dof, limit.dof].append(stiff)
    sums = {at: add(*terms) for at, terms in hessian.items()}
    sums, slopes, inertial = settle((sums, [add(*terms) for terms in gradient], inertial))
    step = settle([-x for x in solve(plan, sums, slopes)])

    # Along the step the slope is linear but for rows that begin or cease to act: one secant from the step's end.
    slope, bend = dot(step, inertial), dot(step, multiply(m, step))
    slopes, bends = [slope, bend], [bend]
    for row, residual, weight in zip(_rows(problem, step), residuals, weights, strict=True):
        for d, r, w in zip(row, residual, weight, strict=True):
            stiff = jnp.where(r + d < 0, w, 0.0) * d
            slopes.append(stiff * (r + d))
            bends.append(stiff * d)
    share = jnp.maximum(1 - add(*slopes) / jnp.maximum(add(*bends), 1e-9), 0.0)
    return [x + share * s for x, s in zip(a, step, strict=True)]
