"""Open-loop simulation of a drive in SI units: what an engineer reaches for first."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import warnings
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.environment import is_concrete
from jaxrl.math import random_words

from . import checks, loads, mismatches, motion, supplies, tasks
from .drive import MotorDrive
from .plant import Params, Plant

SETTINGS = tuple(f.name for f in dataclasses.fields(MotorDrive) if f.name not in ("id", "motor", "task", "control"))


def simulate(
    env_id: str,
    actions: Any,
    initial: Mapping[str, Any] | Any | None = None,
    references: Mapping[str, Any] | None = None,
    upstream: bool = False,
    dtype: Any = jnp.float64,
    key: Any = None,
    **overrides: Any,
) -> dict[str, Any]:
    """The drive of `env_id` under T given `actions`, as `T + 1` samples of every measured quantity in SI units.

    Nothing ends it: limits may be passed. Besides the measured quantities, by gym-electric-motor's names, there are the
    machine's own states (`i_salpha`, `psi_ralpha`, ...), `violation` (1 where a constraint of the task is violated)
    and, where there are `references`, `reward`, as if nothing were violated; both are 0 at the first sample.

    Args:
        actions: `(T, A)`, or `(T,)`; integers for a finite control set. In the action space.
        initial: by name (what is missing is the default), or an array [speed, machine's states].
        references: by name, in units of the limit: a number, or `(T,)` numbers by which each step is judged.
        upstream: gym-electric-motor's behaviour where it is not physical.
        dtype: float64, or float32 as environments have it.
        key: of a random load's noise (`load="ornstein_uhlenbeck"`), drawn at every step. Without one there is none, and
            the load does what is expected of it. What is random about a start is in the middle of its range.
        overrides: any number by its name: of the machine (`l_d=`), the load (`a=`, `j_load=`, `omega=`), the supply
            (`u_nominal=`), or of the drive (`tau=`, `interlocking_time=`); a whole `machine=`, `load=`, `supply=`,
            `limits=`, `nominal=` pytree, or `load=`, `supply=` by key; any static setting of `MotorDrive`
            (`converter=`, `dq_actions=`, `dead_time=`, `flux_observer=`, `solver=`, `substeps=`, ...);
            `speed_profile=`, a jax function of time, `(K,)` samples a control step apart, or a number.

    Returns a dict of arrays of shape (T + 1,), of numpy unless something is traced: it is differentiable in all that is
    a number. Raises ValueError for an unknown id, name, parameters that cannot be, or an action outside the space,
    which environments would clip, as gym-electric-motor does, or take for another.
    """
    wide = jnp.dtype(dtype) == jnp.float64
    with jax.enable_x64(True) if wide else nullcontext():
        env, params = configure(env_id, references, upstream, overrides, dtype)
        if is_concrete(params):
            _check(env, params, bool({"limits", "nominal"} & set(overrides)))
        plant = start(env, params, initial, dtype)
        actions = jnp.asarray(actions)
        if actions.ndim == 0:
            raise ValueError(f"actions has shape {actions.shape}; it needs (T,) or (T, A).")
        expected = env.action_space(params).shape
        if actions.shape[1:] != expected:
            raise ValueError(f"actions has shape {actions.shape}; {env_id} needs (T, {', '.join(map(str, expected))}).")
        _check_actions(env, env.action_space(params), actions)
        targets = {
            name: jnp.broadcast_to(jnp.asarray((references or {})[name], dtype), (actions.shape[0],))
            for name in env.referenced or ()
        }
        words = jnp.zeros((actions.shape[0], 0), jnp.uint32)
        if key is not None and params.load.words:
            words = random_words(key, (actions.shape[0], params.load.words))
        found = _run(env, params, plant, actions, targets, words)
    # Of numpy, because jax would round float64 in whatever is done with it outside of `jax.enable_x64`.
    return {name: np.asarray(x) for name, x in found.items()} if is_concrete(found) else found


def _check(env: MotorDrive, params: Params, rated: bool) -> None:
    """As `env.validate`. Where no ratings were given, none are read: of what does not suit the machine, a supply that
    is short of its voltage is left."""
    if rated:
        env.validate(params)
        return
    checks.check_params(env, params)
    short = mismatches.short_supply(env, params)
    if short:
        warnings.warn(f"{env.id}: {short}", stacklevel=3)


@functools.partial(jax.jit, static_argnames="env")
def _run(
    env: MotorDrive, params: Params, plant: Plant, actions: Any, targets: dict[str, Any], words: Any
) -> dict[str, Any]:
    names = tuple(env.referenced or ())

    def record(plant: Plant) -> dict[str, Any]:
        own = dict(zip(params.machine.states, plant.motor, strict=True))
        return {**own, **env.signals(plant, params)}

    def body(plant, inputs):
        time, action, target, word = inputs
        plant = motion.advance(env.stepping, tuple(word[i] for i in range(word.shape[0])), plant, action, time, params)
        values = env.normalised(plant, (), params)
        reward, violation = env.judge(values, [target[name] for name in names], params)
        return plant, {**record(plant), "violation": violation, **({"reward": reward} if names else {})}

    times = jnp.arange(actions.shape[0], dtype=jnp.int32)
    _, rest = jax.lax.scan(body, plant, (times, actions, targets, words))
    first = record(plant)
    zero = jnp.zeros((), plant.load[0].dtype)
    return {name: jnp.concatenate([first.get(name, zero)[None], values]) for name, values in rest.items()}


def _check_actions(env: MotorDrive, space: Any, actions: Any) -> None:
    """Raise ValueError for the first number of `actions` that is outside of `space`. Host only."""
    if env.converter.finite and not jnp.issubdtype(actions.dtype, jnp.integer):
        raise ValueError(f"actions are {actions.dtype}; a finite control set needs integers.")
    if not is_concrete(actions):
        return
    sizes = np.asarray(env.converter.sizes)
    low, high = (0, sizes - 1) if env.converter.finite else (space.low, space.high)
    # In the space's precision, or a bound given in float64 would be outside. NaN fails the comparison.
    given = np.asarray(actions, None if env.converter.finite else space.dtype).reshape(len(actions), -1)
    low, high = (np.broadcast_to(bound, given.shape[1:]) for bound in (low, high))
    wrong = np.argwhere(~((given >= low) & (given <= high)))
    if wrong.size:
        step, entry = wrong[0]
        raise ValueError(
            f"actions[{step}] has {given[step, entry]} in place {entry}, which is outside of {env.id}'s "
            f"{low[entry]} to {high[entry]}; clip actions, np.clip(actions, low, high), if that is meant."
        )


def configure(
    env_id: str, targets: Mapping[str, Any] | None, upstream: bool, overrides: Mapping[str, Any], dtype: Any
) -> tuple[MotorDrive, Params]:
    """The environment and parameters that `simulate` runs."""
    overrides = dict(overrides)
    settings = {name: overrides.pop(name) for name in SETTINGS if name in overrides}
    parts = {name: settings.pop(name) for name in ("load", "supply") if not isinstance(settings.get(name, ""), str)}
    profile = overrides.pop("speed_profile", None)
    if profile is not None:
        settings["load"] = "external_speed"
    names = tuple(targets or ())
    if "interlocking_time" in overrides:
        settings.setdefault("interlocking", True)
    settings = {"referenced": names, "rewarded": names, **settings}
    row = tasks.find(env_id)
    env = MotorDrive(**{**row, **settings}, id=env_id, upstream=upstream)
    params = env.default_params
    usual = tasks.referenced(row["motor"], row["task"])
    if set(names) == set(usual):
        by_name = dict(zip(usual, tasks.weights(row["motor"], row["task"], usual), strict=True))
        params = params.replace(weights=tuple(jnp.asarray(by_name[name], dtype) for name in names))
    params = params.replace(**parts)
    if profile is not None:
        params = params.replace(load=_speed(profile, params.tau, upstream))
    for name, value in overrides.items():
        params = _override(env_id, params, name, value)
    if "limits" not in overrides and "nominal" not in overrides and is_concrete(params.machine):
        limits, nominal = tasks.ratings(env.motor, env.task, *params.machine.ratings())
        params = params.replace(limits=limits, nominal=nominal)  # the torque's follow from the machine
    params = jax.tree.map(
        lambda x: x if jnp.issubdtype(jnp.asarray(x).dtype, jnp.integer) else jnp.asarray(x, dtype), params
    )
    return env, params


def _speed(profile: Any, tau: Any, upstream: bool) -> loads.ExternalSpeed:
    if isinstance(profile, Callable):
        return loads.ExternalSpeed(profile=profile, upstream=upstream)
    return loads.ExternalSpeed(jnp.asarray(profile), tau, upstream=upstream)


def _override(env_id: str, params: Params, name: str, value: Any) -> Params:
    """`params` with one number changed, wherever it is."""
    if name in {f.name for f in dataclasses.fields(params)}:
        return params.replace(**{name: value})
    known = [f.name for f in dataclasses.fields(params)]
    for part in ("machine", "load", "supply"):
        owner = getattr(params, part)
        fields = [f.name for f in dataclasses.fields(owner)]
        if name in fields:
            return params.replace(**{part: owner.replace(**{name: value})})
        known += fields
    for part, table in (("load", loads.KEYS), ("supply", supplies.KEYS)):
        others = [repr(key) for key, cls in table.items() if name in {f.name for f in dataclasses.fields(cls)}]
        if others:
            own = type(getattr(params, part)).__name__
            raise ValueError(f"{env_id}: {name!r} is a number of {part}={' or '.join(others)}; its {part} is {own}.")
    known += [*SETTINGS, "speed_profile"]
    near = difflib.get_close_matches(name, known, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise ValueError(f"{env_id} has no {name!r} to override.{hint} It has {', '.join(dict.fromkeys(known))}.")


def start(env: MotorDrive, params: Params, initial: Any, dtype: Any) -> Plant:
    """The plant at the first sample."""
    load, machine = params.load, params.machine
    names = (*load.states, *machine.states)
    values = dict(zip(names, params.initial_low, strict=True))
    values.update(
        zip(
            load.states,
            load.start(_no_words(load.start_words), tuple(params.initial_low[: len(load.states)])),
            strict=True,
        )
    )
    if isinstance(initial, Mapping):
        for name, value in initial.items():
            if name not in values:
                raise ValueError(f"initial has {name!r}; states are {', '.join(names)}.")
            values[name] = value
            if is_concrete(value) and not np.all(np.isfinite(np.asarray(value))):
                raise ValueError(f"initial has {name}={value}; it must be finite.")
    elif initial is not None:
        given = jnp.asarray(initial, dtype)
        if given.shape != (len(names),):
            raise ValueError(f"initial has shape {given.shape}; it needs ({len(names)},): {', '.join(names)}.")
        if is_concrete(given) and not np.all(np.isfinite(np.asarray(given))):
            raise ValueError(f"initial={given} must be finite.")
        values = dict(zip(names, given, strict=True))
    ordered = tuple(jnp.asarray(values[name], dtype) for name in names)
    supply = params.supply.start(_no_words(params.supply.words))
    return motion.rest(env.stepping, ordered[: len(load.states)], ordered[len(load.states) :], supply, params)


def _no_words(count: int) -> tuple:
    return (jnp.uint32(1 << 31),) * count
