"""What is measured of a drive: a table of quantities, built once for each kind of machine, load, supply and converter.

    table = measured(settings, params)          {"omega": Quantity(...), "torque": ..., "i_sd": ...}, in their order
    table["i_sd"].limit(params, params.limits)  400.0, what the measurement is divided by
    states(settings, params)                    the same of the states of load and machine
    signals(settings, plant, params)            every measured quantity of a plant in SI units, by name

`settings` are those of a drive, `settings.py`, of which the converter and what else is measured are read here.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import jax.numpy as jnp

from . import converters
from .plant import Params, Plant

if TYPE_CHECKING:
    from .settings import Settings


class Quantity(NamedTuple):
    """One number that is measured."""

    name: str
    unit: str
    limit: Callable[[Params, Any], Any]
    """What it is divided by, of params and the ratings to take, `params.limits` or `params.nominal`."""
    low: float = -1.0
    """The least normalised value: -1, or 0 where it has no sign."""
    high: float = 1.0
    axis: bool = False
    """Whether it is a component on turning axes, d, q, x, y."""


def measured(settings: Settings, params: Params) -> Mapping[str, Quantity]:
    """All measured quantities by name. Only the classes of machine, load and supply are read of `params`."""
    return _tables(_choice(settings), type(params.machine), type(params.load), type(params.supply))[0]


def states(settings: Settings, params: Params) -> Mapping[str, Quantity]:
    """The states of load and machine by name."""
    return _tables(_choice(settings), type(params.machine), type(params.load), type(params.supply))[1]


class _Choice(NamedTuple):
    """The settings that decide what is measured."""

    converter: converters.Converter
    remove_angle: bool
    flux_observer: bool
    stator_flux: bool
    cos_sin: bool
    current_sum: tuple[str, ...]
    current_sum_limit: str


def _choice(settings: Settings) -> _Choice:
    return _Choice(
        settings.converter,
        settings.remove_angle,
        settings.flux_observer,
        bool(settings.stator_flux),
        settings.cos_sin,
        tuple(settings.current_sum or ()),
        settings.current_sum_limit,
    )


@functools.cache
def _tables(choice: _Choice, machine: Any, load: Any, supply: Any) -> tuple[Mapping, Mapping]:
    converter = choice.converter
    parts = converter.each
    turns = machine.states[-1] == "epsilon"

    def least(name: str, both: bool) -> float:
        """Of a quantity that has a sign where the machine turns a field, or else where the converter gives `both`."""
        return -1.0 if turns else 0.0 if name in machine.one_sided or not both else -1.0

    def part(index: int) -> converters.Converter:
        return parts[min(index, len(parts) - 1)]

    def current(name: str, both: bool) -> Quantity:
        limit = _excitation("i_e", "i") if name == "i_e" else _rating("i")
        return Quantity(name, "A", limit, least(name, both), axis=name in machine.axes)

    def voltage(name: str, both: bool) -> Quantity:
        limit = _excitation("u_e", "u") if name == "u_e" else _rating("u")
        return Quantity(name, "V", limit, least(name, both), axis=name in machine.axes)

    moving = []
    for name in load.states:
        unit, limit = LOADS.get(name, ("rad/s", _rating("omega")))
        low = -1.0 if name == "position" else least(name, converter.both_voltages)
        moving.append(Quantity(name, unit, limit, low))
    torque = Quantity("torque", "N m", _rating("torque"), least("torque", converter.both_currents))
    currents = [current(name, part(k).both_currents) for k, name in enumerate(machine.currents)]
    found = [*moving, torque, *currents]
    found += [voltage(name, part(k).both_voltages) for k, name in enumerate(machine.voltages)]
    if turns and not choice.remove_angle:
        found.append(ANGLE)
    names = ("u_sup",) if supply.phases == 1 else ("u_sup_a", "u_sup_b", "u_sup_c")
    found += [Quantity(name, "V", _supply, supply.low, supply.high) for name in names]
    if choice.flux_observer:
        found += [Quantity("psi_abs", "V s", _rotor_flux), Quantity("psi_angle", "rad", _half_turn)]
    if choice.stator_flux:
        found.append(Quantity("psi_s", "V s", _stator_flux, 0.0))
    if choice.cos_sin:
        found += [Quantity("cos(epsilon)", "", _one), Quantity("sin(epsilon)", "", _one)]
    table = {quantity.name: quantity for quantity in found}
    if choice.current_sum:
        added = tuple(table[name].limit for name in choice.current_sum if name in table)
        table["i_sum"] = Quantity("i_sum", "A", functools.partial(_sum, added, choice.current_sum_limit))
    of_states = {quantity.name: quantity for quantity in moving}
    for name in machine.states:
        if name in machine.fluxes:
            of_states[name] = Quantity(name, "V s", _rotor_flux)
        elif name == "epsilon":
            of_states[name] = ANGLE
        else:
            of_states[name] = table[name] if name in machine.currents else current(name, converter.both_currents)
    return MappingProxyType(table), MappingProxyType(of_states)


# ---- what each is divided by


def _rating(name: str) -> Callable[[Params, Any], Any]:
    return lambda params, ratings: getattr(ratings, name)


def _excitation(name: str, armature: str) -> Callable[[Params, Any], Any]:
    """Of a winding that excites the field: what the armature has where the ratings have none for it."""

    def limit(params: Params, ratings: Any) -> Any:
        value = getattr(ratings, name)
        return getattr(ratings, armature) if value is None else value

    return limit


def _one(params: Params, ratings: Any) -> Any:
    return 1.0


def _half_turn(params: Params, ratings: Any) -> Any:
    return math.pi


def _travel(params: Params, ratings: Any) -> Any:
    return params.load.travel


def _supply(params: Params, ratings: Any) -> Any:
    return params.supply.u_nominal


def _rotor_flux(params: Params, ratings: Any) -> Any:
    return params.machine.l_m * ratings.i


def _stator_flux(params: Params, ratings: Any) -> Any:
    return params.machine.flux_limit(ratings)


def _sum(limits: tuple, kind: str, params: Params, ratings: Any) -> Any:
    currents = [limit(params, ratings) for limit in limits]
    if kind == "sum":
        return sum(currents)
    return max(currents) if all(isinstance(x, float) for x in currents) else functools.reduce(jnp.maximum, currents)


ANGLE = Quantity("epsilon", "rad", _half_turn)
LOADS: dict[str, tuple[str, Callable[[Params, Any], Any]]] = {
    "position": ("rad", _travel),
    "twist": ("rad", _half_turn),
}
"""Unit and limit of states of loads that are no speeds."""


def reaches(settings: Settings, params: Params, u_sup: Any) -> dict[str, Any]:
    """The most that bridges of three half bridges make of voltages on turning axes [V], by name.

    Limits of voltages are those of a winding, half of the link's. Windings within it add up to a vector that is longer:
    to 2/3 of the link's voltage in a corner of the hexagon of three phases.
    """
    if {part.outputs for part in settings.converter.each} - {1, 3} or len(u_sup) > 1:
        return {}
    table = measured(settings, params)
    return {
        name: params.machine.vector_reach * u_sup[0]
        for name, quantity in table.items()
        if quantity.axis and quantity.unit == "V"
    }


# ---- their values


def signals(settings: Settings, plant: Plant, params: Params) -> dict[str, Any]:
    """Every measured quantity by name, in SI units."""
    machine = params.machine
    values = dict(zip(params.load.states, plant.load, strict=True))
    values["torque"] = machine.torque(plant.motor)
    values.update(zip(machine.currents, machine.measured_currents(plant.motor, plant.frame), strict=True))
    values.update(zip(machine.voltages, plant.voltage, strict=True))
    if machine.has_angle and not settings.remove_angle:
        values["epsilon"] = plant.motor[-1]
    supply = ("u_sup",) if len(plant.u_sup) == 1 else ("u_sup_a", "u_sup_b", "u_sup_c")
    values.update(zip(supply, plant.u_sup, strict=True))
    if settings.flux_observer:
        alpha, beta = plant.flux
        values["psi_abs"] = _length(alpha, beta)
        there = values["psi_abs"] > 0
        values["psi_angle"] = jnp.where(there, jnp.arctan2(beta, jnp.where(there, alpha, 1)), 0)
    if settings.stator_flux:
        values["psi_s"] = _length(*machine.stator_flux(plant.motor))
    if settings.cos_sin:
        values["sin(epsilon)"], values["cos(epsilon)"] = machine.angle_frame(plant.motor)
    if settings.current_sum:
        values["i_sum"] = sum(values[name] for name in settings.current_sum)
    return values


def _length(x: Any, y: Any) -> Any:
    """Of a vector; its derivative is finite where there is none."""
    square = x * x + y * y
    there = square > 0
    return jnp.where(there, jnp.sqrt(jnp.where(there, square, 1)), 0)
