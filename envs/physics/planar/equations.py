"""The equations of motion of a tree of links: frames, inertia, bias forces, and solving with the matrix."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from jaxrl.math import sincos

from .compile import Plan
from .scalars import (
    Matrix,
    Numbers,
    Pair,
    Scalar,
    Triple,
    Vector,
    add,
    dot,
    is_known,
    left,
    minus,
    mul,
    once,
    plus,
    stacked,
    sub,
    times,
    turned,
)


def multiply(matrix: Matrix, vector: Vector) -> Vector:
    out: list[list[Scalar]] = [[] for _ in vector]
    for (i, j), x in matrix.items():
        out[i].append(mul(x, vector[j]))
        if j < i:
            out[j].append(mul(x, vector[i]))
    return [add(*terms) for terms in out]


def solve(plan: Plan, matrix: Matrix, vector: Vector) -> Vector:
    """`x` of `matrix @ x = vector`, the matrix positive definite: LDL' from the leaves to the roots.

    Degrees of freedom of one depth, none of which is above another, are eliminated together.
    """
    a, b, factors = dict(matrix), list(vector), {}
    depths: dict[int, list[int]] = {}
    for k in range(plan.num_dofs):
        depths.setdefault(len(plan.parents[k]), []).append(k)

    def eliminated(ks: list[int]) -> Any:
        changed: Matrix = {}
        sides: dict[int, Scalar] = {}
        for k in ks:
            above = plan.parents[k][:-1]
            for i in above:
                factor = factors[k][1][i]
                sides[i] = sub(sides.get(i, b[i]), mul(factor, b[k]))
                for j in above:
                    if j <= i:
                        changed[i, j] = sub(changed.get((i, j), a[i, j]), mul(factor, a[k, j]))
        return changed, sides

    for depth in sorted(depths, reverse=True):
        ks = depths[depth]
        inverses = once(lambda ks=ks: {k: 1 / a[k, k] for k in ks})
        for k in ks:
            factors[k] = inverses[k], {i: mul(a[k, i], inverses[k]) for i in plan.parents[k][:-1]}
        changed, sides = once(lambda ks=ks: eliminated(ks))
        a.update(changed)
        for i, x in sides.items():
            b[i] = x
    for k in range(plan.num_dofs):
        inverse, above = factors[k]
        b[k] = sub(mul(b[k], inverse), add(*(mul(factor, b[i]) for i, factor in above.items())))
    return b


# ---- bodies


class Frames(NamedTuple):
    """Where the links are, about the origins of their trees."""

    origins: tuple[Pair, ...]  # of the trees, by link, in the world
    turns: tuple[Pair, ...]  # of links: sine and cosine
    places: tuple[Pair, ...]  # of links' origins
    motions: tuple[Triple, ...]  # of degrees of freedom
    anchors: tuple[Pair | None, ...]  # of hinges


def frames(plan: Plan, model: Numbers, q: Vector) -> Frames:
    def at(name: str, i: int) -> Pair:
        return model[name][i, plan.axes[0]], model[name][i, plan.axes[1]]

    def moved(dof: int) -> Scalar:
        return q[dof] - model["qpos0"][dof]

    # Sines and cosines of all angles together: of links at rest against their parents, and after every hinge.
    angles: list[Scalar] = []
    after: dict[Any, Scalar] = {}
    for n, link in enumerate(plan.links):
        angle = add(angles[link.parent], link.angle) if link.parent >= 0 else link.angle
        if link.parent >= 0 and link.angle:
            after["link", n] = angle
        for joint in link.joints:
            if joint.hinge:
                angle = after["joint", joint.dof] = add(angle, mul(joint.axis, moved(joint.dof)))
        angles.append(angle)
    found: dict[Any, Pair] = {}
    if after:
        sines, cosines = once(lambda: sincos(stacked(list(after.values()))))
        found = {name: (sines[n], cosines[n]) for n, name in enumerate(after)}

    turns: list[Pair] = []
    places: list[Pair] = []
    origins: list[Pair] = []
    motions: dict[int, Triple] = {}
    anchors: dict[int, Pair | None] = {}
    for n, link in enumerate(plan.links):
        rest = at("body_pos", link.body)
        if link.parent < 0:
            turn: Pair = np.sin(link.angle).item(), np.cos(link.angle).item()
            place, origin = (0.0, 0.0), rest
        else:
            turn = turns[link.parent]
            place, origin = plus(places[link.parent], turned(turn, rest)), origins[link.parent]
            turn = found.get(("link", n), turn)
        for joint in link.joints:
            if joint.hinge:
                arm = at("jnt_pos", joint.dof)
                anchor = plus(place, turned(turn, arm))
                turn = found["joint", joint.dof]
                place = minus(anchor, turned(turn, arm))
                anchors[joint.dof] = anchor
                motions[joint.dof] = (joint.axis, *times(joint.axis, left(times(-1.0, anchor))))
            else:
                direction = turned(turn, joint.axis)
                if link.parent < 0 and all(is_known(x, 0.0) for x in place):
                    origin = plus(origin, times(moved(joint.dof), direction))
                else:
                    place = plus(place, times(moved(joint.dof), direction))
                anchors[joint.dof] = None
                motions[joint.dof] = (0.0, *direction)
        turns.append(turn)
        places.append(place)
        origins.append(origin)
    dofs = range(plan.num_dofs)
    return Frames(
        tuple(origins), tuple(turns), tuple(places), tuple(motions[i] for i in dofs), tuple(anchors[i] for i in dofs)
    )


def velocity(motion: Triple, point: Pair) -> Pair:
    """Of a point of a body that moves so."""
    return plus(motion[1:], times(motion[0], left(point)))


def motions(plan: Plan, ways: tuple[Triple, ...], x: Vector) -> list[Triple]:
    """Of every link, where `x` are the rates (or what takes their place) of the degrees of freedom that move so."""
    out: list[Triple] = []
    for link in plan.links:
        motion = out[link.parent] if link.parent >= 0 else (0.0, 0.0, 0.0)
        for joint in link.joints:
            turn, first, second = (mul(x[joint.dof], way) for way in ways[joint.dof])
            motion = add(motion[0], turn), add(motion[1], first), add(motion[2], second)
        out.append(motion)
    return out


Center = tuple[Scalar, Pair, Scalar]


def masses(plan: Plan, model: Numbers, at: Frames) -> list[Center]:
    """Mass, centre and moment about it of every link."""
    out = []
    for n, link in enumerate(plan.links):
        ipos = model["body_ipos"][link.body]
        center = plus(at.places[n], turned(at.turns[n], (ipos[plan.axes[0]], ipos[plan.axes[1]])))
        moment = dot(link.shares, tuple(model["body_inertia"][link.body, k] for k in range(3)))
        out.append((model["body_mass"][link.body], center, moment))
    return out


def inertia(plan: Plan, model: Numbers, at: Frames, centers: list[Center]) -> Matrix:
    """The mass matrix M, by composite bodies."""

    def composed() -> list[list[Scalar]]:
        composite: list[list[Scalar]] = []
        for mass, center, moment in centers:
            composite.append([mass, *times(mass, center), add(moment, mul(mass, dot(center, center)))])
        for n in reversed(range(len(plan.links))):
            if plan.links[n].parent >= 0:
                above = composite[plan.links[n].parent]
                for k in range(4):
                    above[k] = add(above[k], composite[n][k])
        return composite

    composite = once(composed)
    m: Matrix = {}
    for link, (mass, hx, hz, moment) in zip(plan.links, composite, strict=True):
        for joint in link.joints:
            turn, *move = at.motions[joint.dof]
            arm = hx, hz
            push = plus(times(mass, tuple(move)), times(turn, left(arm)))
            twist = add(mul(moment, turn), dot(left(arm), tuple(move)))
            for i in link.path:
                if i <= joint.dof:
                    m[joint.dof, i] = dot(at.motions[i], (twist, *push))
                if i == joint.dof:
                    m[i, i] = add(m[i, i], model["dof_armature"][i])
                    break
    return m


def bias(plan: Plan, model: Numbers, at: Frames, rates: Vector, centers: list[Center]) -> Vector:
    """Centrifugal forces and weight: what M a must balance besides the applied forces."""
    weight = model["gravity"][plan.axes[0]], model["gravity"][plan.axes[1]]

    def moving() -> tuple[list[Triple], list[Triple]]:
        motions: list[Triple] = []
        changes: list[Triple] = []  # what changes them while the joints' rates stay
        for link in plan.links:
            motion: Triple = motions[link.parent] if link.parent >= 0 else (0.0, 0.0, 0.0)
            change: Triple = changes[link.parent] if link.parent >= 0 else (0.0, 0.0, 0.0)
            for joint in link.joints:
                rate, own, anchor = rates[joint.dof], at.motions[joint.dof], at.anchors[joint.dof]
                if anchor is None:
                    turning = times(motion[0], left(own[1:]))
                else:
                    turning = times(-joint.axis, left(velocity(motion, anchor)))
                change = (change[0], *plus(change[1:], times(rate, turning)))
                motion = (add(motion[0], mul(own[0], rate)), *plus(motion[1:], times(rate, own[1:])))
            motions.append(motion)
            changes.append(change)
        return motions, changes

    def pulled() -> list[list[Scalar]]:
        wrenches = []
        for motion, change, (mass, center, _) in zip(*once(moving), centers, strict=True):
            spin = velocity(motion, center)
            pull = plus(plus(change[1:], times(change[0], left(center))), times(motion[0], left(spin)))
            force = times(mass, minus(pull, weight))
            wrenches.append([dot(left(center), force), *force])
        return wrenches

    wrenches = once(pulled)
    for n in reversed(range(len(plan.links))):
        if plan.links[n].parent >= 0:
            above = wrenches[plan.links[n].parent]
            for k in range(3):
                above[k] = add(above[k], wrenches[n][k])
    out: Vector = [0.0] * plan.num_dofs
    for link, wrench in zip(plan.links, wrenches, strict=True):
        for joint in link.joints:
            out[joint.dof] = dot(at.motions[joint.dof], wrench)
    return out
