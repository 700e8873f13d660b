"""The equations of motion of a tree of links: frames, inertia, bias forces, and solving with the matrix."""

from __future__ import annotations

from typing import NamedTuple

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
    plus,
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
    """`x` of `matrix @ x = vector`, the matrix positive definite: LDL' from the leaves to the roots."""
    a, b, factors = dict(matrix), list(vector), {}
    for k in reversed(range(plan.num_dofs)):
        above = plan.parents[k][:-1]
        inverse = 1 / a[k, k]
        factors[k] = inverse, [(i, mul(a[k, i], inverse)) for i in above]
        for i, factor in factors[k][1]:
            b[i] = sub(b[i], mul(factor, b[k]))
            for j in above:
                if j <= i:
                    a[i, j] = sub(a[i, j], mul(factor, a[k, j]))
    for k in range(plan.num_dofs):
        inverse, above = factors[k]
        b[k] = sub(mul(b[k], inverse), add(*(mul(factor, b[i]) for i, factor in above)))
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

    angles: list[Scalar] = []
    turns: list[Pair] = []
    places: list[Pair] = []
    origins: list[Pair] = []
    motions: dict[int, Triple] = {}
    anchors: dict[int, Pair | None] = {}
    for link in plan.links:
        rest = at("body_pos", link.body)
        if link.parent < 0:
            angle, turn, place, origin = (
                link.angle,
                (np.sin(link.angle).item(), np.cos(link.angle).item()),
                (0.0, 0.0),
                rest,
            )
        else:
            angle, turn = add(angles[link.parent], link.angle), turns[link.parent]
            place, origin = plus(places[link.parent], turned(turn, rest)), origins[link.parent]
            if link.angle:
                turn = sincos(angle)
        for joint in link.joints:
            moved = q[joint.dof] - model["qpos0"][joint.dof]
            if joint.hinge:
                arm = at("jnt_pos", joint.dof)
                anchor = plus(place, turned(turn, arm))
                angle = add(angle, mul(joint.axis, moved))
                turn = sincos(angle)
                place = minus(anchor, turned(turn, arm))
                anchors[joint.dof] = anchor
                motions[joint.dof] = (joint.axis, *times(joint.axis, left(times(-1.0, anchor))))
            else:
                direction = turned(turn, joint.axis)
                if link.parent < 0 and all(is_known(x, 0.0) for x in place):
                    origin = plus(origin, times(moved, direction))
                else:
                    place = plus(place, times(moved, direction))
                anchors[joint.dof] = None
                motions[joint.dof] = (0.0, *direction)
        angles.append(angle)
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


def _centers(plan: Plan, model: Numbers, at: Frames) -> list[tuple[Scalar, Pair, Scalar]]:
    """Mass, centre and moment about it of every link."""
    out = []
    for n, link in enumerate(plan.links):
        ipos = model["body_ipos"][link.body]
        center = plus(at.places[n], turned(at.turns[n], (ipos[plan.axes[0]], ipos[plan.axes[1]])))
        moment = dot(link.shares, tuple(model["body_inertia"][link.body, k] for k in range(3)))
        out.append((model["body_mass"][link.body], center, moment))
    return out


def inertia(plan: Plan, model: Numbers, at: Frames) -> Matrix:
    """The mass matrix M, by composite bodies."""
    composite: list[list[Scalar]] = []
    for mass, center, moment in _centers(plan, model, at):
        composite.append([mass, *times(mass, center), add(moment, mul(mass, dot(center, center)))])
    for n in reversed(range(len(plan.links))):
        if plan.links[n].parent >= 0:
            above = composite[plan.links[n].parent]
            for k in range(4):
                above[k] = add(above[k], composite[n][k])
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


def bias(plan: Plan, model: Numbers, at: Frames, rates: Vector) -> Vector:
    """Centrifugal forces and weight: what M a must balance besides the applied forces."""
    weight = model["gravity"][plan.axes[0]], model["gravity"][plan.axes[1]]
    motions: list[Triple] = []
    changes: list[Triple] = []  # what changes them while the joints' rates stay
    wrenches: list[list[Scalar]] = []
    centers = _centers(plan, model, at)
    for n, link in enumerate(plan.links):
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
        mass, center, _ = centers[n]
        moving = velocity(motion, center)
        pull = plus(plus(change[1:], times(change[0], left(center))), times(motion[0], left(moving)))
        force = times(mass, minus(pull, weight))
        motions.append(motion)
        changes.append(change)
        wrenches.append([dot(left(center), force), *force])
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
