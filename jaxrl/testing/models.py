"""A task on a MuJoCo model beside MuJoCo in C: how far a step of its engine is from C's, by element of the model."""

from __future__ import annotations

import collections
import copy
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.environment import Environment


class Element(NamedTuple):
    """An element of a model, or what stands for elements of one type."""

    kind: str
    """"joint", "actuator", "equality", "contact" or "tendon"."""
    name: str
    """The type (of a contact the types of both geoms), and, but for contacts, the element's name."""
    steps: int
    """In how many of the steps it acted: any step of a joint or an actuator, where a contact pushed, and the like."""
    error: float
    """The largest error of those steps: of a joint and an actuator at the degrees of freedom that it moves."""
    otherwise: float
    """The largest error of the other steps, or degrees of freedom; NaN where there are none."""


class ModelReport(NamedTuple):
    """How far an engine's steps are from MuJoCo's in C. `str(report)` is a table."""

    steps: int
    error: float
    """The largest difference of a rate or of a coordinate's change a second, over 1 + the step's largest rate."""
    median: float
    elements: tuple[Element, ...]

    def __str__(self) -> str:
        rows = [f"{'element':<48} {'steps':>6} {'error':>9} {'otherwise':>9}"]
        rows += [f"{x.kind + ' ' + x.name:<48} {x.steps:>6} {x.error:>9.1e} {x.otherwise:>9.1e}" for x in self.elements]
        return "\n".join([*rows, f"{'all':<48} {self.steps:>6} {self.error:>9.1e}"])


def check_model(
    env: Environment,
    params: Any = None,
    *,
    episodes: int = 16,
    steps: int = 16,
    spread: float = 0.3,
    tolerance: float = 1e-5,
    seed: int = 0,
) -> ModelReport:
    """Plays a `ModelTask` beside MuJoCo in C and says, by element, how far its engine's steps are from C's.

    C plays `episodes` of `steps` steps of the task with random controls. Episodes start at `qpos0` and rates of zero,
    to which normal numbers of the standard deviation `spread` are added [rad, m, rad/s, m/s]. Each step of the task's
    engine begins at the state that C had reached, in float64, under the same control; both have the numbers of
    `params` (`env.default_params` if None). C solves until nothing improves. Random starts may lie deep in contacts,
    as states of play do not: a smaller `spread` has fewer of them.

    `tolerance` bounds the error of every step; with `math.inf` the report is returned whatever the errors are. Raises
    AssertionError, with the report and the elements whose steps are the worst, for an error above `tolerance`, and
    TypeError for an environment that is no task on a MuJoCo model.
    """
    model = getattr(env, "mujoco_model", None)
    if model is None:
        raise TypeError(f"check_model takes a ModelTask, which has a MuJoCo model, not {type(env).__name__}.")
    with jax.enable_x64(True):
        params = env.default_params if params is None else params
        numbers = {name: np.asarray(x, np.float64) for name, x in params.model.items()}
        played = _played(env, _written(model, numbers), episodes, steps, spread, seed)

        start: Any = env.reset(jax.random.key(seed), params)[1]

        def step(qpos: Any, qvel: Any, qacc: Any, control: Any) -> Any:
            task: Any = env
            moved = task.advance(
                start.replace(qpos=qpos, qvel=qvel, qacc=qacc),
                control,
                {name: jnp.asarray(x) for name, x in numbers.items()},
            )
            return moved.qpos, moved.qvel

        before = (np.stack([row[i] for row in played]) for i in range(4))
        qpos, qvel = jax.device_get(jax.jit(jax.vmap(step))(*before))
    report = _reported(model, played, qpos, qvel)
    if not report.error <= tolerance:
        worst = [f"{x.kind} {x.name}" for x in report.elements if not x.error <= tolerance]
        raise AssertionError(
            f"{env.id}: a step differs from MuJoCo's by {report.error:.1e}, more than {tolerance:g}; "
            f"above it are the steps of {', '.join(worst) or 'no single element'}.\n{report}"
        )
    return report


def _written(model: Any, numbers: dict[str, np.ndarray]) -> Any:
    """A copy of a `mujoco.MjModel` with these numbers, which solves until nothing improves."""
    model = copy.copy(model)
    for name, x in numbers.items():
        if name == "timestep":
            model.opt.timestep = float(x)
        else:
            getattr(model.opt if name == "gravity" else model, name)[:] = x
    model.opt.tolerance, model.opt.iterations = 0.0, 200
    return model


def _played(env: Any, model: Any, episodes: int, steps: int, spread: float, seed: int) -> list[tuple[Any, ...]]:
    """Of each of C's steps: qpos, qvel, qacc, control, the next qpos and qvel, and which elements acted."""
    import mujoco

    rng, data, rows = np.random.default_rng(seed), mujoco.MjData(model), []
    limited = model.actuator_ctrllimited.astype(bool)
    low, high = (np.where(limited, model.actuator_ctrlrange[:, i], side) for i, side in enumerate((-1.0, 1.0)))
    for _ in range(episodes):
        mujoco.mj_resetData(model, data)
        mujoco.mj_integratePos(model, data.qpos, spread * rng.standard_normal(model.nv), 1.0)
        data.qvel[:] = spread * rng.standard_normal(model.nv)
        for _ in range(steps):
            data.ctrl[:] = rng.uniform(low, high)
            before = data.qpos.copy(), data.qvel.copy(), data.qacc_warmstart.copy(), data.ctrl.copy()
            acted: set[tuple[str, str]] = set()
            for _ in range(env.frame_skip):
                mujoco.mj_step(model, data)
                acted |= _acting(model, data)
            if data.warning.number.any() or not np.isfinite(data.qvel).all():
                break  # C itself broke
            rows.append((*before, data.qpos.copy(), data.qvel.copy(), acted))
    if not rows:
        raise AssertionError(f"{env.id}: MuJoCo in C breaks in the first step of each episode; take a smaller spread.")
    return rows


def _name(model: Any, kind: str, type_: str, i: int) -> tuple[str, str]:
    return kind, f"{type_} {getattr(model, kind if kind != 'equality' else 'eq')(i).name or i}"


def _type(enum: Any, value: Any) -> str:
    return enum(int(value)).name.split("_", 1)[1].lower()


def _acting(model: Any, data: Any) -> set[tuple[str, str]]:
    """Contacts, equality constraints, limits and friction of joints and tendons that had a force in the last step."""
    import mujoco

    out: set[tuple[str, str]] = set()
    for n in np.flatnonzero(data.efc_force):
        kind, i = _type(mujoco.mjtConstraint, data.efc_type[n]), int(data.efc_id[n])
        if kind == "equality":
            out.add(_name(model, "equality", _type(mujoco.mjtEq, model.eq_type[i]), i))
        elif kind.startswith("contact"):
            pair = sorted(model.geom_type[data.contact.geom[i]])
            out.add(("contact", " and ".join(_type(mujoco.mjtGeom, x) for x in pair)))
        elif kind.endswith("tendon"):
            out.add(_name(model, "tendon", kind, i))
        else:
            joint = int(model.dof_jntid[i]) if kind == "friction_dof" else i
            out.add(_name(model, "joint", kind, joint))
    return out


def _reported(model: Any, played: list[tuple[Any, ...]], qpos: np.ndarray, qvel: np.ndarray) -> ModelReport:
    import mujoco

    errors = np.zeros((len(played), model.nv))
    for row, (before, q, v) in enumerate(zip(played, qpos, qvel, strict=True)):
        place, rates = before[4], before[5]
        way = np.zeros(model.nv)
        mujoco.mj_differentiatePos(model, way, 1.0, np.asarray(place), np.asarray(q, np.float64))
        both = np.maximum(np.abs(way), np.abs(v - rates)) / (1 + np.abs(rates).max(initial=0))
        errors[row] = np.where(np.isfinite(both), both, np.inf)
    whole = errors.max(1, initial=0)

    def of_dofs(kind: str, type_: str, i: int, dofs: np.ndarray) -> Element:
        rest = np.delete(errors, dofs, 1)
        return Element(*_name(model, kind, type_, i), len(errors), errors[:, dofs].max(initial=0), _largest(rest))

    elements = []
    for i in range(model.njnt):
        dofs = np.flatnonzero(model.dof_jntid == i)
        elements.append(of_dofs("joint", _type(mujoco.mjtJoint, model.jnt_type[i]), i, dofs))
    moved = _moved_by_actuators(model)
    for i in range(model.nu):
        type_ = (
            f"{_type(mujoco.mjtGain, model.actuator_gaintype[i])}-{_type(mujoco.mjtBias, model.actuator_biastype[i])}"
        )
        elements.append(of_dofs("actuator", type_, i, np.flatnonzero(moved[i])))
    seen = collections.Counter(x for row in played for x in row[6])
    for kind, name in sorted(seen):
        acts = np.array([(kind, name) in row[6] for row in played])
        elements.append(Element(kind, name, int(acts.sum()), _largest(whole[acts]), _largest(whole[~acts])))
    return ModelReport(len(errors), _largest(whole), float(np.median(whole)), tuple(elements))


def _largest(x: np.ndarray) -> float:
    return float(x.max()) if x.size else float("nan")


def _moved_by_actuators(model: Any) -> np.ndarray:
    """(actuators, degrees of freedom): which an actuator's force acts on, at `qpos0`."""
    import mujoco

    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    out = np.zeros((model.nu, model.nv))
    for i in range(model.nu):
        start, count = int(data.moment_rowadr[i]), int(data.moment_rownnz[i])
        out[i, data.moment_colind[start : start + count]] = data.actuator_moment[start : start + count]
    return out != 0
