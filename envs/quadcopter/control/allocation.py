"""From thrust and torque of the body to the thrust of each rotor, and from that to rotor speeds."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp

from jaxrl.math import fence

from ..dynamics import Drone, Model, polynomial, thrust_to_rpm
from ..rotations import Vector, add, cross, dot


def _inverse(m: Any) -> list[list[Any]]:
    """Of a 4x4 matrix of scalars: cofactors by the determinant."""

    def cofactor(row, column):
        a, b, c = ([m[i][j] for j in range(4) if j != column] for i in range(4) if i != row)
        return (-1) ** (row + column) * dot(a, cross(b, c))

    cofactors = [[cofactor(i, j) for j in range(4)] for i in range(4)]
    scale = 1 / sum(m[0][j] * cofactors[0][j] for j in range(4))
    return [[cofactors[i][j] * scale for i in range(4)] for j in range(4)]


def allocation(model: Model) -> list[list[Any]]:
    """The 4x4 matrix, as rows of scalars, from thrust [N] and torque [N m] to the thrust of each rotor [N].

    A rotor's yaw torque counts in proportion to its thrust, as at hover.
    """
    ratio = yaw_ratio(model)
    return _inverse(
        [
            (1.0,) * 4,
            [model.rotor_y[i] for i in range(4)],
            [-model.rotor_x[i] for i in range(4)],
            [ratio * model.rotor_spin[i] for i in range(4)],
        ]
    )


def yaw_ratio(model: Model) -> Any:
    """Yaw torque over thrust of a rotor at hover [m]."""
    return 4 * polynomial(model.torque, model.hover_rpm) / model.weight


def largest(values: Any) -> Any:
    return functools.reduce(jnp.maximum, values)


def smallest(values: Any) -> Any:
    return functools.reduce(jnp.minimum, values)


def allocate(model: Model, thrust: Any, torque: Vector) -> Any:
    """The thrust of each rotor [N] for a thrust [N] and a torque [N m] in the body.

    Where rotors would leave [min_rpm, max_rpm], yaw torque is given up first, then thrust moves to make room for roll
    and pitch, and these shrink together only when they exceed what the rotors span.
    """
    thrust, torque = fence(jax.tree.map(jnp.asarray, (thrust, tuple(torque))))  # else each rotor computes them anew
    matrix = allocation(model)
    low, high = polynomial(model.thrust, model.min_rpm), polynomial(model.thrust, model.max_rpm)
    lift = [row[0] for row in matrix]  # of each rotor, a newton of thrust
    tilt = [(row[1] * torque[0] + row[2] * torque[1]) / row[0] for row in matrix]  # in newtons of thrust
    yaw = [row[3] * torque[2] for row in matrix]
    lowest, highest = [low / x for x in lift], [high / x for x in lift]
    room = smallest(highest) - largest(lowest)
    scale = room / jnp.maximum(largest(tilt) - smallest(tilt), room)
    tilt = [scale * t for t in tilt]
    thrust = jnp.clip(
        thrust,
        largest([b - t for b, t in zip(lowest, tilt, strict=True)]),
        smallest([b - t for b, t in zip(highest, tilt, strict=True)]),
    )
    thrusts = [x * (thrust + t) for x, t in zip(lift, tilt, strict=True)]
    tiny = 1e-12 * room

    def share(f, wanted):  # of the yaw torque that this rotor can do
        left = jnp.maximum(jnp.where(wanted > 0, high - f, f - low), 0)
        return left / jnp.maximum(jnp.maximum(jnp.abs(wanted), left), tiny)

    share_of_yaw = smallest([share(f, y) for f, y in zip(thrusts, yaw, strict=True)])
    return tuple(f + share_of_yaw * y for f, y in zip(thrusts, yaw, strict=True))


def rotor_speeds(model: Model, drone: Drone, thrusts: Any, motor_bandwidth: Any, dt: Any) -> Any:
    """The speed commands (4,) [rpm], within [min_rpm, max_rpm], for a thrust of each rotor [N].

    Rotors that lag are commanded ahead of the speed they need, such that they follow with `motor_bandwidth` [1/s] as
    long as commands are within their limits; 0: not ahead. It counts on the lag in `model.spin_up` and `spin_down`:
    where the physics has another, give it `actions.loop_model`. Beyond the limits all commands move together, which
    keeps their differences and so the torque.
    """
    thrusts = fence(thrusts)
    return ahead(model, drone, tuple(rotor_speed(model, f) for f in thrusts), motor_bandwidth, dt)


def rotor_speed(model: Model, thrust: Any) -> Any:
    least = (
        polynomial(model.thrust, model.min_rpm) + 1e-9 * model.weight
    )  # the root has no derivative where a rotor stands
    return jnp.where(thrust > least, thrust_to_rpm(model, jnp.maximum(thrust, least)), model.min_rpm)


def ahead(model: Model, drone: Drone, rpm: Any, motor_bandwidth: Any, dt: Any) -> Any:
    up, down = model.spin_up, model.spin_down
    one_rate = down[0] + down[1] <= 0

    def command(n, wanted):
        rising = (wanted > n) | one_rate
        k = jnp.where(rising, up[0], down[0]) + jnp.where(rising, up[1], down[1]) * (wanted + n)
        lags = (k > 0) & (k < motor_bandwidth)
        k = jnp.where(lags, k, 1)
        further = motor_bandwidth * (1 + k * dt) / (k * (1 + motor_bandwidth * dt)) - 1
        return wanted + jnp.where(lags, further, 0) * (wanted - n)

    commands = tuple(command(n, wanted) for n, wanted in zip(drone.rpm, rpm, strict=True))
    low, high = model.min_rpm, model.max_rpm
    least, most = smallest(commands), largest(commands)
    excess = 1 - (high - low) / jnp.maximum(most - least, high - low)
    centre = 0.5 * (least + most)
    commands = tuple(c - excess * (c - centre) for c in commands)
    shift = jnp.maximum(low - smallest(commands), 0) + jnp.minimum(high - largest(commands), 0)
    return fence(tuple(jnp.clip(c + shift, low, high) for c in commands))


def _inertia_times(model: Model, v: Vector) -> Vector:
    return tuple(model.inertia[i] * v[i] for i in range(3))


def torque_of(model: Model, body_rates: Vector, spin: Vector) -> Vector:
    """That which gives the body an angular acceleration `spin` [N m]."""
    return add(cross(body_rates, _inertia_times(model, body_rates)), _inertia_times(model, spin))
