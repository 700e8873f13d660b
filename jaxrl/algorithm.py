"""The algorithm protocol: a NamedTuple of pure functions, as an optax optimiser is, and what training loops share."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from jaxrl import registry
from jaxrl.calls import marked, remember
from jaxrl.environment import (
    NO_LIMIT,
    Environment,
    check_is_params,
    check_params,
    declared,
    is_concrete,
    pytree,
    require_int32,
    strongly_typed,
)
from jaxrl.math import fast_key, rarely
from jaxrl.spaces import Box, Space
from jaxrl.vector_env import VectorEnv, rows_where, vectorize

P = ParamSpec("P")
R = TypeVar("R")

SLOTS = ("env_params", "env_state", "obs")
"""What every state has of its environments."""

PUBLIC = ("key", "hyper", *SLOTS, "step", "weights")
"""The fields that every state of an algorithm has."""


@pytree
class State:
    """The public fields of the state of an algorithm that acts in N environments; its file adds what it learns."""

    key: jax.Array
    hyper: Any  # the dynamic settings
    env_params: Any
    env_state: Any
    obs: Any  # (N, ...)
    step: jax.Array  # environment steps done


class Algorithm(NamedTuple):
    """What `make(env, config)` of every algorithm file returns.

    States are pytrees with the fields `PUBLIC`, which `replace` changes; `step` is the environment steps done. Rollouts
    say where episodes ended in a field `ends`, `rollout.Ends`. Metrics are scalars, always with `episode_return` and
    `episode_length` (means over the episodes that ended in this update, NaN if none did), `episodes` (how many) and
    `loss`.
    """

    name: str
    config: Any  # static settings
    hyper: Callable[..., Any]  # makes the dynamic settings, from names and values: their class
    venv: VectorEnv
    steps_per_update: int
    init: Callable[..., Any]  # (key, hyper=None, env_params=None) -> state, which keeps the settings as `hyper`
    collect: Callable[[Any], tuple[Any, Any]]  # state -> (state, rollout): act in the environments
    learn: Callable[[Any, Any], tuple[Any, dict[str, Array]]]  # (state, rollout) -> (state, metrics)
    policy: Callable[[Any], Any]  # state -> what is deployed
    initial_carry: Callable[..., Any]  # (batch_shape=()) -> carry; () for feed-forward policies
    act: Callable[..., tuple[Any, Any]]  # (policy, key, obs, carry=(), greedy=False) -> (action, carry)
    restart: Callable[[Any, Array, Any, Array], Any]  # (state, key, env_params, mask) -> state; see `restarted`
    deployed: str = "sampled"  # how the policy acts where nobody says otherwise: "sampled", "greedy" or by "search"
    search: Callable[..., Any] | None = None  # (policy, key, env_state, obs, env_params, greedy) -> plan, its `action`
    slower: Callable[[Any, Any], Any] | None = None  # (policy, steps) -> one that plans so many actions a decision
    check_updates: Callable[[int], None] | None = None  # raises ValueError where a state has no room for so many
    slots: tuple[str, ...] = SLOTS  # dotted fields of the state that belong to environments, not to what is learned
    around: tuple[Any, ...] = ()  # names and static settings of what was put around it, as a curriculum (`nesting`)

    @property
    def update(self) -> Callable[[Any], tuple[Any, dict[str, Array]]]:
        """state -> (state, metrics): one iteration of `steps_per_update` steps, `learn` after `collect`."""
        return _update(self.collect, self.learn)


@functools.cache
def _update(collect: Callable[[Any], Any], learn: Callable[..., Any]) -> Callable[[Any], Any]:
    """One function for the same two, so that jit knows it again; a bound method is another object at each access."""
    return lambda state: learn(*collect(state))


def shared(make: Callable[P, R]) -> Callable[P, R]:
    """A cached `make`: equal arguments give the same functions, and so share what jax compiled for them.

    Unlike with `functools.cache` alone, arguments are equal however they are given: left out, in order or by name.
    """
    signature, cached = inspect.signature(make), functools.cache(make)

    @functools.wraps(make)
    def made(*args: P.args, **kwargs: P.kwargs) -> R:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        if "env" in bound.arguments:
            environment_of(bound.arguments["env"])  # before a wrong one fails to be looked up in the cache
        if dataclasses.is_dataclass(bound.arguments.get("config")):
            check_sizes(bound.arguments["config"])
        result = cached(*bound.args, **bound.kwargs)
        remember(result, made, signature, dict(bound.arguments))
        return result

    return marked(made)


def algorithm_of(name: str, learner: Any, hyper: type, steps_per_update: int) -> Algorithm:
    """The Algorithm whose functions are the methods of `learner`, an object of static settings.

    It has `config`, `venv`, `init`, `collect`, `learn`, `policy` and `act`; `initial_carry` if its policy remembers
    something; `restart` and `slots` if its state holds more of an episode than `restarted` knows; `deployed` unless its
    policy is deployed as it acts in training, `search` where that is one, and `slower` where it plans sequences of
    actions; `check_updates` if what it learns has a budget. An `optimizer` that its config does not name, and a `loss`
    in place of its own, are part of what tells runs apart.
    """
    if steps_per_update > NO_LIMIT:
        raise ValueError(
            f"{name}: an update of these settings has {steps_per_update} steps; at most {NO_LIMIT} are counted. Make "
            "num_envs, num_steps or num_updates smaller."
        )
    optimizer = getattr(learner, "optimizer", None)
    named = optimizer is None or optimizer.name == learner.config.optimizer
    given = None if named else optimizer, getattr(learner, "loss", None)

    def act(policy, key, *args, **kwargs):
        return learner.act(policy, fast_key(key), *args, **kwargs)

    return Algorithm(
        name=name,
        config=learner.config,
        hyper=hyper,
        venv=learner.venv,
        steps_per_update=steps_per_update,
        init=learner.init,
        collect=learner.collect,
        learn=learner.learn,
        policy=learner.policy,
        initial_carry=getattr(learner, "initial_carry", no_carry),
        act=act,
        restart=getattr(learner, "restart", functools.partial(restarted, learner.venv)),
        deployed=getattr(learner, "deployed", "sampled"),
        search=getattr(learner, "search", None),
        slower=getattr(learner, "slower", None),
        check_updates=getattr(learner, "check_updates", None),
        slots=(*SLOTS, *getattr(learner, "slots", ())),
        around=tuple(x for x in given if x is not None),
    )


def no_carry(batch_shape: tuple[int, ...] = ()) -> tuple:
    """The `initial_carry` of a policy that remembers nothing."""
    return ()


def deployment(algo: Algorithm, greedy: bool | None) -> str:
    """How a policy acts: "greedy", "sampled" or by "search". None: as `algo` is deployed."""
    return algo.deployed if greedy is None else "greedy" if greedy else "sampled"


def restarted(venv: VectorEnv, state: Any, key: Array, env_params: Any, mask: Bool[Array, " N"]) -> Any:
    """The part of every `restart`: episodes begin now in the slots of `mask`, whatever they were in the middle of.

    Batched `env_params`, levels, replace those of these slots; others hold for all. Slots that go on see what they saw.
    An algorithm whose state remembers something of an episode (a recurrent carry, a trace, the return so far) has a
    `restart` that also forgets that.
    """
    if venv.batched_params:
        env_params = rows_where(mask, env_params, state.env_params)

    def begun() -> tuple[Any, Any]:
        obs, env_state = venv.restart(key, state.env_state, env_params, mask)
        return rows_where(mask, obs, state.obs), env_state

    obs, env_state = rarely(mask.any(), begun, (state.obs, state.env_state))
    return state.replace(obs=obs, env_state=env_state, env_params=env_params)


# ---- fields of states and settings by their dotted names


def field(tree: Any, path: str) -> Any:
    """A field by its dotted path; None where there is none."""
    return functools.reduce(lambda part, name: getattr(part, name, None), path.split("."), tree)


def with_field(tree: Any, path: str, value: Any) -> Any:
    """The tree with this field."""
    name, _, rest = path.partition(".")
    return tree.replace(**{name: with_field(getattr(tree, name), rest, value) if rest else value})


def with_fields(tree: Any, fields: Mapping[str, Any]) -> Any:
    """The tree with these fields, by their dotted paths."""
    return functools.reduce(lambda tree, item: with_field(tree, *item), fields.items(), tree)


def names_of(tree: Any) -> list[str]:
    """The dotted names of all leaves."""
    return [
        jax.tree_util.keystr(path, simple=True, separator=".") for path, _ in jax.tree_util.tree_leaves_with_path(tree)
    ]


def num_updates(algo: Algorithm, total_steps: int) -> int:
    """Updates that make at least `total_steps` environment steps. Raises ValueError when that is none, or more than
    the algorithm's `check_updates` allows."""
    if total_steps < 1:
        raise ValueError(f"total_steps={total_steps}: it must be at least 1.")
    updates = -(-int(total_steps) // algo.steps_per_update)
    if algo.check_updates is not None:
        algo.check_updates(updates)
    return updates


def train(
    algo: Algorithm, key: Array, total_steps: int, hyper: Any = None, env_params: Any = None, remat: bool = False
) -> tuple[Any, dict[str, Array]]:
    """A whole training run as one pure function: `init`, then a scan of `update`. jit it, vmap it, differentiate it.

    Returns the final state and the metrics, each with a leading axis of updates. With `remat` a reverse derivative
    keeps the states between updates only and computes the updates again: its memory grows by a state an update.
    """
    check_key(key)
    state = algo.init(key, hyper, env_params)
    update = jax.checkpoint(algo.update) if remat else algo.update
    return jax.lax.scan(lambda state, _: update(state), state, length=num_updates(algo, total_steps))


def check_key(key: Any) -> None:
    """Raise TypeError for what is no random key, and say what to pass."""
    dtype = getattr(key, "dtype", None)
    if dtype is None or not (jnp.issubdtype(dtype, jax.dtypes.prng_key) or dtype == jnp.uint32):
        seed = key if isinstance(key, int) else 0
        raise TypeError(f"key is {key!r:.60}, not a random key: pass jax.random.key({seed}).")


def environment_of(env: Any) -> Environment:
    """The environment whose copies a VectorEnv steps, or `env` itself.

    Raises TypeError for what is no environment, and says what to pass.
    """
    if isinstance(env, VectorEnv):
        return env.env
    if isinstance(env, Environment):
        return env
    if said := registry.foreign(env):
        raise TypeError(f"{env!r:.60} {said}")
    if isinstance(env, str):
        found, name = f"the id {env!r}", repr(env)
    elif isinstance(env, tuple) and env and isinstance(env[0], Environment):
        raise TypeError("make takes an environment alone, not the pair (env, params): pass params to init or train.")
    else:
        found, name = "None" if env is None else f"{env!r:.60}", "id"
    raise TypeError(f"make takes an environment, not {found}: env, params = jaxrl.make({name}).")


def as_vector_env(env: Environment | VectorEnv, num_envs: int) -> VectorEnv:
    """`env`, vectorised unless it is already.

    Raises ValueError for a VectorEnv with another number of environments, and TypeError for what is no environment.
    """
    environment_of(env)
    if isinstance(env, VectorEnv):
        if env.num_envs != num_envs:
            raise ValueError(
                f"The VectorEnv has num_envs={env.num_envs} but the config says {num_envs}; make them equal."
            )
        return env
    return vectorize(env, num_envs)


def spaces_of(
    name: str, env: Environment | VectorEnv, *kinds: type[Space], between_ends: bool = False
) -> tuple[Space, Any]:
    """`(observation space, action space)` of what algorithm `name` is to train on, which acts in spaces of `kinds`.

    Raises ValueError for another action space (naming algorithms that act in it), a Box that is not a vector, several
    agents, or a Box with an open side and no `scale` if `between_ends`: if all that the algorithm ever does is between
    the ends of the box.
    """
    env = environment_of(env)
    if env.num_agents > 1:
        raise ValueError(
            f"{env.id} has {env.num_agents} agents; {name} trains one. A policy that all of them share learns from "
            "wrappers.agents_as_slots(vectorize(env, n)), where each agent is a slot."
        )
    params = env.default_params
    space = env.action_space(params)
    vector = not isinstance(space, Box) or len(space.shape) == 1
    if not isinstance(space, kinds) or not vector:
        allowed = [f"one-dimensional {kind.__name__}" if kind is Box else kind.__name__ for kind in kinds]
        allowed = " and ".join(filter(None, (", ".join(allowed[:-1]), allowed[-1])))
        others = ", ".join(registry.algos_for(space)) if vector else ""
        hint = f" These act there: {others}." if others else ""
        raise ValueError(f"{name} acts in {allowed} spaces, not in {env.id}'s {space}.{hint}")
    if isinstance(space, Box) and is_concrete((space.low, space.high)) and not np.all(space.low < space.high):
        raise ValueError(f"{name}: {env.id}'s {space} has a side of no width: its low must be below its high.")
    if between_ends and isinstance(space, Box) and is_concrete((space.low, space.high)) and space.is_open():
        raise ValueError(
            f"{name} acts between the two ends of each side of a box, and {env.id}'s {space} has a side without: "
            "say where actions end by wrappers.RescaleAction(env, bounds=(low, high)), or take ppo, which acts in all "
            "of it."
        )
    return env.observation_space(params), space


def starting_values(algo_hyper: type, venv: VectorEnv, hyper: Any, env_params: Any) -> tuple[Any, Any]:
    """`hyper` and `env_params` as strongly typed arrays, defaults where None. Raises ValueError for unusable ones."""
    hyper = starting_hyper(algo_hyper, hyper)
    env_params = venv.default_params if env_params is None else env_params
    check_is_params(venv.env, env_params)
    env_params = strongly_typed(env_params)
    if is_concrete(env_params):
        check_params(venv.env, env_params)
    return hyper, env_params


def starting_hyper(algo_hyper: type, hyper: Any) -> Any:
    """The first half of `starting_values`, for what is given params of its own kind."""
    defaults = strongly_typed(algo_hyper())
    hyper = defaults if hyper is None else hyper
    if not isinstance(hyper, algo_hyper):
        raise TypeError(
            f"hyper is a {type(hyper).__qualname__} of {type(hyper).__module__}, not this algorithm's Hyper."
        )
    check_hyper(hyper)
    values = {name.name: getattr(hyper, name.name) for name in dataclasses.fields(hyper)}
    return hyper.replace(**{name: _like(x, getattr(defaults, name)) for name, x in values.items()})


WITHIN_ONE = (
    "gamma",
    "lambda",
    "discount",
    "expectile",
    "tau",
    "trace_decay",
    "epsilon",
    "epsilon_start",
    "epsilon_end",
)
WITHIN_ONE += ("share", "prob", "fraction", "delta", "target_rate", "b1", "b2")
"""Last words of fields of a Hyper that weigh what comes later by their powers, or are a share or a probability."""

NOT_NEGATIVE = ("learning_rate", "steps", "starts", "grad_norm", "eps", "clip", "noise", "noise_scale", "kl", "kl_coef")
NOT_NEGATIVE += (
    "vf_coef",
    "penalty",
    "decay",
    "ratio",
    "period",
    "priority_alpha",
    "priority_beta",
    "temperature",
    "beta",
)
NOT_NEGATIVE += (
    "alpha",
    "sigma",
    "kappa",
    "kappa_policy",
    "kappa_value",
    "q_weight",
    "diversity",
    "regularisation",
    "ood",
)
NOT_NEGATIVE += (
    "max_clip",
    "max_update",
    "max_change",
    "std",
    "return_scale",
    "value_scale",
    "prior_scale",
    "bonus_scale",
)
NOT_NEGATIVE += (
    "uncertainty",
    "orthonormality",
    "conservative_weight",
    "concentration",
    "horizon",
    "known_count",
    "ridge",
)
NOT_NEGATIVE += ("tolerance", "smooth_q", "smooth_actor", "count_exponent", "precision_rate", "precision_shape", "xi")
"""Last words of fields of a Hyper that are a rate, a number of steps, a size or the weight of a penalty."""

MAY_BE_INFINITE = (
    "grad_norm",
    "clip",
    "eps",
    "target_kl",
    "ratio",
    "max_update",
    "max_change",
    "horizon",
    "return_scale",
)
"""Of these, the last words of bounds: an infinite one bounds nothing."""


def _is(name: str, words: tuple[str, ...]) -> bool:
    return not name.startswith("log_") and any(name == word or name.endswith(f"_{word}") for word in words)


def check_hyper(hyper: Any, path: str = "hyper") -> None:
    """Raise ValueError for a setting with which nothing can be learned. Traced values pass.

    These are a discount, expectile, share or probability outside [0, 1], a negative rate, number of steps or size, an
    infinity but of a bound or where the default is one, whatever is no number, and an integer beyond int32; in a Hyper
    inside of it, too, but for weights that say of themselves that they are `unconstrained`, whatever they are called.
    """
    for field in dataclasses.fields(hyper):
        name, value = field.name, getattr(hyper, field.name)
        if isinstance(value, int):
            require_int32(f"{path}.{name}", value)
        if dataclasses.is_dataclass(value) and not getattr(value, "unconstrained", False):
            check_hyper(value, f"{path}.{name}")
        elif is_concrete(value) and isinstance(value, int | float | np.ndarray | np.generic | jax.Array):
            _check_number(f"{path}.{name}", name, np.ravel(np.asarray(value)), field.default)


def _check_number(path: str, name: str, values: np.ndarray, default: Any) -> None:
    if not (np.issubdtype(values.dtype, np.integer) or jnp.issubdtype(values.dtype, jnp.floating)):
        return  # a key, say
    values = values.astype(float)
    unbounded = _is(name, MAY_BE_INFINITE) or (isinstance(default, float) and np.isinf(default))
    right, rule = (~np.isnan(values), "a number") if unbounded else (np.isfinite(values), "finite")
    if _is(name, WITHIN_ONE):
        right, rule = (values >= 0) & (values <= 1), "between 0 and 1"
    elif _is(name, NOT_NEGATIVE):
        right, rule = right & (values >= 0), "0 or more" if unbounded else "finite, and 0 or more"
    for x in values[~right][:1]:
        raise ValueError(f"{path}={x:g}: it must be {rule}.")


def _like(x: Any, default: Any) -> Any:
    """A setting in the dtype of its default; one whose default is None, as a learned rule, may be any pytree."""
    if default is None:
        return strongly_typed(x)
    # learning_rate=1 is a float and anneal_steps=1e6 an integer: another dtype would compile again.
    return jax.tree.map(lambda like, x: jnp.asarray(x, like.dtype), default, x)


def check_at_least_one(config: Any, *names: str) -> None:
    """Raise ValueError for a field of `config` that is below 1."""
    for name in names:
        if getattr(config, name) < 1:
            raise ValueError(f"{name}={getattr(config, name)}: it must be at least 1.")


def check_sizes(config: Any, within: str = "") -> None:
    """Raise ValueError for an integer of a Config that is none, negative or beyond 32 bits, for widths of layers that
    are no tuple of integers above 0, and for a float that is not finite or that `check_hyper` refuses by its name.
    Configs in it are checked, too; `within` names what holds them.

    A Config checks itself what else its integers must be.
    """
    for field in dataclasses.fields(config):
        value: Any = getattr(config, field.name)
        name = f"{within}{field.name}"
        if dataclasses.is_dataclass(value):
            check_sizes(value, f"{name}.")
        if declared(field) in ("int", "int | None") and not isinstance(value, int | np.integer | None):
            raise ValueError(f"{name}={value!r}: it must be an integer.")
        if isinstance(value, float | np.floating):
            _check_number(name, field.name, np.asarray([value]), field.default)
            if np.isinf(value) and field.default != value:
                raise ValueError(f"{name}={value}: it must be finite.")
        if declared(field) == "tuple[int, ...]":
            if not isinstance(value, tuple) or not all(isinstance(x, int | np.integer) for x in value):
                raise ValueError(f"{name}={value!r}: it must be a tuple of integers, as (64, 64).")
        least = int(isinstance(value, tuple))
        values: tuple[Any, ...] = value if isinstance(value, tuple) else (value,)
        for x in values:
            integer = isinstance(x, int | np.integer) and not isinstance(x, bool)
            if integer and x < least:
                raise ValueError(f"{name}={value}: it must be at least {least}.")
            if integer and x > NO_LIMIT:
                raise ValueError(f"{name}={value}: sizes are kept in 32 bits, at most {NO_LIMIT}.")


def check_minibatches(num_minibatches: int, items: int, of: str) -> None:
    """Raise ValueError unless `items`, which is `of`, are so many equal minibatches; say what would do."""
    if items % num_minibatches:
        raise ValueError(
            f"num_minibatches={num_minibatches} does not divide {of} = {items}; "
            f"{math.gcd(items, num_minibatches)} does."
        )
