"""What a drive cannot be: its static settings, and numbers that do not fit them. Host only.

`env` is a `MotorDrive` throughout, which `drive.py` hands over.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from . import converters, loads, supplies, tasks
from .machines.machine import check_ratings
from .plant import Params

SOLVERS = ("rk4", "euler", "diffrax")
HOLDS = ("rotor", "stator")
DRAWS = ("none", "uniform", "normal")
MERGES = ("max", "product")
SUMS = ("max", "sum")


def check_choices(env: Any) -> None:
    """Raise ValueError for a name that is not one of those known, or a number of steps that cannot be."""
    choices = {"solver": SOLVERS, "hold": HOLDS, "random_init": DRAWS, "merge": MERGES, "current_sum_limit": SUMS}
    for name, allowed in choices.items():
        if getattr(env, name) not in allowed:
            raise ValueError(f"{env.id}: {name}={getattr(env, name)!r}; it is one of {', '.join(allowed)}.")
    for name, table in (("load", loads.KEYS), ("supply", supplies.KEYS)):
        if getattr(env, name) is not None and getattr(env, name) not in table:
            raise ValueError(f"{env.id}: {name}={getattr(env, name)!r}; it is one of {', '.join(table)}.")
    if env.substeps < 1 or env.dead_time < 0:
        raise ValueError(f"{env.id}: substeps={env.substeps} must be at least 1, dead_time={env.dead_time} at least 0.")


def check_settings(env: Any, known: tuple[str, ...]) -> None:
    """Raise ValueError for settings that do not go with the machine. `known`: all measured quantities."""
    machine = tasks.machine(env.motor, env.upstream)
    if env.converter.outputs != machine.terminals:
        raise ValueError(
            f"{env.id}: the converter gives {env.converter.outputs} voltages; {env.motor} takes {machine.terminals}."
        )
    if env.dq_actions and (env.converter.finite or not machine.dq):
        raise ValueError(f"{env.id}: dq_actions need a continuous converter and an alternating-current machine.")
    if env.flux_observer and not hasattr(machine, "observe_flux"):
        raise ValueError(f"{env.id}: flux_observer is for induction machines, SCIM and DFIM.")
    if env.stator_flux and not hasattr(machine, "stator_flux"):
        raise ValueError(f"{env.id}: stator_flux is for three-phase machines.")
    if env.cos_sin and not machine.has_angle:
        raise ValueError(f"{env.id}: cos_sin needs a machine with an angle.")
    used = {
        "referenced": env.referenced,
        "rewarded": env.rewarded,
        "observed": env.observed,
        "current_sum": env.current_sum,
        "noise": env.noise if env.noise != ("all",) else (),
    }
    for kind, names in env.constraints or ():
        if kind not in ("limit", "squared") and not callable(kind):
            raise ValueError(f"{env.id}: the constraint {kind!r} is neither 'limit', 'squared' nor a function.")
        used[f"constraint {kind}"] = names
    for what, names in used.items():
        for name in names or ():
            if name not in known:
                raise ValueError(f"{env.id}: {what} has {name!r}; measured are {', '.join(known)}.")


def check_params(env: Any, params: Params) -> None:
    """Raise ValueError for numbers that do not fit `env`, a `MotorDrive`, or cannot be; leaves may be batched."""
    params.machine.validate(env.id, env.upstream)
    params.load.validate(env.id)
    params.supply.validate(env.id)
    for reference in params.references:
        reference.validate(env.id)
    for name in ("tau", "interlocking_time"):
        value = np.asarray(getattr(params, name))
        if not np.all(np.isfinite(value) & ((value > 0) if name == "tau" else (value >= 0))):
            raise ValueError(f"{env.id}: {name}={value} must be finite and not negative, and tau not zero.")
    locked = np.asarray(params.interlocking_time)
    if np.any(locked > 0) and not env.interlocking:
        raise ValueError(f"{env.id}: interlocking_time={locked} has no effect without interlocking=True.")
    if np.any(locked >= np.asarray(params.tau)):
        raise ValueError(f"{env.id}: interlocking_time={locked} must be below tau={params.tau}.")
    check_ratings(env.id, params.limits, params.nominal)
    if not np.all((np.asarray(params.gamma) >= 0) & (np.asarray(params.gamma) < 1)):
        raise ValueError(f"{env.id}: gamma={params.gamma} must be in [0, 1).")
    for what, given, needed in (
        ("references", params.references, env.referenced),
        ("weights", params.weights, env.rewarded),
        ("initial_low", params.initial_low, (*params.load.states, *params.machine.states)),
        ("initial_high", params.initial_high, (*params.load.states, *params.machine.states)),
    ):
        if len(given) != len(needed or ()):
            raise ValueError(f"{env.id}: {what} has {len(given)} entries; it needs those of {needed}.")
    if params.supply.phases != 1 and not isinstance(env.converter, converters.NoConverter):
        raise ValueError(f"{env.id}: a supply of three phases needs converter='None-3'.")
    if env.shares_out and not hasattr(params.machine, "flux_range"):
        raise ValueError(
            f"{env.id}: a {type(params.machine).__name__} has no flux_range and most_torque, of which references "
            f"of {env.referenced} are shares; name others in referenced=."
        )
    _check_reward(env, params)
    _check_start(env, params)
    _check_reach(env, params)


def _check_reward(env: Any, params: Params) -> None:
    for name, weight in zip(env.rewarded or (), params.weights, strict=True):
        if not np.all(np.isfinite(np.asarray(weight))):
            raise ValueError(f"{env.id}: the weight of {name}, {weight}, must be finite.")
    paid = params.violation_reward
    if paid is not None and not np.all(np.isfinite(np.asarray(paid)) & (np.asarray(paid) <= 0)):
        raise ValueError(f"{env.id}: violation_reward={paid} must be finite and not positive.")
    scale = np.asarray(params.noise_scale)
    if not np.all(np.isfinite(scale) & (scale >= 0)):
        raise ValueError(f"{env.id}: noise_scale={scale} must be finite and not negative.")
    if np.any(scale > 0) and not env.noise:
        raise ValueError(f"{env.id}: noise_scale={scale} has no effect without noise=.")


def _check_start(env: Any, params: Params) -> None:
    names = (*params.load.states, *params.machine.states)
    for name, low, high in zip(names, params.initial_low, params.initial_high, strict=True):
        low, high = np.asarray(low), np.asarray(high)
        if not np.all(np.isfinite(low) & np.isfinite(high)):
            raise ValueError(f"{env.id}: initial_low={low} and initial_high={high} of {name} must be finite.")
        if np.any(low > high):
            raise ValueError(f"{env.id}: initial_low={low} of {name} must not be above initial_high={high}.")


def _check_reach(env: Any, params: Params) -> None:
    """Warn of a supply that cannot give the voltage limit, by more than that of the id's defaults."""
    usual, default = tasks.u_nominal(env.motor, env.task, env.control), env.components()
    supply = np.asarray(params.supply.u_nominal) * params.supply.high
    for name, reach in zip(params.machine.voltages, env.converter.reaches, strict=False):
        limit = np.asarray(env.limit(name, params))
        most = supply * reach
        size = limit / np.asarray(env.limit(name, default))  # a smaller motor needs less, a larger one more
        if np.any((most < limit * (1 - 1e-6)) & (supply < usual * size * (1 - 1e-6))):
            warnings.warn(
                f"{env.id}: the supply's {supply} V give {name} at most {most} V; its limit is {limit} V.",
                stacklevel=3,
            )
            return
