"""Constraints, contacts and limits of joints, and the accelerations by Newton steps."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from .compile import Plan, Round, Touch
from .equations import Frames, motions, multiply, solve, velocity
from .scalars import (
    Matrix,
    Numbers,
    Pair,
    Scalar,
    Triple,
    Vector,
    add,
    differentiated,
    dot,
    is_differentiated,
    is_known,
    minus,
    mul,
    once,
    plus,
    stacked,
    sub,
    times,
    turned,
)


class Contacts(NamedTuple):
    """With level ground: C of them, with some edges of the pyramid of friction, or one where the surface is smooth."""

    links: tuple[int, ...]  # which of each contact
    pushes: list[tuple[Any, Any, float]]  # of each edge, turning (C,), along the surface (C,) and along the normal
    counts: tuple[float, ...]  # how often each edge is there: the two out of the plane are one
    weight: Any  # (C,) D of an edge, 0 where nothing touches
    targets: list[Any]  # of each edge, (C,) r


class Meeting(NamedTuple):
    """Of a link with one further up its branch."""

    rows: list[dict[int, Scalar]]  # J of each edge, of the degrees of freedom between the two
    counts: tuple[float, ...]
    weight: Scalar
    targets: list[Scalar]


class Limits(NamedTuple):
    """Of joints: the coordinate, or less it, may not sink below a limit."""

    dofs: tuple[int, ...]
    sign: Any  # (L,) each
    weight: Any
    target: Any


EDGES = (1.0, -1.0, 0.0), (1.0, 1.0, 2.0)
"""Of a pyramid of friction, how it leans along the plane, and how many there are: the two out of it are one row."""
SMOOTH = (0.0,), (1.0,)
"""Without friction all four are equal, and one of four times their weight."""


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


def contacts(plan: Plan, model: Numbers, at: Frames, rates: Vector) -> tuple[list[Contacts], list[Meeting]]:
    kinds: dict[Any, list[Touch]] = {}
    for touch in plan.touches:
        if isinstance(touch.first, int):
            kinds.setdefault((touch.frictional, touch.solref, touch.solimp, touch.margin), []).append(touch)
    moving = once(lambda: motions(plan, at.motions, rates))
    grounded = [_grounded(plan, model, at, moving, touches) for touches in kinds.values()]
    return grounded, [_meeting(plan, model, at, rates, x) for x in plan.touches if not isinstance(x.first, int)]


def _friction(model: Numbers, geoms: tuple[Any, ...]) -> Scalar:
    friction = jnp.maximum(*(model["geom_friction"][geom, 0] for geom in geoms))
    return jnp.maximum(friction, 1e-5 if friction.dtype == jnp.float64 else 1e-2)  # float32 loses less


def _scale(invweight: Scalar, friction: Scalar) -> Scalar:
    """1 / D at an impedance of a half."""
    return invweight if is_known(friction, 0.0) else invweight * 2 * friction**2 * (1 + friction**2)


def _grounded(plan: Plan, model: Numbers, at: Frames, moving: list[Triple], touches: list[Touch]) -> Contacts:
    spots = once(lambda: [ends(plan, model, at, touch.second) for touch in touches])
    every = [(touch, end) for touch, both in zip(touches, spots, strict=True) for end in both]
    links = tuple(touch.second.link for touch, _ in every)

    def gathered() -> Any:
        x, z = (stacked([end[k] for _, end in every]) for k in (0, 1))
        radius = stacked([model["geom_size"][touch.second.geom, 0] for touch, _ in every])
        floor = [model["geom_pos"][touch.first, plan.axes[1]] for touch, _ in every]
        height = stacked([at.origins[link][1] - level for link, level in zip(links, floor, strict=True)])
        invweight = stacked([model["body_invweight0"][plan.links[link].body, 0] for link in links])
        friction = [_friction(model, (touch.first, touch.second.geom)) for touch, _ in every if touch.frictional]
        return x, z, radius, height, invweight, stacked(friction) if friction else 0.0, spread(moving, links)

    x, low, radius, height, invweight, friction, moves = once(gathered)

    first, (leans, counts) = touches[0], EDGES if touches[0].frictional else SMOOTH
    distance = low + height - radius

    def softened() -> Any:
        z = low - radius - 0.5 * distance
        slips, sinks = velocity(moves, (x, z))
        weight, spring, damping = softness(
            model["timestep"], first.solref, first.solimp, distance, first.margin, _scale(invweight, friction)
        )
        return weight, mul(friction, z), spring - damping * sinks, mul(damping, mul(friction, slips))

    weight, tilt, stop, drag = once(softened)

    def edges() -> Any:
        pushes = [(sub(x, mul(lean, tilt)), mul(lean, friction), 1.0) for lean in leans]
        return pushes, [sub(stop, mul(lean, drag)) for lean in leans]

    pushes, targets = once(edges)
    return Contacts(links, pushes, counts, weight, targets)


def spread(moving: list[Triple], links: tuple[int, ...]) -> tuple[Any, ...]:
    """The links' motions, turning and along the two axes, for each contact."""
    return tuple(stacked([moving[link][k] for link in links]) for k in range(3))


def _meeting(plan: Plan, model: Numbers, at: Frames, rates: Vector, touch: Touch) -> Meeting:
    first, second = touch.first, touch.second
    assert isinstance(first, Round)
    radius, other = (model["geom_size"][x.geom, 0] for x in (second, first))
    a, b = nearest(ends(plan, model, at, first), ends(plan, model, at, second))
    way = minus(b, a)
    far = jnp.sqrt(jnp.maximum(dot(way, way), 1e-20))
    normal, distance = times(1 / far, way), far - radius - other
    place = plus(a, times(other + 0.5 * distance, normal))
    along = normal[1], mul(-1.0, normal[0])
    above, below = sorted((plan.links[x.link].path for x in (first, second)), key=len)
    sign = 1.0 if below == plan.links[second.link].path else -1.0  # the normal leads from the first
    friction = _friction(model, (first.geom, second.geom)) if touch.frictional else 0.0
    leans, counts = EDGES if touch.frictional else SMOOTH
    rows: list[dict[int, Scalar]] = [{} for _ in leans]
    for dof in below[len(above) :]:
        moves = times(sign, velocity(at.motions[dof], place))
        press, slip = dot(normal, moves), mul(friction, dot(along, moves))
        for row, lean in zip(rows, leans, strict=True):
            row[dof] = add(press, mul(lean, slip))
    invweight = add(*(model["body_invweight0"][plan.links[x.link].body, 0] for x in (first, second)))
    scale = _scale(invweight, friction)
    weight, spring, damping = softness(model["timestep"], touch.solref, touch.solimp, distance, touch.margin, scale)
    return Meeting(rows, counts, weight, [spring - damping * _along(row, rates) for row in rows])


def limits(plan: Plan, model: Numbers, q: Vector, rates: Vector) -> list[Limits]:
    kinds: dict[Any, list[int]] = {}
    for joint in (joint for link in plan.links for joint in link.joints if joint.limited):
        kinds.setdefault((joint.solref, joint.solimp, joint.margin), []).append(joint.dof)
    out = []
    for (solref, solimp, margin), dofs in kinds.items():
        x, rate, low, high, invweight = once(
            lambda dofs=dofs: (
                stacked([q[i] for i in dofs]),
                stacked([rates[i] for i in dofs]),
                *(stacked([model["jnt_range"][i, side] for i in dofs]) for side in (0, 1)),
                stacked([model["dof_invweight0"][i] for i in dofs]),
            )
        )
        sign = jnp.where(x < 0.5 * (low + high), 1.0, -1.0).astype(x.dtype)
        distance = jnp.minimum(x - low, high - x)
        weight, spring, damping = softness(model["timestep"], solref, solimp, distance, margin, invweight)
        out.append(Limits(tuple(dofs), sign, weight, spring - damping * sign * rate))
    return out


class Problem(NamedTuple):
    """To find accelerations."""

    m: Matrix
    force: Vector  # M a_smooth
    motions: tuple[Triple, ...]  # of degrees of freedom
    contacts: list[Contacts]
    meetings: list[Meeting]
    limits: list[Limits]


def _along(row: dict[int, Scalar], x: Vector) -> Scalar:
    return add(*(mul(y, x[i]) for i, y in row.items()))


class Rows(NamedTuple):
    """J a of all edges and limits, or what it lacks of r."""

    contacts: list[list[Any]]  # of each edge, (C,)
    meetings: list[list[Scalar]]
    limits: list[Any]  # (L,) each


def applied(plan: Plan, problem: Problem, a: Vector) -> Rows:
    """J a."""
    moving = once(lambda: motions(plan, problem.motions, a))
    moves, bound = once(
        lambda: (
            [spread(moving, x.links) for x in problem.contacts],
            [stacked([a[i] for i in x.dofs]) for x in problem.limits],
        )
    )
    return Rows(
        [[dot(push, move) for push in x.pushes] for x, move in zip(problem.contacts, moves, strict=True)],
        [[_along(row, a) for row in x.rows] for x in problem.meetings],
        [x.sign * y for x, y in zip(problem.limits, bound, strict=True)],
    )


def lacking(plan: Plan, problem: Problem, a: Vector) -> Rows:
    """J a - r."""
    targets = Rows(
        [x.targets for x in problem.contacts],
        [x.targets for x in problem.meetings],
        [x.target for x in problem.limits],
    )
    return once(lambda: jax.tree.map(lambda x, r: x - r, applied(plan, problem, a), targets))


def _acting(row: Any, weight: Any) -> Any:
    return jnp.where(row < 0, weight, 0.0)


class Quadratic(NamedTuple):
    """Gauss's function about some accelerations, as long as the same rows act."""

    inertial: Vector  # M a - force
    slopes: Vector
    hessian: Matrix


def quadratic(plan: Plan, problem: Problem, a: Vector, rows: Rows) -> Quadratic:
    """Derivatives of Gauss's function. Like inertia, stiffness of a contact is one of its link, summed up the tree."""

    def pulls() -> Any:
        out = []
        for contacts, row in zip(problem.contacts, rows.contacts, strict=True):
            stiff = [_acting(x, mul(n, contacts.weight)) for x, n in zip(row, contacts.counts, strict=True)]
            out.append((stiff, [s * x for s, x in zip(stiff, row, strict=True)]))
        return out

    def of_contacts() -> Any:
        out = []
        for contacts, (stiff, pull) in zip(problem.contacts, found, strict=True):
            pushes = list(zip(*contacts.pushes, strict=True))
            leant = [[mul(s, p) for s, p in zip(stiff, push, strict=True)] for push in pushes]
            out.append(
                [dot(push, pull) for push in pushes]
                + [dot(leant[i], pushes[j]) for i, j in ((0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2))]
            )
        return out

    found = once(pulls)
    found = once(of_contacts)

    def of_links() -> Any:
        out = []
        for n in range(len(plan.links)):
            below = {n}
            for m in range(n + 1, len(plan.links)):
                if plan.links[m].parent in below:
                    below.add(m)
            parts = [
                [x if isinstance(x, float) else x[c] for x in numbers]
                for contacts, numbers in zip(problem.contacts, found, strict=True)
                for c, link in enumerate(contacts.links)
                if link in below
            ]
            out.append([add(*terms) for terms in zip(*parts, strict=True)])
        return out

    links = once(of_links)

    def whole() -> Quadratic:
        inertial = [sub(x, f) for x, f in zip(multiply(problem.m, a), problem.force, strict=True)]
        gradient = [[x] for x in inertial]
        hessian = {at: [x] for at, x in problem.m.items()}
        for link, numbers in zip(plan.links, links, strict=True):
            for i in (joint.dof for joint in link.joints if numbers):
                motion, wrench, (ww, wx, wz, xx, xz, zz) = problem.motions[i], numbers[:3], numbers[3:]
                gradient[i].append(dot(motion, wrench))
                stiff = dot(motion, (ww, wx, wz)), dot(motion, (wx, xx, xz)), dot(motion, (wz, xz, zz))
                for j in link.path:
                    if j <= i:
                        hessian[i, j].append(dot(problem.motions[j], stiff))
        for meeting, row in zip(problem.meetings, rows.meetings, strict=True):
            for edge, x, count in zip(meeting.rows, row, meeting.counts, strict=True):
                stiff = _acting(x, mul(count, meeting.weight))
                for i, p in edge.items():
                    gradient[i].append(stiff * x * p)
                    for j, q in edge.items():
                        if j <= i:
                            hessian[i, j].append(stiff * p * q)
        for limits, row in zip(problem.limits, rows.limits, strict=True):
            stiff = _acting(row, limits.weight)
            pull = limits.sign * stiff * row
            for n, i in enumerate(limits.dofs):
                gradient[i].append(pull[n])
                hessian[i, i].append(stiff[n])
        return Quadratic(inertial, [add(*terms) for terms in gradient], {at: add(*x) for at, x in hessian.items()})

    return once(whole)


ROUNDED = 1e3
"""Relative accuracy asked for, in units of a dtype's rounding."""


def _better(plan: Plan, problem: Problem, a: Vector) -> tuple[Vector, Scalar]:
    """A Newton step and a secant along it; whether others are needed.

    Gauss's function is quadratic as long as the same rows act, so a step after which they do ends at its least. Else
    those that began or ceased to act have an energy at its end that is taken for how far it is from the least, in the
    norm of the inertia, though it is no bound for weights far above it (docs/decisions.md); another step is needed
    where it is not small beside that of the motion and of all that act.
    """
    rows = lacking(plan, problem, a)
    here = quadratic(plan, problem, a, rows)
    step = once(lambda: [-x for x in solve(plan, here.hessian, here.slopes)])
    moves = once(lambda: applied(plan, problem, step))

    small = (ROUNDED * float(jnp.finfo(a[0].dtype).eps)) ** 2

    def along(row: Any, move: Any, weight: Any) -> list[Any]:
        """Of rows, at the step's end: slope along it, its change along it, what is missed less what may be."""
        end = row + move
        stiff, was = _acting(end, weight), _acting(row, weight)
        pull = stiff * move
        return [pull * end, pull * move, (jnp.abs(stiff - was) - small * stiff) * end * end]

    def of_rows() -> list[Any]:
        out = []
        for contacts, row, move in zip(problem.contacts, rows.contacts, moves.contacts, strict=True):
            edges = zip(row, move, contacts.counts, strict=True)
            out += [add(*x) for x in zip(*(along(x, d, mul(n, contacts.weight)) for x, d, n in edges), strict=True)]
        for limits, row, move in zip(problem.limits, rows.limits, moves.limits, strict=True):
            out += along(row, move, limits.weight)
        return out

    found = once(of_rows)

    def judged() -> tuple[Scalar, Scalar]:
        push = multiply(problem.m, step)
        motion = [add(x, f, p) for x, f, p in zip(here.inertial, problem.force, push, strict=True)]
        end = [x + s for x, s in zip(a, step, strict=True)]
        bend = dot(step, push)
        terms = [[add(dot(step, here.inertial), bend), bend, -small * dot(end, motion)]]
        terms += [[x[c] for x in found[n : n + 3]] for n in range(0, len(found), 3) for c in range(found[n].shape[0])]
        for meeting, row, move in zip(problem.meetings, rows.meetings, moves.meetings, strict=True):
            edges = zip(row, move, meeting.counts, strict=True)
            terms += [along(x, d, mul(n, meeting.weight)) for x, d, n in edges]
        slope, bend, missed = (add(*x) for x in zip(*terms, strict=True))
        return jnp.maximum(1 - slope / jnp.maximum(bend, 1e-9), 0.0), missed > 0

    share, more = once(judged)
    return [x + share * s for x, s in zip(a, step, strict=True)], more


def _exact(plan: Plan, problem: Problem, a: Vector) -> Vector:
    """The least of the quadratic that is Gauss's function near `a`."""
    here = quadratic(plan, problem, a, lacking(plan, problem, a))
    return [sub(x, s) for x, s in zip(a, solve(plan, here.hessian, here.slopes), strict=True)]


def least(plan: Plan, problem: Problem, guess: Vector, iterations: int) -> Vector:
    """The accelerations at the least of Gauss's function, by Newton steps from a first guess until they are exact, at
    most `iterations`. Their derivatives, of any order, are those of the least itself, not of the steps towards it."""

    def still(tree: Any) -> Any:
        return jax.tree.map(lambda x: jax.lax.stop_gradient(x) if isinstance(x, jax.Array) else x, tree)

    def onwards(carry: Any) -> Any:
        a, going, count = carry
        better, more = _better(plan, held, a)
        return [jnp.where(going, new, old) for new, old in zip(better, a, strict=True)], going & more, count + 1

    def unfinished(carry: Any) -> Any:
        return jnp.any(carry[1]) & (carry[2] < iterations)

    held = still(problem)
    with differentiated(False):
        start = still(guess), jnp.ones(guess[0].shape, bool), jnp.int32(0)
        a = jax.lax.while_loop(unfinished, onwards, start)[0]
    return _exact(plan, problem, still(a)) if is_differentiated() else a
