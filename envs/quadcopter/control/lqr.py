"""A linear-quadratic regulator about hover, linearised by autodiff, its Riccati equation solved in plain operations."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxrl.environment import pytree
from jaxrl.math import precise, sincos

from ..dynamics import Drone, Model, Physics, derivative, thrust_to_rpm
from ..rotations import add, conjugate, exponential, logarithm, norm, product
from .allocation import allocation, rotor_speeds
from .cascade import attitude_of
from .setpoints import Setpoint


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


@precise
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


@precise
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


@precise
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
