"""Parameters that a drive has unless told: the parts that `tasks.py` names, and what the task makes of given parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jaxrl.environment import NO_LIMIT

from . import loads, quantities, supplies, tasks
from .plant import Params

if TYPE_CHECKING:
    from .settings import Settings

START: dict[str, float] = {"twist": 0.0, "position": 0.5}
"""Share of its rated value up to which a state starts at random; all of it otherwise."""


def components(settings: Settings) -> Params:
    """Default machine, load and supply, of python numbers; no task."""
    machine = tasks.machine(settings.motor, settings.upstream)
    limits, nominal = tasks.ratings(settings.motor, settings.task, *machine.ratings())
    load = (
        tasks.load(settings.motor, settings.task, settings.control)
        if settings.load is None
        else loads.KEYS[settings.load]()
    )
    u_nominal = tasks.u_nominal(settings.motor, settings.task, settings.control)
    supply = supplies.KEYS[settings.supply or "ideal"](u_nominal)
    if isinstance(supply, supplies.Battery):
        supply = supply.replace(u_empty=0.75 * u_nominal)
    if settings.upstream and hasattr(supply, "upstream"):
        supply = supply.replace(upstream=True)
    if settings.upstream and hasattr(load, "upstream"):
        load = load.replace(upstream=True)
    tau: Any = tasks.tau(settings.motor, settings.control)
    forever: Any = NO_LIMIT
    return Params(forever, tau, machine, limits, nominal, load, supply, (), (), (), ())


def complete(settings: Settings, parts: Params) -> Params:
    """`parts` with the references, weights and starts that the task derives from them."""
    load, machine, limits, nominal = parts.load, parts.machine, parts.limits, parts.nominal
    table, states = quantities.measured(settings, parts), quantities.states(settings, parts)
    generators = []
    for name in settings.referenced or ():
        own = tasks.targets(settings.task, name, parts)
        if own is not None:
            generators.append(own)
            continue
        quantity = table[name]
        ratio = quantity.limit(parts, nominal) / quantity.limit(parts, limits)
        low, high = tasks.margin(settings.motor, settings.task, settings.control, name, ratio, quantity.low == 0)
        generators.append(tasks.generator(settings.motor, settings.task, settings.control, low, high))
    start = tasks.initial(settings.task, parts)
    names = (*load.states, *machine.states)
    high = tuple(start.get(name, 0.0) for name in names)
    low = high
    if settings.random_init != "none":
        high = tuple(float(START.get(name, 1.0) * states[name].limit(parts, nominal)) for name in names)
        low = tuple(bound * states[name].low for name, bound in zip(names, high, strict=True))
    return parts.replace(
        references=tuple(generators),
        weights=tasks.weights(settings.motor, settings.task, settings.rewarded or ()),
        initial_low=low,
        initial_high=high,
        interlocking_time=1e-6 if settings.interlocking else 0.0,
    )
