"""gym-pybullet-drones' outer loop for Betaflight (`CTBRControl`): a setpoint to collective thrust and body rates."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from jaxrl.environment import pytree
from jaxrl.math import sincos

from ..dynamics import Drone, Model
from ..rotations import add, conjugate, cross, dot, product, unit, up
from .errors import quaternion_of
from .setpoints import Rates, Setpoint


@pytree
class CTBRGains:
    position: jax.Array = (3.0, 3.0, 8.0)  # 1/s^2
    velocity: jax.Array = (2.5, 2.5, 5.0)  # 1/s
    attitude: jax.Array = (5.0, 5.0, 1.0)  # 1/s


def ctbr_init() -> tuple[()]:
    return ()


def ctbr(
    carry: tuple[()], drone: Drone, setpoint: Setpoint, gains: CTBRGains, model: Model, dt: Any
) -> tuple[Rates, tuple[()]]:
    """Position, velocity, acceleration and yaw to thrust and body rates, for `body_rates_loop`.

    That of gym-pybullet-drones' `CTBRControl`, which knows neither acceleration nor yaw and gives thrust by mass.
    """
    error = add(setpoint.position, drone.position, -1)
    dragging = add(setpoint.velocity, drone.velocity, -1)
    weight = (0.0, 0.0, model.gravity)
    force = tuple(
        setpoint.acceleration[i] + gains.position[i] * error[i] + gains.velocity[i] * dragging[i] + weight[i]
        for i in range(3)
    )
    sine, cosine = sincos(jnp.asarray(setpoint.yaw))
    z = unit(force)
    x = unit(cross((-sine, cosine, 0 * sine), z))
    wanted = quaternion_of((x, cross(z, x), z))
    turn = product(conjugate(drone.quaternion), wanted)
    sign = jnp.where(turn[0] < 0, -2, 2)
    rates = tuple(sign * gains.attitude[i] * turn[i + 1] for i in range(3))
    return Rates(model.mass * dot(force, up(drone.quaternion)), rates), carry
