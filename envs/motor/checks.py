"""What a drive cannot be: its static settings, and numbers that do not fit them. Host only.

`mismatches.py` has what can be, and is warned of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from . import converters, loads, supplies, tasks
from .machines.machine import check_ratings
from .plant import Params

if TYPE_CHECKING:
    from .settings import Settings

SOLVERS = ("rk4", "euler", "diffrax")
HOLDS = ("rotor", "stator")
DRAWS = ("none", "uniform", "normal")
MERGES = ("max", "product")
SUMS = ("max", "sum")


def check_choices(settings: Settings) -> None:
    """Raise ValueError for a name that is not one of those known, or a number of steps that cannot be."""
    choices = {"solver": SOLVERS, "hold": HOLDS, "random_init": DRAWS, "merge": MERGES, "current_sum_limit": SUMS}
    for name, allowed in choices.items():
        if getattr(settings, name) not in allowed:
            raise ValueError(f"{settings.id}: {name}={getattr(settings, name)!r}; it is one of {', '.join(allowed)}.")
    for name, table in (("load", loads.KEYS), ("supply", supplies.KEYS)):
        if getattr(settings, name) is not None and getattr(settings, name) not in table:
            raise ValueError(f"{settings.id}: {name}={getattr(settings, name)!r}; it is one of {', '.join(table)}.")
    if settings.substeps < 1 or settings.dead_time < 0:
        raise ValueError(
            f"{settings.id}: substeps={settings.substeps} must be at least 1, "
            f"dead_time={settings.dead_time} at least 0."
        )


def check_settings(settings: Settings, known: tuple[str, ...]) -> None:
    """Raise ValueError for settings that do not go with the machine. `known`: all measured quantities."""
    machine = tasks.machine(settings.motor, settings.upstream)
    if settings.converter.outputs != machine.terminals:
        raise ValueError(
            f"{settings.id}: the converter gives {settings.converter.outputs} voltages; "
            f"{settings.motor} takes {machine.terminals}."
        )
    if settings.dq_actions and (settings.converter.finite or not machine.dq):
        raise ValueError(f"{settings.id}: dq_actions need a continuous converter and an alternating-current machine.")
    if settings.flux_observer and not hasattr(machine, "observe_flux"):
        raise ValueError(f"{settings.id}: flux_observer is for induction machines, SCIM and DFIM.")
    if settings.stator_flux and not hasattr(machine, "stator_flux"):
        raise ValueError(f"{settings.id}: stator_flux is for three-phase machines.")
    if settings.cos_sin and not machine.has_angle:
        raise ValueError(f"{settings.id}: cos_sin needs a machine with an angle.")
    used = {
        "referenced": settings.referenced,
        "rewarded": settings.rewarded,
        "observed": settings.observed,
        "current_sum": settings.current_sum,
        "noise": settings.noise if settings.noise != ("all",) else (),
    }
    for kind, names in settings.constraints or ():
        if kind not in ("limit", "squared") and not callable(kind):
            raise ValueError(f"{settings.id}: the constraint {kind!r} is neither 'limit', 'squared' nor a function.")
        used[f"constraint {kind}"] = names
    for what, names in used.items():
        for name in names or ():
            if name not in known:
                raise ValueError(f"{settings.id}: {what} has {name!r}; measured are {', '.join(known)}.")


def check_params(settings: Settings, params: Params) -> None:
    """Raise ValueError for numbers that do not fit the settings, or cannot be; leaves may be batched."""
    params.machine.validate(settings.id, settings.upstream)
    params.load.validate(settings.id)
    params.supply.validate(settings.id)
    for reference in params.references:
        reference.validate(settings.id)
    for name in ("tau", "interlocking_time"):
        value = np.asarray(getattr(params, name))
        if not np.all(np.isfinite(value) & ((value > 0) if name == "tau" else (value >= 0))):
            raise ValueError(f"{settings.id}: {name}={value} must be finite and not negative, and tau not zero.")
    locked = np.asarray(params.interlocking_time)
    if np.any(locked > 0) and not settings.interlocking:
        raise ValueError(f"{settings.id}: interlocking_time={locked} has no effect without interlocking=True.")
    if np.any(locked >= np.asarray(params.tau)):
        raise ValueError(f"{settings.id}: interlocking_time={locked} must be below tau={params.tau}.")
    check_ratings(settings.id, params.limits, params.nominal)
    if not np.all((np.asarray(params.gamma) >= 0) & (np.asarray(params.gamma) < 1)):
        raise ValueError(f"{settings.id}: gamma={params.gamma} must be in [0, 1).")
    for what, given, needed in (
        ("references", params.references, settings.referenced),
        ("weights", params.weights, settings.rewarded),
        ("initial_low", params.initial_low, (*params.load.states, *params.machine.states)),
        ("initial_high", params.initial_high, (*params.load.states, *params.machine.states)),
    ):
        if len(given) != len(needed or ()):
            raise ValueError(f"{settings.id}: {what} has {len(given)} entries; it needs those of {needed}.")
    if params.supply.phases != 1 and not isinstance(settings.converter, converters.NoConverter):
        raise ValueError(f"{settings.id}: a supply of three phases needs converter='None-3'.")
    if settings.shares_out and not hasattr(params.machine, "flux_range"):
        raise ValueError(
            f"{settings.id}: a {type(params.machine).__name__} has no flux_range and most_torque, of which references "
            f"of {settings.referenced} are shares; name others in referenced=."
        )
    _check_reward(settings, params)
    _check_start(settings, params)


def _check_reward(settings: Settings, params: Params) -> None:
    for name, weight in zip(settings.rewarded or (), params.weights, strict=True):
        if not np.all(np.isfinite(np.asarray(weight)) & (np.asarray(weight) >= 0)):
            raise ValueError(f"{settings.id}: the weight of {name}, {weight}, must be finite and not negative.")
    paid = params.violation_reward
    if paid is not None and not np.all(np.isfinite(np.asarray(paid)) & (np.asarray(paid) <= 0)):
        raise ValueError(f"{settings.id}: violation_reward={paid} must be finite and not positive.")
    scale = np.asarray(params.noise_scale)
    if not np.all(np.isfinite(scale) & (scale >= 0)):
        raise ValueError(f"{settings.id}: noise_scale={scale} must be finite and not negative.")
    if np.any(scale > 0) and not settings.noise:
        raise ValueError(f"{settings.id}: noise_scale={scale} has no effect without noise=.")


def _check_start(settings: Settings, params: Params) -> None:
    names = (*params.load.states, *params.machine.states)
    for name, low, high in zip(names, params.initial_low, params.initial_high, strict=True):
        low, high = np.asarray(low), np.asarray(high)
        if not np.all(np.isfinite(low) & np.isfinite(high)):
            raise ValueError(f"{settings.id}: initial_low={low} and initial_high={high} of {name} must be finite.")
        if np.any(low > high):
            raise ValueError(f"{settings.id}: initial_low={low} of {name} must not be above initial_high={high}.")
