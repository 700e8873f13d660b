"""How a drive moves: one control step of supply, converter, machine and load, and the solvers of their equations."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrl.math import fence, wrap

from . import converters
from .plant import Params, Plant


class Stepping(NamedTuple):
    """How a control step is taken, all static; `MotorDrive.stepping` has that of a drive."""

    converter: converters.Converter
    hold: str = "rotor"  # or "stator": axes on which a voltage stays still, for machines on rotor axes
    solver: str = "rk4"
    substeps: int = 1
    interlocking: bool = False  # half bridges have a dead time
    dead_time: int = 0  # control steps before an action reaches the converter
    dq_actions: bool = False  # actions are on turning axes
    flux_observer: bool = False
    upstream: bool = False  # as gym-electric-motor, where that is not physical

    @property
    def waits(self) -> bool:
        """Whether finite half bridges have a dead time."""
        return self.interlocking and self.converter.finite and self.converter.locks

    def remembers(self, params: Params) -> bool:
        """Whether what the half bridges did before matters."""
        return self.waits or (self.upstream and params.supply.drains and self.converter.finite)


def rest(stepping: Stepping, load: tuple, motor: tuple, supply: tuple, params: Params) -> Plant:
    """The plant before the first step."""
    machine, converter = params.machine, stepping.converter
    dtype = jnp.result_type(float)
    load, motor, supply = (tuple(jnp.asarray(x, dtype) for x in part) for part in (load, motor, supply))
    u_sup = tuple(jnp.asarray(u, dtype) for u in params.supply.voltage(supply, jnp.zeros((), dtype)))
    frame = tuple(machine.frame(motor))
    resting = converter.resting if stepping.upstream else (0.0,) * converter.outputs
    phases = tuple(jnp.asarray(x * u_sup[0], dtype) for x in resting)
    kind = jnp.int32 if converter.finite else dtype
    zero = tuple(jnp.zeros((), kind) for _ in range(converter.num_actions))
    return Plant(
        load=load,
        motor=motor,
        frame=tuple(machine.upstream_first(motor)) if stepping.upstream else frame,
        voltage=tuple(machine.measured_voltages(phases, frame)),
        u_sup=u_sup,
        supply=supply,
        bridges=(jnp.int32(0),) * converter.half_bridges if stepping.remembers(params) else (),
        pending=(zero,) * stepping.dead_time,
        flux=(jnp.zeros((), dtype),) * 2 if stepping.flux_observer else (),
    )


def advance(stepping: Stepping, words: tuple, plant: Plant, action: Any, time: Any, params: Params) -> Plant:
    """The plant one control step later. `words`: random ones of the load, or none for what is
    expected of it; `time`: steps since the start."""
    machine, load, supply, converter, tau = params.machine, params.load, params.supply, stepping.converter, params.tau
    action, pending = _applied(stepping, plant, action, params)
    action = fence(action)  # or it is drawn and turned anew for each phase and each number that it moves
    command = converter.command(action)
    frame = machine.frame(plant.motor) if stepping.upstream else plant.frame
    dead = params.interlocking_time / tau if stepping.interlocking and not converter.finite else None
    during, bridges, waits = command, command if stepping.remembers(params) else (), None
    if stepping.waits:
        locked = params.interlocking_time > 0
        during, command, bridges, waits = converters.interlock(command, plant.bridges, locked, stepping.upstream)
    seconds = time.astype(plant.load[0].dtype) * tau
    plan = load.plan(words, plant.load, seconds, tau)

    currents = machine.phase_currents(plant.motor, frame, stepping.upstream)
    # gym-electric-motor asks for the supply's current before the finite half bridges have switched.
    drawn_by = plant.bridges if stepping.upstream and plant.bridges and converter.locks else during
    supply_current = converter.supply_current(drawn_by, currents, dead)
    u_sup = supply.voltage(plant.supply, supply_current)

    def phases(command, currents):
        parts = converter.voltage(command, currents, dead, stepping.upstream)
        rails = u_sup * len(parts) if len(u_sup) == 1 else u_sup
        return tuple(v * u for v, u in zip(parts, rails, strict=True))

    def slope(seconds, state, phases, inputs):
        mechanical, motor = state[: len(load.states)], state[len(load.states) :]
        if stepping.hold == "stator" and machine.turning:
            inputs = machine.inputs(phases, machine.frame(motor))
        torque = machine.torque(motor)
        moved = load.derivative(mechanical, torque, machine.j_rotor, seconds, tau, plan)
        return *moved, *machine.derivative(motor, inputs, mechanical[0])

    def interval(state, phases, frame, begin, length):
        inputs = machine.inputs(phases, frame)
        return integrate(
            lambda t, y: slope(t, y, phases, inputs), state, begin, length, stepping.solver, stepping.substeps
        )

    volts = phases(during, currents)
    state = (*plant.load, *plant.motor)
    if waits is None:
        state = interval(state, volts, frame, seconds, tau)
    else:
        # A step in which nothing waits is one interval; the second then has no length and changes nothing.
        first = jnp.where(waits, params.interlocking_time, tau)
        state = interval(state, volts, frame, seconds, first)
        motor = state[len(load.states) :]
        then = machine.frame(motor)
        after = phases(command, machine.phase_currents(motor, then, stepping.upstream))
        volts = tuple(jnp.where(waits, new, old) for new, old in zip(after, volts, strict=True))
        frame = tuple(jnp.where(waits, new, old) for new, old in zip(then, frame, strict=True))
        state = interval(state, volts, frame, seconds + first, tau - first)

    mechanical, motor = tuple(state[: len(load.states)]), tuple(state[len(load.states) :])
    if machine.has_angle:
        motor = (*motor[:-1], -wrap(-motor[-1], -math.pi, math.pi))
    flux = plant.flux
    if stepping.flux_observer:
        flux = machine.observe_flux(flux, motor, mechanical[0], tau)
    return Plant(
        load=mechanical,
        motor=motor,
        frame=tuple(machine.upstream_later(frame) if stepping.upstream else machine.frame(motor)),
        voltage=tuple(machine.measured_voltages(volts, frame)),
        u_sup=u_sup,
        supply=supply.step(plant.supply, supply_current, tau),
        bridges=bridges,
        pending=pending,
        flux=flux,
    )


def _applied(stepping: Stepping, plant: Plant, action: Any, params: Params) -> tuple[tuple, tuple]:
    """The converter's action after turning axes and dead time, and what is still on its way."""
    machine, converter = params.machine, stepping.converter
    dtype = jnp.int32 if converter.finite else plant.load[0].dtype
    action = jnp.asarray(action).astype(dtype)
    action = (action,) if action.ndim == 0 else tuple(action[i] for i in range(action.shape[0]))
    if stepping.dq_actions:
        ahead = (0.5 + stepping.dead_time) * params.tau
        frame = machine.action_frame(plant.motor, plant.flux or None, plant.load[0], ahead, stepping.upstream)
        action = tuple(machine.phases(action, frame))
    if not stepping.dead_time:
        return action, ()
    return plant.pending[0], (*plant.pending[1:], action)


def integrate(slope: Any, state: tuple, begin: Any, length: Any, solver: str, substeps: int) -> tuple:
    """`state` after `length` seconds of d/dt = slope(t, state), in equal steps; `diffrax`: in as many as it takes."""
    if solver == "diffrax":
        return _diffrax(slope, state, begin, length)
    h = length / substeps

    def add(state, slopes, h):
        return tuple(x + h * d for x, d in zip(state, slopes, strict=True))

    def step(i, state):
        t = begin + i * h
        k1 = slope(t, state)
        if solver == "euler":
            return add(state, k1, h)
        k2 = slope(t + 0.5 * h, add(state, k1, 0.5 * h))
        k3 = slope(t + 0.5 * h, add(state, k2, 0.5 * h))
        k4 = slope(t + h, add(state, k3, h))
        mean = tuple((a + 2 * b + 2 * c + d) / 6 for a, b, c, d in zip(k1, k2, k3, k4, strict=True))
        return add(state, mean, h)

    return step(0, state) if substeps == 1 else jax.lax.fori_loop(0, substeps, step, state)


def _diffrax(slope: Any, state: tuple, begin: Any, length: Any) -> tuple:
    """Adaptive steps of Dormand and Prince's 5(4) pair, by the package diffrax."""
    import diffrax  # pyright: ignore[reportMissingImports]

    dtype = state[0].dtype
    tolerance = 1e-10 if dtype == jnp.float64 else 1e-6

    def field(t, y, _):
        return tuple(jnp.asarray(d, dtype) for d in slope(t, y))

    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(field),
        diffrax.Dopri5(),
        begin,
        begin + length,
        None,
        state,
        stepsize_controller=diffrax.PIDController(rtol=tolerance, atol=tolerance),
    )
    assert solution.ys is not None
    return tuple(y[-1] for y in solution.ys)
