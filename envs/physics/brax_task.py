"""Brax's twelve environments on the protocols of this library: `Brax-ant` to `Brax-walker2d`.

Dynamics, observations and rewards are Brax's own (https://github.com/google/brax, Apache-2.0), computed by it, under
one of its four engines, the setting `backend`: `generalized`, `positional`, `spring` or `mjx`. What its wrappers do is
done by this library instead: an episode starts afresh (Brax's `AutoResetWrapper` returns to the first state for ever),
the time limit is a cut and not an end, and the numbers of the model are leaves that `scaled` and curricula can vary.

| observation | action | reward | end |
|---|---|---|---|
| Brax's vector, its size by task | [-1, 1], a number an actuator | Brax's; its terms are in `info` by name | `done` |

`params.model` holds what the engine reads of Brax's `System`, by its dotted names: masses, inertias, shapes, friction,
gains, gravity, and each engine's own numbers; under `mjx` they are MuJoCo's. What Brax derives once from them when it
loads a model (`invweight`) stays the default model's. Time limit 1,000 steps, as in Brax's own training.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from jaxrl.environment import strongly_typed

from . import on_mjx
from .adapted import Adapted, Params, State
from .ids import BRAX

BACKENDS = ("generalized", "positional", "spring", "mjx")

LACKING = {"swimmer": ("positional", "spring", "mjx")}
"""Backends that an environment does not have."""

_BODIES = (
    "link.inertia.mass link.inertia.i link.inertia.transform.pos link.transform.pos geom_size geom_pos geom_friction "
    "actuator.gain actuator.gear actuator.ctrl_range gravity "
)
NUMBERS = {
    "generalized": (_BODIES + "dof.armature dof.damping dof.stiffness viscosity density").split(),
    "positional": (
        _BODIES + "elasticity vel_damping ang_damping link.constraint_vel_damping link.constraint_ang_damping "
        "joint_scale_ang joint_scale_pos collide_scale"
    ).split(),
    "spring": (
        _BODIES + "elasticity vel_damping ang_damping link.constraint_stiffness link.constraint_limit_stiffness "
        "link.constraint_vel_damping link.constraint_ang_damping baumgarte_erp"
    ).split(),
    "mjx": (
        "body_mass body_inertia body_ipos body_pos geom_size geom_pos geom_friction jnt_stiffness jnt_range "
        "dof_armature dof_damping actuator_gear actuator_gainprm actuator_ctrlrange opt.gravity"
    ).split(),
}
"""Fields of Brax's `System` that each engine reads."""

_TOUCHING = ("geom_size", "geom_pos", "geom_friction", "elasticity", "collide_scale", "baumgarte_erp")
_FLUID = ("viscosity", "density")
_SCALED = {"link.inertia.mass": "spring_mass_scale", "link.inertia.i": "spring_inertia_scale"}
"""Outside `generalized`, a mass m acts as m^(1 - scale): where the scale is 1, not at all."""


def load(name: str, backend: str, settings: tuple[tuple[str, Any], ...] = ()) -> Any:
    """Brax's environment, its numbers of 32 bits, or of 64 where they are enabled."""
    return _load(name, backend, settings, jnp.result_type(float) == jnp.float64)


@functools.cache
def _load(name: str, backend: str, settings: tuple[tuple[str, Any], ...], wide: bool) -> Any:
    on_mjx.imported()  # before Brax does
    from brax import envs, fluid

    if name == "swimmer":
        fluid.jp = _Numpy()
    with jax.ensure_compile_time_eval(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Brax System")  # not actively maintained, which docs/envs/physics.md says
        try:
            return envs.get_environment(name, backend=backend, **dict(settings))
        except TypeError as error:
            raise ValueError(f"Brax-{name}: settings={settings!r}: {error}") from error


class _Numpy:
    """jax.numpy for Brax's fluids, which name an argument of `clip` as jax 0.10 does no longer (Brax 0.14.2)."""

    def __getattr__(self, name: str) -> Any:
        return getattr(jnp, name)

    def clip(self, x: Array, a_min: Any = None, a_max: Any = None) -> Array:
        return jnp.clip(x, a_min, a_max)


def numbers(system: Any, backend: str) -> dict[str, Array]:
    """The leaves of a `brax.base.System` that act under this backend."""
    touching = np.asarray(system.geom_contype | system.geom_conaffinity).any()
    out = {}
    for name in NUMBERS[backend]:
        x = np.asarray(functools.reduce(getattr, name.split("."), system), jnp.result_type(float))
        unread = (name in _TOUCHING and not touching) or (name in _FLUID and not system.enable_fluid)
        if name in _SCALED and backend != "generalized":
            unread = getattr(system, _SCALED[name]) == 1
        if x.size and not unread:
            out[name] = jnp.asarray(x)
    return out


@dataclasses.dataclass(frozen=True)
class BraxTask(Adapted):
    """`settings` are keyword arguments of Brax's own constructor: `{"healthy_reward": 2.0}`, or pairs."""

    name: str = "inverted_pendulum"
    backend: str = "generalized"
    id: str = dataclasses.field(default="Brax-inverted_pendulum", kw_only=True)
    hints = Adapted.hints._replace(deterministic=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.name not in BRAX:
            raise ValueError(f"{self.id}: name={self.name!r}; Brax has {', '.join(sorted(BRAX))}.")
        there = [name for name in BACKENDS if name not in LACKING.get(self.name, ())]
        if self.backend not in there:
            raise ValueError(f"{self.id}: backend={self.backend!r}; it has {', '.join(there)}.")

    @property
    def env(self) -> Any:
        """Brax's own environment."""
        return load(self.name, self.backend, self.settings)

    @property
    def default_params(self) -> Params:
        system = getattr(self.env, "sys", None)  # `fast`, for tests, has none
        return strongly_typed(Params(model=numbers(system, self.backend) if system is not None else {}))

    def under(self, model: dict[str, Array]) -> Any:
        """Brax's environment with these numbers of its model."""
        env = copy.copy(self.env)
        if not model:
            return env
        if self.backend == "mjx":  # its tasks read these, which are MuJoCo's under other names
            model = {
                **model,
                "link.inertia.mass": model["body_mass"][1:],
                "actuator.ctrl_range": model["actuator_ctrlrange"],
            }
        env.sys = env.sys.tree_replace(model)
        return env

    def initial(self, key: Key[Array, ""], params: Params) -> State:
        return strongly_typed(State(jnp.int32(0), self.under(params.model).reset(key)))

    def render(self, state: State, params: Params) -> np.ndarray:
        if not hasattr(self.env, "sys"):
            return super().render(state, params)
        from .painter import paint_at

        return paint_at(self.env.sys.mj_model, np.asarray(state.env.pipeline_state.q), params.model)
