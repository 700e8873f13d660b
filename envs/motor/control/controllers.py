"""Controllers of electric drives, as pure functions with a carry: baselines of every motor task.

    controller = make(env)                              static; the method is the task's usual one, or named
    gains = controller.tune(params)                     leaves: to change, to vmap, to optimise
    carry = controller.init()
    action, carry = controller.act(params, state, carry, gains)       gains=None: controller.tune(params)

They read the true state. A carry starts anew at every reset by itself (`state.time` is zero then), so a closed loop is
a scan, also over environments that reset themselves, and `act` is vmapped over params, states and carries.

| method | control set | inner loop |
|---|---|---|
| `pi` | Cont | PI on the currents with back-EMF decoupling, field-oriented where there is a field; anti-wind-up |
| `mpc` | Cont | a voltage plan, improved by gradients through the plant; starts from `pi` |
| `hysteresis` | Finite | a band about each phase's or winding's current |
| `mpc` | Finite | every switching state one step ahead, through the plant; the best is taken |
| `dtc` | Finite | direct torque control, after Takahashi and Noguchi, of three-phase machines |

The loops before it are the same for all. Position control is a proportional gain whose output is a speed, no faster
than half of the torque can brake in the way that is left, plus the speed of the reference. Speed control is a PI whose
output is a torque; `operating_point` finds currents for a torque within limits of current and voltage: the least
current on each machine's way (MTPA), or as much negative d current as the voltage asks for (field weakening). Where
torque and stator flux are both given, `flux_point` has their currents. Both are in `operating_points.py`. A doubly fed
machine's rotor voltage keeps its flux, so that the stator's currents are free.

Tuning: the magnitude optimum, L/(2 tau) and r/(2 tau);
or the symmetric one with T_sigma = tau, a = 4 as in gym-electric-motor's gem_controllers, L/(a tau) and L/(a^3 tau^2);
speed J/(a t_n), J/(a t_n)^2 with t_n = a^2 tau; position 1/(a^2 t_n), a times slower than the speed.

Where gym-electric-motor differs: it gives an induction machine l_r/r_r for L (the symmetric optimum does, too, with
`upstream=True`, else sigma l_s), cuts a voltage vector by the square of its excess, scales by the voltage limit in
place of the supply's, has the mechanical in place of the electrical angle ahead, knows no doubly fed or six-phase
machine, and cannot switch a bridge of six at all. Here phases share the link by space vectors, and dead time is bridged
by predicting the plant over the actions on their way.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrl.environment import pytree
from jaxrl.math import sincos

from .. import converters, tasks
from ..drive import MotorDrive, Params, Plant, State
from ..machines.dfim import DFIM
from ..machines.eesm import EESM
from ..machines.scim import Induction
from ..machines.six_pmsm import SixPMSM
from ..machines.transforms import clarke, flux_frame, inverse_clarke, turn, unturn
from .operating_points import (
    alike,
    back_emf,
    flux_of_voltage,
    flux_point,
    inductances,
    operating_point,
    resistances,
    within,
)

METHODS = {"Cont": ("pi", "mpc"), "Finite": ("hysteresis", "mpc", "dtc")}
TUNINGS = ("symmetric", "magnitude")
VECTORS = (4, 6, 2, 3, 1, 5)
"""Actions of a bridge of six whose voltage points to 0, 60, .. 300 degrees."""
FLUX = ("torque", "psi_s")
OUTER = (("torque",), ("omega",), ("position",), FLUX)
"""References that are not the controlled currents'."""
HORIZON, ITERATIONS = 3, 8
"""Steps of a gradient plan, and how often it is improved."""


@pytree
class Gains:
    current_p: Any  # V/A, of each controlled current
    current_i: Any  # V/(A s)
    speed_p: jax.Array  # N m s/rad
    speed_i: jax.Array  # N m/rad
    flux_p: jax.Array = 20.0  # induction machines: how much faster than by itself the flux follows
    flux: jax.Array = 1.0  # the least flux, of the rated; 0: that of least loss, which answers slower
    margin: jax.Array = 0.1  # of a current's limit, that references of torque and speed control leave free
    voltage: jax.Array = 0.9  # of what the converter gives, that a steady operating point asks for
    band: jax.Array = 0.01  # half the width of hysteresis, of the limit
    rate: jax.Array = 0.5  # of a gradient step of `mpc`, of Newton's
    position_p: jax.Array = 0.0  # 1/s
    brake: jax.Array = 0.5  # of the torque limit, with which position control means to brake


class Carry(NamedTuple):
    current: Any  # integrals of current errors, A s
    speed: Any  # of the speed error, rad
    switches: Any  # what hysteresis did last: of each phase; (flux, torque) of direct torque control
    position: Any = ()  # position control: what the reference was, rad


class Controller(NamedTuple):
    tune: Callable[[Params], Gains]
    init: Callable[[], Carry]
    act: Callable[..., tuple[Any, Carry]]


def make(env: MotorDrive, method: str | None = None, tuning: str = "magnitude", a: float = 4.0) -> Controller:
    """The controller of a task: `pi` where actions are continuous, `dtc` where they are finite and torque and flux have
    references, and `mpc` where they are finite otherwise, unless named.

    `tuning`: "magnitude" is twice as fast as gym-electric-motor's "symmetric" and hardly overshoots. `a`: how much
    slower and better damped a loop is than the lag that it does not see. Equal arguments give the same functions, which
    share one jit cache. Raises ValueError for what does not fit.
    """
    referenced, controlled = tuple(env.referenced or ()), controlled_currents(env)
    usual = {"Cont": "pi", "Finite": "dtc" if referenced == FLUX else "mpc"}
    kind = "Finite" if env.converter.finite else "Cont"
    method = usual[kind] if method is None else method
    if method not in METHODS[kind]:
        raise ValueError(f"{env.id}: method={method!r}; with a {kind} control set it is one of {METHODS[kind]}.")
    if tuning not in TUNINGS:
        raise ValueError(f"{env.id}: tuning={tuning!r}; it is one of {', '.join(TUNINGS)}.")
    if not a > 1:
        raise ValueError(f"{env.id}: a={a} must be above 1.")
    if any(isinstance(part, converters.NoConverter) for part in _parts(env)):
        raise ValueError(f"{env.id}: a drive without a converter has nothing to control.")
    if referenced not in OUTER and set(referenced) != set(controlled):
        raise ValueError(
            f"{env.id}: references of {referenced}; controllers follow torque, omega, position, {FLUX} or {controlled}."
        )
    if method == "dtc" and (env.motor not in ("PMSM", "SynRM", "SCIM") or referenced not in OUTER):
        raise ValueError(f"{env.id}: 'dtc' controls torque or speed of PMSM, SynRM and SCIM.")
    if referenced == FLUX and not _knows(flux_point, tasks.machine(env.motor, env.upstream)):
        raise ValueError(f"{env.id}: no controller of torque and psi_s knows {env.motor}; PMSM and induction machines.")
    return _make(env, kind, method, tuning, float(a))


@functools.cache
def _make(env: MotorDrive, kind: str, method: str, tuning: str, a: float) -> Controller:
    inner = {
        ("Cont", "pi"): _pi,
        ("Cont", "mpc"): _gradient_mpc,
        ("Finite", "hysteresis"): _hysteresis,
        ("Finite", "mpc"): _finite_mpc,
        ("Finite", "dtc"): _dtc,
    }[kind, method]

    def act(params: Params, state: State, carry: Carry, gains: Gains | None = None) -> tuple[Any, Carry]:
        gains = tune(env, params, tuning, a) if gains is None else gains
        carry = jax.tree.map(lambda x: jnp.where(state.time == 0, jnp.zeros_like(x), x), carry)
        plant = arriving(env, params, state)
        wanted, carry = currents_wanted(env, params, gains, state, plant, carry)
        return inner(env, params, gains, state, plant, wanted, carry)

    return Controller(
        tune=lambda params: tune(env, params, tuning, a),
        init=functools.partial(init, env),
        act=act,
    )


def _knows(rule: Any, machine: Any) -> bool:
    """Whether a `singledispatch` function has a rule for a machine."""
    return rule.dispatch(type(machine)) is not rule.dispatch(object)


def controlled_currents(env: MotorDrive) -> tuple[str, ...]:
    """Names of the currents that have a loop of their own."""
    return tasks.MOTORS[env.motor].controlled


def init(env: MotorDrive) -> Carry:
    zero = jnp.zeros(())
    switches = (jnp.int32(0),) * max(env.converter.outputs, 2)
    position = zero if env.referenced == ("position",) else ()
    return Carry(tuple(zero for _ in controlled_currents(env)), zero, switches, position)


def tune(env: MotorDrive, params: Params, tuning: str = "magnitude", a: Any = 4.0) -> Gains:
    """Gains of the optimum named by `tuning`. Leaves may be batched."""
    tau, machine = params.tau * (1 + env.dead_time), params.machine
    lag = inductances(machine, env.upstream and tuning == "symmetric")
    if tuning == "symmetric":
        p = tuple(h / (a * tau) for h in lag)
        i = tuple(k / (a * a * tau) for k in p)
    else:
        p = tuple(h / (2 * tau) for h in lag)
        i = tuple(r / (2 * tau) + 0 * k for r, k in zip(resistances(machine), p, strict=True))
    slow = a * a * a * tau
    inertia = machine.j_rotor + params.load.j_load
    position = 1 / (a * slow) if env.referenced == ("position",) else 0.0
    return Gains(p, i, inertia / slow, inertia / slow**2, position_p=position)  # pyright: ignore


# ---- loops


def arriving(env: MotorDrive, params: Params, state: State) -> Plant:
    """The plant when an action of now reaches the converter."""
    plant = state.plant
    for i, action in enumerate(state.plant.pending):
        plant = _after(env, params, plant, _joined(list(action)), state.time + i)
    return plant


def measured(env: MotorDrive, params: Params, plant: Plant) -> tuple:
    """The controlled currents [A]."""
    machine = params.machine
    currents = machine.measured_currents(plant.motor, machine.frame(plant.motor))
    by_name = dict(zip(machine.currents, currents, strict=True))
    return tuple(by_name[name] for name in controlled_currents(env))


def signals_wanted(env: MotorDrive, params: Params, state: State) -> dict[str, Any]:
    """What measured quantities should be, in SI units."""
    targets = env.targets(state.references, params)
    return {name: x * env.limit(name, params) for name, x in zip(env.referenced or (), targets, strict=True)}


def currents_wanted(
    env: MotorDrive, params: Params, gains: Gains, state: State, plant: Plant, carry: Carry
) -> tuple[tuple, Carry]:
    """The outer loops: references of the controlled currents [A] for those of the task."""
    wanted = signals_wanted(env, params, state)
    if env.referenced not in OUTER:
        wanted = _allowed(env, params, gains, wanted)
        if env.motor == "SCIM" and not env.upstream:
            wanted = (jnp.maximum(wanted[0], _magnetising(params, plant, wanted[1])), wanted[1])
        return wanted, carry
    limits, u_sup = params.limits, plant.u_sup[0]
    i_max = tuple((1 - gains.margin) * x for x in (limits.i, limits.i if limits.i_e is None else limits.i_e))
    u_max = gains.voltage * u_sup * (voltage_radius(env) if params.machine.dq else 1.0)
    if "psi_s" in wanted:
        return flux_point(params.machine, plant, wanted["torque"], wanted["psi_s"], i_max[0]), carry
    if "position" in wanted:
        wanted["omega"] = speed_wanted(params, gains, state, plant, wanted["position"], carry)
        carry = carry._replace(position=wanted["position"])
    if "torque" in wanted:
        return operating_point(params.machine, plant, wanted["torque"], i_max, u_max, gains)[0], carry
    error = wanted["omega"] - plant.load[0]
    asked = gains.speed_p * error + gains.speed_i * carry.speed
    torque = within(asked, limits.torque)
    currents, made = operating_point(params.machine, plant, torque, i_max, u_max, gains)
    stuck = (jnp.abs(asked - made) > 1e-3 * limits.torque) & ((asked - made) * error > 0)
    return currents, carry._replace(speed=carry.speed + jnp.where(stuck, 0, params.tau * error))


def speed_wanted(params: Params, gains: Gains, state: State, plant: Plant, position: Any, carry: Carry) -> Any:
    """The position loop's speed [rad/s] towards `position` [rad].

    Proportional to the way that is left, w = k x, as long as braking along it takes no more than the deceleration d
    that is meant; beyond, w^2 = 2 d x with the x that makes both meet smoothly.
    """
    limit = params.limits.omega
    slowing = gains.brake * params.limits.torque / (params.machine.j_rotor + params.load.j_load)
    left = position - plant.load[1]
    near = slowing / gains.position_p**2
    far = jnp.sqrt(2 * slowing * jnp.maximum(jnp.abs(left) - 0.5 * near, 0.5 * near))
    towards = jnp.where(jnp.abs(left) < near, gains.position_p * left, jnp.sign(left) * far)
    before = jnp.where(state.time == 0, position, carry.position)
    moving = (position - before) / params.tau
    moving = jnp.where(jnp.abs(moving) < limit, moving, 0)  # faster is a jump, not a speed
    return within(towards + moving, limit)


def _allowed(env: MotorDrive, params: Params, gains: Gains, wanted: dict[str, Any]) -> tuple:
    """References of currents within the constraints: each, or together where it is their squares that count."""
    for kind, names in env.constraints or ():
        if kind == "squared" and set(names) <= set(wanted):
            length = jnp.sqrt(sum((wanted[name] / env.limit(name, params)) ** 2 for name in names) + 1e-12)
            shrink = jnp.minimum((1 - gains.margin) / length, 1)
            wanted = {name: x * shrink if name in names else x for name, x in wanted.items()}
        elif kind == "limit":
            most = {name: (1 - gains.margin) * env.limit(name, params) for name in names if name in wanted}
            wanted = {name: within(x, most[name]) if name in most else x for name, x in wanted.items()}
    return tuple(wanted[name] for name in controlled_currents(env))


def _magnetising(params: Params, plant: Plant, i_q: Any) -> Any:
    """The least d current [A] that leaves an induction machine a flux.

    Against its flux it only gets rid of that, and what comes then has the new direction. Better none, and so much flux
    that its axes do not turn faster than the current can follow: 3e3 rad/s of slip.
    """
    machine = params.machine
    gain = machine.r_r * machine.l_m / machine.l_r
    flux = jnp.sqrt(plant.motor[2] ** 2 + plant.motor[3] ** 2 + 1e-12)
    return (gain * jnp.abs(i_q) / 3e3 - flux) / (5 * params.tau * gain)


def rotor_flux(env: MotorDrive, params: Params, gains: Gains, plant: Plant) -> tuple[tuple, tuple]:
    """Of a doubly fed machine: the flux [V s] that should be there a step on, and the rotor's voltage towards it [V],
    both on stator axes.

    It turns at half of the rotor's speed, so that both converters have half of the voltage of rotation; its length is
    what that leaves, and the rotor's current beside the stator's largest; half of this where currents are controlled,
    which then have the other half. It grows with a quarter of the voltage, because the stator's stands against it.
    """
    machine, omega, tau, u_sup = params.machine, plant.load[0], params.tau, plant.u_sup[0]
    i_max, most = (1 - gains.margin) * params.limits.i, voltage_radius(env) * u_sup
    speed = 0.5 * machine.p * omega
    length = flux_of_voltage(speed, gains.voltage * most, machine.r_s * i_max) * machine.l_m / machine.l_s
    rest = jnp.sqrt((machine.l_r * params.limits.i) ** 2 - (machine.l_m * i_max) ** 2)
    length = jnp.minimum(length, rest) * (1.0 if env.referenced in OUTER else 0.5)
    flux = plant.motor[2:4]
    now = jnp.sqrt(flux[0] ** 2 + flux[1] ** 2 + 1e-12)
    goal = turn(turn((length, 0 * length), flux_frame(flux)), sincos(tau * speed))
    share = (now + within(length - now, 0.25 * tau * most)) / length
    alone = machine.observe_flux(flux, plant.motor, omega, tau)
    volts = tuple((share * x - y) / tau for x, y in zip(goal, alone, strict=True))
    shrink = jnp.minimum(most / jnp.sqrt(volts[0] ** 2 + volts[1] ** 2 + 1e-12), 1)
    return goal, tuple(shrink * u for u in volts)


def _parts(env: MotorDrive) -> tuple[converters.Converter, ...]:
    return env.converter.parts if isinstance(env.converter, converters.Multi) else (env.converter,)


def voltage_radius(env: MotorDrive) -> float:
    """The longest voltage vector in every direction, of the supply's voltage."""
    three = _parts(env)[0]
    shares = not env.dq_actions or getattr(three, "modulation", "clip") != "clip"
    return 1 / math.sqrt(3) if shares else 0.5


def limited(
    env: MotorDrive, params: Params, volts: tuple, u_sup: Any, holds: tuple = (0.0, 0.0)
) -> tuple[tuple, tuple]:
    """Voltages that the converter can make, and of each whether it was not cut.

    Of a three-phase vector what `holds` the currents comes first, up to 0.9 of the voltage: less of all would let one
    axis go while the other is pushed.
    """
    if not params.machine.dq:
        pairs = zip(volts, env.converter.low, env.converter.reaches, strict=True)
        cut = tuple(jnp.clip(u, low * reach * u_sup, reach * u_sup) for u, low, reach in pairs)
        return cut, tuple(u == v for u, v in zip(volts, cut, strict=True))
    most = voltage_radius(env) * u_sup
    if isinstance(params.machine, SixPMSM):
        vectors, share = volts[:4], 1.0
    else:  # the largest share with |holds + share push| <= most
        enough = jnp.minimum(0.9 * most / jnp.sqrt(holds[0] ** 2 + holds[1] ** 2 + 1e-12), 1)
        holds = tuple(enough * h for h in holds)
        push = tuple(u - h for u, h in zip(volts[:2], holds, strict=True))
        square, along = push[0] ** 2 + push[1] ** 2 + 1e-12, holds[0] * push[0] + holds[1] * push[1]
        room = most**2 - holds[0] ** 2 - holds[1] ** 2
        share = jnp.clip((jnp.sqrt(jnp.maximum(along**2 + square * room, 0)) - along) / square, 0, 1)
        vectors = tuple(h + share * u for u, h in zip(push, holds, strict=True))
    # The two windings of six phases see dq and xy together.
    length = sum(jnp.sqrt(vectors[k] ** 2 + vectors[k + 1] ** 2 + 1e-30) for k in range(0, len(vectors), 2))
    shrink = jnp.minimum(most / jnp.maximum(length, 1e-12), 1)
    rest = tuple(within(u, u_sup) for u in volts[len(vectors) :])
    fits = (share >= 1) & (length <= most)
    free = (fits,) * len(vectors) + tuple(u == v for u, v in zip(volts[len(vectors) :], rest, strict=True))
    return (*(u * shrink for u in vectors), *rest), free


def to_action(env: MotorDrive, params: Params, state: State, plant: Plant, volts: tuple) -> Any:
    """The action that makes voltages on the axes of the controlled currents. An induction machine's are on stator axes,
    and a doubly fed one's rotor comes after its stator."""
    machine, u_sup = params.machine, plant.u_sup[0]
    turning = isinstance(machine, Induction)
    if not machine.dq:
        phases = volts
    elif turning:
        phases = inverse_clarke(volts[:2])
        if isinstance(machine, DFIM):
            phases += inverse_clarke(unturn(volts[2:], machine.angle_frame(plant.motor)))
    else:
        half = 0.5 * params.tau * machine.p * plant.load[0] if env.hold == "stator" else 0.0
        phases = machine.phases(volts, machine.frame((*plant.motor[:-1], plant.motor[-1] + half)))
    if env.dq_actions:
        ahead = (0.5 + env.dead_time) * params.tau
        frame = machine.action_frame(
            state.plant.motor, state.plant.flux or None, state.plant.load[0], ahead, env.upstream
        )
        if turning:
            dq = unturn(clarke(phases[:3]), frame[:2])
            dq += unturn(clarke(phases[3:]), frame[2:]) if isinstance(machine, DFIM) else ()
        else:
            dq = machine.inputs(phases, frame)
        scale = (2.0,) * 2 + ((1.0,) if isinstance(machine, EESM) else (2.0, 2.0))
        action = tuple(s * u / u_sup for s, u in zip(scale, dq, strict=False))
    else:
        action = ()
        pieces = converters.cut(phases, [part.outputs for part in _parts(env)])
        for part, piece in zip(_parts(env), pieces, strict=True):
            if part.outputs == 3:  # the middle of the largest and the smallest on the middle of the link
                high = functools.reduce(jnp.maximum, piece)
                low = functools.reduce(jnp.minimum, piece)
                piece = tuple(u - 0.5 * (high + low) for u in piece)
            action += tuple(u / (part.reach * u_sup) for u in piece)
    low = -1.0 if env.dq_actions else jnp.asarray(env.converter.low)
    return jnp.clip(jnp.stack(alike(*action)), low, 1.0)


def _voltages(
    env: MotorDrive, params: Params, gains: Gains, plant: Plant, wanted: tuple, carry: Carry
) -> tuple[tuple, Carry]:
    """The current loops' voltages, on the axes `to_action` takes."""
    machine, omega, tau = params.machine, plant.load[0], params.tau
    now = measured(env, params, plant)
    errors = tuple(x - y for x, y in zip(wanted, now, strict=True))
    push = tuple(
        p * e + i * total
        for p, i, e, total in zip(gains.current_p, gains.current_i, errors, carry.current, strict=True)
    )
    if isinstance(machine, Induction):
        # The currents after the step are to be on the axes of the flux after the step, wherever it turns to.
        flux = plant.motor[2:4]
        after, rotor = machine.observe_flux(flux, plant.motor, omega, tau), ()
        if isinstance(machine, DFIM):
            rotor = rotor_flux(env, params, gains, plant)[1]
            after = tuple(x + tau * u for x, u in zip(after, rotor, strict=True))
        leakage = machine.sigma * machine.l_s
        axes = flux_frame(flux if env.upstream else after)  # gym-electric-motor measures on those of before
        turned = turn(now, axes)
        emf = tuple(
            (leakage * (turned[k] - plant.motor[k]) + machine.l_m / machine.l_r * (after[k] - flux[k])) / tau
            + machine.r_s * plant.motor[k]
            for k in range(2)
        )
        volts = tuple(u + back for u, back in zip(turn(push, axes), emf, strict=True))
    else:
        emf = back_emf(machine, plant.motor, omega)
        if isinstance(machine, EESM):  # each winding's flux changes by the other's current
            d, q, e = push
            push = (d + machine.l_m / machine.l_e * e, q, e + 1.5 * machine.l_m / machine.l_d * d)
        volts = tuple(u + back for u, back in zip(push, emf, strict=True))
        if isinstance(machine, EESM):  # the excitation answers to the d voltage that the converter can make
            u_d = limited(env, params, volts, plant.u_sup[0], emf[:2])[0][0] - emf[0]
            volts = (*volts[:2], machine.sigma * e + 1.5 * machine.l_m / machine.l_d * u_d)
    volts, free = limited(env, params, volts, plant.u_sup[0], emf[:2])
    totals = tuple(total + jnp.where(ok, tau * e, 0) for total, ok, e in zip(carry.current, free, errors, strict=True))
    if isinstance(machine, DFIM):
        volts = (*volts, *rotor)
    return volts, carry._replace(current=totals)


def _pi(
    env: MotorDrive, params: Params, gains: Gains, state: State, plant: Plant, wanted: tuple, carry: Carry
) -> tuple[Any, Carry]:
    volts, carry = _voltages(env, params, gains, plant, wanted, carry)
    return to_action(env, params, state, plant, volts), carry


@functools.cache
def _prompt(env: MotorDrive) -> MotorDrive:
    """The drive whose actions reach the converter at once and as they are."""
    return dataclasses.replace(env, dead_time=0, dq_actions=False)


def _after(env: MotorDrive, params: Params, plant: Plant, action: Any, time: Any) -> Plant:
    """The plant a step after an action reaches the converter, with what is expected of a random load."""
    return _prompt(env).advance((), plant.replace(pending=()), action, time, params)


def _cost(env: MotorDrive, params: Params, plant: Plant, wanted: tuple) -> Any:
    """Squared errors of the currents, of their limits, and what is near the limits; much more for what is beyond."""
    now = measured(env, params, plant)
    sizes = [env.limit(name, params) for name in controlled_currents(env)]
    cost = sum(((i - goal) / size) ** 2 for i, goal, size in zip(now, wanted, sizes, strict=True))
    values = {name: x / env.limit(name, params) for name, x in env.signals(plant, params).items()}
    for kind, names in env.constraints or ():
        squares = [values[name] ** 2 for name in names] if isinstance(kind, str) else []
        for square in [sum(squares)] if kind == "squared" else squares:
            cost = cost + 10 * jnp.maximum(square - 0.9, 0) ** 2 + 10 * (square > 1)
    return cost


def _gradient_mpc(
    env: MotorDrive, params: Params, gains: Gains, state: State, plant: Plant, wanted: tuple, carry: Carry
) -> tuple[Any, Carry]:
    """A plan of `HORIZON` steps by gradients through the plant, of which the first is done.

    The plan says where the currents should be after each step; each step's voltage is the one that would bring them
    there if nothing but the winding's inductance stood in the way, within limits. So the squared error's second
    derivative is about one for each unknown, and plain gradient steps are Newton's.
    """
    sharp = gains.replace(
        current_p=tuple(h / params.tau for h in inductances(params.machine)), current_i=(0.0,) * len(wanted)
    )

    def decide(plant, goals):
        volts, _ = _voltages(env, params, sharp, plant, goals, carry)
        return to_action(_prompt(env), params, state, plant, volts), volts

    def total(plan):
        def step(inner, goals):
            plant, k = inner
            action, _ = decide(plant, goals)
            plant = _after(env, params, plant, action, state.time + env.dead_time + k)
            return (plant, k + 1), _cost(env, params, plant, wanted)

        start = jax.tree.map(jnp.asarray, plant.replace(pending=()))
        return jnp.sum(jax.lax.scan(step, (start, jnp.int32(0)), plan)[1])

    scale = tuple(0.5 * env.limit(name, params) ** 2 * gains.rate for name in controlled_currents(env))

    def improve(_, plan):
        slope = jax.grad(total)(plan)
        return tuple(x - s * jnp.nan_to_num(g) for x, s, g in zip(plan, scale, slope, strict=True))

    goals = tuple(jnp.broadcast_to(x, (HORIZON,)) for x in alike(*wanted))
    plan = jax.lax.fori_loop(0, ITERATIONS, improve, goals)
    _, volts = decide(plant, tuple(x[0] for x in plan))
    return to_action(env, params, state, plant, volts), carry


def _hysteresis(
    env: MotorDrive, params: Params, gains: Gains, state: State, plant: Plant, wanted: tuple, carry: Carry
) -> tuple[Any, Carry]:
    """Each half bridge of three keeps its phase in the band; a bridge of four drives forward, idles or backward."""
    machine, frame = params.machine, params.machine.frame(plant.motor)
    now = machine.phase_currents(plant.motor, frame)
    if isinstance(machine, DFIM):
        goals = machine.phases((*wanted, 0.0, 0.0), frame)
    elif machine.dq:
        goals = machine.phases(wanted, frame)
    else:
        now, goals = measured(env, params, plant), wanted
    actions, switches, done = [], list(carry.switches), 0
    for part in _parts(env):
        errors = [goals[done + k] - now[done + k] for k in range(part.outputs)]
        width = gains.band * (params.limits.i_e if machine.dq and part.outputs == 1 else params.limits.i)
        if part.outputs == 3:
            legs = [jnp.where(e > width, 1, jnp.where(e < -width, 0, switches[done + k])) for k, e in enumerate(errors)]
            switches[done : done + 3] = legs
            action = 4 * legs[0] + 2 * legs[1] + legs[2]
            if isinstance(machine, DFIM) and done:
                action = 0 * action  # the rotor is short-circuited
        else:
            idle = 1 if not part.locks else 0
            action = jnp.where(errors[0] > width, 1, jnp.where(errors[0] < -width, 0 if idle else 2, 0))
        actions.append(action.astype(jnp.int32))
        done += part.outputs
    return _joined(actions), carry._replace(switches=tuple(x.astype(jnp.int32) for x in switches))


def _joined(actions: list) -> Any:
    return actions[0] if len(actions) == 1 else jnp.stack(actions)


def candidates(env: MotorDrive) -> list[tuple[int, ...]]:
    """Actions of a finite control set, each voltage once."""
    last = {2: 2, 3: 3, 4: 3, 8: 7}  # the last short-circuits as the first does
    return list(itertools.product(*(range(last[n]) for n in env.converter.sizes)))


def _finite_mpc(
    env: MotorDrive, params: Params, gains: Gains, state: State, plant: Plant, wanted: tuple, carry: Carry
) -> tuple[Any, Carry]:
    """Every switching state, one step through the plant; the least cost."""
    table = jnp.asarray(candidates(env), jnp.int32)
    actions = table[:, 0] if table.shape[1] == 1 else table

    def judge(action):
        after = _after(env, params, plant, action, state.time + env.dead_time)
        cost = _cost(env, params, after, wanted)
        if env.motor == "DFIM":  # without a goal its flux would go anywhere
            goal, _ = rotor_flux(env, params, gains, plant)
            rated = params.machine.l_m * params.limits.i
            cost += sum(((x - y) / rated) ** 2 for x, y in zip(after.motor[2:4], goal, strict=True))
        return cost

    return actions[jnp.argmin(jax.vmap(judge)(actions))], carry


def stator_flux(machine: Any, state: Any) -> tuple[Any, Any]:
    """On stator axes [V s]."""
    flux = machine.stator_flux(state)
    return flux if isinstance(machine, Induction) else turn(flux, machine.frame(state))


def _dtc(
    env: MotorDrive, params: Params, gains: Gains, state: State, plant: Plant, wanted: tuple, carry: Carry
) -> tuple[Any, Carry]:
    """The vector that turns and stretches the stator's flux as bands about torque and flux ask for.

    Both wanted values are those of the wanted currents. Flux on or off keeps its last choice in the band, torque
    likewise up, down or at rest.
    """
    machine, motor = params.machine, plant.motor
    if isinstance(machine, Induction):
        leakage = machine.sigma * machine.l_s
        flux = jnp.sqrt(motor[2] ** 2 + motor[3] ** 2)
        d, q = leakage * wanted[0] + machine.l_m / machine.l_r * flux, leakage * wanted[1]
        torque = 1.5 * machine.p * machine.l_m / machine.l_r * flux * wanted[1]
    else:
        d, q = machine.stator_flux(wanted)
        torque = machine.torque(wanted)
    alpha, beta = stator_flux(machine, motor)
    goal = jnp.sqrt(d * d + q * q)
    error, width = goal - jnp.sqrt(alpha**2 + beta**2), gains.band * goal
    up = jnp.where(
        error > width, 1, jnp.where(error < -width, -1, jnp.where(carry.switches[0] == 0, 1, carry.switches[0]))
    )
    error, width = torque - machine.torque(motor), gains.band * params.limits.torque
    before = carry.switches[1]
    stay = jnp.where(before * error > 0, before, 0)
    turning = jnp.where(error > width, 1, jnp.where(error < -width, -1, stay))
    sector = jnp.round(jnp.arctan2(beta, alpha) / (math.pi / 3)).astype(jnp.int32)
    vector = (sector + turning * jnp.where(up > 0, 1, 2)) % 6
    action = jnp.where(turning == 0, 0, jnp.asarray(VECTORS, jnp.int32)[vector])
    # A flux that is far too small is built up first: rest would never.
    build = (turning == 0) & (jnp.sqrt(alpha**2 + beta**2) < 0.5 * goal)
    action = jnp.where(build, jnp.asarray(VECTORS, jnp.int32)[sector % 6], action).astype(jnp.int32)
    switches = (up.astype(jnp.int32), turning.astype(jnp.int32), *carry.switches[2:])
    return action, carry._replace(switches=switches)
