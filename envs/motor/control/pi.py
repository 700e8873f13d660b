"""`pi`: PI on the currents with back-EMF decoupling, field-oriented where there is a field, with anti-wind-up."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from jaxrl.math import sincos

from ..drive import MotorDrive
from ..machines.dfim import DFIM
from ..machines.eesm import EESM
from ..machines.scim import Induction
from ..machines.transforms import flux_frame, turn
from ..plant import Params, Plant, State
from .gains import OUTER, Carry, Gains
from .operating_points import back_emf, flux_of_voltage, within
from .outer_loops import measured
from .voltages import limited, to_action


def rotor_flux(env: MotorDrive, params: Params, gains: Gains, plant: Plant) -> tuple[tuple, tuple]:
    """Of a doubly fed machine: the flux [V s] that should be there a step on, and the rotor's voltage towards it [V],
    both on stator axes.

    It turns at half of the rotor's speed, so that both converters have half of the voltage of rotation; its length is
    what that leaves, and the rotor's current beside the stator's largest; half of this where currents are controlled,
    which then have the other half. It grows with a quarter of the voltage, because the stator's stands against it.
    """
    machine, omega, tau, u_sup = params.machine, plant.load[0], params.tau, plant.u_sup[0]
    i_max, most = (1 - gains.margin) * params.limits.i, env.voltage_radius * u_sup
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


def current_loops(
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


def pi(
    env: MotorDrive, params: Params, gains: Gains, state: State, plant: Plant, wanted: tuple, carry: Carry
) -> tuple[Any, Carry]:
    volts, carry = current_loops(env, params, gains, plant, wanted, carry)
    return to_action(env, params, state, plant, volts), carry
