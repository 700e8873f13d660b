"""`dtc`: direct torque control, after Takahashi and Noguchi, of three-phase machines."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp

from ..drive import MotorDrive
from ..machines.scim import Induction
from ..machines.transforms import turn
from ..plant import Params, Plant, State
from .gains import Carry, Gains

VECTORS = (4, 6, 2, 3, 1, 5)
"""Actions of a bridge of six whose voltage points to 0, 60, .. 300 degrees."""


def stator_flux(machine: Any, state: Any) -> tuple[Any, Any]:
    """On stator axes [V s]."""
    flux = machine.stator_flux(state)
    return flux if isinstance(machine, Induction) else turn(flux, machine.frame(state))


def dtc(
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
