"""Steps of a model on MJX, MuJoCo's engine for accelerators, with numbers of ours in place of the model's.

MJX writes its Runge-Kutta step as four copies of the dynamics, which is most of what a program waits for its compiler;
here the stages are a loop over one copy. Its data are then, as MuJoCo's, those of the last evaluation of forces.
Accelerations are found by `solver.py`.

MJX turns the pyramid of friction of a capsule on a plane into the capsule's direction only where that is less than 60
degrees steep; MuJoCo in C always does, and a pyramid's grip depends on it. `forward` does as C. MuJoCo 4 in C averages
the turnings of the stages as Munthe-Kaas (1999) does, which MJX does not; `straightened` is that.
"""

from __future__ import annotations

import contextlib
import io
import sys
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .features import MJX, refuse_unread
from .planar import Numbers, name_of
from .solver import solve

ONE_CONTROL = 0, 1, 2
"""Signatures of an actuator's input, `actuator_ctrlspec`, that MJX may ignore: a motor's force, or the one set point,
of place or of speed, that MuJoCo's `position` and `velocity` write into gain and bias, which MJX reads."""


def imported() -> Any:
    """`mujoco.mjx`, without the lines that it prints where its other engine, Warp, is not installed."""
    with contextlib.redirect_stdout(io.StringIO()) as said:
        from mujoco import mjx
    sys.stderr.writelines(line for line in said.getvalue().splitlines(keepends=True) if "warp" not in line)
    return mjx


def put(model: Any) -> Any:
    """MJX's model of a `mujoco.MjModel`.

    Raises ValueError, naming the element, for what MJX cannot run, and for any field that it does not read and that is
    not at MuJoCo's default (`features.py`). Warns of elements whose steps differ from MuJoCo's in C.
    """
    mjx = imported()
    for i in np.flatnonzero(model.actuator_actnum):
        raise ValueError(f"{name_of(model, 'actuator', int(i))} has an activation, which the states here do not hold.")
    for i in np.flatnonzero(~np.isin(model.actuator_ctrlspec, ONE_CONTROL)):
        raise ValueError(
            f"{name_of(model, 'actuator', int(i))} has actuator_ctrlspec={model.actuator_ctrlspec[i].tolist()}, which "
            f"MJX does not read; it runs actuators with one control: {', '.join(map(str, ONE_CONTROL))}."
        )
    try:
        found = mjx.put_model(model, impl="jax")
    except NotImplementedError as error:
        raise ValueError(f"MJX cannot run {culprit(model)}: {error}") from error
    refuse_unread(model, MJX, lambda what: ValueError(f"{what}, which MJX does not read."), name_of)
    others = differing(model)
    if others:
        warnings.warn(
            f"MJX takes other steps than MuJoCo in C where a model has {'; '.join(others)}. How far they are apart, "
            "`jaxrl.testing.check_model(env, tolerance=math.inf)` says.",
            stacklevel=2,
        )
    return found


def differing(model: Any) -> list[str]:
    """Elements whose steps differ between MJX 3.17 and MuJoCo 4.0 in C (`python -m tools.mjx_elements`)."""
    import mujoco
    from mujoco.mjx._src import collision_driver  # its table of geoms that may touch is not public

    out = []
    for kind in (mujoco.mjtEq.mjEQ_CONNECT, mujoco.mjtEq.mjEQ_WELD):
        for i in np.flatnonzero(model.eq_type == kind):
            out.append(f"{name_of(model, 'equality', int(i))} ({kind.name.removeprefix('mjEQ_').lower()})")
    if model.opt.integrator == mujoco.mjtIntegrator.mjINT_IMPLICITFAST:
        clamped = (model.actuator_forcelimited != 0) & (model.actuator_biastype == mujoco.mjtBias.mjBIAS_AFFINE)
        for i in np.flatnonzero(clamped):
            out.append(f"{name_of(model, 'actuator', int(i))} (forcerange of a servo under implicitfast)")
    for a, b, _ in collision_driver.geom_pairs(model):
        kinds = set(model.geom_type[[a, b]].tolist())
        if mujoco.mjtGeom.mjGEOM_BOX in kinds and mujoco.mjtGeom.mjGEOM_SPHERE not in kinds:
            names = f"{name_of(model, 'geom', int(a))} and {name_of(model, 'geom', int(b))}"
            out.append(f"{names} (other points where a box touches)")
            break  # one pair stands for all of them
    return out


def culprit(model: Any) -> str:
    """The element of a model that MJX refuses, or "this model" where none is found."""
    from mujoco import mjx
    from mujoco.mjx._src import collision_driver  # its table of geoms that it can collide is not public

    options = (("integrator", mjx.IntegratorType), ("cone", mjx.ConeType), ("solver", mjx.SolverType))
    for name, known in options:
        if getattr(model.opt, name) not in set(known):
            return f"this model's option {name}"
    if model.nflex:
        return name_of(model, "flex", 0)
    if model.opt.integrator == mjx.IntegratorType.IMPLICITFAST and (model.opt.density or model.opt.viscosity):
        return "this model's option integrator in a fluid"
    types = (
        ("joint", model.jnt_type, mjx.JointType),
        ("equality", model.eq_type, mjx.EqType),
        ("sensor", model.sensor_type, mjx.SensorType),
        ("geom", model.geom_type, mjx.GeomType),
        ("actuator", model.actuator_dyntype, mjx.DynType),
        ("actuator", model.actuator_gaintype, mjx.GainType),
        ("actuator", model.actuator_biastype, mjx.BiasType),
        ("actuator", model.actuator_trntype, mjx.TrnType),
    )
    for kind, there, known in types:
        for i in np.flatnonzero(~np.isin(there, [int(x) for x in known])):
            return name_of(model, kind, int(i))
    for a, b, pair in collision_driver.geom_pairs(model):
        names = f"contacts of {name_of(model, 'geom', a)} and {name_of(model, 'geom', b)}"
        kinds = model.geom_type[[a, b]]
        if not collision_driver.has_collision_fn(*kinds):
            return names
        margin = model.pair_margin[pair] if pair != -1 else model.geom_margin[[a, b]].sum()
        if margin and np.isin(kinds, [int(mjx.GeomType.MESH), int(mjx.GeomType.HFIELD)]).any():
            return f"a margin in {names}"
    return "this model"


def with_numbers(base: Any, numbers: Numbers) -> Any:
    """MJX's model with other numbers."""
    option = base.opt.replace(gravity=numbers["gravity"], timestep=numbers["timestep"])
    others = {name: x.astype(getattr(base, name).dtype) for name, x in numbers.items() if not hasattr(option, name)}
    return base.replace(opt=option, **others)


def more_numbers(model: Any) -> dict[str, np.ndarray]:
    """What MJX reads of a `mujoco.MjModel` beyond the planar equations' leaves: of actuators that are no plain motors,
    of joints with friction, and of tendons."""
    out = {}
    if np.any(model.actuator_biastype) or np.any(model.actuator_gaintype):
        out = {name: np.array(getattr(model, name)) for name in ("actuator_gainprm", "actuator_biasprm")}
    if np.any(model.dof_frictionloss):
        out["dof_frictionloss"] = np.array(model.dof_frictionloss)
    if model.ntendon:
        out["tendon_invweight0"] = np.array(model.tendon_invweight0)
    return out


def integrated(m: Any, qpos: Float[Array, "q"], rates: Float[Array, "v"], time: Any) -> Float[Array, "q"]:
    """Coordinates after so long at these rates."""
    from mujoco import mjx

    places, of_place, of_rate = [], 0, 0
    for kind in m.jnt_type:
        if kind == mjx.JointType.FREE:
            places.append(qpos[of_place : of_place + 3] + time * rates[of_rate : of_rate + 3])
            of_place, of_rate = of_place + 3, of_rate + 3
        if kind in (mjx.JointType.FREE, mjx.JointType.BALL):
            places.append(_spun(qpos[of_place : of_place + 4], time * rates[of_rate : of_rate + 3]))
            of_place, of_rate = of_place + 4, of_rate + 3
        else:
            places.append(qpos[of_place : of_place + 1] + time * rates[of_rate : of_rate + 1])
            of_place, of_rate = of_place + 1, of_rate + 1
    return jnp.concatenate(places)


def straightened(m: Any, moved: Float[Array, "v"], rates: Float[Array, "v"]) -> Float[Array, "v"]:
    """The rates of turnings counted from where they began, after `moved`, the inverse of the exponential's derivative.

    Of free and ball joints; those of other joints are as they were."""
    from mujoco import mjx

    out, at = [], 0
    for kind in m.jnt_type:
        if kind == mjx.JointType.FREE:
            out.append(rates[at : at + 3])
            at += 3
        if kind in (mjx.JointType.FREE, mjx.JointType.BALL):
            u, w = moved[at : at + 3], rates[at : at + 3]
            square = jnp.sum(u**2)
            half = 0.5 * jnp.sqrt(jnp.where(square > 1e-6, square, 1.0))
            far = (1 - half / jnp.tan(half)) / (4 * half**2)
            share = jnp.where(square > 1e-6, far, 1 / 12 + square / 720)
            twice = jnp.cross(u, w)
            out.append(w + 0.5 * twice + share * jnp.cross(u, twice))
            at += 3
        else:
            out.append(rates[at : at + 1])
            at += 1
    return jnp.concatenate(out)


def _spun(quat: Float[Array, "4"], turn: Float[Array, "3"]) -> Float[Array, "4"]:
    """A quaternion after a turn in its own axes [rad], of length 1."""
    square = jnp.sum(turn**2)
    angle = jnp.sqrt(jnp.maximum(square, 1e-30))
    half, axis = 0.5 * angle, jnp.where(square > 1e-30, turn / angle, 0.0)
    w, (x, y, z) = jnp.cos(half), jnp.sin(half) * axis
    a, b, c, d = quat
    product = jnp.stack(
        [
            a * w - b * x - c * y - d * z,
            a * x + b * w + c * z - d * y,
            a * y - b * z + c * w + d * x,
            a * z + b * y - c * x + d * w,
        ]
    )
    return product / jnp.sqrt(jnp.sum(product**2))


def forward(m: Any, data: Any) -> Any:
    """MJX's forward dynamics with MuJoCo's frames of contacts."""
    from mujoco import mjx

    before = data
    placed = mjx.kinematics, mjx.com_pos, mjx.camlight, mjx.tendon, mjx.crb, mjx.tendon_armature, mjx.factor_m
    for stage in (*placed, mjx.collision):
        data = stage(m, data)
    contact = data._impl.contact
    if contact.frame.shape[0]:
        data = data.tree_replace({"_impl.contact.frame": _along_capsules(m, data)})
    for stage in (mjx.make_constraint, mjx.transmission, mjx.fwd_velocity, mjx.fwd_actuation, mjx.fwd_acceleration):
        data = stage(m, data)
    data = solve(m, data) if data._impl.efc_J.size else data.replace(qacc=data.qacc_smooth)

    def as_before(new: Array, old: Array) -> Array:
        return new.astype(old.dtype) if jnp.issubdtype(old.dtype, jnp.integer) else new

    # In float64 MJX makes indices of tendons 64 bits wide.
    return jax.tree.map(as_before, data, before) if m.ntendon else data


def _along_capsules(m: Any, data: Any) -> Float[Array, "c 3 3"]:
    from mujoco import mjx

    frames, geoms = data._impl.contact.frame, data._impl.contact.geom
    kinds = jnp.asarray(m.geom_type)[geoms]
    normals, axes = frames[:, 0], data.geom_xmat[geoms[:, 1]].reshape(-1, 3, 3)[..., 2]
    flat = axes - jnp.sum(axes * normals, 1, keepdims=True) * normals
    square = jnp.sum(flat**2, 1, keepdims=True)
    along = flat / jnp.sqrt(jnp.maximum(square, 1e-20))
    turned = jnp.stack([normals, along, jnp.cross(normals, along)], 1)
    lies = (kinds[:, 0] == int(mjx.GeomType.PLANE)) & (kinds[:, 1] == int(mjx.GeomType.CAPSULE))
    return jnp.where((lies & (square[:, 0] > 1e-20))[:, None, None], turned, frames)


def advance(base: Any, numbers: Numbers, state: Any, control: Float[Array, "m"], substeps: int) -> tuple[Any, Any]:
    """MJX's data after `substeps` steps from a state's `qpos`, `qvel` and `qacc`, under one control; and the
    coordinates at which its forces, contacts and places of bodies were computed."""
    from mujoco import mjx

    m, kind = with_numbers(base, numbers), state.qpos.dtype
    data = mjx.make_data(m).replace(
        qpos=state.qpos, qvel=state.qvel, qacc_warmstart=state.qacc, ctrl=control.astype(kind)
    )

    def runge_kutta(data: Any) -> tuple[Any, Any]:
        start, dt = data, m.opt.timestep

        def stage(before: Any, share: Float[Array, ""]) -> tuple[Any, Any]:
            data, rates, a = before
            here = integrated(m, start.qpos, rates, share * dt)
            there = start.qvel + share * dt * a
            data = forward(m, data.replace(qpos=here.astype(kind), qvel=there.astype(kind)))
            rates = straightened(m, share * dt * rates, data.qvel).astype(kind)
            return (data, rates, data.qacc), (rates, data.qacc)

        shares = jnp.asarray([0.0, 0.5, 0.5, 1.0], kind)
        (data, *_), slopes = jax.lax.scan(stage, (data, data.qvel, jnp.zeros_like(data.qvel)), shares)
        rates, a = ((x[0] + 2 * x[1] + 2 * x[2] + x[3]) / 6 for x in slopes)
        qpos, qvel = integrated(m, start.qpos, rates, dt), start.qvel + dt * a
        return data.replace(qpos=qpos.astype(kind), qvel=qvel.astype(kind)), data.qpos

    def step(carry: Any, _: None) -> tuple[Any, None]:
        data, _ = carry
        if base.opt.integrator == mjx.IntegratorType.RK4:
            return runge_kutta(data), None
        integrate = mjx.euler if base.opt.integrator == mjx.IntegratorType.EULER else mjx.implicit
        return (integrate(m, forward(m, data)), data.qpos), None

    (data, seen), _ = jax.lax.scan(step, (data, data.qpos), None, length=substeps)
    return data, seen
