"""From a compiled `mujoco.MjModel` to a `Plan`, what of it is structure, and to its numbers, the leaves."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any, NamedTuple

import numpy as np

from ..features import PLANAR, refuse_unread


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
    rolling friction, tendons, equalities, friction of joints, actuators other than motors at joints, fluids; and for
    any field of the model that nothing here reads and that is not at MuJoCo's default (`features.py`).
    """
    _check_options(model)
    plane = _plane(model)
    links = _links(model, plane)
    integrator = "RK4" if model.opt.integrator else "Euler"
    found = Plan(plane.axes, links, _touches(model, plane, links), _motors(model), integrator, int(model.nv))
    refuse_unread(model, PLANAR, _refused, name_of)
    return found


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
