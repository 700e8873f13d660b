"""The cascade body rates, attitude, velocity, position: four loops, each of which sets the one before.

`attitude_loop` turns the tilt before the yaw (Brescianini and D'Andrea 2018).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrl.environment import pytree
from jaxrl.math import sincos

from ..dynamics import Drone, Model
from ..rotations import Quaternion, Vector, add, conjugate, dot, norm, product, unit, up
from .allocation import allocate, rotor_speeds, torque_of
from .errors import integrated, zeros
from .setpoints import Attitude, Rates, Setpoint


@pytree
class CascadeGains:
    """Of the four loops. Rates of convergence [1/s] about the body's axes or along the world's."""

    rates: jax.Array = (20.0, 20.0, 8.0)  # 1/s
    rates_integral: jax.Array = (20.0, 20.0, 8.0)  # 1/s^2
    rates_limit: jax.Array = (20.0, 20.0, 5.0)  # rad/s^2, of the integral's part
    attitude: jax.Array = (8.0, 8.0, 3.0)  # 1/s
    max_body_rates: jax.Array = (10.0, 10.0, 3.0)  # rad/s, asked for by the attitude
    velocity: jax.Array = (3.0, 3.0, 4.0)  # 1/s
    velocity_integral: jax.Array = (1.0, 1.0, 2.0)  # 1/s^2
    velocity_limit: jax.Array = (3.0, 3.0, 3.0)  # m/s^2, of the integral's part
    position: jax.Array = (1.5, 1.5, 2.0)  # 1/s
    max_speed: jax.Array = 3.0  # m/s, asked for by the position
    max_tilt: jax.Array = 0.8  # rad, asked for by the velocity
    motor_bandwidth: jax.Array = 40.0  # 1/s: see `rotor_speeds`


class Cascade(NamedTuple):
    """What the four loops remember: the integrals' parts of the acceleration."""

    spin: Any  # rad/s^2
    acceleration: Any  # m/s^2


def cascade_init() -> Cascade:
    """The carry of all four loops."""
    return Cascade(zeros(3), zeros(3))


def _shrunk(v: Any, most: Any) -> Any:
    """`v`, no longer than `most`."""
    scale = most / jnp.maximum(norm(v), most)
    return tuple(scale * x for x in v)


def body_rates_loop(
    carry: Cascade, drone: Drone, setpoint: Rates, gains: CascadeGains, model: Model, dt: Any
) -> tuple[Any, Cascade]:
    """Collective thrust and body rates (CTBR) to rotor speeds (4,) [rpm]."""
    error = add(setpoint.body_rates, drone.body_rates, -1)
    integral = integrated(carry.spin, error, gains.rates_integral, gains.rates_limit, dt)
    spin = tuple(gains.rates[i] * error[i] + integral[i] for i in range(3))
    thrusts = allocate(model, setpoint.thrust, torque_of(model, drone.body_rates, spin))
    return rotor_speeds(model, drone, thrusts, gains.motor_bandwidth, dt), carry._replace(spin=integral)


def attitude_rates(current: Quaternion, wanted: Quaternion, gain: Vector) -> Vector:
    """Body rates [rad/s] that turn `current` into `wanted`: the thrust's direction the shortest way, yaw on its own."""
    w, x, y, z = product(conjugate(current), wanted)
    length = norm((w, z))
    sign = jnp.where(w < 0, -1, 1)
    return (
        2 * gain[0] * (w * x - y * z) / length,
        2 * gain[1] * (w * y + x * z) / length,
        2 * gain[2] * sign * z / length,
    )


def attitude_loop(
    carry: Cascade, drone: Drone, setpoint: Attitude, gains: CascadeGains, model: Model, dt: Any
) -> tuple[Any, Cascade]:
    """Collective thrust and attitude to rotor speeds (4,) [rpm]."""
    rates = attitude_rates(drone.quaternion, setpoint.quaternion, gains.attitude)
    rates = tuple(jnp.clip(r, -most, most) for r, most in zip(rates, gains.max_body_rates, strict=True))
    rates = Rates(setpoint.thrust, add(rates, setpoint.body_rates))
    return body_rates_loop(carry, drone, rates, gains, model, dt)


def attitude_of(force: Vector, yaw: Any) -> Quaternion:
    """The attitude whose z axis is along `force`, turned from level the shortest way, after a turn by `yaw` [rad].

    Smooth but for forces straight down (the Hopf fibration of Watterson and Kumar 2017). No force: level.
    """
    sine, cosine = sincos(0.5 * jnp.asarray(yaw))
    x, y, z = unit(force)
    tilt = unit((1 + z, -y, x, 0.0))
    return product(tilt, (cosine, 0.0, 0.0, sine))


def velocity_loop(
    carry: Cascade, drone: Drone, setpoint: Setpoint, gains: CascadeGains, model: Model, dt: Any
) -> tuple[Any, Cascade]:
    """Velocity (with acceleration and yaw) to rotor speeds (4,) [rpm]."""
    error = add(setpoint.velocity, drone.velocity, -1)
    integral = integrated(carry.acceleration, error, gains.velocity_integral, gains.velocity_limit, dt)
    x, y, z = tuple(setpoint.acceleration[i] + gains.velocity[i] * error[i] + integral[i] for i in range(3))
    # Height first: the drone falls at up to 0.8 g and leans from what carries it.
    lift = jnp.clip(z + model.gravity, 0.2 * model.gravity, model.max_thrust / model.mass)
    x, y = _shrunk((x, y), lift * jnp.tan(gains.max_tilt))
    force = tuple(model.mass * a for a in (x, y, lift))
    thrust = dot(force, up(drone.quaternion))
    attitude = Attitude(thrust, attitude_of(force, setpoint.yaw), (0.0, 0.0, setpoint.yaw_rate))
    return attitude_loop(carry._replace(acceleration=integral), drone, attitude, gains, model, dt)


def position_loop(
    carry: Cascade, drone: Drone, setpoint: Setpoint, gains: CascadeGains, model: Model, dt: Any
) -> tuple[Any, Cascade]:
    """Position (with velocity, acceleration and yaw) to rotor speeds (4,) [rpm]: flies to far waypoints too."""
    error = add(setpoint.position, drone.position, -1)
    approach = _shrunk(tuple(gains.position[i] * error[i] for i in range(3)), gains.max_speed)
    setpoint = setpoint._replace(velocity=add(setpoint.velocity, approach))
    return velocity_loop(carry, drone, setpoint, gains, model, dt)
