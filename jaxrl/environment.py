"""The environment protocol: pure functions over pytrees.

An author writes `initial`, `transition`, `observe`, two spaces and `validate`; the base class makes `reset` and `step`
of them and owns the clock. Environments hold only static settings; everything that is a number is a leaf of `params`.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
import re
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, Self, TypeVar, dataclass_transform, overload

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, PyTree

from jaxrl.math import fence, precise
from jaxrl.spaces import Dict, Space
from jaxrl.telemetry import Plane, Quantity

T = TypeVar("T")

NO_LIMIT = np.iinfo(np.int32).max
"""`params.max_steps` of a task without a time limit."""


class Replaceable:
    """What `@pytree` adds; a base class only so that type checkers see it."""

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed. Raises TypeError for a field that does not exist."""
        return dataclasses.replace(self, **changes)  # pyright: ignore[reportArgumentType]


@overload
@dataclass_transform(frozen_default=True)
def pytree(cls: type[T]) -> type[T]: ...
@overload
@dataclass_transform(frozen_default=True)
def pytree(*, static: tuple[str, ...]) -> Callable[[type[T]], type[T]]: ...
@dataclass_transform(frozen_default=True)
def pytree(cls=None, *, static: tuple[str, ...] = ()):
    """Make a class a frozen dataclass that jax sees as a pytree, with `.replace(**changes)`.

    Fields named in `static` are compile-time constants (hashable); all others are children.
    """
    return functools.partial(_pytree, static=static) if cls is None else _pytree(cls, static)


class _ClassOf:
    """A field whose value is the class of its instance and cannot be anything else."""

    def __get__(self, instance: Any, owner: type) -> type:
        return owner

    def __set__(self, instance: Any, value: Any) -> None:
        pass


def _pytree(cls: Any, static: tuple[str, ...]) -> Any:
    # In jaxlib 0.10 the structures of two dataclasses with equally many fields compare as equal, so a jit cache can run
    # the program of one for the other. The class itself, as a constant of the structure, tells them apart.
    cls.__annotations__ = {**inspect.get_annotations(cls), "class_of": type}
    cls.class_of = dataclasses.field(default=cls, kw_only=True, repr=False)
    cls = dataclasses.dataclass(frozen=True, eq=False)(cls)
    cls.class_of = _ClassOf()
    names = [f.name for f in dataclasses.fields(cls) if f.name != "class_of"]
    jax.tree_util.register_dataclass(cls, [n for n in names if n not in static], [*static, "class_of"])
    # It is no field to those who look at or print the fields, and no argument to those who look at the signature.
    del cls.__dataclass_fields__["class_of"]
    signature = inspect.signature(cls.__init__)
    shown = [p for name, p in signature.parameters.items() if name not in ("self", "class_of")]
    cls.__signature__ = signature.replace(parameters=shown, return_annotation=inspect.Signature.empty)
    if not hasattr(cls, "replace"):
        cls.replace = Replaceable.replace
    # jax rebuilds pytrees around placeholders (object(), axis specs, None), which a run-time type check would refuse.
    cls.__init__.__annotations__ = {}
    return cls


def strongly_typed(tree: PyTree) -> PyTree:
    """Every leaf as a jax array with a strong dtype: floats in the default precision, python integers as int32, which
    raises ValueError for larger ones.

    Python scalars and weakly typed arrays compile again when a strongly typed one follows.
    """

    def leaf(path, x):
        if isinstance(x, bool):
            return jnp.asarray(x, bool)
        if isinstance(x, int):
            require_int32(jax.tree_util.keystr(path, simple=True, separator="."), x)
            return jnp.asarray(x, jnp.int32)
        return jnp.asarray(x, jnp.result_type(float)) if isinstance(x, float) else jnp.asarray(x, jnp.asarray(x).dtype)

    return jax.tree_util.tree_map_with_path(leaf, tree)


def require_int32(name: str, x: Any) -> None:
    """Raise ValueError for integers, on the host, that 32 bits do not hold."""
    if np.any(np.abs(x) > NO_LIMIT):
        raise ValueError(f"{name}={x}: integers are kept in 32 bits, at most {NO_LIMIT}.")


def is_concrete(tree: PyTree) -> bool:
    """True when no leaf is being traced: values can be looked at on the host."""
    return not any(isinstance(x, jax.core.Tracer) for x in jax.tree.leaves(tree))


class TimeStep(NamedTuple):
    """What `Environment.step` returns. `terminated` is the task's own end, `truncated` a cut; both may hold."""

    obs: Any
    state: Any
    reward: Array
    terminated: Array
    truncated: Array
    info: dict[str, Any]


class Transition(NamedTuple):
    """What `Environment.transition` returns: the successor before the clock ticks, `truncated` without the limit."""

    state: Any
    reward: Array
    terminated: Array
    truncated: Array
    info: dict[str, Any]


class Hints(NamedTuple):
    """What an environment promises about itself, and how it is stepped fastest."""

    deterministic: bool = False
    """`transition` and `observe` ignore their keys: the vectorised step then spends no random bits on them."""
    noiseless: bool = False
    """`observe` ignores its key, whatever `transition` does: the vectorised step observes after the reset alone."""
    reset: str = "auto"
    """The auto-reset that suits it; `vectorize(reset=...)` overrides."""
    reset_share: float = 1 / 16
    """The share of all slots that a `sparse` reset starts at once: some more than restart at a step as a rule."""
    fenced: bool = True
    """`step` materialises the new state before it is observed (`jaxrl.math.fence`); off where that costs more than
    computing the state anew for each entry of the observation."""


class Levels(NamedTuple):
    """The level kit of an environment: pure functions of a level, which is params. None: there is no such function."""

    env: Any  # the same task, whose params are the level itself
    generate: Callable[..., Any] | None  # (key, params of the task) -> level
    mutate: Callable[..., Any] | None  # (key, level) -> level, a small change
    validate: Callable[..., None]  # (level) -> None; on the host, raises ValueError for a level that cannot be
    optimal_value: Callable[..., Any] | None  # (level, ...) -> the best return, () or (...)
    editor: Callable[..., Any] | None  # () -> (an environment in which levels are built, its state -> level)


@dataclasses.dataclass(frozen=True)
class Environment:
    """Base class. Subclasses are frozen dataclasses of static settings, hashable, with `Params` and `State` pytrees.

    `State` has a field `time` (int32, steps since reset) and `Params` a field `max_steps` (int32; `NO_LIMIT` for none).
    """

    id: str = dataclasses.field(default="", kw_only=True)

    Params: ClassVar[Any]
    hints: ClassVar[Hints] = Hints()
    """What makes it faster and changes nothing else; a subclass changes its parent's by `hints._replace(...)`."""
    observation_names: ClassVar[tuple[str, ...]] = ()
    """What each number of a flat observation is, of one agent and without a privileged part: `x [m]`. Empty where
    nobody said."""
    action_names: ClassVar[tuple[str, ...]] = ()
    """What each number of an action is, as `torque [N m]`. Empty where nobody said."""
    static_ranges: ClassVar[dict[str, tuple[int, int]]] = {}
    """The least and the most of static settings that are integers, by their names. Those of the parents hold too."""
    infinite: ClassVar[dict[str, float]] = {}
    """Leaves of `Params` that may be set infinite, as a limit that is never reached, and to which infinity; all others
    are finite, but where the default is infinite itself."""

    def __post_init__(self) -> None:
        """Raises ValueError for an integer setting outside its range, or a switch that is neither True nor False. A
        subclass with checks of its own calls it."""
        require_ranges(self)

    # ---- what an author writes

    def initial(self, key: Array, params: Any) -> Any:
        """Draw an initial state, with `time` zero."""
        raise NotImplementedError

    def transition(self, key: Array, state: Any, action: Any, params: Any) -> Transition:
        """One step of the task, without the clock and without reset."""
        raise NotImplementedError

    def observe(self, key: Array, state: Any, params: Any) -> Any:
        """What the agent sees of `state`; the key is for sensor noise."""
        raise NotImplementedError

    def observation_space(self, params: Any) -> Space:
        """The space of one agent's observation."""
        raise NotImplementedError

    def action_space(self, params: Any) -> Space:
        """The space of one agent's action."""
        raise NotImplementedError

    def validate(self, params: Any) -> None:
        """Raise ValueError for parameters that make no sense. Host only; leaves may be batched."""

    def terminal(self, obs: Any, params: Any) -> Bool[Array, ""]:
        """Whether the task ends where `obs` is seen after a step: what a learned model of its steps asks. Pure.

        NotImplementedError where observations do not tell, or nobody said.
        """
        raise NotImplementedError(f"{self.id or type(self).__name__} does not say which observations end it")

    def describe(self, params: Any) -> dict[str, Array]:
        """Scalars that tell a level from others in the log of a curriculum, as the walls of a maze. Pure."""
        return {}

    def telemetry(self, state: Any, params: Any) -> dict[str, Quantity]:
        """What time plots show of a state, by names as `x [m]`, where that is more than the observation. Pure."""
        return {}

    def planes(self, telemetry: dict[str, Quantity], params: Any) -> list[Plane]:
        """Curves of an episode in a plane, of its telemetry with a leading axis of time. Host only."""
        return []

    def measures(self, params: Any) -> dict[str, dict[str, str]]:
        """What scaled numbers stand for, by their names: `{"obs": {"i_sd": "1 is 240 A"}, "action": {}}`. Host only."""
        return {}

    def render(self, state: Any, params: Any) -> np.ndarray:
        """An RGB picture of one state, uint8 (height, width, 3). Host only; NotImplementedError where there is none."""
        raise NotImplementedError(f"{self.id or type(self).__name__} has no render")

    def render_episode(self, states: Any, params: Any) -> list[np.ndarray]:
        """A picture of each state of a trajectory (numpy, a leading axis of time): `render`, and what only time shows,
        as a path. Host only."""
        length = len(jax.tree.leaves(states)[0])
        return [self.render(jax.tree.map(lambda x, t=t: x[t], states), params) for t in range(length)]

    # ---- what everyone else calls

    @property
    def levels(self) -> Levels | None:
        """The level kit; None for an environment that has none.

        An author writes `generate` and, where there is such a thing, `as_levels` (the environment whose params are the
        level), `mutate`, `optimal_value` and `editor`.
        """
        as_levels: Any = getattr(self, "as_levels", None)
        env: Any = self if as_levels is None else as_levels()
        generate: Any = getattr(self, "generate", None)
        if as_levels is None and generate is None:
            return None
        mutate, optimal_value, editor = (
            getattr(env, name, getattr(self, name, None)) for name in ("mutate", "optimal_value", "editor")
        )
        return Levels(env, generate, mutate, functools.partial(check_params, env), optimal_value, editor)

    @property
    def num_agents(self) -> int:
        """With more than one, observation, action and reward have a leading axis of this length."""
        return 1

    @property
    def default_params(self) -> Any:
        """The published task's parameters, as strongly typed arrays."""
        return strongly_typed(self.Params())

    @precise
    def reset(self, key: Array, params: Any) -> tuple[Any, Any]:
        """Start an episode: `(obs, state)`. Raises ValueError (from `validate`) for unusable concrete params."""
        if is_concrete(params):
            check_params(self, params)
        initial_key, observe_key = (key, key) if self.hints.deterministic else jax.random.split(key)
        state = self.initial(initial_key, params)
        return self.observe(observe_key, state, params), state

    @precise
    def step(self, key: Array, state: Any, action: Any, params: Any) -> TimeStep:
        """One transition, **without** auto-reset (gymnax's `step` resets; here `vectorize` does).

        Raises ValueError, when traced, for an action whose shape or kind does not fit the action space.
        """
        check_action(self, action, params)
        action = jax.tree.map(jnp.asarray, action)
        transition_key, observe_key = (key, key) if self.hints.deterministic else jax.random.split(key)
        state, reward, terminated, truncated, info = self.transition(transition_key, state, action, params)
        state = state.replace(time=state.time + 1)
        if self.hints.fenced:
            state = fence(state)
        truncated = truncated | (state.time >= params.max_steps)
        return TimeStep(self.observe(observe_key, state, params), state, reward, terminated, truncated, info)


def check_is_params(env: Environment, params: Any) -> None:
    """Raise TypeError for what is no environment's params at all, as a dict, and say what to pass."""
    if not hasattr(params, "max_steps"):
        raise TypeError(
            f"env_params is {params!r:.60}, not the params of {env.id}: change leaves of `env.default_params`, "
            "as in env.default_params.replace(max_steps=100)."
        )


def check_params(env: Environment, params: Any) -> None:
    """Raise ValueError for concrete params that no episode can have: what the task refuses, or no step at all."""
    check_is_params(env, params)
    # What is computed from concrete params is concrete too, also in a trace of something else (an agent's reset).
    with jax.ensure_compile_time_eval():
        env.validate(params)
        require_finite(env, params)
        shortest = int(np.min(np.asarray(params.max_steps)))
    if shortest < 1:
        raise ValueError(f"{env.id}: max_steps={shortest}: an episode has at least one step.")


def require_finite(env: Environment, params: Any) -> None:
    """Raise ValueError for a number that is NaN, or infinite where neither `env.infinite` nor the default is."""
    numbers = jax.tree_util.tree_leaves_with_path(params)
    for path, x in [(path, np.asarray(x)) for path, x in numbers if jnp.issubdtype(jnp.result_type(x), jnp.floating)]:
        wrong = x[~np.isfinite(x)]
        if not wrong.size:
            continue
        name = jax.tree_util.keystr(path, simple=True, separator=".")
        usual = np.asarray(dict(jax.tree_util.tree_leaves_with_path(env.default_params)).get(path, 0.0))
        own = re.sub(r"^(env\.)+", "", name)  # of a wrapper whose params hold those of what it wraps
        infinities = [env.infinite.get(own, 0.0), *usual[np.isinf(usual)]]
        for bad in wrong[~np.isin(wrong, infinities)][:1]:
            raise ValueError(f"{env.id}: {name} must be {'a number' if np.isnan(bad) else 'finite'}, not {bad}.")


def check_action(env: Environment, action: Any, params: Any) -> None:
    """Raise ValueError when an action's static shape or kind does not fit `env.action_space(params)`."""
    space = env.action_space(params)
    if not hasattr(space, "dtype"):
        return  # a Tuple or Dict of spaces: its leaves fail where they are used
    agents = (env.num_agents,) if env.num_agents > 1 else ()
    shape, dtype = jnp.shape(action), jnp.result_type(action)
    if shape != agents + space.shape:
        raise ValueError(f"{env.id}: the action has shape {shape}; {space} needs {agents + space.shape}.")
    integer = jnp.issubdtype(space.dtype, jnp.integer)
    if integer and not jnp.issubdtype(dtype, jnp.integer):
        raise ValueError(f"{env.id}: the action has dtype {dtype}; {space} needs an integer.")
    if not jnp.issubdtype(dtype, jnp.number):
        raise ValueError(f"{env.id}: the action has dtype {dtype}; {space} needs a number.")


def split_observation(obs: Any, space: Space) -> tuple[Any, Any, Any]:
    """`(what the policy sees, what the critic sees, action mask or None)` of an observation with reserved keys.

    `privileged` is for the critic only; `action_mask` is for neither, it restricts the action distribution.
    """
    if not isinstance(space, Dict):
        return obs, obs, None
    critic = {k: v for k, v in obs.items() if k != "action_mask"}
    actor = {k: v for k, v in critic.items() if k != "privileged"}
    return actor, critic, obs.get("action_mask")


def visible(obs: Any) -> Any:
    """An observation without its privileged part, which is absent at deployment."""
    return {k: v for k, v in obs.items() if k != "privileged"} if isinstance(obs, dict) else obs


def ranges_of(cls: type[Environment]) -> dict[str, tuple[int, int]]:
    """The ranges of the integer settings of a class, with those of its parents."""
    return {name: ends for base in reversed(cls.__mro__) for name, ends in vars(base).get("static_ranges", {}).items()}


def require_ranges(env: Environment) -> None:
    """Raise ValueError unless the static integers of `env` are in the ranges of its class (a None is a default) and its
    switches are True or False."""
    for name, (least, most) in ranges_of(type(env)).items():
        value = getattr(env, name)
        if value is None:
            continue
        integer = isinstance(value, int | np.integer) and not isinstance(value, bool)
        if not integer or not least <= value <= most:
            what = f"from {least} to {most}" if integer else f"an integer from {least} to {most}"
            raise ValueError(f"{env.id or type(env).__name__}: {name}={value!r:.60} must be {what}.")
    for field in dataclasses.fields(env):
        value = getattr(env, field.name)
        optional = declared(field) == "bool | None" and value is None
        if declared(field) in ("bool", "bool | None") and not (optional or isinstance(value, bool | np.bool_)):
            raise ValueError(f"{env.id or type(env).__name__}: {field.name}={value!r:.60} must be True or False.")


def declared(field: dataclasses.Field[Any]) -> str:
    """The type of a field as it is written, with and without `from __future__ import annotations`."""
    return field.type.__name__ if isinstance(field.type, type) else str(field.type)


def require_product(env: Environment, most: int, *names: str) -> None:
    """Raise ValueError unless the product of these settings, the size of an array, is at most `most`."""
    size = math.prod(int(getattr(env, name)) for name in names)
    if size > most:
        given = ", ".join(f"{name}={getattr(env, name)}" for name in names)
        raise ValueError(f"{env.id or type(env).__name__}: {given}: their product {size} must be at most {most}.")


# ---- what `validate` says about unphysical parameters, in one wording


def require_positive(env: Environment, params: Any, *names: str) -> None:
    """Raise ValueError unless every named parameter is finite and above zero."""
    for name in names:
        value = np.asarray(getattr(params, name))
        if not np.all(np.isfinite(value) & (value > 0)):
            raise ValueError(f"{env.id}: {name}={value} must be finite and positive.")


def require_non_negative(env: Environment, params: Any, *names: str) -> None:
    """Raise ValueError unless every named parameter is finite and at least zero."""
    for name in names:
        value = np.asarray(getattr(params, name))
        if not np.all(np.isfinite(value) & (value >= 0)):
            raise ValueError(f"{env.id}: {name}={value} must be finite and not negative.")


def require_order(env: Environment, params: Any, low: str, high: str) -> None:
    """Raise ValueError unless the parameter `low` is below the parameter `high`."""
    if not np.all(np.asarray(getattr(params, low)) < np.asarray(getattr(params, high))):
        raise ValueError(f"{env.id}: {low}={getattr(params, low)} must be below {high}={getattr(params, high)}.")
