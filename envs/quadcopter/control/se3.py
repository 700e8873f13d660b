"""Geometric tracking of position and yaw, the attitude's feed-forward exact (Lee, Leok and McClamroch 2010)."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from jaxrl.environment import pytree
from jaxrl.math import sincos

from ..dynamics import Drone, Model
from ..rotations import Vector, add, cross, dot, norm, rotate
from .allocation import allocate, rotor_speeds, torque_of
from .errors import axes_of, rotation_error
from .setpoints import Setpoint


@pytree
class SE3Gains:
    """Natural frequencies [rad/s] and damping ratios of position and attitude. Lee's gains are, with these,
    kx = m w^2, kv = 2 d m w and kR = J w^2, kOmega = 2 d J w."""

    position: jax.Array = (2.5, 2.5, 3.0)  # rad/s
    position_damping: jax.Array = (0.8, 0.8, 0.9)  # 1
    attitude: jax.Array = (12.0, 12.0, 5.0)  # rad/s
    attitude_damping: jax.Array = (0.8, 0.8, 0.8)  # 1
    motor_bandwidth: jax.Array = 40.0  # 1/s: see `rotor_speeds`


def se3_init() -> tuple[()]:
    return ()


def _unit_twice(a: Vector, da: Vector, dda: Vector) -> tuple[Vector, Vector, Vector]:
    """a / |a| and its two derivatives in time, from those of a."""
    scale = 1 / norm(a)
    u = tuple(scale * x for x in a)
    growth = dot(u, da)
    du = tuple(scale * (x - growth * y) for x, y in zip(da, u, strict=True))
    bend = dot(u, dda) + dot(du, da)
    ddu = tuple(scale * (x - bend * y - 2 * growth * z) for x, y, z in zip(dda, u, du, strict=True))
    return u, du, ddu


def _cross_twice(a: tuple[Vector, Vector, Vector], b: tuple[Vector, Vector, Vector]) -> tuple[Vector, Vector, Vector]:
    """a x b and its two derivatives in time, from those of a and b."""
    mixed = cross(a[1], b[1])
    return (
        cross(a[0], b[0]),
        add(cross(a[1], b[0]), cross(a[0], b[1])),
        add(add(cross(a[2], b[0]), cross(a[0], b[2])), mixed, 2),
    )


def se3(
    carry: tuple[()], drone: Drone, setpoint: Setpoint, gains: SE3Gains, model: Model, dt: Any
) -> tuple[Any, tuple[()]]:
    """Geometric tracking (Lee, Leok and McClamroch 2010, eqs. 15 to 19), with the exact feed-forward of the attitude.

    Follows position, velocity, acceleration, jerk, snap, yaw and yaw rate. The attitude's error is 2 sin(angle / 2), as
    Lee (2012) has it, not sin(angle), which vanishes upside down. There is no limit on the tilt: far setpoints turn it
    over; give `position_loop` those.
    """
    stiffness = tuple(w * w for w in gains.position)
    damping = tuple(2 * d * w for d, w in zip(gains.position_damping, gains.position, strict=True))

    def wanted(here, there, and_there):  # what the error's derivatives ask of the next
        return tuple(and_there[i] - stiffness[i] * here[i] - damping[i] * there[i] for i in range(3))

    # The force wanted, by mass, and its derivatives along the flight that it makes.
    p, q, _ = drone.body_rates
    axes = axes_of(drone.quaternion)
    z, dz = axes[2], rotate(drone.quaternion, (q, -p, 0 * p))
    weight = (0.0, 0.0, model.gravity)
    error = add(drone.position, setpoint.position, -1)
    derror = add(drone.velocity, setpoint.velocity, -1)
    force = add(wanted(error, derror, setpoint.acceleration), weight)
    lift = dot(force, z)
    dderror = add(add(tuple(lift * x for x in z), weight, -1), setpoint.acceleration, -1)
    dforce = wanted(derror, dderror, setpoint.jerk)
    dlift = dot(dforce, z) + dot(force, dz)
    ddderror = add(tuple(dlift * x + lift * y for x, y in zip(z, dz, strict=True)), setpoint.jerk, -1)
    ddforce = wanted(dderror, ddderror, setpoint.snap)

    # The attitude wanted, by its axes, and theirs: z along the force, y across the heading.
    sine, cosine = sincos(jnp.asarray(setpoint.yaw))
    turn = setpoint.yaw_rate
    nil = 0 * sine
    heading = (
        (cosine, sine, nil),
        (-turn * sine, turn * cosine, nil),
        (-turn * turn * cosine, -turn * turn * sine, nil),
    )
    zs = _unit_twice(force, dforce, ddforce)
    ys = _unit_twice(*_cross_twice(zs, heading))
    xs = _cross_twice(ys, zs)
    # Of a turning frame dx = w_z y - w_y z, dy = w_x z - w_z x, dz = w_y x - w_x y.
    rates = (dot(ys[1], zs[0]), dot(zs[1], xs[0]), dot(xs[1], ys[0]))
    spin = (
        dot(ys[2], zs[0]) + dot(ys[1], zs[1]),
        dot(zs[2], xs[0]) + dot(zs[1], xs[1]),
        dot(xs[2], ys[0]) + dot(xs[1], ys[1]),
    )

    def in_body(v):  # from the frame wanted
        v = tuple(v[0] * x + v[1] * y + v[2] * z for x, y, z in zip(xs[0], ys[0], zs[0], strict=True))
        return tuple(dot(axis, v) for axis in axes)

    rates, spin = in_body(rates), in_body(spin)
    wanted_axes = (xs[0], ys[0], zs[0])
    trace = sum(dot(a, b) for a, b in zip(wanted_axes, axes, strict=True))
    shrink = 1 / jnp.sqrt(jnp.maximum(1 + trace, 1e-6))  # 1 + trace = 4 cos(angle / 2)^2
    tilt = tuple(shrink * e for e in rotation_error(wanted_axes, axes))
    spin = add(spin, cross(drone.body_rates, rates), -1)
    spin = tuple(
        spin[i]
        - gains.attitude[i] ** 2 * tilt[i]
        - 2 * gains.attitude_damping[i] * gains.attitude[i] * (drone.body_rates[i] - rates[i])
        for i in range(3)
    )
    thrusts = allocate(model, model.mass * lift, torque_of(model, drone.body_rates, spin))
    return rotor_speeds(model, drone, thrusts, gains.motor_bandwidth, dt), carry
