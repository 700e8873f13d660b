"""crazyflow's Mellinger controller (Mellinger and Kumar 2011) in its three stages; gains have units of its airframe."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrl.environment import pytree

from .. import models
from ..dynamics import Drone, Model, polynomial
from ..rotations import add, dot, up
from .allocation import rotor_speeds, yaw_ratio
from .errors import axes_of, heading_axes, integrated, quaternion_of, rotation_error, zeros
from .pwm import authority_of, if_lagging, mixer, rescaled
from .setpoints import Attitude, Setpoint


@pytree
class MellingerGains:
    """Those of crazyflow's `cf2x_L250`. Of another airframe: `mellinger_gains`."""

    mass: jax.Array = 0.029  # kg, that it believes in: not the plant's
    position_p: jax.Array = (0.4, 0.4, 1.25)  # N/m
    position_i: jax.Array = (0.05, 0.05, 0.05)  # N/(m s)
    position_d: jax.Array = (0.2, 0.2, 0.5)  # N s/m
    position_limit: jax.Array = (2.0, 2.0, 0.4)  # m s, of the integral
    thrust_scale: jax.Array = 132000.0  # PWM/N, of all rotors
    attitude_p: jax.Array = (70000.0, 70000.0, 60000.0)  # PWM for each unit of `rotation_error`
    attitude_i: jax.Array = (0.0, 0.0, 500.0)  # PWM/s
    attitude_d: jax.Array = (20000.0, 20000.0, 12000.0)  # PWM s/rad
    attitude_limit: jax.Array = (1.0, 1.0, 1500.0)  # s, of the integral
    rates_d: jax.Array = (200.0, 200.0, 0.0)  # PWM s^2/rad
    torque_limit: jax.Array = (32000.0, 32000.0, 32000.0)  # PWM
    min_pwm: jax.Array = 7000.0
    max_pwm: jax.Array = 65535.0
    thrust_to_torque: jax.Array = 0.007350862856566459  # m
    motor_bandwidth: jax.Array = 0.0  # 1/s: see `rotor_speeds`


MELLINGER = {
    "cf2x_L250": MellingerGains(),
    "cf2x_P250": MellingerGains().replace(thrust_to_torque=0.0069928948992470565),
    "cf2x_T350": MellingerGains().replace(mass=0.0325, thrust_to_torque=0.005355990836477486),
    "cf21B_500": MellingerGains().replace(mass=0.0393, thrust_to_torque=0.00593893393599368),
}
"""crazyflow's own, for `models.CRAZYFLOW_0_4`."""


def mellinger_gains(model: Model, bandwidth: Any = 1.0, motor_bandwidth: Any = 40.0) -> MellingerGains:
    """Gains with which `model` answers as crazyflow's `cf2x_L250`; without its errors in mass and yaw torque.

    The attitude's gains are multiplied by `bandwidth`. `motor_bandwidth` is that of rotors that lag; without a lag, a
    derivative of body rates would only ring, and is zero. Yaw has a tenth of the PWM's range.
    """
    gains, l250 = MellingerGains(), models.CRAZYFLOW_0_1["cf2x_L250"]

    def authority(model):
        return authority_of(model, 0.25 * model.max_thrust / gains.max_pwm)

    ratio = tuple(a / b / bandwidth for a, b in zip(authority(model), authority(l250), strict=True))
    gains = rescaled(gains, model.mass / l250.mass, ratio)
    return gains.replace(
        mass=model.mass,
        torque_limit=(*gains.torque_limit[:2], 0.1 * gains.max_pwm),
        thrust_scale=gains.max_pwm / model.max_thrust,
        rates_d=tuple(if_lagging(model, g) for g in gains.rates_d),
        min_pwm=4 * gains.max_pwm * jnp.maximum(polynomial(model.thrust, model.min_rpm), 0) / model.max_thrust,
        thrust_to_torque=yaw_ratio(model),
        motor_bandwidth=if_lagging(model, motor_bandwidth),
    )


class Mellinger(NamedTuple):
    position: Any  # integral of the position error, m s
    attitude: Any  # integral of the rotation error, s
    body_rates: Any  # their error at the last step, rad/s


class Wrench(NamedTuple):
    thrust: Any  # N
    torque: Any  # N m, in the body


def mellinger_init() -> Mellinger:
    return Mellinger(zeros(3), zeros(3), zeros(3))


def mellinger_state(
    carry: Mellinger, drone: Drone, setpoint: Setpoint, gains: MellingerGains, model: Model, dt: Any
) -> tuple[Attitude, Mellinger]:
    """The first stage, 100 Hz in crazyflow: position, velocity, acceleration and yaw to thrust and attitude."""
    error = add(setpoint.position, drone.position, -1)
    dragging = add(setpoint.velocity, drone.velocity, -1)
    total = integrated(carry.position, error, (1.0,) * 3, gains.position_limit, dt)
    weight = (0.0, 0.0, model.gravity)
    force = tuple(
        gains.mass * (setpoint.acceleration[i] + weight[i])
        + gains.position_p[i] * error[i]
        + gains.position_d[i] * dragging[i]
        + gains.position_i[i] * total[i]
        for i in range(3)
    )
    thrust = gains.thrust_scale * dot(force, up(drone.quaternion)) * model.max_thrust / gains.max_pwm
    attitude = quaternion_of(heading_axes(force, setpoint.yaw))
    return Attitude(thrust, attitude, (0.0, 0.0, setpoint.yaw_rate)), carry._replace(position=total)


def mellinger_attitude(
    carry: Mellinger, drone: Drone, setpoint: Attitude, gains: MellingerGains, model: Model, dt: Any
) -> tuple[Wrench, Mellinger]:
    """The second stage, 500 Hz: thrust and attitude to the wrench that four motors with limits then give."""
    tilt = rotation_error(axes_of(setpoint.quaternion), axes_of(drone.quaternion))
    total = integrated(carry.attitude, tilt, (-1.0,) * 3, gains.attitude_limit, dt)
    rates = add(drone.body_rates, setpoint.body_rates, -1)
    flies = setpoint.thrust > 0
    torque = tuple(
        jnp.where(
            flies,
            jnp.clip(
                -gains.attitude_p[i] * tilt[i]
                - gains.attitude_d[i] * rates[i]
                + gains.attitude_i[i] * total[i]
                - gains.rates_d[i] * (rates[i] - carry.body_rates[i]) / dt,
                -gains.torque_limit[i],
                gains.torque_limit[i],
            ),
            0,
        )
        for i in range(3)
    )
    collective = setpoint.thrust / model.max_thrust * gains.max_pwm
    newtons = 0.25 * model.max_thrust / gains.max_pwm
    thrusts = tuple(
        newtons * jnp.clip(collective + dot(row, torque), gains.min_pwm, gains.max_pwm) for row in mixer(model)
    )
    torque = (
        sum(model.rotor_y[i] * thrusts[i] for i in range(4)),
        -sum(model.rotor_x[i] * thrusts[i] for i in range(4)),
        gains.thrust_to_torque * sum(model.rotor_spin[i] * thrusts[i] for i in range(4)),
    )
    return Wrench(sum(thrusts), torque), carry._replace(attitude=total, body_rates=rates)


def mellinger_wrench(
    carry: Mellinger, drone: Drone, setpoint: Wrench, gains: MellingerGains, model: Model, dt: Any
) -> tuple[Any, Mellinger]:
    """The third stage, 500 Hz: a wrench to rotor speeds (4,) [rpm]; of four equal rotors on a square."""
    low, high = polynomial(model.thrust, model.min_rpm), polynomial(model.thrust, model.max_rpm)
    x, y = ([column[i] for i in range(4)] for column in (model.rotor_x, model.rotor_y))
    roll = setpoint.torque[0] / sum(v * v for v in y)
    pitch = setpoint.torque[1] / sum(v * v for v in x)
    yaw = setpoint.torque[2] / (4 * gains.thrust_to_torque)
    thrusts = tuple(
        jnp.clip(0.25 * setpoint.thrust + roll * y[i] - pitch * x[i] + yaw * model.rotor_spin[i], low, high)
        for i in range(4)
    )
    return rotor_speeds(model, drone, thrusts, gains.motor_bandwidth, dt), carry


def mellinger(
    carry: Mellinger, drone: Drone, setpoint: Setpoint, gains: MellingerGains, model: Model, dt: Any
) -> tuple[Any, Mellinger]:
    """The three stages at one rate (Mellinger and Kumar 2011, as crazyflow has it)."""
    attitude, carry = mellinger_state(carry, drone, setpoint, gains, model, dt)
    wrench, carry = mellinger_attitude(carry, drone, attitude, gains, model, dt)
    return mellinger_wrench(carry, drone, wrench, gains, model, dt)
