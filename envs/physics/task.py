"""What the tasks on MuJoCo models share: the model of a file, its numbers as leaves, two engines, a picture.

`engine="planar"` writes the model's equations out (`planar.py`); `engine="mjx"` is MuJoCo's own for accelerators, for
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

from jaxrl.environment import Environment, Hints, pytree
from jaxrl.spaces import Box
from jaxrl.telemetry import Quantity

from . import on_mjx, planar
from .planar import Moved, Numbers, Plan

ENGINES = ("planar", "mjx")


@pytree
class State:
    time: jax.Array  # steps since reset
    qpos: jax.Array  # (n,) coordinates, MuJoCo's: m and rad
    qvel: jax.Array  # (n,) their rates
    qacc: jax.Array  # (n,) the last accelerations: a first guess of the next


@functools.cache
def compiled(file: str) -> Any:
    """The `mujoco.MjModel` of a file in `mjcf/`, or of an absolute path."""
    import mujoco

    return mujoco.MjModel.from_xml_path(str(Path(__file__).parent / "mjcf" / file))


@functools.cache
def planned(file: str) -> Plan:
    return planar.plan(compiled(file))


@functools.cache
def mjx_model(file: str, wide: bool) -> Any:
    """MJX's model of a file, its numbers of 64 bits, then solved until nothing improves, or of 32."""
    with jax.ensure_compile_time_eval(), jax.enable_x64(wide):
        m = on_mjx.put(compiled(file))
        return m.tree_replace({"opt.tolerance": jnp.asarray(1e-16)}) if wide else m


def scaled(params: Any, **factors: Any) -> Any:
    """`params` with numbers of the model multiplied: `scaled(params, body_mass=1.2, gravity=0.5)`.

    A factor is a number, or an array that broadcasts against the field. Raises ValueError, with the names there are,
    for one that the model lacks.
    """
    for name in factors:
        if name not in params.model:
            raise ValueError(f"{name!r} is no number of the model; it has {', '.join(sorted(params.model))}.")
    return params.replace(model={**params.model, **{name: params.model[name] * x for name, x in factors.items()}})


def check_model(id: str, model: Any, there: Any) -> None:
    """Raises ValueError unless `model` has the names of `there`, its shapes (after batch axes), no new infinities."""
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


@dataclasses.dataclass(frozen=True)
class ModelTask(Environment):
    """Base of the tasks. `iterations` of Newton's method a step of the planar engine; MJX has the model's own."""

    engine: str = "planar"
    iterations: int = 4
    engines: ClassVar[tuple[str, ...]] = ENGINES
    file: ClassVar[str]
    """In `mjcf/`, or an absolute path."""
    frame_skip: ClassVar[int]
    """Steps of the model under one action."""
    hints = Hints(deterministic=True, noiseless=True)

    def __post_init__(self) -> None:
        if self.engine not in self.engines:
            why = "" if self.engine not in ENGINES else f" ({self.file} moves in space, which no planar equations do)"
            raise ValueError(f"{self.id}: engine={self.engine!r}; there are {', '.join(self.engines)}{why}.")
        if not isinstance(self.iterations, int) or isinstance(self.iterations, bool) or self.iterations < 1:
            raise ValueError(f"{self.id}: iterations={self.iterations!r} must be an integer of at least 1.")

    @property
    def default_params(self) -> Any:
        numbers = planar.numbers(compiled(self.file), np.dtype(jnp.result_type(float)))
        return super().default_params.replace(model={name: jnp.asarray(x) for name, x in numbers.items()})

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

    def telemetry(self, state: State, params: Any) -> dict[str, Quantity]:
        model = compiled(self.file)
        joints = [(model.joint(i).name, " [rad]" if model.jnt_type[i] == 3 else " [m]") for i in range(model.njnt)]
        places = {f"{name}{unit}": Quantity(state.qpos[i]) for i, (name, unit) in enumerate(joints)}
        rates = {f"{name}_dot{unit[:-1]}/s]": Quantity(state.qvel[i]) for i, (name, unit) in enumerate(joints)}
        return {**places, **rates}

    def observation_space(self, params: Any) -> Box:
        return Box(-jnp.inf, jnp.inf, (len(self.observation_names),))

    def action_space(self, params: Any) -> Box:
        span = compiled(self.file).actuator_ctrlrange
        return Box(span[:, 0].astype(np.float32), span[:, 1].astype(np.float32), (len(span),))

    def validate(self, params: Any) -> None:
        check_model(self.id, params.model, planar.numbers(compiled(self.file)))
        for name in ("body_mass", "geom_size", "geom_friction", "dof_armature", "dof_damping", "jnt_stiffness"):
            if np.any(np.asarray(params.model[name]) < 0):
                raise ValueError(f"{self.id}: model[{name!r}] must not be negative.")
        for name in ("jnt_range", "actuator_ctrlrange"):
            span = np.asarray(params.model[name])
            if np.any(span[..., 0] > span[..., 1]):
                raise ValueError(f"{self.id}: model[{name!r}] has a low end above its high end.")
        if np.any(np.asarray(params.model["timestep"]) <= 0):
            raise ValueError(f"{self.id}: model['timestep'] must be positive.")

    def render(self, state: State, params: Any) -> np.ndarray:
        from .drawing import draw_model

        return draw_model(compiled(self.file), planned(self.file), np.asarray(state.qpos), params.model)


def noise(key: Array, like: Float[Array, "n"], scale: Float[Array, ""]) -> Float[Array, "n"]:
    """Uniform in [-scale, scale]."""
    return scale * jax.random.uniform(key, like.shape, like.dtype, -1.0)
