"""The flight of a quadcopter: motors, forces and torques, their derivative, an integrator; and `simulate`.

Frames, once for the whole family: the world is x forward, y left, z up; the body too (FLU). A quaternion (w, x, y, z)
turns body into world coordinates, velocity is in the world, `body_rates` are in the body. SI units; rotors in rpm
(models fitted on a throttle from 0 to 1 say so, their "rpm" is that throttle).

    thrust_i = a0 + a1 n_i + a2 n_i^2              torque about z = sum_i spin_i (b0 + b1 n_i + b2 n_i^2)
    m dv/dt = R (0, 0, sum thrust) - m g z + drag + force
    J dw/dt = sum_i r_i x thrust_i z + yaw torque - w x J w + torque
    dn_i/dt = k (command - n_i) + k' (command^2 - n_i^2),   with other k, k' when slowing down

Everything is a function of tuples of scalars, which a batch turns into `(N,)` arrays that fuse; `Physics` says which
stages there are, and every number is a leaf of `Model`. Sources: gym-pybullet-drones (Panerati et al. 2021,
"Learning to fly"), learning-to-fly (Eschmann, Albani and Loianno 2024), crazyflow (Schuck et al. 2025).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxrl.environment import is_concrete, pytree
from jaxrl.math import fence

from .rotations import Quaternion, Vector, add, exponential, matrix, norm, product, rotate, unit, unrotate, up

MOTORS = ("instant", "first_order", "asymmetric", "exact")
DRAGS = ("none", "body", "rotor", "rotor_lagged")
GYROS = ("none", "physical", "crazyflow")
FLOORS = ("none", "stop", "contact")
INTEGRATORS = ("euler", "exponential_euler", "semi_implicit", "rk4", "exponential_rk4")


@pytree
class Model:
    """One airframe. Its numbers are leaves; what it does not have is zero. Rotors are numbered as `rotor_x` lists."""

    mass: jax.Array  # kg
    inertia: jax.Array  # (3,) kg m^2, about the body's axes
    rotor_x: jax.Array  # (4,) m, forward of the centre of mass
    rotor_y: jax.Array  # (4,) m, left of it
    rotor_spin: jax.Array  # (4,) the sign of the yaw torque that the rotor gives the body
    thrust: jax.Array  # (3,) a0, a1, a2 of one rotor: N, N/rpm, N/rpm^2
    torque: jax.Array  # (3,) b0, b1, b2 of one rotor: N m, N m/rpm, N m/rpm^2
    max_rpm: jax.Array  # rpm
    min_rpm: jax.Array = 0.0  # rpm, the least that is commanded
    spin_up: jax.Array = (0.0, 0.0)  # k [1/s], k' [1/(s rpm)] where the command is above the speed
    spin_down: jax.Array = (0.0, 0.0)  # likewise, below
    body_drag: jax.Array = (0.0, 0.0, 0.0)  # N s/m, along the body's axes
    rotor_drag: jax.Array = (0.0, 0.0, 0.0)  # N s/m for each rad/s of all rotors together, along the world's axes
    propeller_radius: jax.Array = 0.0  # m
    propeller_inertia: jax.Array = 0.0  # kg m^2
    ground_effect: jax.Array = 0.0  # G of Shi et al. (2019): extra thrust G (radius / 4 height)^2
    downwash: jax.Array = (0.0, 0.0, 0.0)  # c1 [N], c2, c3 [m]: see `downwash`
    radius: jax.Array = 0.06  # m, of the sphere in which it touches other things
    gravity: jax.Array = 9.81  # m/s^2

    @property
    def weight(self) -> Any:
        """[N]"""
        return self.mass * self.gravity

    @property
    def hover_rpm(self) -> Any:
        """The rotors' speed at which they carry the weight [rpm]."""
        return thrust_to_rpm(self, self.weight / 4)

    @property
    def max_thrust(self) -> Any:
        """Of all rotors [N]."""
        return 4 * polynomial(self.thrust, self.max_rpm)

    @property
    def thrust_to_weight(self) -> Any:
        return self.max_thrust / self.weight


class Drone(NamedTuple):
    """The state of one drone: tuples of scalars, or arrays with the components in front."""

    position: Any  # x, y, z [m]
    quaternion: Any  # w, x, y, z, body to world, of unit length
    velocity: Any  # [m/s], in the world
    body_rates: Any  # [rad/s], in the body
    rpm: Any  # of the four rotors; of `instant` motors: the last command


class Surroundings(NamedTuple):
    """What acts on a drone from outside; None where it does not."""

    force: Any = None  # (3,) N, in the world
    torque: Any = None  # (3,) N m, in the body (in the world with Physics.world_torque)
    wind: Any = None  # (3,) m/s, in the world: drag acts on the velocity through the air
    downwash: Any = None  # N, along the body's z axis: what drones above take from the thrust


CALM = Surroundings()

BULLET_DAMPING = float(np.float32(0.04))  # PyBullet keeps it in single precision


@dataclasses.dataclass(frozen=True)
class Physics:
    """Which stages there are: static. The named ones below are those of the accepted simulators."""

    integrator: str = "rk4"
    """`euler`, `rk4` (quaternion additive, then of unit length again); `exponential_euler`, `exponential_rk4` (the
    attitude turned once by the mean body rates, as crazyflow: of second order where their axis changes);
    `semi_implicit` (new velocities move the pose, as PyBullet)."""
    motors: str = "first_order"
    """`instant`; `first_order` (`spin_up[0]` alone); `asymmetric` (all four coefficients); `exact` (first order, other
    constants up and down, solved exactly once a step while the rest sees the old speed, as later RLtools)."""
    drag: str = "none"
    """`body` (linear, on the body's axes); `rotor` (world axes, in proportion to the rotors' speed); `rotor_lagged`
    (the same with the speed one step late, as gym-pybullet-drones)."""
    gyro: str = "none"
    """Angular momentum of the propellers: `physical`, or with the signs of `crazyflow`."""
    floor: str = "none"
    """`stop` (below 1 mm the height is held and the velocity lost, as crazyflow), or a damped spring (`contact`)."""
    ground_effect: bool = False
    bullet_damping: bool = False  # 0.04 (v + v |v|), linear and angular: what PyBullet does unless told not to
    bullet_links: bool = False  # rotors push in the attitude of one step ago, where PyBullet last placed its links
    world_torque: bool = False  # the disturbance torque is in the world, as crazyflow

    def __post_init__(self) -> None:
        for name, allowed in (
            ("integrator", INTEGRATORS),
            ("motors", MOTORS),
            ("drag", DRAGS),
            ("gyro", GYROS),
            ("floor", FLOORS),
        ):
            if getattr(self, name) not in allowed:
                raise ValueError(f"Physics: {name}={getattr(self, name)!r}; it is one of {', '.join(allowed)}.")

    def replace(self, **changes: Any) -> Self:
        """A copy with some stages changed."""
        return dataclasses.replace(self, **changes)


GPD_DYN = Physics("semi_implicit", "instant")
"""gym-pybullet-drones' explicit dynamics (`Physics.DYN`), at 240 Hz."""
GPD_PYB = Physics("semi_implicit", "instant", bullet_damping=True, bullet_links=True)
"""Its PyBullet dynamics in free flight (`Physics.PYB`)."""
GPD_PYB_GND_DRAG_DW = GPD_PYB.replace(drag="rotor_lagged", ground_effect=True)
"""With ground effect and drag (`Physics.PYB_GND_DRAG_DW`); downwash comes with the surroundings."""
L2F = Physics("rk4", "first_order")
"""learning-to-fly, at 100 Hz."""
RLTOOLS = Physics("rk4", "asymmetric")
"""learning-to-fly's later library, at 100 Hz."""
CRAZYFLOW = Physics("exponential_euler", "asymmetric", "body", "crazyflow", "stop", world_torque=True)
"""crazyflow's first-principles model up to 0.1.0, at 500 Hz."""
CRAZYFLOW_0_4 = CRAZYFLOW.replace(gyro="physical")
"""The same as of 0.4.0."""


def polynomial(coefficients: Any, x: Any) -> Any:
    """c0 + c1 x + c2 x^2: of thrust and torque over a rotor's speed."""
    return coefficients[0] + x * (coefficients[1] + x * coefficients[2])


def thrust_to_rpm(model: Model, thrust: Any) -> Any:
    """The speed [rpm] at which one rotor gives `thrust` [N], of the branch where more speed gives more; zero where
    there is none. Its derivative is zero, not infinite, where the curve is flat."""
    a0, a1, a2 = model.thrust
    more = thrust - a0
    square = a1 * a1 + 4 * a2 * more
    root = jnp.sqrt(jnp.where(square > 0, square, 1))
    # Two forms of one root: the first holds for a straight line too, the second where the curve falls at first.
    rising = a1 > 0
    rpm = jnp.where(rising, 2 * more, root - a1) / jnp.where(rising, root + a1, jnp.where(a2 > 0, 2 * a2, 1))
    there = (square > 0) & (rising | (a2 > 0))
    return jnp.where(there, jnp.maximum(rpm, 0), 0)


def at_rest(
    model: Model, position: Any = (0.0, 0.0, 0.0), quaternion: Any = (1.0, 0.0, 0.0, 0.0), rpm: Any = None
) -> Drone:
    """A drone that does not move; its rotors turn at hover speed unless `rpm` (4,) or () says otherwise."""
    dtype = jnp.result_type(float)
    rpm = jnp.broadcast_to(model.hover_rpm if rpm is None else rpm, (4,)).astype(dtype)
    pose = (tuple(jnp.asarray(x, dtype) for x in position), tuple(jnp.asarray(x, dtype) for x in quaternion))
    zero = (jnp.zeros((), dtype),) * 3
    return Drone(*pose, zero, zero, tuple(rpm))


# ---- stages


def motor_rate(model: Model, rpm: Any, command: Any, physics: Physics) -> Any:
    """dn/dt of the rotors [rpm/s]."""
    if physics.motors == "first_order":
        return tuple(model.spin_up[0] * (c - n) for n, c in zip(rpm, command, strict=True))

    def rate(n, c):
        rising = c > n
        k = jnp.where(rising, model.spin_up[0], model.spin_down[0])
        k2 = jnp.where(rising, model.spin_up[1], model.spin_down[1])
        return (c - n) * (k + k2 * (c + n))

    return tuple(rate(n, c) for n, c in zip(rpm, command, strict=True))


def motor_exact(model: Model, rpm: Any, command: Any, dt: Any) -> Any:
    """First-order motors after `dt` of a constant command: exact."""

    def after(n, c):
        rate = jnp.where(c > n, model.spin_up[0], model.spin_down[0])
        return c + (n - c) * jnp.exp(-rate * dt)

    return tuple(after(n, c) for n, c in zip(rpm, command, strict=True))


def rotor_thrusts(model: Model, rpm: Any) -> Any:
    """Of each rotor [N]."""
    return tuple(polynomial(model.thrust, n) for n in rpm)


def ground_effect(model: Model, drone: Drone, rpm: Any) -> Any:
    """Extra thrust of each rotor near the ground [N] (Shi et al. 2019): a2 n^2 G (radius / 4 h)^2.

    The height h of the propeller counts from where the gain is 4/15 of the most thrust, and only upright drones gain.
    """
    row = matrix(drone.quaternion)[2]
    upright = (row[2] > 0) & (jnp.abs(row[0]) < 1)  # |roll| and |pitch| below pi/2
    lowest = 0.25 * model.propeller_radius * jnp.sqrt(15 * model.ground_effect / 4)

    def extra(x, y, n):
        height = jnp.maximum(drone.position[2] + row[0] * x + row[1] * y, lowest)
        gain = model.ground_effect * (model.propeller_radius / (4 * height)) ** 2
        return jnp.where(upright, model.thrust[2] * n * n * gain, 0)

    return tuple(extra(model.rotor_x[i], model.rotor_y[i], rpm[i]) for i in range(4))


def downwash(model: Model, positions: Float[Array, "M 3"]) -> Float[Array, " M"]:
    """What each of M drones loses along its body's z axis to those above it [N], negative.

    The empirical model of gym-pybullet-drones: -a exp(-(d / b)^2 / 2) with a = c1 (radius / 4 h)^2 and b = c2 h + c3,
    at h above and d beside, d < 10 m. It is singular where b = 0 (h = 0.69 m); we keep |b| above 1 mm.
    """
    c1, c2, c3 = model.downwash
    apart = positions[None, :] - positions[:, None]  # [i, j]: from i to j
    height = apart[..., 2]
    beside = apart[..., 0] ** 2 + apart[..., 1] ** 2
    above = (height > 0) & (beside < 100)
    height = jnp.where(above, height, 1)
    width = c2 * height + c3
    width = jnp.where(width < 0, jnp.minimum(width, -1e-3), jnp.maximum(width, 1e-3))
    loss = c1 * (model.propeller_radius / (4 * height)) ** 2 * jnp.exp(-0.5 * beside / width**2)
    return -jnp.sum(jnp.where(above, loss, 0), 1)


def wrench(model: Model, thrusts: Any, rpm: Any) -> tuple[Any, Vector]:
    """Thrust along the body's z axis [N] and torque [N m] of the rotors."""
    yaw = tuple(polynomial(model.torque, n) for n in rpm)
    torque = (
        sum(model.rotor_y[i] * thrusts[i] for i in range(4)),
        -sum(model.rotor_x[i] * thrusts[i] for i in range(4)),
        sum(model.rotor_spin[i] * yaw[i] for i in range(4)),
    )
    return sum(thrusts), torque


def drag_force(model: Model, drone: Drone, rpm: Any, wind: Any, physics: Physics) -> Vector:
    """[N], in the world."""
    air = drone.velocity if wind is None else add(drone.velocity, wind, -1)
    if physics.drag == "body":  # -R D R' v
        slow = unrotate(drone.quaternion, air)
        return rotate(drone.quaternion, tuple(-model.body_drag[i] * slow[i] for i in range(3)))
    speed = 2 * math.pi / 60 * sum(rpm)
    return tuple(-model.rotor_drag[i] * speed * air[i] for i in range(3))


def gyroscopic_torque(model: Model, drone: Drone, rpm: Any, rpm_rate: Any, physics: Physics) -> Vector:
    """What the propellers' angular momentum does to the body [N m]: -w x H and the reaction to their speeding up."""
    unit = 2 * math.pi / 60 * model.propeller_inertia
    spin = unit * sum(model.rotor_spin[i] * rpm[i] for i in range(4))
    rate = unit * sum(model.rotor_spin[i] * rpm_rate[i] for i in range(4))
    x, y, _ = drone.body_rates
    if physics.gyro == "crazyflow":  # as shipped, it does work: -2 x y spin
        return -y * spin, -x * spin, rate
    return y * spin, -x * spin, rate


def contact_acceleration(drone: Drone) -> Vector:
    """A floor at z = 0: a critically damped spring of 10 Hz and a strong friction, while below it [m/s^2]."""
    x, y, z = drone.velocity
    depth = -drone.position[2]
    frequency = 2 * math.pi * 10
    lift = jnp.maximum(frequency**2 * depth - 2 * frequency * z, 0)  # it pushes, it does not hold
    touching = depth > 0
    return (
        jnp.where(touching, -20 * x, 0),
        jnp.where(touching, -20 * y, 0),
        jnp.where(touching, lift, 0),
    )


def derivative(
    model: Model,
    drone: Drone,
    command: Any,
    physics: Physics = L2F,
    surroundings: Surroundings = CALM,
    links: Quaternion | None = None,
) -> Drone:
    """d/dt of every field, at a rotor speed `command` (4,) [rpm]. `links`: see `bullet_wrench`."""
    force, torque, wind, loss = surroundings
    rpm = command if physics.motors == "instant" else drone.rpm
    rpm_rate = (0.0,) * 4
    if physics.motors in ("first_order", "asymmetric"):
        rpm_rate = motor_rate(model, drone.rpm, command, physics)
    thrusts = rotor_thrusts(model, rpm)
    extra = ground_effect(model, drone, rpm) if physics.ground_effect else None
    lightness = 1 / model.mass
    if links is None:
        thrust, moment = wrench(model, thrusts if extra is None else add(thrusts, extra), rpm)
        specific = (thrust if loss is None else thrust + loss) * lightness
        push = tuple(specific * x for x in up(drone.quaternion))
    else:
        push, moment = bullet_wrench(model, drone, thrusts, extra, loss, rpm, links)
        push = tuple(lightness * x for x in push)
    acceleration = (push[0], push[1], push[2] - model.gravity)
    if force is not None:
        acceleration = add(acceleration, force, lightness)
    if physics.drag != "none":
        seen = drone.rpm if physics.drag == "rotor_lagged" else rpm
        drag = drag_force(model, drone, seen, wind, physics)
        if links is not None and extra is None:
            drag = rotate(drone.quaternion, rotate(links, unrotate(drone.quaternion, drag)))
        acceleration = add(acceleration, drag, lightness)
    if physics.gyro != "none":
        moment = add(moment, gyroscopic_torque(model, drone, rpm, rpm_rate, physics))
    if torque is not None:
        moment = add(moment, unrotate(drone.quaternion, torque) if physics.world_torque else torque)
    if physics.floor == "contact":
        acceleration = add(acceleration, contact_acceleration(drone))
    jx, jy, jz = model.inertia
    p, q, r = drone.body_rates
    spin = (
        (moment[0] - (jz - jy) * q * r) / jx,
        (moment[1] - (jx - jz) * r * p) / jy,
        (moment[2] - (jy - jx) * p * q) / jz,
    )
    if physics.bullet_damping:
        acceleration = add(acceleration, _bullet_damping(drone.velocity), -1)
        spin = add(spin, _bullet_damping(drone.body_rates), -1)
    zero = jnp.zeros_like(p)
    turn = tuple(0.5 * x for x in product(drone.quaternion, (zero, p, q, r)))
    return Drone(drone.velocity, turn, acceleration, spin, rpm_rate)


def bullet_wrench(
    model: Model, drone: Drone, thrusts: Any, extra: Any, loss: Any, rpm: Any, links: Quaternion
) -> tuple[Vector, Vector]:
    """Force in the world [N] and torque in the body [N m] of rotors on PyBullet's links.

    PyBullet places links at the start of a step, so a force given along a link points as the drone pointed one step
    ago; its arm is of now. `links` is that attitude seen from the body. The ground effect's code asks where the links
    are, which places them anew: it and the forces after it are in time.
    """
    thrust, (a, b, c) = wrench(model, thrusts, rpm)
    x, y, z = late = up(links)
    push = tuple(thrust * u for u in late)
    moment = (a * z + c * x, b * z + c * y, c * z - b * y - a * x)
    if extra is not None:
        lift, tilt = wrench(model, extra, (0.0,) * 4)
        push, moment = (push[0], push[1], push[2] + lift), add(moment, tilt)
    if loss is not None:
        push = add(push, late if extra is None else (0.0, 0.0, 1.0), loss)
    return rotate(drone.quaternion, push), moment


def _bullet_damping(v: Vector) -> Vector:
    rate = BULLET_DAMPING * (1 + norm(v))
    return tuple(rate * x for x in v)


# ---- integrators


def _advance(drone: Any, rate: Any, dt: Any) -> Any:
    return type(drone)(*(add(x, dx, dt) for x, dx in zip(drone, rate, strict=True)))


def _turned(quaternion: Any, body_rates: Any, dt: Any) -> Any:
    q = product(quaternion, exponential(tuple(dt * w for w in body_rates)))
    scale = 1.5 - 0.5 * sum(x * x for x in q)  # Newton's step to length 1, from which float32 drifts by 1e-8 a step
    return tuple(scale * x for x in q)


def _advance_turning(drone: Any, rate: Any, body_rates: Any, dt: Any) -> Any:
    return _advance(drone, rate._replace(quaternion=(0.0,) * 4), dt)._replace(
        quaternion=_turned(drone.quaternion, body_rates, dt)
    )


def _semi_implicit(f, drone: Any, dt: Any) -> Any:
    new = _advance(drone, f(drone), dt)
    position = add(drone.position, new.velocity, dt)
    return new._replace(position=position, quaternion=_turned(drone.quaternion, new.body_rates, dt))


def _runge_kutta(f, drone: Any, dt: Any) -> Any:
    # Summed up as the stages come: the four derivatives together would not stay in registers.
    total = rate = f(drone)
    for ahead, weight in ((0.5, 2), (0.5, 2), (1, 1)):
        rate = f(_advance(drone, rate, ahead * dt))
        total = _advance(total, rate, weight)
    return _advance(drone, total, dt / 6)


def _exponential_runge_kutta(f, drone: Any, dt: Any) -> Any:
    stage, rate = drone, f(drone)
    total, turning = rate, drone.body_rates
    for ahead, weight in ((0.5, 2), (0.5, 2), (1, 1)):
        stage = _advance_turning(drone, rate, stage.body_rates, ahead * dt)
        # Else each number of the new state makes all turns anew.
        quaternion, body_rates = fence((stage.quaternion, stage.body_rates))
        stage = stage._replace(quaternion=quaternion, body_rates=body_rates)
        rate = f(stage)
        total, turning = _advance(total, rate, weight), add(turning, stage.body_rates, weight)
    return _advance_turning(drone, total, turning, dt / 6)


def integrate(f: Callable[[Any], Any], drone: Any, dt: Any, integrator: str) -> Any:
    """The state `dt` [s] later, where `f(state)` is its derivative; a NamedTuple that begins as Drone does."""
    if integrator == "semi_implicit":
        return _semi_implicit(f, drone, dt)
    if integrator == "exponential_euler":
        return _advance_turning(drone, f(drone), drone.body_rates, dt)
    if integrator == "exponential_rk4":
        return _exponential_runge_kutta(f, drone, dt)
    new = _advance(drone, f(drone), dt) if integrator == "euler" else _runge_kutta(f, drone, dt)
    return new._replace(quaternion=unit(new.quaternion))


def step(
    model: Model,
    drone: Drone,
    command: Any,
    dt: Any,
    physics: Physics = L2F,
    surroundings: Surroundings = CALM,
) -> Drone:
    """`dt` [s] later, at a rotor speed `command` (4,) [rpm] held for so long.

    Rotors that lag stay within [0, max_rpm]; a command is not clipped (`actions.py` does).
    """

    # Whatever the integrator: exact for `semi_implicit`, whose last turn was by the body rates of now.
    links = exponential(tuple(-dt * w for w in drone.body_rates)) if physics.bullet_links else None

    def f(drone: Drone) -> Drone:
        return derivative(model, drone, command, physics, surroundings, links)

    new = integrate(f, drone, dt, physics.integrator)
    if physics.motors == "instant":
        new = new._replace(rpm=tuple(command))
    else:
        rpm = motor_exact(model, drone.rpm, command, dt) if physics.motors == "exact" else new.rpm
        new = new._replace(rpm=tuple(jnp.clip(n, 0, model.max_rpm) for n in rpm))
    if physics.floor == "stop":
        below = new.position[2] < -0.001
        height = jnp.where(below, -0.001, new.position[2])
        velocity = tuple(jnp.where(below, 0, v) for v in new.velocity)
        new = new._replace(position=(*new.position[:2], height), velocity=velocity)
    return new


# ---- open loop


class Trajectory(NamedTuple):
    """What `simulate` returns: the states at 0, dt, ..., steps dt."""

    position: Float[Array, "T 3"]
    quaternion: Float[Array, "T 4"]
    velocity: Float[Array, "T 3"]
    body_rates: Float[Array, "T 3"]
    rpm: Float[Array, "T 4"]


def stack(drone: Drone) -> Trajectory:
    """A drone's fields as arrays with the components last."""
    return Trajectory(*(jnp.stack([jnp.asarray(x) for x in field], -1) for field in drone))


def simulate(
    model: Model,
    rpm: Any,
    initial: Drone | None = None,
    physics: Physics = L2F,
    dt: Any = 0.01,
    steps: int | None = None,
    surroundings: Surroundings = CALM,
) -> Trajectory:
    """The open-loop flight under rotor speed commands, as `steps + 1` states of `(steps + 1, 3 or 4)` arrays.

    Args:
        rpm: one command (4,) for all steps, or one for each (steps, 4) [rpm].
        initial: at rest in the origin, rotors at hover speed, when None.
        surroundings: constant over the flight; a field with a leading axis of `steps` varies with it.

    Everything is computed in the precision jax has by default: float64 under `jax.enable_x64`. Raises ValueError for
    commands that do not fit, and for a model without what `physics` needs.
    """
    wind = surroundings.wind
    blown = wind is not None and is_concrete(wind) and bool(np.any(vector(wind) != 0))
    check_fit(model, physics, "simulate", wind=blown)
    dtype = jnp.result_type(float)
    rpm = jnp.asarray(rpm, dtype)
    steps = (len(rpm) if rpm.ndim == 2 else None) if steps is None else steps
    if rpm.shape not in ((4,), (steps, 4)) or steps is None:
        raise ValueError(f"rpm has shape {rpm.shape}; it needs (4,) with steps= a number, or (steps, 4).")
    commands = jnp.broadcast_to(rpm, (steps, 4))
    model = jax.tree.map(lambda x: jnp.asarray(x, dtype), model)
    initial = at_rest(model) if initial is None else initial
    drone = Drone(*(tuple(jnp.asarray(x, dtype) for x in field) for field in initial))
    sizes = Surroundings((3,), (3,), (3,), ())

    def at_each_step(value, shape):
        return None if value is None else jnp.broadcast_to(jnp.asarray(value, dtype), (steps, *shape))

    around = Surroundings(*(at_each_step(value, shape) for value, shape in zip(surroundings, sizes, strict=True)))

    def body(drone, inputs):
        command, around = inputs
        new = step(model, drone, tuple(command), dt, physics, around)
        return new, stack(new)

    _, flight = jax.lax.scan(body, drone, (commands, around))
    return jax.tree.map(lambda first, rest: jnp.concatenate([first[None], rest]), stack(drone), flight)


# ---- what cannot be


def vector(x: Any) -> np.ndarray:
    """A field of several numbers, given as a tuple or as an array, with the components on the last axis. Host only."""
    return np.stack(np.broadcast_arrays(*x), -1) if isinstance(x, tuple) else np.asarray(x)


POSITIVE = ("mass", "inertia", "max_rpm")
NOT_NEGATIVE = (
    "min_rpm",
    "spin_up",
    "spin_down",
    "body_drag",
    "rotor_drag",
    "propeller_radius",
    "propeller_inertia",
    "ground_effect",
    "radius",
    "gravity",
)


def check_model(model: Model, who: str = "Model") -> None:
    """Raise ValueError for an airframe that cannot be; warn about one that cannot hover. Host only; may be batched."""
    import warnings

    for name, value in vars(model).items():
        value = vector(value)
        right, rule = True, "finite"
        if name in POSITIVE:
            right, rule = value > 0, "finite and positive"
        elif name in NOT_NEGATIVE:
            right, rule = value >= 0, "finite and not negative"
        if not np.all(np.isfinite(value) & right):
            raise ValueError(f"{who}: {name}={value} must be {rule}.")
    inertia = vector(model.inertia)
    if np.any(2 * inertia.max(-1) > inertia.sum(-1) * (1 + 1e-6)):
        raise ValueError(
            f"{who}: inertia={inertia} is of no solid: each of the three is at most the sum of the others."
        )
    speed = np.asarray(model.max_rpm)
    if np.any(np.asarray(model.min_rpm) >= speed):
        raise ValueError(f"{who}: min_rpm={model.min_rpm} must be below max_rpm={speed}.")
    x, y, spin = (vector(getattr(model, name)) for name in ("rotor_x", "rotor_y", "rotor_spin"))
    yaw = spin * np.any(vector(model.torque) != 0, -1, keepdims=True)
    rows = np.stack(np.broadcast_arrays(np.ones(4), x, y, yaw), -2)
    size = np.abs(rows).max(-1, keepdims=True)
    if np.any(size == 0) or np.any(np.abs(np.linalg.det(rows / size)) < 1e-6):
        raise ValueError(
            f"{who}: rotors at rotor_x={x}, rotor_y={y} with rotor_spin={spin} and torque={model.torque} cannot lift, "
            "roll, pitch and yaw the body each on its own."
        )
    most = 4 * polynomial(np.moveaxis(vector(model.thrust), -1, 0), speed)
    weight = np.asarray(model.mass) * np.asarray(model.gravity)
    if np.any(most <= weight):
        warnings.warn(
            f"{who}: the most thrust {most} N does not exceed the weight {weight} N: it cannot hover.", stacklevel=2
        )


def check_physics(physics: Any, who: str) -> None:
    """Raise ValueError for what is not a `Physics`: the name of one, say."""
    if not isinstance(physics, Physics):
        named = ", ".join(f"dynamics.{name}" for name, value in globals().items() if isinstance(value, Physics))
        raise ValueError(f"{who}: physics={physics!r} is not a dynamics.Physics; named ones are {named}.")


def check_fit(
    model: Model,
    physics: Any,
    who: str = "check_fit",
    *,
    wind: bool = False,
    downwash: bool = False,
    battery: bool = False,
) -> None:
    """Raise ValueError where `physics`, or `wind`, `downwash` or a `battery`, needs numbers that `model` lacks.

    On the host: a model that is being traced is not looked at. It may be batched; a coefficient of what acts from
    outside may then be zero in some, but not in all.
    """
    check_physics(physics, who)
    if not is_concrete(model):
        return
    up, down = vector(model.spin_up), vector(model.spin_down)
    rates = {
        "instant": {},
        "first_order": {"spin_up[0]": up[..., 0]},
        "asymmetric": {"spin_up": up.sum(-1), "spin_down": down.sum(-1)},
        "exact": {"spin_up[0]": up[..., 0], "spin_down[0]": down[..., 0]},
    }[physics.motors]
    for name, rate in rates.items():
        if not np.all(rate > 0):
            raise ValueError(
                f"{who}: physics with motors={physics.motors!r} needs a model with {name} above 0, else its rotors "
                f"never follow a command; not {rate}. Without lag: physics.replace(motors='instant')."
            )
    radius = np.asarray(model.propeller_radius)
    if physics.ground_effect and not (np.all(radius > 0) and np.all(np.asarray(model.ground_effect) > 0)):
        raise ValueError(
            f"{who}: physics with ground effect needs a model with propeller_radius and ground_effect above 0, not "
            f"{radius} and {model.ground_effect}."
        )
    if wind and physics.drag == "none":
        raise ValueError(f"{who}: wind acts only on physics with drag, not on {physics}.")
    drag = "body_drag" if physics.drag == "body" else "rotor_drag"
    if wind and not np.any(vector(getattr(model, drag)) != 0):
        raise ValueError(f"{who}: wind with drag={physics.drag!r} needs a model whose {drag} is not zero.")
    if downwash and not np.any((vector(model.downwash)[..., 0] > 0) & (radius > 0)):
        raise ValueError(
            f"{who}: downwash needs a model with downwash[0] and propeller_radius above 0, not "
            f"{model.downwash} and {radius}."
        )
    if battery and not np.all(np.asarray(model.max_rpm) > 1):
        raise ValueError(
            f"{who}: a battery needs a model whose rotor speeds are in rpm; with max_rpm={model.max_rpm} they are a "
            "throttle, from which no power follows."
        )
