"""Level kit of electric drives: params of `MotorDrive` are levels, drives of other sizes and other makes.

    level = generate(key, params, spread)       another drive of the same kind
    level = mutate(key, level)                  a little different from `level`
    level = scaled(params, logs)                the drive of these logarithms of factors, `dimensions(params)` of them
    validate(level)                             ValueError, with the numbers, for what cannot be

`params` is the middle of the distribution: `generate` multiplies what it says by random factors, log-uniform within
[1 / spread, spread], so a spread of 1 is `params` itself. Size first: one factor for all voltages (rated, and the
supply's), one for all currents. Then make: each number in units of these (resistances and inductances of u / i, flux
linkages of u), its own factor. What follows from these is computed, not drawn, so that ratings stay those of one drive:

- rated torque and speed change as the machine's `base_point` does: what the rated current makes, and the speed at which
  that needs the rated voltage. So a reference of half the limit asks of each motor what it asks of `params`'.
- inertias, friction, shaft: of rated torque and speed, times a factor. Given speeds: of rated speed, at most that.

A saliency l_q / l_d > 1 stays above 1 (its logarithm is what has the factor, of half the spread), and a coupling of
windings below 1 (likewise the logarithm of its square). Pole pairs, control step, references (in units of the limits),
weights and constraints are `params`'. Up to a spread of 4 every draw of gym-electric-motor's machines is valid; not
every one can follow its reference everywhere: magnets may be too strong for the top speed, a load too heavy.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from .machines.machine import check_ratings
from .plant import Params

DRAWS = 40
"""Random numbers of a level; no drive needs as many."""


def generate(key: Key[Array, ""], params: Params, spread: float | Float[Array, ""] = 2.0) -> Params:
    """Another drive. `spread` >= 1 is the largest factor of each number; it may be traced, and so may `params`."""
    reach = jnp.log(jnp.asarray(spread, jnp.result_type(float)))
    return scaled(params, jax.random.uniform(key, (DRAWS,), reach.dtype, -reach, reach))


def scaled(params: Params, logs: Float[Array, " D"]) -> Params:
    """The drive whose numbers differ from `params`' by the factors exp(logs): voltages, currents, then the machine's
    numbers in the order of its fields, inertia, load, supply. Zeros: `params` itself.

    Raises ValueError for fewer than `dimensions(params)` of them; what is more is not read.
    """
    if logs.shape[0] < dimensions(params):
        raise ValueError(f"scaled: {logs.shape[0]} logarithms; this drive has {dimensions(params)} free numbers.")
    rest = iter([logs[i] for i in range(logs.shape[0])])
    return _built(params, lambda: next(rest))


def dimensions(params: Params) -> int:
    """How many numbers of a drive are free, of those that `scaled` reads."""
    count = itertools.count()

    def draw() -> Array:
        next(count)
        return jnp.zeros(())

    jax.eval_shape(lambda: _built(params, draw))
    return next(count)


def _built(params: Params, draw: Callable[[], Array]) -> Params:
    def factor(share: float = 1.0) -> Array:
        return jnp.exp(share * draw())

    volts, amps = factor(), factor()
    machine = _machine(params.machine, volts, amps, factor)
    sized = _sized(params.nominal, volts, amps)
    torque, speed = (
        new / old for new, old in zip(machine.base_point(sized), params.machine.base_point(params.nominal), strict=True)
    )
    inertia = torque / speed
    machine = machine.replace(j_rotor=params.machine.j_rotor * inertia * factor())
    nominal = sized.replace(torque=params.nominal.torque * torque, omega=params.nominal.omega * speed)
    limits = _sized(params.limits, volts, amps)
    limits = limits.replace(torque=params.limits.torque * torque, omega=params.limits.omega * speed)
    scales = {"omega": speed, "omega_load": speed, "position": 1.0, "twist": 1.0, "epsilon": 1.0}
    flux = amps * machine.l_m / params.machine.l_m if hasattr(machine, "l_sigs") else 1.0
    states = [
        scales.get(name, flux if name.startswith("psi") else amps)
        for name in (*params.load.states, *params.machine.states)
    ]
    return params.replace(
        machine=machine,
        limits=limits,
        nominal=nominal,
        load=_load(params.load, torque, speed, nominal.omega, factor),
        supply=_supply(params.supply, volts, amps, factor),
        initial_low=tuple(x * s for x, s in zip(params.initial_low, states, strict=True)),
        initial_high=tuple(x * s for x, s in zip(params.initial_high, states, strict=True)),
    )


def mutate(key: Key[Array, ""], params: Params, step: float | Float[Array, ""] = 1.1) -> Params:
    """`params` with each number changed, by a factor of at most `step`."""
    return generate(key, params, step)


def validate(params: Params) -> None:
    """Raise ValueError for a level that is no drive. Host only; leaves may be batched.

    What the machine, the load and the supply refuse; limits below nominal values; and a rated voltage that the
    supply cannot give or that the windings' resistance alone uses up at rated current.
    """
    who = "level"  # not an id: params know none
    params.machine.validate(who)
    params.load.validate(who)
    params.supply.validate(who)
    check_ratings(who, params.limits, params.nominal)
    resistance = next(np.asarray(getattr(params.machine, n)) for n in ("r_s", "r_a") if hasattr(params.machine, n))
    voltage, drop = np.asarray(params.nominal.u), resistance * np.asarray(params.nominal.i)
    if np.any(drop >= voltage):
        raise ValueError(f"{who}: rated current drops {drop} V in the windings, all of the rated {voltage} V.")
    given = np.asarray(params.supply.u_nominal) * np.asarray(params.supply.high)
    if np.any(given * (1 + 1e-5) < voltage):
        raise ValueError(f"{who}: the supply's {given} V are below the rated voltage {voltage} V.")


def _sized(ratings: Any, volts: Any, amps: Any) -> Any:
    by = {"i": amps, "i_e": amps, "u": volts, "u_e": volts}
    known = {name: by[name] * getattr(ratings, name) for name in by if getattr(ratings, name) is not None}
    return ratings.replace(**known)


def _machine(machine: Any, volts: Any, amps: Any, factor: Any) -> Any:
    """Another make, of another size; its inertia is not yet."""
    ohms, new = volts / amps, {}
    maps = factor() if hasattr(machine, "i_d_low") else None
    for field in dataclasses.fields(machine):
        name, value = field.name, getattr(machine, field.name)
        if name == "l_q" or (name == "l_m" and hasattr(machine, "k")):
            continue  # by their ratios to others, below
        if name.startswith(("r_", "l_")):
            new[name] = value * ohms * factor()
        elif name.startswith("psi_"):  # both maps of a saturated machine together, or it would make energy of nothing
            new[name] = value * volts * (factor() if maps is None else maps)
        elif name.startswith("i_"):
            new[name] = value * amps
    if hasattr(machine, "l_q"):
        new["l_q"] = new["l_d"] * jnp.exp(jnp.log(machine.l_q / machine.l_d) * factor(0.5))
    if hasattr(machine, "k"):  # of the excited machine
        square = (1.5 * machine.l_m**2 / (machine.l_d * machine.l_e)) ** factor(0.5)
        new["l_m"] = jnp.sqrt(square * new["l_d"] * new["l_e"] / 1.5)
    return machine.replace(**new)


LOADS: dict[str, tuple[float, float]] = {
    "a": (1.0, 0.0),
    "b": (1.0, -1.0),
    "c": (1.0, -2.0),
    "j_load": (1.0, -1.0),
    "damping": (1.0, -1.0),
    "stiffness": (1.0, 1.0),
}
"""Powers of rated torque and speed that numbers of loads go with. A shaft's: its frequency goes with the speed."""
SPEEDS = ("omega", "mu", "sigma", "omega_low", "omega_high", "samples")
"""Numbers of loads that go with the rated speed."""


def _load(load: Any, torque: Any, speed: Any, nominal: Any, factor: Any) -> Any:
    names = {f.name for f in dataclasses.fields(load)}
    new = {
        name: getattr(load, name) * torque**t * speed**w * factor() for name, (t, w) in LOADS.items() if name in names
    }
    new |= {name: jax.tree.map(lambda x: x * speed, getattr(load, name)) for name in SPEEDS if name in names}
    if "omega" in names:
        most = jnp.maximum(nominal, jnp.abs(new["omega"]))
        new["omega"] = jnp.clip(new["omega"] * factor(), -most, most)
    return load.replace(**new)


def _supply(supply: Any, volts: Any, amps: Any, factor: Any) -> Any:
    """Battery or source of the voltage; what is in its path goes with the size."""
    by = {"u_nominal": volts, "u_empty": volts, "resistance": volts / amps, "capacitance": amps / volts}
    by |= {"capacity": amps}
    loose = ("resistance", "capacitance", "capacity")
    names = {f.name for f in dataclasses.fields(supply)}
    new = {n: getattr(supply, n) * scale * (factor() if n in loose else 1) for n, scale in by.items() if n in names}
    return supply.replace(**new)
