"""Controllers of a quadcopter, as pure functions of scalars with a carry: baselines, and inner loops of action levels.

    carry = X_init()
    rpm, carry = X(carry, drone, setpoint, gains, model, dt)            rotor speeds (4,) [rpm] for the next dt [s]

| controller | setpoint | source |
|---|---|---|
| `body_rates_loop` | `Rates` | PI on body rates, allocation that gives up yaw first |
| `attitude_loop` | `Attitude` | tilt before yaw (Brescianini and D'Andrea 2018), then `body_rates_loop` |
| `velocity_loop` | `Setpoint` | PI on velocity, then `attitude_loop` |
| `position_loop` | `Setpoint` | P on position, then `velocity_loop` |
| `se3` | `Setpoint` | geometric tracking (Lee, Leok and McClamroch 2010) |
| `lqr` | `Setpoint` | linear-quadratic regulator about hover, linearised by autodiff |
| `dslpid` | `Setpoint` | gym-pybullet-drones' PID |
| `mellinger` | `Setpoint` | crazyflow's Mellinger controller, in its three stages |
| `ctbr` | `Setpoint` | gym-pybullet-drones' outer loop for Betaflight: gives `Rates`, not rotor speeds |

Frames and units are those of `dynamics.py`. All but `dslpid` and `mellinger` ask for accelerations and take mass,
inertia and rotors from the model, so one set of gains flies every airframe (`lqr_gains` finds the regulator's); those
two have gains in units of their airframe, and `dslpid_gains` and `mellinger_gains` for others. Every gain is a leaf. A
swarm is the same code on scalars that have become `(M,)` arrays.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxrl.environment import pytree
from jaxrl.math import fence, sincos

from .. import models
from ..dynamics import Drone, Model, Physics, derivative, polynomial, thrust_to_rpm
from ..rotations import (
    Quaternion,
    Vector,
    add,
    conjugate,
    cross,
    dot,
    euler,
    exponential,
    from_matrix,
    logarithm,
    matrix,
    norm,
    product,
    rotate,
    unit,
    up,
)

ZERO = (0.0, 0.0, 0.0)


class Setpoint(NamedTuple):
    """Where to be, and how to move there: in the world. What a controller does not use it ignores."""

    position: Any = ZERO  # m
    velocity: Any = ZERO  # m/s
    acceleration: Any = ZERO  # m/s^2
    yaw: Any = 0.0  # rad
    yaw_rate: Any = 0.0  # rad/s
    jerk: Any = ZERO  # m/s^3
    snap: Any = ZERO  # m/s^4


class Rates(NamedTuple):
    thrust: Any  # N, of all rotors
    body_rates: Any  # rad/s, in the body


class Attitude(NamedTuple):
    thrust: Any  # N, of all rotors
    quaternion: Any  # w, x, y, z, body to world
    body_rates: Any = ZERO  # rad/s at which it turns, in the body


# ---- from thrust and torque to rotors


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
    ratio = _yaw_ratio(model)
    return _inverse(
        [
            (1.0,) * 4,
            [model.rotor_y[i] for i in range(4)],
            [-model.rotor_x[i] for i in range(4)],
            [ratio * model.rotor_spin[i] for i in range(4)],
        ]
    )


def _yaw_ratio(model: Model) -> Any:
    """Yaw torque over thrust of a rotor at hover [m]."""
    return 4 * polynomial(model.torque, model.hover_rpm) / model.weight


def _most(values: Any) -> Any:
    return functools.reduce(jnp.maximum, values)


def _least(values: Any) -> Any:
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
    room = _least(highest) - _most(lowest)
    scale = room / jnp.maximum(_most(tilt) - _least(tilt), room)
    tilt = [scale * t for t in tilt]
    thrust = jnp.clip(
        thrust,
        _most([b - t for b, t in zip(lowest, tilt, strict=True)]),
        _least([b - t for b, t in zip(highest, tilt, strict=True)]),
    )
    thrusts = [x * (thrust + t) for x, t in zip(lift, tilt, strict=True)]
    tiny = 1e-12 * room

    def share(f, wanted):  # of the yaw torque that this rotor can do
        left = jnp.maximum(jnp.where(wanted > 0, high - f, f - low), 0)
        return left / jnp.maximum(jnp.maximum(jnp.abs(wanted), left), tiny)

    share_of_yaw = _least([share(f, y) for f, y in zip(thrusts, yaw, strict=True)])
    return tuple(f + share_of_yaw * y for f, y in zip(thrusts, yaw, strict=True))


def rotor_speeds(model: Model, drone: Drone, thrusts: Any, motor_bandwidth: Any, dt: Any) -> Any:
    """The speed commands (4,) [rpm], within [min_rpm, max_rpm], for a thrust of each rotor [N].

    Rotors that lag are commanded ahead of the speed they need, such that they follow with `motor_bandwidth` [1/s] as
    long as commands are within their limits; 0: not ahead. It counts on the lag in `model.spin_up` and `spin_down`:
    where the physics has another, give it `actions.loop_model`. Beyond the limits all commands move together, which
    keeps their differences and so the torque.
    """
    thrusts = fence(thrusts)
    return _ahead(model, drone, tuple(_speed(model, f) for f in thrusts), motor_bandwidth, dt)


def _speed(model: Model, thrust: Any) -> Any:
    least = (
        polynomial(model.thrust, model.min_rpm) + 1e-9 * model.weight
    )  # the root has no derivative where a rotor stands
    return jnp.where(thrust > least, thrust_to_rpm(model, jnp.maximum(thrust, least)), model.min_rpm)


def _ahead(model: Model, drone: Drone, rpm: Any, motor_bandwidth: Any, dt: Any) -> Any:
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
    least, most = _least(commands), _most(commands)
    excess = 1 - (high - low) / jnp.maximum(most - least, high - low)
    centre = 0.5 * (least + most)
    commands = tuple(c - excess * (c - centre) for c in commands)
    shift = jnp.maximum(low - _least(commands), 0) + jnp.minimum(high - _most(commands), 0)
    return fence(tuple(jnp.clip(c + shift, low, high) for c in commands))


def _inertia_times(model: Model, v: Vector) -> Vector:
    return tuple(model.inertia[i] * v[i] for i in range(3))


def _torque(model: Model, body_rates: Vector, spin: Vector) -> Vector:
    """That which gives the body an angular acceleration `spin` [N m]."""
    return add(cross(body_rates, _inertia_times(model, body_rates)), _inertia_times(model, spin))


# ---- the cascade


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


def _zeros(n: int) -> Any:
    return (jnp.zeros((), jnp.result_type(float)),) * n


def cascade_init() -> Cascade:
    """The carry of all four loops."""
    return Cascade(_zeros(3), _zeros(3))


def _integrated(integral: Any, error: Any, gain: Any, limit: Any, dt: Any) -> Any:
    return tuple(jnp.clip(integral[i] + gain[i] * error[i] * dt, -limit[i], limit[i]) for i in range(len(error)))


def _shrunk(v: Any, most: Any) -> Any:
    """`v`, no longer than `most`."""
    scale = most / jnp.maximum(norm(v), most)
    return tuple(scale * x for x in v)


def body_rates_loop(
    carry: Cascade, drone: Drone, setpoint: Rates, gains: CascadeGains, model: Model, dt: Any
) -> tuple[Any, Cascade]:
    """Collective thrust and body rates (CTBR) to rotor speeds (4,) [rpm]."""
    error = add(setpoint.body_rates, drone.body_rates, -1)
    integral = _integrated(carry.spin, error, gains.rates_integral, gains.rates_limit, dt)
    spin = tuple(gains.rates[i] * error[i] + integral[i] for i in range(3))
    thrusts = allocate(model, setpoint.thrust, _torque(model, drone.body_rates, spin))
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
    integral = _integrated(carry.acceleration, error, gains.velocity_integral, gains.velocity_limit, dt)
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


# ---- geometric tracking


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


def _axes(q: Quaternion) -> Any:
    """The body's axes in the world: the columns of the rotation matrix."""
    return tuple(zip(*matrix(q), strict=True))


def _quaternion(axes: Any) -> Quaternion:
    a, b, c = zip(*axes, strict=True)
    return from_matrix((a, b, c))


def rotation_error(wanted: Any, now: Any) -> Vector:
    """The vector of Rd'R - R'Rd, of attitudes given by their three axes: 2 sin(angle) about the axis of the turn."""
    return (
        dot(wanted[2], now[1]) - dot(now[2], wanted[1]),
        dot(wanted[0], now[2]) - dot(now[0], wanted[2]),
        dot(wanted[1], now[0]) - dot(now[1], wanted[0]),
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
    axes = _axes(drone.quaternion)
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
    thrusts = allocate(model, model.mass * lift, _torque(model, drone.body_rates, spin))
    return rotor_speeds(model, drone, thrusts, gains.motor_bandwidth, dt), carry


# ---- linear-quadratic regulator


@pytree
class LQRGains:
    feedback: jax.Array  # (4, 12): thrust of each rotor in quarters of the weight, per unit of each error
    motor_bandwidth: jax.Array = 40.0  # 1/s: see `rotor_speeds`


LQR_Q = (10.0, 10.0, 20.0, 3.0, 3.0, 4.0, 20.0, 20.0, 10.0, 0.4, 0.4, 0.4)
"""Weights of the errors squared: position [m], velocity [m/s], rotation vector [rad], body rates [rad/s]."""
LQR_R = (50.0, 50.0, 50.0, 50.0)
"""Weights of the rotors' thrusts squared, in quarters of the weight."""


def lqr_init() -> tuple[()]:
    return ()


def _hover_thrusts(model: Model) -> Any:
    return tuple(row[0] * model.weight for row in allocation(model))


def linearise(model: Model, dt: Any) -> tuple[Float[Array, "12 12"], Float[Array, "12 4"]]:
    """A and B of x' = A x + B u about hover, over `dt` [s]: x as in `LQR_Q`, u as in `LQR_R`; rotors do not lag."""
    dtype = jnp.result_type(float)
    base = _hover_thrusts(model)

    def rate_of(x, u):
        drone = Drone(tuple(x[:3]), exponential(tuple(x[6:9])), tuple(x[3:6]), tuple(x[9:]), (0.0,) * 4)
        rpm = tuple(thrust_to_rpm(model, base[i] + u[i] * model.weight / 4) for i in range(4))
        rate = derivative(model, drone, rpm, Physics("rk4", "instant"))
        turn = tuple(2 * x for x in rate.quaternion[1:])  # of a small rotation vector
        return jnp.stack([*rate.position, *rate.velocity, *turn, *rate.body_rates])

    a, b = jax.jacfwd(rate_of, (0, 1))(jnp.zeros(12, dtype), jnp.zeros(4, dtype))
    # The series ends: thrust moves rates, rates attitude, attitude velocity, velocity position.
    eye = jnp.eye(12, dtype=dtype)
    integral = term = dt * eye
    for k in range(2, 6):
        term = (dt / k) * a @ term
        integral = integral + term
    return eye + a @ integral, integral @ b


def _solve(a: Float[Array, "n n"], b: Float[Array, "n m"]) -> Float[Array, "n m"]:
    """a^-1 b by Gauss and Jordan with row pivots: plain operations, that batch without LAPACK."""
    n = len(a)
    rows = jnp.concatenate([a, b], 1)

    def eliminate(k, rows):
        pivot = jnp.argmax(jnp.where(jnp.arange(n) >= k, jnp.abs(rows[:, k]), -1))
        top, other = rows[pivot] / rows[pivot, k], rows[k]
        rows = rows.at[pivot].set(other).at[k].set(top)
        return rows - jnp.where(jnp.arange(n) == k, 0, rows[:, k])[:, None] * top

    return jax.lax.fori_loop(0, n, eliminate, rows)[:, n:]


def riccati(
    a: Float[Array, "n n"], b: Float[Array, "n m"], q: Float[Array, "n n"], r: Float[Array, "m m"], doublings: int = 20
) -> Float[Array, "n n"]:
    """The stabilising solution P of P = A'PA - A'PB (R + B'PB)^-1 B'PA + Q.

    Structure-preserving doubling (Chu, Fan and Lin 2005): `doublings` steps look 2^doublings steps ahead.
    """
    eye = jnp.eye(len(a), dtype=a.dtype)

    def double(_, carry):
        a, g, h = carry
        both = _solve(eye + g @ h, jnp.concatenate([a, g], 1))
        forward, spread = both[:, : len(a)], both[:, len(a) :]
        g_new, h_new = g + a @ spread @ a.T, h + a.T @ h @ forward
        return a @ forward, 0.5 * (g_new + g_new.T), 0.5 * (h_new + h_new.T)

    return jax.lax.fori_loop(0, doublings, double, (a, b @ _solve(r, b.T), q))[2]


def lqr_gains(model: Model, q: Any = LQR_Q, r: Any = LQR_R, dt: Any = 0.01) -> LQRGains:
    """Gains that minimise the sum of q x^2 + r u^2 for commands every `dt` [s]; q (12,) and r (4,) as `LQR_Q` says."""
    a, b = linearise(model, dt)
    q, r = jnp.diag(jnp.asarray(q, a.dtype)), jnp.diag(jnp.asarray(r, a.dtype))
    p = riccati(a, b, q, r)
    return LQRGains(_solve(r + b.T @ p @ b, b.T @ p @ a))


def lqr(
    carry: tuple[()], drone: Drone, setpoint: Setpoint, gains: LQRGains, model: Model, dt: Any
) -> tuple[Any, tuple[()]]:
    """u = -K x about hover, or about the attitude and thrust of `setpoint.acceleration`; errors in the yaw's frame."""
    sine, cosine = sincos(jnp.asarray(setpoint.yaw))

    def turned(v):
        return cosine * v[0] + sine * v[1], cosine * v[1] - sine * v[0], v[2]

    x, y, z = setpoint.acceleration
    force = (x, y, z + model.gravity)
    attitude = attitude_of(force, setpoint.yaw)
    error = (
        *turned(add(drone.position, setpoint.position, -1)),
        *turned(add(drone.velocity, setpoint.velocity, -1)),
        *logarithm(product(conjugate(attitude), drone.quaternion)),
        *add(drone.body_rates, (0.0, 0.0, setpoint.yaw_rate), -1),
    )
    effort = norm(force) / model.gravity
    unit_thrust = model.weight / 4
    thrusts = tuple(
        effort * hover - unit_thrust * sum(gains.feedback[i, j] * error[j] for j in range(12))
        for i, hover in enumerate(_hover_thrusts(model))
    )
    return rotor_speeds(model, drone, thrusts, gains.motor_bandwidth, dt), carry


# ---- gym-pybullet-drones' PID


def mixer(model: Model) -> Any:
    """Rows of roll, pitch and yaw of each rotor: half of one sign or the other where rotors are at the corners, one
    where they are on the axes."""
    x, y = ([column[i] for i in range(4)] for column in (model.rotor_x, model.rotor_y))
    across, along = 2 / sum(abs(v) for v in y), 2 / sum(abs(v) for v in x)
    return tuple((across * y[i], -along * x[i], model.rotor_spin[i]) for i in range(4))


def _heading_axes(force: Vector, yaw: Any) -> tuple[Vector, Vector, Vector]:
    """The axes of the attitude with z along `force` and y across the heading."""
    sine, cosine = sincos(jnp.asarray(yaw))
    z = unit(force)
    y = unit(cross(z, (cosine, sine, 0 * sine)))
    return cross(y, z), y, z


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


def _authority(model: Model, slope: Any) -> Vector:
    """Angular acceleration [rad/s^2] of the body for each PWM of torque, `slope` [N] being a rotor's thrust for one."""
    rows = mixer(model)
    roll = sum(model.rotor_y[i] * rows[i][0] for i in range(4))
    pitch = -sum(model.rotor_x[i] * rows[i][1] for i in range(4))
    yaw = 4 * _yaw_ratio(model)
    return tuple(slope * arm / model.inertia[i] for i, arm in enumerate((roll, pitch, yaw)))


def _rescaled(gains: Any, mass: Any, authority: Any) -> Any:
    """Position gains times `mass`, attitude gains by `authority`: accelerations stay what they were."""
    by_mass = ("position_p", "position_i", "position_d")
    by_authority = [name for name in ("attitude_p", "attitude_i", "attitude_d", "rates_d") if hasattr(gains, name)]
    changes = {name: tuple(g * mass for g in getattr(gains, name)) for name in by_mass}
    for name in by_authority:
        changes[name] = tuple(g / a for g, a in zip(getattr(gains, name), authority, strict=True))
    return gains.replace(**changes)


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
        return _authority(model, (model.thrust[1] + 2 * model.thrust[2] * model.hover_rpm) * scale)

    ours, theirs = authority(model, scale), authority(cf2x, gains.pwm_scale)
    ratio = tuple(a / b for a, b in zip(ours, theirs, strict=True))
    roll, pitch, yaw = gains.torque_limit  # the rotors' range is for roll and pitch before it is for yaw
    return _rescaled(gains, model.mass / cf2x.mass, tuple(r / bandwidth for r in ratio)).replace(
        torque_limit=(roll / ratio[0], pitch / ratio[1], yaw),
        pwm_scale=scale,
        pwm_offset=offset,
        min_pwm=(least - offset) / scale,
        motor_bandwidth=_if_lagging(model, motor_bandwidth),
    )


def _if_lagging(model: Model, value: Any) -> Any:
    return jnp.where(model.spin_up[0] + model.spin_up[1] > 0, value, 0.0)


class DSLPID(NamedTuple):
    euler: Any  # of the last step, rad
    position: Any  # integral of the position error, m s
    attitude: Any  # integral of the rotation error, s


def dslpid_init() -> DSLPID:
    return DSLPID(_zeros(3), _zeros(3), _zeros(3))


def dslpid(
    carry: DSLPID, drone: Drone, setpoint: Setpoint, gains: DSLPIDGains, model: Model, dt: Any
) -> tuple[Any, DSLPID]:
    """The PID of gym-pybullet-drones (`DSLPIDControl`): follows position, velocity, yaw and yaw rate.

    Attitude rates are differences of Euler angles; a rate at the first step counts from level and north.
    """
    error = add(setpoint.position, drone.position, -1)
    dragging = add(setpoint.velocity, drone.velocity, -1)
    total = _integrated(carry.position, error, (1.0,) * 3, gains.position_limit, dt)
    weight = (0.0, 0.0, model.weight)
    force = tuple(
        gains.position_p[i] * error[i] + gains.position_i[i] * total[i] + gains.position_d[i] * dragging[i] + weight[i]
        for i in range(3)
    )
    axes = _axes(drone.quaternion)
    speed = _speed(model, dot(force, axes[2]) / 4)
    thrust = (speed - gains.pwm_offset) / gains.pwm_scale

    angles = euler(drone.quaternion)
    tilt = rotation_error(_heading_axes(force, setpoint.yaw), axes)
    wanted = (0.0, 0.0, setpoint.yaw_rate)
    rates = tuple(wanted[i] - (angles[i] - carry.euler[i]) / dt for i in range(3))
    twist = _integrated(carry.attitude, tilt, (-1.0,) * 3, gains.attitude_limit, dt)
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
    return _ahead(model, drone, rpm, gains.motor_bandwidth, dt), DSLPID(angles, total, twist)


# ---- crazyflow's Mellinger controller


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
        return _authority(model, 0.25 * model.max_thrust / gains.max_pwm)

    ratio = tuple(a / b / bandwidth for a, b in zip(authority(model), authority(l250), strict=True))
    gains = _rescaled(gains, model.mass / l250.mass, ratio)
    return gains.replace(
        mass=model.mass,
        torque_limit=(*gains.torque_limit[:2], 0.1 * gains.max_pwm),
        thrust_scale=gains.max_pwm / model.max_thrust,
        rates_d=tuple(_if_lagging(model, g) for g in gains.rates_d),
        min_pwm=4 * gains.max_pwm * jnp.maximum(polynomial(model.thrust, model.min_rpm), 0) / model.max_thrust,
        thrust_to_torque=_yaw_ratio(model),
        motor_bandwidth=_if_lagging(model, motor_bandwidth),
    )


class Mellinger(NamedTuple):
    position: Any  # integral of the position error, m s
    attitude: Any  # integral of the rotation error, s
    body_rates: Any  # their error at the last step, rad/s


class Wrench(NamedTuple):
    thrust: Any  # N
    torque: Any  # N m, in the body


def mellinger_init() -> Mellinger:
    return Mellinger(_zeros(3), _zeros(3), _zeros(3))


def mellinger_state(
    carry: Mellinger, drone: Drone, setpoint: Setpoint, gains: MellingerGains, model: Model, dt: Any
) -> tuple[Attitude, Mellinger]:
    """The first stage, 100 Hz in crazyflow: position, velocity, acceleration and yaw to thrust and attitude."""
    error = add(setpoint.position, drone.position, -1)
    dragging = add(setpoint.velocity, drone.velocity, -1)
    total = _integrated(carry.position, error, (1.0,) * 3, gains.position_limit, dt)
    weight = (0.0, 0.0, model.gravity)
    force = tuple(
        gains.mass * (setpoint.acceleration[i] + weight[i])
        + gains.position_p[i] * error[i]
        + gains.position_d[i] * dragging[i]
        + gains.position_i[i] * total[i]
        for i in range(3)
    )
    thrust = gains.thrust_scale * dot(force, up(drone.quaternion)) * model.max_thrust / gains.max_pwm
    attitude = _quaternion(_heading_axes(force, setpoint.yaw))
    return Attitude(thrust, attitude, (0.0, 0.0, setpoint.yaw_rate)), carry._replace(position=total)


def mellinger_attitude(
    carry: Mellinger, drone: Drone, setpoint: Attitude, gains: MellingerGains, model: Model, dt: Any
) -> tuple[Wrench, Mellinger]:
    """The second stage, 500 Hz: thrust and attitude to the wrench that four motors with limits then give."""
    tilt = rotation_error(_axes(setpoint.quaternion), _axes(drone.quaternion))
    total = _integrated(carry.attitude, tilt, (-1.0,) * 3, gains.attitude_limit, dt)
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


# ---- gym-pybullet-drones' outer loop for Betaflight


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
    wanted = _quaternion((x, cross(z, x), z))
    turn = product(conjugate(drone.quaternion), wanted)
    sign = jnp.where(turn[0] < 0, -2, 2)
    rates = tuple(sign * gains.attitude[i] * turn[i + 1] for i in range(3))
    return Rates(model.mass * dot(force, up(drone.quaternion)), rates), carry
