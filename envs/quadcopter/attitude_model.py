"""Quadcopters behind an attitude controller, fitted to flights: crazyflow's `so_rpy` family.

The command is roll, pitch, yaw [rad] and the collective thrust T [N]. Each angle answers it as a linear system of
second order, and the thrust, where the model has a lag, as one of first order (f = T otherwise):

    psi'' = A psi + B psi' + C command         psi = roll, pitch, yaw of R = Rz Ry Rx
    f' = (T - f) / lag
    m dv/dt = R (0, 0, c0 + c1 f) - m g z - R D R' v + force

No motors and no torques, so it is cheap and close to the real drone in slow flight; it is singular at a pitch of
+-90 degrees and its yaw does not wrap. Frames and units: `dynamics.py`. Source: crazyflow (Schuck et al. 2025),
versions 0.1.0 (2026-04) and 0.4.0 (2026-10), which identified most of it anew.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxrl.environment import is_concrete, pytree
from jaxrl.math import sincos

from .dynamics import CALM, Surroundings
from .integrators import INTEGRATORS, integrate
from .rotations import add, euler, product, rotate, unrotate, up


@pytree
class AttitudeModel:
    """One drone with its attitude controller. Its numbers are leaves."""

    mass: jax.Array  # kg
    inertia: jax.Array  # (3,) kg m^2: what a torque from outside turns
    angle: jax.Array  # (3,) A [1/s^2], of roll, pitch, yaw
    rate: jax.Array  # (3,) B [1/s]
    command: jax.Array  # (3,) C [1/s^2]
    thrust: jax.Array  # (2,) c0 [N], c1
    lag: Any = None  # s, time constant of the thrust; None: without lag
    body_drag: jax.Array = (0.0, 0.0, 0.0)  # N s/m, along the body's axes
    gravity: jax.Array = 9.81  # m/s^2

    @property
    def hover_thrust(self) -> Any:
        """The command that carries the weight [N]."""
        return (self.mass * self.gravity - self.thrust[0]) / self.thrust[1]


class State(NamedTuple):
    """Of one drone: tuples of scalars, as `dynamics.Drone`."""

    position: Any  # x, y, z [m]
    quaternion: Any  # w, x, y, z, body to world, of unit length
    velocity: Any  # [m/s], in the world
    body_rates: Any  # [rad/s], in the body
    thrust: Any  # (1,) f [N]


def at_rest(model: AttitudeModel, position: Any = (0.0, 0.0, 0.0), thrust: Any = None) -> State:
    """An upright drone that does not move, at hover thrust unless `thrust` [N] says otherwise."""
    dtype = jnp.result_type(float)

    def cast(*x: Any) -> tuple:
        return tuple(jnp.asarray(i, dtype) for i in x)

    zero = cast(0, 0, 0)
    return State(cast(*position), cast(1, 0, 0, 0), zero, zero, cast(model.hover_thrust if thrust is None else thrust))


def derivative(model: AttitudeModel, state: State, command: Any, surroundings: Surroundings = CALM) -> State:
    """d/dt of every field under a `command` (4,): roll, pitch, yaw [rad] and thrust [N].

    A torque from outside is in the body; one cannot say what it does to a controlled attitude but add.
    """
    force, torque, wind, _ = surroundings
    p, q, r = state.body_rates
    angles = euler(state.quaternion)
    (sine, cosine), (slope, level) = sincos(angles[0]), sincos(angles[1])

    # psi' from body rates w = W psi', and w' = W' psi' + W psi''.
    pitch_rate = cosine * q - sine * r
    yaw_rate = (sine * q + cosine * r) / level
    rates = (p + slope * yaw_rate, pitch_rate, yaw_rate)
    x, y, z = (model.angle[i] * angles[i] + model.rate[i] * rates[i] + model.command[i] * command[i] for i in range(3))
    u, v, w = rates
    turning = (
        x - slope * z - level * v * w,
        cosine * y + sine * level * z - sine * u * v + (cosine * level * u - sine * slope * v) * w,
        -sine * y + cosine * level * z - cosine * u * v - (sine * level * u + cosine * slope * v) * w,
    )
    if torque is not None:
        turning = tuple(turning[i] + torque[i] / model.inertia[i] for i in range(3))

    air = state.velocity if wind is None else add(state.velocity, wind, -1)
    slow = unrotate(state.quaternion, air)
    drag = rotate(state.quaternion, tuple(-model.body_drag[i] * slow[i] for i in range(3)))
    thrust = command[3] if model.lag is None else state.thrust[0]
    lift = model.thrust[0] + model.thrust[1] * thrust
    push = add(drag, up(state.quaternion), lift)
    if force is not None:
        push = add(push, force)
    acceleration = tuple(f / model.mass for f in push)
    acceleration = (*acceleration[:2], acceleration[2] - model.gravity)
    turn = tuple(0.5 * i for i in product(state.quaternion, (jnp.zeros_like(p), p, q, r)))
    growth = jnp.zeros_like(p) if model.lag is None else (command[3] - thrust) / model.lag
    return State(state.velocity, turn, acceleration, turning, (growth,))


def step(
    model: AttitudeModel,
    state: State,
    command: Any,
    dt: Any,
    integrator: str = "exponential_euler",
    surroundings: Surroundings = CALM,
) -> State:
    """`dt` [s] later under a `command` (4,) held for so long; crazyflow's default integrator, at 500 Hz. One of
    `integrators.INTEGRATORS`. A command is not clipped."""

    def f(state: State) -> State:
        return derivative(model, state, command, surroundings)

    new = integrate(f, state, dt, integrator)
    return new._replace(thrust=(command[3],)) if model.lag is None else new


class Trajectory(NamedTuple):
    """What `simulate` returns: the states at 0, dt, ..., steps dt."""

    position: Float[Array, "T 3"]
    quaternion: Float[Array, "T 4"]
    velocity: Float[Array, "T 3"]
    body_rates: Float[Array, "T 3"]
    thrust: Float[Array, "T 1"]


def simulate(
    model: AttitudeModel,
    command: Any,
    initial: State | None = None,
    integrator: str = "exponential_euler",
    dt: Any = 0.002,
    steps: int | None = None,
) -> Trajectory:
    """The flight under commands, as `steps + 1` states, in the precision jax has by default.

    Args:
        command: one (4,) for all steps, or one for each (steps, 4): roll, pitch, yaw [rad], thrust [N].
        initial: at rest in the origin at hover thrust when None.

    Raises ValueError for commands that do not fit, for an integrator that does not exist and for a lag of zero.
    """
    dtype = jnp.result_type(float)
    command = jnp.asarray(command, dtype)
    steps = (len(command) if command.ndim == 2 else None) if steps is None else steps
    if command.shape not in ((4,), (steps, 4)) or steps is None:
        raise ValueError(f"command has shape {command.shape}; it needs (4,) with steps= a number, or (steps, 4).")
    if integrator not in INTEGRATORS:
        raise ValueError(f"integrator={integrator!r}; it is one of {', '.join(INTEGRATORS)}.")
    if model.lag is not None and is_concrete(model.lag) and not np.all(np.asarray(model.lag) > 0):
        raise ValueError(f"AttitudeModel: lag={model.lag} must be positive, or None for thrust without lag.")
    model = jax.tree.map(lambda x: jnp.asarray(x, dtype), model)
    initial = at_rest(model) if initial is None else initial
    state = State(*(tuple(jnp.asarray(x, dtype) for x in field) for field in initial))

    def stack(state: State) -> Trajectory:
        return Trajectory(*(jnp.stack(field) for field in state))

    def body(state, command):
        new = step(model, state, tuple(command), dt, integrator)
        return new, stack(new)

    _, flight = jax.lax.scan(body, state, jnp.broadcast_to(command, (steps, 4)))
    return jax.tree.map(lambda first, rest: jnp.concatenate([first[None], rest]), stack(state), flight)


# ---- crazyflow's parameters

FAMILIES = ("so_rpy", "so_rpy_rotor", "so_rpy_rotor_drag")
"""The thrust without lag; with; and with drag as well: each fitted on its own."""


def _fitted(mass, inertia, angle, rate, command, plain, lagging, dragged) -> dict[str, AttitudeModel]:
    """One drone's models by family. `angle`, `rate`, `command`: of roll and of pitch, and of yaw; `plain`, `lagging`,
    `dragged`: the gain of the thrust, its lag, drag sideways and along z."""
    a, b, c = (np.array([x[0], x[0], x[1]]) for x in (angle, rate, command))

    def model(gain, lag=None, sideways=0.0, upward=0.0):
        numbers: dict[str, Any] = {
            "mass": mass,
            "inertia": np.array(inertia),
            "angle": a,
            "rate": b,
            "command": c,
            "thrust": np.array([0.0, gain]),
            "lag": lag,
            "body_drag": np.array([sideways, sideways, upward]),
        }
        return AttitudeModel(**numbers)

    return dict(zip(FAMILIES, (model(plain), model(*lagging), model(*dragged)), strict=True))


_INERTIA = (16.8e-6, 16.8e-6, 29.8e-6)

CRAZYFLOW_0_1 = {
    "cf2x_L250": _fitted(
        0.0319,
        _INERTIA,
        (-245.67, -227.78),
        (-17.32, -25.63),
        (196.18, 390.27),
        0.97605781,
        (0.97732585, 0.0858607),
        (0.98325003, 0.12116392, 0.01471782, 0.01277641),
    ),
    "cf2x_P250": _fitted(
        0.0318,
        _INERTIA,
        (-319.14, -284.28),
        (-20.85, -38.43),
        (263.30, 502.58),
        0.98275823,
        (0.98323006, 0.0578952),
        (0.99085062, 0.11554009, 0.01351483, 0.01677452),
    ),
    "cf2x_T350": _fitted(
        0.0379,
        _INERTIA,
        (-267.14, -126.49),
        (-19.48, -14.41),
        (200.90, 193.11),
        0.86214912,
        (0.86259295, 0.05062676),
        (0.87242516, 0.13701907, 0.01556697, 0.02191672),
    ),
    "cf21B_500": _fitted(
        0.04338,
        (25e-6, 28e-6, 49e-6),
        (-188.9910, -138.3109),
        (-12.7803, -16.8485),
        (138.0834, 198.5161),
        0.96836458,
        (0.96841816, 0.02055366),
        (0.98023254, 0.07993871, 0.02149163, 0.02359736),
    ),
}
"""crazyflow's four Crazyflies as of 0.1.0 (2026-04), by drone and family."""

CRAZYFLOW_0_4 = {
    "cf2x_L250": _fitted(
        0.0328,
        _INERTIA,
        (-485.8620950386863, -333.2438787006866),
        (-33.17729279340664, -39.535506757052424),
        (448.0183990789311, 306.31685518928396),
        1.023224599403443,
        (1.0242686698819605, 1 / 11.531559320597035),
        (1.0322435843278281, 1 / 6.722233443049602, 0.014953790232821078, 0.013900090000325344),
    ),
    "cf2x_P250": _fitted(
        0.0318,
        _INERTIA,
        (-319.14, -284.28),
        (-20.85, -38.43),
        (263.30, 502.58),
        0.98275823,
        (0.98323006, 1 / 17.272589092014535),
        (0.99085062, 1 / 8.6550045096901, 0.01351483, 0.01677452),
    ),
    "cf2x_T350": _fitted(
        0.0379,
        (15.7e-6, 17.1e-6, 30.0e-6),
        (-373.81009672301474, -262.01237938054936),
        (-29.447753470026274, -29.745699818936384),
        (350.209624193645, 241.085024111866),
        1.0140372607776442,
        (1.0145454356801935, 1 / 16.830643546476875),
        (1.0229179982077607, 1 / 5.686434020676935, 0.015203241038199845, 0.02204579179094129),
    ),
    "cf21B_500": _fitted(
        0.0434,
        (25e-6, 28e-6, 49e-6),
        (-156.34812197843243, -144.7222372741053),
        (-16.300330418164553, -17.368699336318954),
        (139.7494294272397, 127.01037564242333),
        0.9459441379738676,
        (0.9472350463278153, 1 / 19.304745709956823),
        (0.959471532998666, 1 / 11.332539603033299, 0.021643637770852733, 0.02477138502714662),
    ),
}
"""The same as of 0.4.0 (2026-10): all but cf2x_P250 identified anew."""

MODELS: dict[str, dict[str, AttitudeModel]] = {
    **CRAZYFLOW_0_4,
    **{f"{name}_0.1.0": models for name, models in CRAZYFLOW_0_1.items()},
}
"""By drone, then family. Those of 0.4.0 unless the name says 0.1.0. What thrust the rotors have between them says the
airframe of that name in `models.MODELS`."""
