"""Bodies in a plane, as MuJoCo computes them: plain equations written out from its compiled model.

MuJoCo's engine for accelerators, MJX, works on arrays of bodies in space. Where every joint turns about one direction
or slides across it, a body has three numbers in place of six and a tree of a few bodies is some hundred operations,
which `step` writes out for the model at hand: elementwise in a batch, without factorisations from a library, gathers
or loops over contacts. The equations are MuJoCo's (Todorov 2014, "Convex and analytically-invertible dynamics with
contacts and constraints"; its documentation, chapter Computation): generalised coordinates, armature, springs and
dampers of joints, motors, limits of joints as soft constraints, soft contacts with a pyramid of friction; semi-
implicit Euler with implicit damping, or Runge-Kutta of order 4.

A `Plan` holds what of a model is structure, and is static; its numbers are a dict of leaves under MuJoCo's names
(`body_mass`, `geom_friction`, `actuator_gear`, ...), so that they can be varied, batched and differentiated. Like
MuJoCo itself after a write into its model, nothing that was derived from a number at compile time (`body_invweight0`)
follows.

The acceleration minimises Gauss's convex function

    1/2 (a - a_smooth)' M (a - a_smooth) + 1/2 sum_i D_i min(J_i a - r_i, 0)^2

over rows of contacts and limits, by Newton steps with one secant each. Ordered by the tree, M and the Hessian fill
nothing in when eliminated from the leaves (Featherstone 2008, chapter 6).

Vectors of the plane are pairs; motions are triples (turning, moving along the first axis, along the second) about the
origin of the tree's first body, so that a walker far from the world's origin loses no digits.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxrl.math import fence, sincos

Scalar = Any  # an array of one number, or a Python number that is known as the program is written
Pair = tuple[Scalar, Scalar]
Triple = tuple[Scalar, Scalar, Scalar]
Vector = list[Scalar]  # of the degrees of freedom
Matrix = dict[tuple[int, int], Scalar]  # symmetric: of (i, j), j <= i, where j is above i in the tree
Numbers = dict[str, Any]  # of arrays

# ---- sums and products that leave out what is known to be zero or one


def _known(x: Scalar, value: float) -> bool:
    return type(x) is float and x == value


def mul(a: Scalar, b: Scalar) -> Scalar:
    if _known(a, 0.0) or _known(b, 0.0):
        return 0.0
    if _known(a, 1.0) or _known(b, 1.0):
        return b if _known(a, 1.0) else a
    if _known(a, -1.0) or _known(b, -1.0):
        return -(b if _known(a, -1.0) else a)
    return a * b


def add(*terms: Scalar) -> Scalar:
    terms = tuple(x for x in terms if not _known(x, 0.0))
    return sum(terms[1:], terms[0]) if terms else 0.0


def sub(a: Scalar, b: Scalar) -> Scalar:
    if _known(b, 0.0):
        return a
    return -b if _known(a, 0.0) else a - b


def dot(a: Any, b: Any) -> Scalar:
    return add(*(mul(x, y) for x, y in zip(a, b, strict=True)))


def plus(a: Pair, b: Pair) -> Pair:
    return add(a[0], b[0]), add(a[1], b[1])


def minus(a: Pair, b: Pair) -> Pair:
    return sub(a[0], b[0]), sub(a[1], b[1])


def times(x: Scalar, a: Pair) -> Pair:
    return mul(x, a[0]), mul(x, a[1])


def left(a: Pair) -> Pair:
    """A quarter turn from the first axis towards the second: what a turning of 1 does to an arm."""
    return mul(-1.0, a[1]), a[0]


def turned(turn: Pair, a: Pair) -> Pair:
    """`a` turned by an angle of which `turn` is sine and cosine."""
    return sub(mul(turn[1], a[0]), mul(turn[0], a[1])), add(mul(turn[0], a[0]), mul(turn[1], a[1]))


def settle(tree: Any) -> Any:
    """`fence` for what is computed; Python numbers stay known."""
    leaves, structure = jax.tree.flatten(tree)
    kept = iter(fence([x for x in leaves if isinstance(x, jax.Array)]))
    return jax.tree.unflatten(structure, [next(kept) if isinstance(x, jax.Array) else x for x in leaves])


# ---- the plan of a model


class Joint(NamedTuple):
    dof: int  # and its number among MuJoCo's joints, as each has one degree of freedom
    axis: Any  # of a hinge its sign; of a slide its direction in the body
    hinge: bool
    limited: bool
    solref: tuple[float, ...]
    solimp: tuple[float, ...]
    margin: float


class Link(NamedTuple):
    """A body that moves, or that is welded to one."""

    body: int
    parent: int  # a link; -1: the world
    angle: float  # against its parent, at rest
    joints: tuple[Joint, ...]
    path: tuple[int, ...]  # all degrees of freedom that move it, from the root
    shares: tuple[float, ...]  # of the principal moments in the one about the plane's normal


class Round(NamedTuple):
    """A capsule or a sphere (without direction)."""

    geom: int
    link: int
    direction: tuple[float, float] | None


class Touch(NamedTuple):
    """Two geoms that may collide."""

    first: Round | int  # a geom that is level ground, or another body
    second: Round
    frictional: bool
    solref: tuple[float, ...]
    solimp: tuple[float, ...]
    margin: float


@dataclasses.dataclass(frozen=True)
class Plan:
    """What of a model is structure. Made by `plan`."""

    axes: tuple[int, int]  # of the world, that span the plane
    links: tuple[Link, ...]
    touches: tuple[Touch, ...]
    motors: tuple[tuple[int, bool], ...]  # degree of freedom of each actuator, and whether its control is limited
    integrator: str  # "Euler" or "RK4"
    num_dofs: int

    @property
    def parents(self) -> tuple[tuple[int, ...], ...]:
        """Of every degree of freedom, those above it and itself."""
        above: dict[int, tuple[int, ...]] = {}
        for link in self.links:
            for i, dof in enumerate(link.path):
                above[dof] = link.path[: i + 1]
        return tuple(above[i] for i in range(self.num_dofs))


LEAVES = (
    "body_pos body_ipos body_mass body_inertia body_invweight0 jnt_pos jnt_stiffness jnt_range qpos0 qpos_spring "
    "dof_armature dof_damping dof_invweight0 geom_pos geom_size geom_friction actuator_gear actuator_ctrlrange"
).split()
"""Names of the numbers, which are MuJoCo's; beside them `gravity` and `timestep`."""


def numbers(model: Any, dtype: Any = np.float32) -> dict[str, np.ndarray]:
    """The leaves of a compiled `mujoco.MjModel`."""
    out = {name: np.asarray(getattr(model, name), dtype) for name in LEAVES}
    return {**out, "gravity": np.asarray(model.opt.gravity, dtype), "timestep": np.asarray(model.opt.timestep, dtype)}


def plan(model: Any) -> Plan:
    """The structure of a compiled `mujoco.MjModel` whose bodies move in one of the planes x-z and x-y.

    Raises ValueError, naming the element, for what is not planar or not written here: other joints than hinges and
    slides, contacts of other geoms than capsules and spheres (with each other and horizontal grounds), torsional and
    rolling friction, tendons, equalities, friction of joints, actuators other than motors at joints, fluids.
    """
    _check_options(model)
    plane = _plane(model)
    links = _links(model, plane)
    integrator = "RK4" if model.opt.integrator else "Euler"
    return Plan(plane.axes, links, _touches(model, plane, links), _motors(model), integrator, int(model.nv))


class _Plane(NamedTuple):
    axes: tuple[int, int]  # of the world
    normal: np.ndarray

    def flat(self, vector: Any, what: str) -> tuple[float, float]:
        """A vector of the plane; ValueError where it leaves it."""
        if abs(vector @ self.normal) > 1e-9:
            raise _refused(f"{what} leaves the plane")
        return float(vector[self.axes[0]]), float(vector[self.axes[1]])


def _refused(what: str) -> ValueError:
    return ValueError(f"{what}, which planar equations are not written for; MJX may run it: engine='mjx'.")


def name_of(model: Any, kind: str, i: int) -> str:
    found = getattr(model, kind)(i).name
    return f"{kind} {found!r}" if found else f"{kind} {i}"


def _matrix(quat: Any) -> np.ndarray:
    import mujoco

    out = np.zeros(9)
    mujoco.mju_quat2Mat(out, quat)
    return out.reshape(3, 3)


def _check_options(model: Any) -> None:
    import mujoco

    option, integrators = model.opt, (mujoco.mjtIntegrator.mjINT_EULER, mujoco.mjtIntegrator.mjINT_RK4)
    for there, what in (
        (model.neq, "has equalities"),
        (model.ntendon, "has tendons"),
        (option.density or option.viscosity or np.any(option.wind), "is in a fluid"),
        (np.any(model.dof_frictionloss), "has joints with friction"),
        (model.npair or model.nexclude, "chooses contacts by pairs or exclusions"),
        (np.any(model.body_gravcomp), "compensates bodies for gravity"),
        (np.any(model.jnt_actfrclimited), "limits the actuators' forces at joints"),
        (option.impratio != 1, "has an impratio that is not 1"),
        (option.disableflags, "has flags that disable a part of the dynamics"),
        (option.enableflags & int(mujoco.mjtEnableBit.mjENBL_OVERRIDE), "overrides contacts"),
        (option.cone != mujoco.mjtCone.mjCONE_PYRAMIDAL, "has an elliptic cone of friction"),
        (option.integrator not in map(int, integrators), "has an implicit integrator"),
    ):
        if there:
            raise _refused(f"The model {what}")


def _is_hinge(model: Any, joint: int) -> bool:
    import mujoco

    return model.jnt_type[joint] == mujoco.mjtJoint.mjJNT_HINGE


def _plane(model: Any) -> _Plane:
    import mujoco

    for i in range(model.njnt):
        if not _is_hinge(model, i) and model.jnt_type[i] != mujoco.mjtJoint.mjJNT_SLIDE:
            raise _refused(f"{name_of(model, 'joint', i)} is a ball or free")
    hinges = [i for i in range(model.njnt) if _is_hinge(model, i)]
    about = int(np.argmax(np.abs(model.jnt_axis[hinges[0]]))) if hinges else 1
    if about == 0:
        raise _refused(f"{name_of(model, 'joint', hinges[0])} turns about x")
    # Turning from the first axis to the second is about -y in the plane x-z and about z in x-y.
    return _Plane((0, 2), np.array([0.0, -1.0, 0.0])) if about == 1 else _Plane((0, 1), np.array([0.0, 0.0, 1.0]))


def _links(model: Any, plane: _Plane) -> tuple[Link, ...]:
    links: list[Link] = []
    of_body: dict[int, int] = {}
    for body in range(1, model.nbody):
        start, count = int(model.body_jntadr[body]), int(model.body_jntnum[body])
        parent = of_body.get(int(model.body_parentid[body]), -1)
        if parent < 0 and count == 0:
            continue  # welded to the world
        if parent < 0 and model.body_parentid[body]:
            raise _refused(f"{name_of(model, 'body', body)} hangs on a body that is welded to the world")
        turn = _matrix(model.body_quat[body])
        if np.abs(turn @ plane.normal - plane.normal).max() > 1e-9:
            raise _refused(f"{name_of(model, 'body', body)} is turned out of the plane")
        x, y = plane.axes
        joints = tuple(_joint(model, plane, i) for i in range(start, start + count))
        path = (links[parent].path if parent >= 0 else ()) + tuple(joint.dof for joint in joints)
        shares = tuple(float(x) for x in (plane.normal @ _matrix(model.body_iquat[body])) ** 2)
        of_body[body] = len(links)
        links.append(Link(body, parent, float(np.arctan2(turn[y, x], turn[x, x])), joints, path, shares))
    return tuple(links)


def _joint(model: Any, plane: _Plane, i: int) -> Joint:
    hinge, axis, limited = _is_hinge(model, i), model.jnt_axis[i], bool(model.jnt_limited[i])
    name, margin = name_of(model, "joint", i), float(model.jnt_margin[i])
    if hinge and abs(abs(axis @ plane.normal) - 1) > 1e-9:
        raise _refused(f"{name} turns out of the plane")
    if limited and 2 * margin > np.ptp(model.jnt_range[i]):
        raise _refused(f"{name} is at both its limits")
    way = float(np.sign(axis @ plane.normal)) if hinge else plane.flat(axis, name)
    solref, solimp = (tuple(map(float, field[i])) for field in (model.jnt_solref, model.jnt_solimp))
    return Joint(i, way, hinge, limited, solref, solimp, margin)


def _touches(model: Any, plane: _Plane, links: tuple[Link, ...]) -> tuple[Touch, ...]:
    import mujoco

    of_body = {link.body: n for n, link in enumerate(links)}
    sphere, capsule, ground = (int(getattr(mujoco.mjtGeom, f"mjGEOM_{x}")) for x in ("SPHERE", "CAPSULE", "PLANE"))
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    depths = data.geom_xpos @ plane.normal  # which no motion changes

    def shape(geom: int) -> Round | int:
        kind, body, name = int(model.geom_type[geom]), int(model.geom_bodyid[geom]), name_of(model, "geom", geom)
        way = _matrix(model.geom_quat[geom])[:, 2]
        if kind == ground:
            if body or abs(way[plane.axes[1]] - 1) > 1e-9:
                raise _refused(f"{name} is a plane that is not level")
            return geom
        if kind not in (sphere, capsule) or body not in of_body:
            raise _refused(f"{name} may be touched and is no capsule or sphere of a moving body")
        return Round(geom, of_body[body], plane.flat(way, name) if kind == capsule else None)

    touches = []
    for pair in itertools.combinations(range(model.ngeom), 2):
        if not _collide(model, *pair):
            continue
        first, second = (shape(geom) for geom in sorted(pair, key=lambda geom: model.geom_type[geom]))
        names, geoms = " and ".join(name_of(model, "geom", geom) for geom in pair), list(pair)
        assert isinstance(second, Round)
        if isinstance(first, Round):
            short, long = sorted((links[x.link].path for x in (first, second)), key=len)
            if long[: len(short)] != short:
                raise _refused(f"{names} touch and are on different branches")
            if np.ptp(depths[geoms]) > 1e-9:
                raise _refused(f"{names} touch beside the plane of their middles")
        if np.ptp(model.geom_priority[geoms]):
            raise _refused(f"{names} differ in priority")
        condim = int(np.max(model.geom_condim[geoms]))
        if condim > 3:
            raise _refused(f"{names} have torsional friction")
        weights = model.geom_solmix[geoms] if np.sum(model.geom_solmix[geoms]) > 1e-15 else np.ones(2)
        solref, solimp = (weights @ field[geoms] / weights.sum() for field in (model.geom_solref, model.geom_solimp))
        if np.min(model.geom_solref[geoms, 0]) <= 0:  # stiffness and damping themselves are not mixed
            solref = np.min(model.geom_solref[geoms], 0)
        margin = float(np.sum(model.geom_margin[geoms]))  # MuJoCo 4 adds them
        touches.append(Touch(first, second, condim == 3, tuple(solref.tolist()), tuple(solimp.tolist()), margin))
    return tuple(touches)


def _collide(model: Any, a: int, b: int) -> bool:
    """By their bits, unless both are of one body or of two with a joint between them."""
    bodies = [int(model.body_weldid[model.geom_bodyid[x]]) for x in (a, b)]
    above = [int(model.body_weldid[model.body_parentid[x]]) for x in bodies]
    joined = 0 not in bodies and (above[0] == bodies[1] or above[1] == bodies[0])
    types, affinities = model.geom_contype, model.geom_conaffinity
    return bodies[0] != bodies[1] and not joined and bool(types[a] & affinities[b] or types[b] & affinities[a])


def _motors(model: Any) -> tuple[tuple[int, bool], ...]:
    import mujoco

    plain = (
        (model.actuator_trntype == mujoco.mjtTrn.mjTRN_JOINT)
        & (model.actuator_gaintype == mujoco.mjtGain.mjGAIN_FIXED)
        & (model.actuator_biastype == mujoco.mjtBias.mjBIAS_NONE)
        & (model.actuator_dyntype == mujoco.mjtDyn.mjDYN_NONE)
        & (model.actuator_gainprm[:, 0] == 1)
        & (model.actuator_forcelimited == 0)
    )
    for i in np.flatnonzero(~plain):
        raise _refused(f"{name_of(model, 'actuator', int(i))} is no plain motor at a joint")
    limited = model.actuator_ctrllimited
    return tuple((int(model.actuator_trnid[i, 0]), bool(limited[i])) for i in range(model.nu))


# ---- symmetric matrices with the tree's zeros


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
                if link.parent < 0 and all(_known(x, 0.0) for x in place):
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


# ---- constraints


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


# ---- a step


class Motion(NamedTuple):
    q: Vector
    rates: Vector
    a: Vector  # accelerations, the first guess of the next
    seen: Vector  # the coordinates at which forces were last computed, which MuJoCo's sensors report
    held: Vector  # the forces of constraints there


def accelerations(
    plan: Plan, model: Numbers, q: Vector, rates: Vector, guess: Vector, torques: Vector, iterations: int
) -> tuple[Matrix, Vector, Vector]:
    """M, the accelerations, and the forces of constraints."""
    at = settle(frames(plan, model, q))
    m, pull = inertia(plan, model, at), bias(plan, model, at, rates)
    force = []
    for i in range(plan.num_dofs):
        spring = model["jnt_stiffness"][i] * (q[i] - model["qpos_spring"][i])
        force.append(torques[i] - pull[i] - spring - model["dof_damping"][i] * rates[i])
    problem = Problem(m, force, contacts(plan, model, at, rates), limits(plan, model, q, rates))
    problem = settle(problem)
    if not problem.contacts and not problem.limits:
        return m, solve(plan, m, force), [jnp.zeros_like(x) for x in q]

    def improve(a: Vector, _: None) -> tuple[Vector, None]:
        return newton(plan, problem, a), None

    a, _ = jax.lax.scan(improve, guess, None, length=iterations)
    return problem.m, a, [sub(x, f) for x, f in zip(multiply(problem.m, a), problem.force, strict=True)]


def substep(plan: Plan, model: Numbers, motion: Motion, torques: Vector, iterations: int) -> Motion:
    """`timestep` on."""
    dt = model["timestep"]
    q, rates, guess, *_ = motion

    def shifted(x: Vector, way: Vector, time: Scalar) -> Vector:
        return [a + time * b for a, b in zip(x, way, strict=True)]

    if plan.integrator == "Euler":  # with the joints' damping at its end
        m, a, held = accelerations(plan, model, q, rates, guess, torques, iterations)
        damped = dict(m)
        for i in range(plan.num_dofs):
            damped[i, i] = damped[i, i] + dt * model["dof_damping"][i]
        change = solve(plan, damped, multiply(m, a))
        rates = shifted(rates, change, dt)
        return Motion(shifted(q, rates, dt), rates, a, q, held)

    def stage(before: Any, time: Scalar) -> tuple[Any, Any]:
        rate, a = before
        here, there = shifted(q, rate, time * dt), shifted(rates, a, time * dt)
        _, a, held = accelerations(plan, model, here, there, a, torques, iterations)
        return (there, a), (there, a, here, held)

    # One program for all four stages; the first goes no way from here.
    _, (slopes, found, seen, held) = jax.lax.scan(stage, (rates, guess), jnp.asarray([0.0, 0.5, 0.5, 1.0], q[0].dtype))

    def average(stages: Scalar) -> Scalar:
        return (stages[0] + 2 * stages[1] + 2 * stages[2] + stages[3]) / 6

    moved, changed = jax.tree.map(average, (slopes, found))
    first = [x[0] for x in found]
    return Motion(
        shifted(q, moved, dt), shifted(rates, changed, dt), first, *([x[-1] for x in y] for y in (seen, held))
    )


class Moved(NamedTuple):
    """After a step of the task."""

    qpos: Float[Array, "n"]
    qvel: Float[Array, "n"]
    qacc: Float[Array, "n"]  # a first guess of the next
    seen: Float[Array, "n"]  # the coordinates of which MuJoCo's sensors tell: those of the last forces computed
    held: Float[Array, "n"]  # the forces of constraints there, MuJoCo's qfrc_constraint


def advance(
    plan: Plan,
    model: Numbers,
    qpos: Float[Array, "n"],
    qvel: Float[Array, "n"],
    qacc: Float[Array, "n"],
    control: Float[Array, "m"],
    substeps: int = 1,
    iterations: int = 4,
) -> Moved:
    """`substeps` steps on under one control, from MuJoCo's qpos, qvel and qacc (the last only a first guess)."""
    torques: Vector = [0.0] * plan.num_dofs
    for n, (dof, limited) in enumerate(plan.motors):
        low, high = model["actuator_ctrlrange"][n, 0], model["actuator_ctrlrange"][n, 1]
        held = jnp.clip(control[n], low, high) if limited else control[n]
        torques[dof] = add(torques[dof], model["actuator_gear"][n, 0] * held)

    def body(motion: Motion, _: None) -> tuple[Motion, None]:
        moved = substep(plan, model, motion, torques, iterations)
        return jax.tree.map(lambda new, old: jnp.asarray(new, old.dtype), moved, motion), None

    q, rates, a = ([x[i] for i in range(plan.num_dofs)] for x in (qpos, qvel, qacc))
    still = [jnp.zeros_like(x) for x in q]
    motion, _ = jax.lax.scan(body, Motion(q, rates, a, q, still), None, length=substeps)
    return Moved(*(jnp.stack(x) for x in settle(motion)))


def place(plan: Plan, model: Numbers, qpos: Float[Array, "n"], link: int, point: Pair) -> Float[Array, "2"]:
    """Where a point of a link, given in its own axes, is in the world [m]."""
    at = frames(plan, model, [qpos[i] for i in range(plan.num_dofs)])
    here = plus(plus(at.origins[link], at.places[link]), turned(at.turns[link], point))
    return jnp.stack([jnp.asarray(x, qpos.dtype) for x in here])
