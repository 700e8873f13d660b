"""What an action means: from rotor speeds up to waypoints. Actions are in [-1, 1] a component and are clipped to it.

| level | components | meaning |
|---|---|---|
| `rpm` | 4 | rotor speed, linear from 0 to `max_rpm` (learning-to-fly) |
| `rpm_band` | 4 | rotor speed, within 5 % of hover (gym-pybullet-drones' RPM) |
| `one_d_rpm` | 1 | the same for all four (its ONE_D_RPM) |
| `thrust` | 4 | thrust of each rotor, linear from 0 to its most |
| `body_rates` | 4 | collective thrust, linear from least to most; roll, pitch and yaw rate in the body (CTBR) |
| `attitude` | 4 | collective thrust as above; roll, pitch and yaw |
| `velocity` | 4 | velocity along the world's axes; yaw rate |
| `waypoint` | 4 | a point to fly to, from where the drone is along the world's axes; yaw rate |
| `vel` | 4 | direction of the velocity; its speed is the size of the fourth (gym-pybullet-drones' VEL) |
| `pid` | 3 | a point to fly to [m], in the world (its PID) |
| `one_d_pid` | 1 | a point up to 0.1 m above or below (its ONE_D_PID) |

An action is read once a control step (`hold`); what it asks for is then held. No level commands rotors outside
[`min_rpm`, `max_rpm`]. The loops of `body_rates`, `attitude`, `velocity` and `waypoint` run at every physics step
(`command`): the cascade of `cascade.py`, that flies every airframe. gym-pybullet-drones runs its PID once a control
step and holds the rotor speeds. What 1 means at these levels: `Scales`, `PIDScales`.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxrl.environment import pytree

from .. import dynamics, rotations
from ..dynamics import Drone, Model, Physics
from .cascade import CascadeGains, attitude_loop, body_rates_loop, cascade_init, position_loop, velocity_loop
from .dslpid import DSLPIDGains, dslpid, dslpid_init
from .setpoints import Attitude, Rates, Setpoint

SIZES = {
    "rpm": 4,
    "rpm_band": 4,
    "one_d_rpm": 1,
    "thrust": 4,
    "body_rates": 4,
    "attitude": 4,
    "velocity": 4,
    "waypoint": 4,
    "vel": 4,
    "pid": 3,
    "one_d_pid": 1,
}
"""Components of an action, by level."""

_ROTORS = tuple(f"rotor {i}" for i in range(1, 5))
NAMES = {
    "rpm": _ROTORS,
    "rpm_band": _ROTORS,
    "one_d_rpm": ("rotors",),
    "thrust": tuple(f"thrust {i}" for i in range(1, 5)),
    "body_rates": ("collective thrust", "roll rate", "pitch rate", "yaw rate"),
    "attitude": ("collective thrust", "roll", "pitch", "yaw"),
    "velocity": ("v_x", "v_y", "v_z", "yaw rate"),
    "waypoint": ("ahead x", "ahead y", "ahead z", "yaw rate"),
    "vel": ("direction x", "direction y", "direction z", "speed"),
    "pid": ("to x [m]", "to y [m]", "to z [m]"),
    "one_d_pid": ("rise",),
}
"""What they are; in [-1, 1], of what `Scales` and `PIDScales` say, where there is no unit."""


def ends(level: str, model: Model, scales: Any) -> tuple[str, ...]:
    """What -1 and 1 are at a level, with units; nothing for those of gym-pybullet-drones. Host only."""
    if level == "rpm":
        return (f"-1 is 0, 1 is {float(model.max_rpm):.6g} rpm",) * 4
    if level not in LOOPS:
        return ()
    least, most = (float(collective(model, end)) for end in (-1.0, 1.0))
    thrust, yaw_rate = f"-1 is {least:.4g} N, 1 is {most:.4g} N", f"1 is {float(scales.yaw_rate):.4g} rad/s"
    if level in ("body_rates", "attitude"):
        of_axes, unit = (scales.body_rates, "rad/s") if level == "body_rates" else (scales.angles, "rad")
        return (thrust, *(f"1 is {float(x):.4g} {unit}" for x in of_axes))
    length = f"1 is {float(scales.speed):.4g} m/s" if level == "velocity" else f"1 is {float(scales.reach):.4g} m"
    return (*(length,) * 3, yaw_rate)


LOOPS = {
    "body_rates": body_rates_loop,
    "attitude": attitude_loop,
    "velocity": velocity_loop,
    "waypoint": position_loop,
}
"""The loop of a level that runs at every physics step."""

HELD_LOOPS = ("vel", "pid", "one_d_pid")
"""Levels whose loop runs once a control step."""


@pytree
class Scales:
    """What 1 means in an action of `LOOPS`, and the loops' gains."""

    body_rates: jax.Array = (10.0, 10.0, 6.0)  # rad/s
    angles: jax.Array = (math.pi / 2, math.pi / 2, math.pi / 2)  # rad; roll, pitch, yaw: crazyflow's
    speed: jax.Array = 3.0  # m/s, along each axis
    yaw_rate: jax.Array = 2.0  # rad/s
    reach: jax.Array = 1.0  # m, along each axis
    gains: Any = CascadeGains()


@pytree
class PIDScales:
    """What 1 means in an action of `HELD_LOOPS`, and the PID's gains."""

    speed: jax.Array = 0.25  # m/s, of `vel`: 3 % of the Crazyflie's 30 km/h
    rise: jax.Array = 0.1  # m, of `one_d_pid`
    step: jax.Array = 1.0  # m, of `pid`: the next point is at most so far away
    gains: Any = DSLPIDGains()


def default_scales(level: str) -> Any:
    """The scales that a level reads; None where it reads none."""
    if level in LOOPS:
        return _vectors(Scales(gains=_vectors(CascadeGains())))
    return _vectors(PIDScales(gains=_vectors(DSLPIDGains()))) if level in HELD_LOOPS else None


def _vectors(scales: Any) -> Any:
    """Tuples of numbers as arrays: a leaf each."""
    return scales.replace(**{k: np.array(v) for k, v in vars(scales).items() if isinstance(v, tuple)})


def initial_carry(level: str, agents: tuple[int, ...] = ()) -> Any:
    """What the loop of a level remembers, each number with the shape `agents`."""
    if level in LOOPS:
        carry = cascade_init()
    else:
        carry = dslpid_init() if level in HELD_LOOPS else ()
    return jax.tree.map(lambda x: jnp.broadcast_to(x, agents), carry)


def collective(model: Model, action: Any) -> Any:
    """Thrust of all rotors [N], linear from that of `min_rpm` at -1 to the most at 1."""
    least = 4 * dynamics.polynomial(model.thrust, model.min_rpm)
    return least + 0.5 * (model.max_thrust - least) * (1 + action)


def loop_model(model: Model, physics: Physics) -> Model:
    """`model` with the lag that its motors have in `physics`: what `hold` and `command` are given.

    Loops that count on another lag command rotors ahead of none, and shake or tumble the drone.
    """
    up, down = model.spin_up[0], model.spin_down[0]
    if physics.motors == "instant":
        up = down = 0.0
    elif physics.motors == "first_order":
        down = up
    elif physics.motors == "asymmetric":
        return model
    return model.replace(spin_up=(up, 0.0), spin_down=(down, 0.0))


def heading(quaternion: Any) -> Any:
    """The yaw [rad] of `attitude_of`: that which is left when the tilt is undone the shortest way."""
    w, _, _, z = quaternion
    return 2 * jnp.arctan2(z, w)


def hold(
    level: str, action: Float[Array, "*batch A"], carry: Any, drone: Drone, model: Model, scales: Any, dt: Any
) -> tuple[Any, Any]:
    """`(what is asked for, carry)` of an action, at the start of a control step of `dt` [s]; `model`: `loop_model`.

    Rotor speeds (4,) [rpm]; of `LOOPS` their setpoint.
    """
    a = tuple(action[..., i] for i in range(SIZES[level]))
    scales = default_scales(level) if scales is None else scales
    if level == "rpm":
        half = 0.5 * model.max_rpm
        return dynamics.within_limits(model, (half * x + half for x in a)), carry
    if level in ("rpm_band", "one_d_rpm"):
        hover = model.hover_rpm
        rpm = (hover * (1 + 0.05 * x) for x in (a if len(a) == 4 else a * 4))
        return dynamics.within_limits(model, rpm), carry
    if level == "thrust":
        most = 0.25 * model.max_thrust
        rpm = (dynamics.thrust_to_rpm(model, 0.5 * most * (1 + x)) for x in a)
        return dynamics.within_limits(model, rpm), carry
    if level == "body_rates":
        return Rates(collective(model, a[0]), tuple(scales.body_rates[i] * a[i + 1] for i in range(3))), carry
    if level == "attitude":
        angles = (scales.angles[i] * a[i + 1] for i in range(3))
        return Attitude(collective(model, a[0]), rotations.from_euler(*angles)), carry
    if level in ("velocity", "waypoint"):
        setpoint = Setpoint(yaw=heading(drone.quaternion), yaw_rate=scales.yaw_rate * a[3])
        if level == "velocity":
            return setpoint._replace(velocity=tuple(scales.speed * x for x in a[:3])), carry
        return setpoint._replace(position=rotations.add(drone.position, a[:3], scales.reach)), carry
    return dslpid(carry, drone, _pid_setpoint(level, a, drone, scales), scales.gains, model, dt)


def _pid_setpoint(level: str, a: Any, drone: Drone, scales: PIDScales) -> Setpoint:
    if level == "vel":
        speed = scales.speed * jnp.abs(a[3])
        velocity = tuple(speed * x for x in rotations.unit(a[:3]))
        return Setpoint(drone.position, velocity, yaw=rotations.euler(drone.quaternion)[2])
    if level == "one_d_pid":
        return Setpoint(rotations.add(drone.position, (0.0, 0.0, scales.rise * a[0])))
    way = rotations.add(a, drone.position, -1)
    share = scales.step / jnp.maximum(rotations.norm(way), scales.step)
    return Setpoint(rotations.add(drone.position, way, share))


def command(level: str, held: Any, carry: Any, drone: Drone, model: Model, scales: Any, dt: Any) -> tuple[Any, Any]:
    """`(rotor speeds (4,) [rpm], carry)` before one physics step of `dt` [s]; `held` and `model` as in
    `hold`."""
    if level in LOOPS:
        scales = Scales() if scales is None else scales
        return LOOPS[level](carry, drone, held, scales.gains, model, dt)
    return held, carry
