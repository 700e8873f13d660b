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

Tuning: the magnitude optimum, L/(2 tau) and r/(2 tau); or the symmetric one with T_sigma = tau, a = 4 as in
gym-electric-motor's gem_controllers, L/(a tau) and L/(a^3 tau^2); speed J/(a t_n), J/(a t_n)^2 with t_n = a^2 tau;
position 1/(a^2 t_n), a times slower than the speed.

Where gym-electric-motor differs: it gives an induction machine l_r/r_r for L (the symmetric optimum does, too, with
`upstream=True`, else sigma l_s), cuts a voltage vector by the square of its excess, scales by the voltage limit in
place of the supply's, has the mechanical in place of the electrical angle ahead, knows no doubly fed or six-phase
machine, and cannot switch a bridge of six at all. Here phases share the link by space vectors, and dead time is bridged
by predicting the plant over the actions on their way.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from .. import converters, tasks
from ..drive import MotorDrive
from ..plant import Params, State
from .dtc import dtc
from .gains import FLUX, OUTER, Carry, Gains, controlled_currents, tune
from .hysteresis import hysteresis
from .mpc import finite_mpc, gradient_mpc
from .operating_points import flux_point
from .outer_loops import currents_wanted
from .pi import pi
from .prediction import arriving

METHODS = {"Cont": ("pi", "mpc"), "Finite": ("hysteresis", "mpc", "dtc")}
TUNINGS = ("symmetric", "magnitude")


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
    if any(isinstance(part, converters.NoConverter) for part in env.converter.each):
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
        ("Cont", "pi"): pi,
        ("Cont", "mpc"): gradient_mpc,
        ("Finite", "hysteresis"): hysteresis,
        ("Finite", "mpc"): finite_mpc,
        ("Finite", "dtc"): dtc,
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


def init(env: MotorDrive) -> Carry:
    zero = jnp.zeros(())
    switches = (jnp.int32(0),) * max(env.converter.outputs, 2)
    position = zero if env.referenced == ("position",) else ()
    return Carry(tuple(zero for _ in controlled_currents(env)), zero, switches, position)
