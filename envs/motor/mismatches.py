"""Parts of a drive that can be and do not suit each other: supply, ratings and load of another machine. Host only.

`find` has a sentence with the numbers for each, which `MotorDrive.validate` warns of. What holds for the id's own
defaults, gym-electric-motor's, is taken as given: a supply may be short of the voltage limit by as much as there.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from . import tasks
from .defaults import components
from .machines.envelope import most_torque
from .plant import Params
from .quantities import measured

if TYPE_CHECKING:
    from .settings import Settings

ROUNDING = 1e-6
"""By how much, of it, a number may pass another that it should not."""
ABOVE = 1.25
"""Times the voltage limit, and times what the defaults have, up to which a supply passes in silence: mains and
batteries are a tenth above their nominal voltage, a supply of another drive is not that near."""
APART = 3.0
"""Times more or less than in the defaults that torque, speed and current may be of what the machine makes of the
others: machines of one kind differ by less, those of another size by more."""
FAST = 5.0
"""The same of a voltage that is larger than the rated speed needs, as a motor on a larger link has."""


def find(settings: Settings, params: Params) -> list[str]:
    """Sentences about what does not suit: of the supply, of ratings, of the load, at most one each. Leaves may be
    batched; of a batch, which is a distribution of drives, heavy loads may be part."""
    default = components(settings)
    found = [
        short_supply(settings, params) or _high_supply(settings, params, default),
        _ratings(params, default),
        _load(settings, params, default),
    ]
    return [f"{settings.id}: {sentence}" for sentence in found if sentence]


def short_supply(settings: Settings, params: Params) -> str | None:
    """A supply that cannot give the voltage limit, by more than that of the defaults."""
    default = components(settings)
    usual = tasks.u_nominal(settings.motor, settings.task, settings.control)
    supply = np.asarray(params.supply.u_nominal) * params.supply.high
    for name, reach, limit, plain in _windings(settings, params, default):
        most = supply * reach  # a smaller motor needs less than the defaults, a larger one more
        if np.any((most < limit * (1 - ROUNDING)) & (supply < usual * limit / plain * (1 - ROUNDING))):
            given = f"the supply's {_shown(supply)} V give {name} at most {_shown(most)} V"
            return f"{given}; its limit is {_shown(limit)} V."
    return None


def _high_supply(settings: Settings, params: Params, default: Params) -> str | None:
    """A supply that is far above the voltage limit, by more than that of the defaults."""
    supply = np.asarray(params.supply.u_nominal) * params.supply.high
    for name, reach, limit, plain in _windings(settings, params, default):
        share = default.supply.u_nominal * default.supply.high * reach / plain
        if np.any(supply * reach > ABOVE * max(1.0, share) * limit):
            return (
                f"the supply's {_shown(supply)} V give {name} up to {_shown(supply * reach)} V; its limit is "
                f"{_shown(limit)} V: give the supply of this machine, or its limit."
            )
    return None


def _windings(settings: Settings, params: Params, default: Params) -> list[tuple[str, float, Any, Any]]:
    """Voltages that the converter makes: name, reach of the supply's, limit [V], and that of the defaults."""
    table, plain = measured(settings, params), measured(settings, default)
    names = [name for name in params.machine.voltages if name not in params.machine.axes and name in plain]
    return [
        (
            name,
            reach,
            np.asarray(table[name].limit(params, params.limits)),
            plain[name].limit(default, default.limits),
        )
        for name, reach in zip(names, settings.converter.reaches, strict=False)
    ]


def _ratings(params: Params, default: Params) -> str | None:
    """Ratings that are not the machine's."""
    for name in ("i", "i_e", "torque", "u", "u_e", "omega"):
        pair = getattr(params.limits, name), getattr(params.nominal, name)
        usual = getattr(default.limits, name), getattr(default.nominal, name)
        if None in pair or None in usual:
            continue
        limit, rated = (np.asarray(x) for x in pair)
        if np.any(limit / rated > APART * max(1.5, usual[0] / usual[1])):
            return (
                f"limits.{name}={_shown(limit)} is {_shown(np.max(limit / rated))} times "
                f"nominal.{name}={_shown(rated)}: give limits and nominal values of this machine."
            )
    resistance = next((getattr(params.machine, name) for name in ("r_s", "r_a") if hasattr(params.machine, name)), 0.0)
    drop = np.asarray(resistance) * np.asarray(params.nominal.i)
    if np.any(drop > np.asarray(params.nominal.u)):
        return (
            f"nominal.i={_shown(params.nominal.i)} A drops {_shown(drop)} V in the windings, more than "
            f"nominal.u={_shown(params.nominal.u)} V; give limits and nominal values of this machine."
        )
    depths = {np.ndim(x) for x in jax.tree.leaves(params.machine)}
    if len(depths) > 1 and min(depths):  # a batch of machines with maps, which index by their first axes
        return None
    try:
        made, usual = (tuple(np.asarray(x) for x in p.machine.base_point(p.nominal)) for p in (params, default))
    except NotImplementedError:  # a machine of one's own, which does not say
        return None
    torque = made[0] / np.asarray(params.nominal.torque) / (usual[0] / default.nominal.torque)
    speed = made[1] / np.asarray(params.nominal.omega) / (usual[1] / default.nominal.omega)
    if np.any((torque > APART) | (torque < 1 / APART)):
        return (
            f"nominal.i={_shown(params.nominal.i)} A make {_shown(made[0])} N m of this machine; nominal.torque is "
            f"{_shown(params.nominal.torque)} N m: give limits and nominal values of this machine."
        )
    if np.any((speed > FAST) | (speed < 1 / APART)):
        return (
            f"nominal.u={_shown(params.nominal.u)} V carry nominal.i={_shown(params.nominal.i)} A up to "
            f"{_rpm(made[1])} rpm of this machine; nominal.omega is {_rpm(params.nominal.omega)} rpm: give limits and "
            "nominal values of this machine."
        )
    return None


def _load(settings: Settings, params: Params, default: Params) -> str | None:
    """A load that takes more than the machine can hold at its rated current, of what the defaults take of theirs."""
    if any(np.ndim(x) and "samples" not in jax.tree_util.keystr(path) for path, x in _leaves(params)):
        return None
    asked = params.load.demand(float(params.nominal.omega))
    if asked is None:
        return None
    speed, torque = asked
    own = default.load.demand(default.nominal.omega) or (0.0, 0.0)
    if abs(speed) > max(float(params.limits.omega), abs(own[0])) * (1 + ROUNDING):
        return f"the load turns at {_rpm(abs(speed))} rpm; limits.omega is {_rpm(params.limits.omega)} rpm."
    held = _held(settings, params, speed)
    if held is None or held >= torque * (1 - ROUNDING):
        return None
    usual = _held(settings, default, own[0])
    if usual is not None and not usual >= own[1]:  # nor does the default machine hold its load
        share = torque / held if held > 0 else math.inf
        if share <= own[1] / usual * (1 + ROUNDING) if usual > 0 else torque <= own[1] * (1 + ROUNDING):
            return None
    if math.isnan(held):
        return (
            f"the load turns at {_rpm(abs(speed))} rpm, where {_shown(params.supply.u_nominal)} V and "
            f"nominal.i={_shown(params.nominal.i)} A cannot hold this machine at all."
        )
    return (
        f"the load takes {_shown(torque)} N m at {_rpm(speed)} rpm, where nominal.i={_shown(params.nominal.i)} A and "
        f"{_shown(params.supply.u_nominal)} V make at most {_shown(held)} N m of this machine."
    )


def _leaves(params: Params) -> list:
    return jax.tree_util.tree_leaves_with_path((params.machine.j_rotor, params.nominal, params.limits, params.load))


def _held(settings: Settings, params: Params, omega: float) -> float | None:
    """The most steady torque [N m] at a speed [rad/s] at the rated current; None of a machine that nobody described."""
    try:
        made = most_torque(params, np.array([abs(omega)]), settings.voltage_radius, params.nominal)
    except TypeError:
        return None
    return float(made[0])


def _shown(value: Any) -> str:
    """A number, or the range of a batch."""
    low, high = float(np.min(value)), float(np.max(value))
    low, high = float(f"{low:.4g}"), float(f"{high:.4g}")
    return f"{low}" if low == high else f"{low} to {high}"


def _rpm(omega: Any) -> str:
    return _shown(np.asarray(omega) * 30 / math.pi)
