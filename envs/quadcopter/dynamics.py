"""The flight of a quadcopter: motors, forces and torques, their derivative, and a step of it.

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
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxrl.environment import pytree

from .integrators import INTEGRATORS, integrate
from .rotations import Quaternion, Vector, add, exponential, matrix, norm, product, rotate, unrotate, up

MOTORS = ("instant", "first_order", "asymmetric", "exact")
DRAGS = ("none", "body", "rotor", "rotor_lagged")
GYROS = ("none", "physical", "crazyflow")
FLOORS = ("none", "stop", "contact")


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
    """A drone that does not move; its rotors turn at hover speed, or the nearest that they can turn at, unless `rpm`
    (4,) or () says otherwise."""
    dtype = jnp.result_type(float)
    rpm = jnp.clip(model.hover_rpm, model.min_rpm, model.max_rpm) if rpm is None else rpm
    rpm = jnp.broadcast_to(rpm, (4,)).astype(dtype)
    pose = (tuple(jnp.asarray(x, dtype) for x in position), tuple(jnp.asarray(x, dtype) for x in quaternion))
    zero = (jnp.zeros((), dtype),) * 3
    return Drone(*pose, zero, zero, tuple(rpm))


# ---- stages


def within_limits(model: Model, rpm: Any) -> Any:
    """Rotor speeds (4,) [rpm], each at most `max_rpm` and at least `min_rpm`."""
    return tuple(jnp.clip(n, model.min_rpm, model.max_rpm) for n in rpm)


def turned(model: Model, rpm: Any, before: Any) -> Any:
    """Rotor speeds (4,) [rpm] after a step of an integrator from `before`, without what it went beyond the limits.

    A rotor that turned slower than `min_rpm`, as one that starts, may still do so.
    """
    least = (jnp.minimum(n, model.min_rpm) for n in before)
    return tuple(jnp.clip(n, low, model.max_rpm) for n, low in zip(rpm, least, strict=True))


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
    """d/dt of every field, at a rotor speed `command` (4,) [rpm] within the limits. `links`: see `bullet_wrench`."""
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


def step(
    model: Model,
    drone: Drone,
    command: Any,
    dt: Any,
    physics: Physics = L2F,
    surroundings: Surroundings = CALM,
) -> Drone:
    """`dt` [s] later, at a rotor speed `command` (4,) [rpm] held for so long.

    A command beyond [min_rpm, max_rpm] turns the rotors at the nearer of the two: no motor does more.
    """

    command = within_limits(model, command)
    # Whatever the integrator: exact for `semi_implicit`, whose last turn was by the body rates of now.
    links = exponential(tuple(-dt * w for w in drone.body_rates)) if physics.bullet_links else None

    def f(drone: Drone) -> Drone:
        return derivative(model, drone, command, physics, surroundings, links)

    new = integrate(f, drone, dt, physics.integrator)
    if physics.motors == "instant":
        new = new._replace(rpm=command)
    else:
        rpm = motor_exact(model, drone.rpm, command, dt) if physics.motors == "exact" else new.rpm
        new = new._replace(rpm=turned(model, rpm, drone.rpm))
    if physics.floor == "stop":
        below = new.position[2] < -0.001
        height = jnp.where(below, -0.001, new.position[2])
        velocity = tuple(jnp.where(below, 0, v) for v in new.velocity)
        new = new._replace(position=(*new.position[:2], height), velocity=velocity)
    return new
