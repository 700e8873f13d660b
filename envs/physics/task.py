"""What the tasks on MuJoCo models share: the model of a file, its numbers as leaves, two engines, a picture.

`engine="planar"` writes the model's equations out (`planar/`); `engine="mjx"` is MuJoCo's own for accelerators, for
which the same leaves are put into its model. Both start each step from `qpos` and `qvel` alone, `qacc` being a first
guess.
"""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxrl.environment import Environment, Hints, TimeStep, pytree
from jaxrl.spaces import Box
from jaxrl.telemetry import Quantity

from . import constants, on_mjx, planar
from .planar import Moved, Numbers, Plan

ENGINES = ("planar", "mjx")


@pytree
class State:
    time: jax.Array  # steps since reset
    qpos: jax.Array  # (n,) coordinates, MuJoCo's: m and rad
    qvel: jax.Array  # (n,) their rates
    qacc: jax.Array  # (n,) the last accelerations: a first guess of the next


def compiled(file: str) -> Any:
    """The `mujoco.MjModel` of a file in `mjcf/`, or of an absolute path; another one after the file was written.

    Raises ValueError for a file that is not there or that MuJoCo cannot read, with its path.
    """
    path = Path(__file__).parent / "mjcf" / file
    if not path.is_file():
        raise ValueError(f"{file}: there is no such file in {path.parent}; a model of your own has an absolute path.")
    return _compiled(path, path.stat().st_mtime_ns)


@functools.cache
def _compiled(path: Path, written: int) -> Any:
    import mujoco

    try:
        return mujoco.MjModel.from_xml_path(str(path))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def planned(file: str) -> Plan:
    return _planned(compiled(file))


_planned = functools.cache(planar.plan)


def mjx_model(file: str, wide: bool) -> Any:
    """MJX's model of a file, of 64 bits, with a tolerance of 1e-16 for what MJX solves itself, or of 32 bits."""
    return _mjx_model(compiled(file), wide)


@functools.cache
def _mjx_model(model: Any, wide: bool) -> Any:
    with jax.ensure_compile_time_eval(), jax.enable_x64(wide):
        m = on_mjx.put(model)
        return m.tree_replace({"opt.tolerance": jnp.asarray(1e-16)}) if wide else m


def scaled(params: Any, **factors: Any) -> Any:
    """`params` with numbers of the model multiplied: `scaled(params, body_mass=1.2, gravity=0.5)`.

    A factor is a number, or an array that broadcasts against the field. Raises ValueError, with the names there are,
    for one that the model lacks.
    """
    for name, x in factors.items():
        if name not in params.model:
            raise ValueError(f"{name!r} is no number of the model; it has {', '.join(sorted(params.model))}.")
        shape, given = jnp.shape(params.model[name]), jnp.shape(x)
        try:
            np.broadcast_shapes(shape, given)
        except ValueError as error:
            raise ValueError(f"{name}: a factor of shape {given} for numbers of shape {shape}.") from error
    return params.replace(model={**params.model, **{name: params.model[name] * x for name, x in factors.items()}})


POSITIVE = ("mass", "inertia", "timestep")
"""Ends of the names of numbers that must stay above 0 where the model's own are."""

NOT_NEGATIVE = ("size", "friction", "armature", "damping", "stiffness", "density", "viscosity")
"""And of those that must not be below 0."""


def check_numbers(id: str, model: Any, there: Any) -> None:
    """Raises ValueError unless `model` has the names of `there`, its shapes (after batch axes), no new infinities, and
    masses, moments, sizes and the like that a body can have."""
    if not isinstance(model, dict):
        raise ValueError(f"{id}: model={model!r}: take `default_params`, which have the model's numbers.")
    if set(model) != set(there):
        odd = sorted(set(model) ^ set(there))
        raise ValueError(f"{id}: model has {odd} too much or too little; its numbers are {sorted(there)}.")
    for name, x in model.items():
        x, usual = np.asarray(x), np.asarray(there[name])
        shape, wanted = x.shape, usual.shape
        if shape[len(shape) - len(wanted) :] != wanted:
            raise ValueError(f"{id}: model[{name!r}] has the shape {shape}; {wanted} ends it.")
        if np.any(np.isnan(x) | (np.isinf(x) & np.isfinite(usual))):
            raise ValueError(f"{id}: model[{name!r}] must be finite.")
        if name.endswith(POSITIVE) and np.any((x <= 0) & (usual > 0)):
            raise ValueError(f"{id}: model[{name!r}] must be positive where the model's own is.")
        if name.endswith(NOT_NEGATIVE) and np.any((x < 0) & (usual >= 0)):
            raise ValueError(f"{id}: model[{name!r}] must not be negative.")


def sound(ts: TimeStep) -> TimeStep:
    """The step, or, where a reward or an observation is no finite number, an end with zeros in their place.

    The simulation broke there, as MuJoCo's does, which then begins anew with a warning.
    """
    numbers = [x for x in jax.tree.leaves((ts.obs, ts.reward)) if jnp.issubdtype(x.dtype, jnp.floating)]
    whole = jnp.all(jnp.stack([jnp.all(jnp.isfinite(x)) for x in numbers]))

    def kept(tree: Any) -> Any:
        return jax.tree.map(lambda x: jnp.where(whole, x, jnp.zeros_like(x)), tree)

    broken = ts._replace(obs=kept(ts.obs), reward=kept(ts.reward), info=kept(ts.info))
    return broken._replace(terminated=ts.terminated | ~whole)


@dataclasses.dataclass(frozen=True)
class ModelTask(Environment):
    """Base of the tasks. The planar engine takes Newton steps until the forces are exact, at most `iterations`; on
    MJX that does nothing (`solver.py`)."""

    engine: str = "planar"
    iterations: int = 20
    engines: ClassVar[tuple[str, ...]] = ENGINES
    file: ClassVar[str]
    """In `mjcf/`, or an absolute path."""
    frame_skip: ClassVar[int]
    """Steps of the model under one action."""
    hints = Hints(deterministic=True, noiseless=True)
    static_ranges = {"iterations": (1, 1000)}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.engine not in self.engines:
            why = "" if self.engine not in ENGINES else f" ({self.file} moves in space, which no planar equations do)"
            raise ValueError(f"{self.id}: engine={self.engine!r}; there are {', '.join(self.engines)}{why}.")

    @property
    def default_params(self) -> Any:
        kind = jnp.result_type(float)
        return super().default_params.replace(model={name: jnp.asarray(x, kind) for name, x in self._numbers.items()})

    @property
    def _numbers(self) -> dict[str, np.ndarray]:
        model = compiled(self.file)
        more = on_mjx.more_numbers(model) if self.engine == "mjx" else {}
        return {**planar.numbers(model, np.float64), **more}

    def with_constants(self, params: Any) -> Any:
        """`params` in which what MuJoCo derives of masses follows the model's other numbers (`constants.py`). Pure."""
        return params.replace(model=constants.with_constants(compiled(self.file), params.model))

    @property
    def mujoco_model(self) -> Any:
        """The `mujoco.MjModel` of the file, which is shared: copy it before a write."""
        return compiled(self.file)

    @property
    def dt(self) -> float:
        """Seconds of a step."""
        return self.frame_skip * float(compiled(self.file).opt.timestep)

    def advance(self, state: State, control: Float[Array, "m"], model: Numbers) -> Moved:
        """A step of the task on."""
        if self.engine == "planar":
            plan = planned(self.file)
            return planar.advance(
                plan, model, state.qpos, state.qvel, state.qacc, control, self.frame_skip, self.iterations
            )
        data, seen = self.mjx_step(state, control, model)
        found = data.qpos, data.qvel, data.qacc, seen, data.qfrc_constraint
        return Moved(*(x.astype(state.qpos.dtype) for x in found))

    def mjx_step(self, state: Any, control: Float[Array, "m"], model: Numbers) -> tuple[Any, Any]:
        """A step on MJX: its data, and the coordinates at which its forces were computed."""
        base = mjx_model(self.file, state.qpos.dtype == jnp.float64)
        return on_mjx.advance(base, model, state, control, self.frame_skip)

    def step(self, key: Array, state: Any, action: Any, params: Any) -> TimeStep:
        return sound(super().step(key, state, action, params))

    def telemetry(self, state: Any, params: Any) -> dict[str, Quantity]:
        """Angles and places of hinges and slides, then their rates; those of free and ball joints have no names."""
        model = compiled(self.file)
        places, rates = {}, {}
        for i in np.flatnonzero(model.jnt_type >= 2):
            name, unit = model.joint(i).name or f"joint {i}", "rad" if model.jnt_type[i] == 3 else "m"
            places[f"{name} [{unit}]"] = Quantity(state.qpos[model.jnt_qposadr[i]])
            rates[f"{name}_dot [{unit}/s]"] = Quantity(state.qvel[model.jnt_dofadr[i]])
        return {**places, **rates}

    def observation_space(self, params: Any) -> Box:
        return Box(-jnp.inf, jnp.inf, (len(self.observation_names),))

    def action_space(self, params: Any) -> Box:
        model = compiled(self.file)
        span = model.actuator_ctrlrange
        for i in np.flatnonzero(model.actuator_ctrllimited == 0):
            name = planar.name_of(model, "actuator", int(i))
            raise ValueError(f"{self.id}: {name} has no ctrlrange: give it one, as policies act in a box.")
        return Box(span[:, 0].astype(np.float32), span[:, 1].astype(np.float32), (len(span),))

    def validate(self, params: Any) -> None:
        check_numbers(self.id, params.model, self._numbers)
        for name in ("jnt_range", "actuator_ctrlrange"):
            span = np.asarray(params.model[name])
            if np.any(span[..., 0] > span[..., 1]):
                raise ValueError(f"{self.id}: model[{name!r}] has a low end above its high end.")

    def render(self, state: Any, params: Any) -> np.ndarray:
        if self.engine != "planar":
            from .painter import paint_at

            return paint_at(compiled(self.file), np.asarray(state.qpos), params.model)
        from .drawing import draw_model

        return draw_model(compiled(self.file), planned(self.file), np.asarray(state.qpos), params.model)


def noise(key: Array, like: Float[Array, "n"], scale: Float[Array, ""]) -> Float[Array, "n"]:
    """Uniform in [-scale, scale]."""
    return scale * jax.random.uniform(key, like.shape, like.dtype, -1.0)
