"""gym-pybullet-drones' PID (`DSLPIDControl`), with gains in units of its airframe."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrl.environment import pytree

from .. import models
from ..dynamics import Drone, Model
from ..rotations import add, dot, euler
from .allocation import ahead, rotor_speed
from .errors import axes_of, heading_axes, integrated, rotation_error, zeros
from .pwm import authority_of, if_lagging, mixer, rescaled
from .setpoints import Setpoint


@pytree
class DSLPIDGains:
    """Those of the Crazyflie. Of another airframe: `dslpid_gains`."""

    position_p: jax.Array = (0.4, 0.4, 1.25)  # N/m
    position_i: jax.Array = (0.05, 0.05, 0.05)  # N/(m s)
    position_d: jax.Array = (0.2, 0.2, 0.5)  # N s/m
    position_limit: jax.Array = (2.0, 2.0, 0.15)  # m s, of the integral
    attitude_p: jax.Array = (70000.0, 70000.0, 60000.0)  # PWM for each unit of `rotation_error`
    attitude_i: jax.Array = (0.0, 0.0, 500.0)  # PWM/s
    attitude_d: jax.Array = (20000.0, 20000.0, 12000.0)  # PWM s/rad
    attitude_limit: jax.Array = (1.0, 1.0, 1500.0)  # s, of the integral
    torque_limit: jax.Array = (3200.0, 3200.0, 3200.0)  # PWM
    pwm_scale: jax.Array = 0.2685  # rpm for each PWM
    pwm_offset: jax.Array = 4070.3  # rpm
    min_pwm: jax.Array = 20000.0
    max_pwm: jax.Array = 65535.0
    motor_bandwidth: jax.Array = 0.0  # 1/s: see `rotor_speeds`


def dslpid_gains(model: Model, bandwidth: Any = 1.0, motor_bandwidth: Any = 40.0) -> DSLPIDGains:
    """Gains with which `model` answers as gym-pybullet-drones' cf2x does, for which they are `DSLPIDGains()`.

    The PWM map is stretched to the model's full speed, and its least is the same part of hover. The attitude's gains
    are multiplied by `bandwidth`: steps longer than 1/240 s want less than one. `motor_bandwidth` is that of rotors
    that lag.
    """
    gains, cf2x = DSLPIDGains(), models.CF2X
    stretch = model.max_rpm / cf2x.max_rpm
    scale, offset = gains.pwm_scale * stretch, gains.pwm_offset * stretch
    least = (gains.pwm_scale * gains.min_pwm + gains.pwm_offset) * (model.hover_rpm / cf2x.hover_rpm)

    def authority(model, scale):
        return authority_of(model, (model.thrust[1] + 2 * model.thrust[2] * model.hover_rpm) * scale)

    ours, theirs = authority(model, scale), authority(cf2x, gains.pwm_scale)
    ratio = tuple(a / b for a, b in zip(ours, theirs, strict=True))
    roll, pitch, yaw = gains.torque_limit  # the rotors' range is for roll and pitch before it is for yaw
    return rescaled(gains, model.mass / cf2x.mass, tuple(r / bandwidth for r in ratio)).replace(
        torque_limit=(roll / ratio[0], pitch / ratio[1], yaw),
        pwm_scale=scale,
        pwm_offset=offset,
        min_pwm=(least - offset) / scale,
        motor_bandwidth=if_lagging(model, motor_bandwidth),
    )


class DSLPID(NamedTuple):
    euler: Any  # of the last step, rad
    position: Any  # integral of the position error, m s
    attitude: Any  # integral of the rotation error, s


def dslpid_init() -> DSLPID:
    return DSLPID(zeros(3), zeros(3), zeros(3))


def dslpid(
    carry: DSLPID, drone: Drone, setpoint: Setpoint, gains: DSLPIDGains, model: Model, dt: Any
) -> tuple[Any, DSLPID]:
    """The PID of gym-pybullet-drones (`DSLPIDControl`): follows position, velocity, yaw and yaw rate.

    Attitude rates are differences of Euler angles; a rate at the first step counts from level and north.
    """
    error = add(setpoint.position, drone.position, -1)
    dragging = add(setpoint.velocity, drone.velocity, -1)
    total = integrated(carry.position, error, (1.0,) * 3, gains.position_limit, dt)
    weight = (0.0, 0.0, model.weight)
    force = tuple(
        gains.position_p[i] * error[i] + gains.position_i[i] * total[i] + gains.position_d[i] * dragging[i] + weight[i]
        for i in range(3)
    )
    axes = axes_of(drone.quaternion)
    speed = rotor_speed(model, dot(force, axes[2]) / 4)
    thrust = (speed - gains.pwm_offset) / gains.pwm_scale

    angles = euler(drone.quaternion)
    tilt = rotation_error(heading_axes(force, setpoint.yaw), axes)
    wanted = (0.0, 0.0, setpoint.yaw_rate)
    rates = tuple(wanted[i] - (angles[i] - carry.euler[i]) / dt for i in range(3))
    twist = integrated(carry.attitude, tilt, (-1.0,) * 3, gains.attitude_limit, dt)
    torque = tuple(
        jnp.clip(
            -gains.attitude_p[i] * tilt[i] + gains.attitude_d[i] * rates[i] + gains.attitude_i[i] * twist[i],
            -gains.torque_limit[i],
            gains.torque_limit[i],
        )
        for i in range(3)
    )
    pwm = tuple(jnp.clip(thrust + dot(row, torque), gains.min_pwm, gains.max_pwm) for row in mixer(model))
    rpm = tuple(gains.pwm_scale * x + gains.pwm_offset for x in pwm)
    return ahead(model, drone, rpm, gains.motor_bandwidth, dt), DSLPID(angles, total, twist)
