"""MuJoCo Playground's DM Control suite on the protocols of this library, through MJX's JAX implementation.

Dynamics, observations and rewards are Playground's own (https://github.com/google-deepmind/mujoco_playground,
Apache-2.0), computed by it. What its wrappers do is done by this library instead: an episode starts afresh (theirs
returns to a cached first state unless told otherwise), the time limit is a cut and not an end, and the numbers of the
model are leaves that `scaled` and curricula can vary.

| observation | action | reward | end |
|---|---|---|---|
| Playground's vector | [-1, 1], a number an actuator | Playground's; its terms are in `info` | `done`: a NaN |

`params.model` holds the model's numbers by MuJoCo's names. What a task copied from the model when it was made (ranges
from which it draws its start, sizes of targets) stays the default model's. Needs `pip install "jaxrl[playground]"`.
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
from jaxtyping import Array, Float, Key

from jaxrl.environment import Environment, Hints, Transition, pytree, strongly_typed
from jaxrl.spaces import Box

from . import on_mjx
from .task import check_model

NUMBERS = (
    "body_mass body_inertia body_ipos body_pos geom_size geom_pos geom_friction jnt_stiffness jnt_range dof_armature "
    "dof_damping actuator_gear actuator_gainprm actuator_biasprm actuator_ctrlrange"
).split()
"""Fields of MJX's model that are leaves; those of its options are `OPTIONS`."""

OPTIONS = ("gravity", "timestep")


@pytree
class Params:
    max_steps: jax.Array = 1000
    model: Any = None  # the model's numbers, by MuJoCo's names


@pytree
class State:
    time: jax.Array  # steps since reset
    env: Any  # Playground's State: MJX's data, observation, reward, done, metrics, info


@functools.cache
def load(name: str, settings: tuple[tuple[str, Any], ...] = ()) -> Any:
    """Playground's environment. Raises ImportError without the package, ValueError for a name that it lacks."""
    on_mjx.imported()  # before Playground does
    try:
        from mujoco_playground import dm_control_suite
    except ImportError as error:
        raise ImportError(
            f'Playground-{name}: needs a package that is not installed: pip install "jaxrl[playground]".'
        ) from error
    if name not in dm_control_suite.ALL_ENVS:
        raise ValueError(
            f"Playground has no task {name!r} in its suite; it has {', '.join(dm_control_suite.ALL_ENVS)}."
        )
    with jax.ensure_compile_time_eval():
        return dm_control_suite.load(name, config_overrides={**dict(settings), "impl": "jax"})


def numbers(model: Any) -> dict[str, Array]:
    """The leaves of MJX's model, those that are there."""
    found = {name: getattr(model, name) for name in NUMBERS} | {name: getattr(model.opt, name) for name in OPTIONS}
    return {name: jnp.asarray(x, jnp.float32) for name, x in found.items() if np.size(x)}


@dataclasses.dataclass(frozen=True)
class PlaygroundTask(Environment):
    """`settings` override Playground's own configuration, as pairs: `(("ctrl_dt", 0.02),)`."""

    name: str = "CartpoleBalance"
    settings: tuple[tuple[str, Any], ...] = ()
    id: str = dataclasses.field(default="Playground-CartpoleBalance", kw_only=True)
    Params = Params
    hints = Hints(noiseless=True, fenced=False, reset="sparse", reset_share=1 / 32)
    # A dense reset runs beside the step: two batched Cholesky factorisations at a time, which may hang a CPU.

    def __post_init__(self) -> None:
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
        option = base.opt.replace(**{name: model[name] for name in OPTIONS})
        env._mjx_model = base.replace(opt=option, **{name: x for name, x in model.items() if name not in OPTIONS})
        for name, x in vars(own).items():  # the methods that it keeps would still be the other's
            if inspect.ismethod(x) and x.__self__ is own:
                setattr(env, name, types.MethodType(x.__func__, env))
        return env

    def initial(self, key: Key[Array, ""], params: Params) -> State:
        # Some of its tasks draw twice from one key; raw keys are what it documents.
        return strongly_typed(State(jnp.int32(0), self.under(params.model).reset(jax.random.key_data(key))))

    def transition(self, key: Array, state: State, action: Float[Array, "n"], params: Params) -> Transition:
        # Playground's tasks write into the dictionaries they are given.
        before = state.env.replace(info=dict(state.env.info), metrics=dict(state.env.metrics))
        after = self.under(params.model).step(before, action)
        after = jax.tree.map(lambda new, old: jnp.asarray(new, old.dtype), after, state.env)
        state = state.replace(env=after)
        return Transition(state, after.reward, after.done > 0, jnp.bool_(False), dict(after.metrics))

    def observe(self, key: Array, state: State, params: Params) -> Float[Array, "n"]:
        return state.env.obs

    def observation_space(self, params: Params) -> Box:
        return Box(-jnp.inf, jnp.inf, (_observed(self.name, self.settings),))

    def action_space(self, params: Params) -> Box:
        return Box(-1.0, 1.0, (self.env.action_size,))

    def validate(self, params: Params) -> None:
        check_model(self.id, params.model, self.default_params.model)

    def render(self, state: State, params: Params) -> np.ndarray:
        import mujoco

        from .painter import paint

        model = self.env.mj_model
        data = mujoco.MjData(model)
        data.qpos[:] = np.asarray(state.env.data.qpos)
        if model.nmocap:
            data.mocap_pos[:] = np.asarray(state.env.data.mocap_pos)
        mujoco.mj_forward(model, data)
        return paint(model, data.geom_xpos, data.geom_xmat)


@functools.cache
def _observed(name: str, settings: tuple[tuple[str, Any], ...]) -> int:
    return jax.eval_shape(load(name, settings).reset, jax.random.PRNGKey(0)).obs.shape[-1]
