"""MuJoCo Playground's DM Control suite, and its walking robots, through MJX's JAX implementation.

Dynamics, observations and rewards are Playground's own (https://github.com/google-deepmind/mujoco_playground,
Apache-2.0), computed by it. What its wrappers do is done by this library instead: an episode starts afresh (theirs
returns to a cached first state unless told otherwise), the time limit is a cut and not an end, and the numbers of the
model are leaves that `scaled` and curricula can vary.

| observation | action | reward | end |
|---|---|---|---|
| Playground's, one vector | [-1, 1], a number an actuator | its terms are in `info` | a NaN, of robots a fall |

`params.model` holds the model's numbers by MuJoCo's names. What a task copied from the model when it was made (ranges
from which it draws its start, sizes of targets) stays the default model's. Needs the extra `playground`.

The locomotion suite has no ids, because its meshes are another repository, MuJoCo Menagerie, which Playground clones
when it is asked for one; here it must be there: `PlaygroundTask("Go1JoystickFlatTerrain")`. What its critics see beside
the policy is `privileged`.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import inspect
import types
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from jaxrl import extras
from jaxrl.environment import strongly_typed

from . import on_mjx
from .adapted import Adapted, Params, State

NUMBERS = (
    "body_mass body_inertia body_ipos body_pos geom_size geom_pos geom_friction jnt_stiffness jnt_range dof_armature "
    "dof_damping actuator_gear actuator_gainprm actuator_biasprm actuator_ctrlrange"
).split()
"""Fields of MJX's model that are leaves; those of its options are `OPTIONS`."""

OPTIONS = ("gravity", "timestep", "density", "viscosity")
"""The last two where a task has a fluid."""


def load(name: str, settings: tuple[tuple[str, Any], ...] = ()) -> Any:
    """Playground's environment, its numbers of 32 bits, or of 64 where they are enabled.

    Raises ImportError without the package, FileNotFoundError without a robot's meshes, ValueError for a name or a
    setting that it lacks.
    """
    return _load(name, settings, jnp.result_type(float) == jnp.float64)


@functools.cache
def _load(name: str, settings: tuple[tuple[str, Any], ...], wide: bool) -> Any:
    on_mjx.imported()  # before Playground does
    try:
        from mujoco_playground import dm_control_suite, locomotion
        from mujoco_playground._src import mjx_env
    except ImportError as error:
        raise ImportError(
            f"Playground-{name}: needs a package that is not installed: {extras.install('playground')}"
        ) from error
    robots = mjx_env.MENAGERIE_PATH
    if name in locomotion.ALL_ENVS and not robots.exists():
        raise FileNotFoundError(
            f"Playground-{name}: its robot is not on this disk, and nothing is downloaded here. Clone https://github.com/"
            f"google-deepmind/mujoco_menagerie to {robots} and check out {mjx_env.MENAGERIE_COMMIT_SHA}."
        )
    suite = locomotion if name in locomotion.ALL_ENVS else dm_control_suite
    if name not in suite.ALL_ENVS:
        known = ", ".join((*dm_control_suite.ALL_ENVS, *locomotion.ALL_ENVS))
        raise ValueError(f"Playground has no task {name!r} in these two suites; it has {known}.")
    with jax.ensure_compile_time_eval():
        known = suite.get_default_config(name)
        if unknown := [key for key, _ in settings if key.partition(".")[0] not in known]:
            raise ValueError(f"Playground-{name}: settings has {unknown}; there are {', '.join(known)}.")
        return suite.load(name, config_overrides={**dict(settings), "impl": "jax"})


def numbers(model: Any) -> dict[str, Array]:
    """The leaves of MJX's model, those that are there."""
    found = {name: getattr(model, name) for name in NUMBERS}
    dry = ("density", "viscosity") if float(model.opt.density) == 0 == float(model.opt.viscosity) else ()
    found |= {name: getattr(model.opt, name) for name in OPTIONS if name not in dry}
    return {name: jnp.asarray(x, jnp.result_type(float)) for name, x in found.items() if np.size(x)}


@dataclasses.dataclass(frozen=True)
class PlaygroundTask(Adapted):
    """`settings` override Playground's own configuration: `{"ctrl_dt": 0.02}`, or pairs."""

    name: str = "CartpoleBalance"
    id: str = dataclasses.field(default="Playground-CartpoleBalance", kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        given = dict(self.settings)
        if given.get("impl", "jax") != "jax" or given.get("vision"):
            raise ValueError(f"{self.id}: settings={self.settings!r}: MJX runs here as impl='jax', without vision.")

    @property
    def env(self) -> Any:
        """Playground's own environment."""
        return load(self.name, self.settings)

    @property
    def default_params(self) -> Params:
        return strongly_typed(Params(self.env._config.episode_length, numbers(self.env.mjx_model)))

    def under(self, model: dict[str, Array]) -> Any:
        """Playground's environment with these numbers of its model."""
        own, env = self.env, copy.copy(self.env)
        base = own.mjx_model
        option = base.opt.replace(**{name: x for name, x in model.items() if name in OPTIONS})
        env._mjx_model = base.replace(opt=option, **{name: x for name, x in model.items() if name not in OPTIONS})
        for name, x in vars(own).items():  # the methods that it keeps would still be the other's
            if inspect.ismethod(x) and x.__self__ is own:
                setattr(env, name, types.MethodType(x.__func__, env))
        return env

    def initial(self, key: Key[Array, ""], params: Params) -> State:
        # Some of its tasks draw twice from one key; raw keys are what it documents.
        return strongly_typed(State(jnp.int32(0), self.under(params.model).reset(jax.random.key_data(key))))

    def render(self, state: State, params: Params) -> np.ndarray:
        from .painter import paint_at

        model, data = self.env.mj_model, state.env.data
        moved = np.asarray(data.mocap_pos) if model.nmocap else None
        return paint_at(model, np.asarray(data.qpos), params.model, moved)
