"""A battery that sags under load and empties: what it does to the rotors' speed.

    open-circuit voltage = empty + (full - empty) charge                          charge from 0 to 1
    P = sum over rotors of torque(n) omega / efficiency                           electric power [W]
    V = (open + sqrt(open^2 - 4 R P)) / 2,   I = P / V                            from P = V I, V = open - R I
    d charge / dt = -I / capacity

An electric motor's speed follows its voltage: a command given as the speed at full voltage is scaled by V / full.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxrl.environment import pytree

from .dynamics import Model, polynomial


@pytree
class Battery:
    """By default of a Crazyflie's size: one cell of 250 mA h; hovering, it lasts about 7 minutes."""

    full: jax.Array = 4.2  # V, open circuit at charge 1
    empty: jax.Array = 3.2  # V, at charge 0
    resistance: jax.Array = 0.12  # ohm
    capacity: jax.Array = 900.0  # C (3600 for each A h)
    efficiency: jax.Array = 0.33  # of motors and their electronics: mechanical power over electric


def power(rpm: Any, model: Model, battery: Battery) -> Array:
    """What the rotors draw [W]; for models whose rotor speeds are in rpm, not fitted on a throttle."""
    mechanical = sum(polynomial(model.torque, n) * n for n in rpm) * (math.pi / 30)
    return jnp.maximum(mechanical, 0) / battery.efficiency


def voltage(charge: Any, rpm: Any, model: Model, battery: Battery) -> Array:
    """At the terminals [V]. More than open^2 / 4R [W] cannot be drawn: there it is half the open-circuit voltage."""
    opened = battery.empty + (battery.full - battery.empty) * jnp.clip(charge, 0, 1)
    root = opened * opened - 4 * battery.resistance * power(rpm, model, battery)
    safe = jnp.where(root > 0, root, 1)  # the square root has no derivative at zero
    return 0.5 * (opened + jnp.where(root > 0, jnp.sqrt(safe), 0))


def voltage_ratio(charge: Any, rpm: Any, model: Model, battery: Battery) -> Array:
    """What a rotor speed command (4,) is multiplied by, at the rotors' speeds `rpm` (4,)."""
    return voltage(charge, rpm, model, battery) / battery.full


def discharge(charge: Any, rpm: Any, model: Model, battery: Battery, dt: Any) -> Array:
    """The charge after `dt` [s] at rotor speeds `rpm` (4,)."""
    opened = battery.empty + (battery.full - battery.empty) * jnp.clip(charge, 0, 1)
    drawn = jnp.minimum(power(rpm, model, battery), opened * opened / (4 * battery.resistance))
    current = drawn / voltage(charge, rpm, model, battery)
    return jnp.maximum(charge - dt * current / battery.capacity, 0)
