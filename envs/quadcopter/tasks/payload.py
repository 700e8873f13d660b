"""Quadcopter-Payload-v0: carry a load on a cable to a goal, with little swing.

Sreenath, Lee and Kumar (2013), "Geometric control and differential flatness of a quadrotor UAV with a cable-suspended
load" (CDC), the cable taut, massless and inextensible, fixed at the drone's centre of mass. With n the unit vector from
the drone to the load, w its angular velocity (w . n = 0), F all forces on the drone but gravity and the cable's,

    M l dw/dt = -n x F          dn/dt = w x n          T = m / (M + m) (M l |w|^2 - n . F)
    M dv/dt = F - M g z + T n   the load's position is x + l n

M, m the masses, l the cable's length, T its tension. A cable pulls only: where T falls below zero these equations end,
and so does the episode, with `info["slack"]`. Drone, rotors and cable are integrated together by RK4.

Observation: the base class's 18 numbers (`task.py`) relative to where the drone is when the load hangs still in the
goal, the load's position minus the goal [m], n, and dn/dt [1/s] (9), the last action (4). Action: collective thrust and
body rates (`control/actions.py`). An episode starts at rest within `start_position` of the goal with a swing of up to
`start_swing`. Reward, with e the load's distance to the goal,

    exp(-e) - swing |dn/dt|^2 - rates |body rates|^2 - failure [ended]

It ends when the load is `arena` from the goal on any axis, when the cable is slack, or at a tilt beyond 90 degrees.
Time limit 10 s, at 50 Hz of control.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from jaxrl.environment import Transition, pytree, require_non_negative, require_positive
from jaxrl.math import sincos

from .. import dynamics, rotations
from ..control import actions
from ..dynamics import CALM, Drone, Model, Physics, Surroundings
from ..rotations import Vector, add, cross, dot, norm
from ..scene import Scene
from .task import FlightParams, QuadcopterTask, State


@pytree
class Weights:
    swing: jax.Array = 0.02  # s^2
    rates: jax.Array = 2e-3  # s^2/rad^2
    failure: jax.Array = 10.0


@pytree
class Params(FlightParams):
    max_steps: jax.Array = 500
    dt: jax.Array = 0.005
    load_mass: jax.Array = 0.008  # kg
    cable: jax.Array = 0.3  # m
    weights: Any = Weights()
    goal: jax.Array = (0.0, 0.0, 0.0)  # m, for the load
    start_position: jax.Array = 1.0  # m, largest error of each coordinate
    start_swing: jax.Array = math.pi / 6  # rad, largest angle of the cable from straight down
    arena: jax.Array = 2.0  # m


class Carrier(NamedTuple):
    """A `Drone` and its load."""

    position: Any
    quaternion: Any
    velocity: Any
    body_rates: Any
    rpm: Any
    cable: Any  # unit vector from the drone to the load, in the world
    swing: Any  # its angular velocity [rad/s], in the world, at right angles to it

    @property
    def drone(self) -> Drone:
        return Drone(*self[:5])


# ---- dynamics


def cable_rate(carrier: Carrier) -> Vector:
    """dn/dt [1/s]."""
    return cross(carrier.swing, carrier.cable)


def load(carrier: Carrier, length: Any) -> tuple[Vector, Vector]:
    """Position [m] and velocity [m/s] of the load."""
    return add(carrier.position, carrier.cable, length), add(carrier.velocity, cable_rate(carrier), length)


def tension(model: Model, carrier: Carrier, force: Vector, load_mass: Any, length: Any) -> Any:
    """Of the cable [N]; `force` [N] is what acts on the drone beside gravity and the cable."""
    centrifugal = model.mass * length * dot(carrier.swing, carrier.swing)
    return load_mass / (model.mass + load_mass) * (centrifugal - dot(carrier.cable, force))


def derivative(
    model: Model,
    carrier: Carrier,
    command: Any,
    load_mass: Any,
    length: Any,
    physics: Physics = dynamics.L2F,
    surroundings: Surroundings = CALM,
) -> tuple[Carrier, Any]:
    """d/dt of every field at a rotor speed `command` (4,) [rpm], and the cable's tension [N]."""
    free = dynamics.derivative(model, carrier.drone, command, physics, surroundings)
    force = tuple(model.mass * a for a in add(free.velocity, (0.0, 0.0, model.gravity)))
    pull = tension(model, carrier, force, load_mass, length)
    turning = tuple(-x / (model.mass * length) for x in cross(carrier.cable, force))
    velocity = add(free.velocity, carrier.cable, pull / model.mass)
    return Carrier(*free._replace(velocity=velocity), cable_rate(carrier), turning), pull


def step(
    model: Model,
    carrier: Carrier,
    command: Any,
    dt: Any,
    load_mass: Any,
    length: Any,
    physics: Physics = dynamics.L2F,
    surroundings: Surroundings = CALM,
) -> tuple[Carrier, Any]:
    """`dt` [s] later by RK4, at a rotor speed `command` (4,) [rpm] held for so long; and the tension [N] before it.

    A command beyond [min_rpm, max_rpm] turns the rotors at the nearer of the two.
    """
    command = dynamics.within_limits(model, command)

    def advance(start: Carrier, rate: Carrier, dt: Any) -> Carrier:
        return Carrier(*(add(x, dx, dt) for x, dx in zip(start, rate, strict=True)))

    def stage(carry: Any, factors: Any) -> Any:
        total, rate = carry
        ahead, weight = factors
        here = advance(carrier, rate, ahead * dt)
        rate, pull = derivative(model, here, command, load_mass, length, physics, surroundings)
        return (advance(total, rate, weight), rate), pull

    # A scan: unrolled, this one ran at two thirds of the speed and compiled for longer.
    dtype = jnp.result_type(carrier.position[0])
    stages = jnp.array([0.0, 0.5, 0.5, 1.0], dtype), jnp.array([1.0, 2.0, 2.0, 1.0], dtype)
    nothing = jax.tree.map(lambda x: jnp.zeros_like(x, dtype), carrier)
    (total, _), pulls = jax.lax.scan(stage, (nothing, nothing), stages)
    new, pull = advance(carrier, total, dt / 6), pulls[0]
    cable = rotations.unit(new.cable)
    new = new._replace(
        quaternion=rotations.unit(new.quaternion),
        rpm=command if physics.motors == "instant" else dynamics.turned(model, new.rpm, carrier.rpm),
        cable=cable,
        swing=add(new.swing, cable, -dot(new.swing, cable)),
    )
    return new, pull


# ---- the task


def reward(distance: Any, swing_rate: Any, body_rates: Any, failed: Any, weights: Weights) -> Float[Array, ""]:
    """Of the load's `distance` [m] to the goal, dn/dt [1/s] and body rates [rad/s], and whether this ends it."""
    cost = weights.swing * dot(swing_rate, swing_rate) + weights.rates * dot(body_rates, body_rates)
    return jnp.exp(-distance) - cost - weights.failure * failed


@dataclasses.dataclass(frozen=True)
class Payload(QuadcopterTask):
    id: str = dataclasses.field(default="Quadcopter-Payload-v0", kw_only=True)
    Params = Params
    aims = (True, True)

    action: str = "body_rates"
    substeps: int = 4
    history: int = 1

    num_features = 9

    def __post_init__(self) -> None:
        super().__post_init__()
        physics = self.physics
        if physics.integrator != "rk4" or physics.motors == "exact" or physics.bullet_links or physics.floor != "none":
            raise ValueError(
                f"{self.id}: it integrates by rk4, without exact motors, bullet_links or a floor; not {physics}."
            )

    def start(self, key: Key[Array, ""], params: Params) -> tuple[Any, Any]:
        u = jax.random.uniform(key, (5,))
        angle = params.start_swing * jnp.sqrt(u[3])
        (sine, cosine), (across, along) = sincos(angle), sincos(2 * math.pi * u[4])
        cable = (sine * along, sine * across, -cosine)
        position = tuple(
            params.goal[i] + params.start_position * (2 * u[i] - 1) - params.cable * cable[i] for i in range(3)
        )
        drone = dynamics.at_rest(params.model, position)
        zero = jnp.zeros_like(sine)
        return Carrier(*drone, cable, (zero,) * 3), ()

    def fly(self, state: State, action: Float[Array, "A"], params: Params) -> tuple[Carrier, Any]:
        model, scales = params.model, params.scales
        seen = actions.loop_model(model, self.physics)
        held, control = actions.hold(
            self.action, action, state.control, state.drone.drone, seen, scales, self.substeps * params.dt
        )

        def body(_, carry):
            carrier, control = carry
            command, control = actions.command(self.action, held, control, carrier.drone, seen, scales, params.dt)
            command = self.supplied(command, state, carrier.drone, params)
            around = self.surroundings(state, carrier.drone, params)
            weight = params.load_mass, params.cable
            return step(model, carrier, command, params.dt, *weight, self.physics, around)[0], control

        return jax.lax.fori_loop(0, self.substeps, body, (state.drone, control))

    def target(self, state: State, params: Params) -> tuple[Any, Any]:
        x, y, z = params.goal
        return (x, y, z + params.cable), (0.0, 0.0, 0.0)

    @property
    def feature_names(self) -> tuple[str, ...]:
        load = [f"load_{axis} - goal [m]" for axis in "xyz"]
        cable = [f"cable_{axis}{unit}" for unit in ("", "_dot [1/s]") for axis in "xyz"]
        return (*load, *cable)

    def features(self, state: State, params: Params) -> tuple:
        position, _ = load(state.drone, params.cable)
        return *add(position, tuple(params.goal), -1), *state.drone.cable, *cable_rate(state.drone)

    def pull(self, state: State, carrier: Carrier, params: Params) -> Any:
        """The tension [N] with the rotors as they are."""
        around = self.surroundings(state, carrier.drone, params)
        rpm = carrier.rpm
        return derivative(params.model, carrier, rpm, params.load_mass, params.cable, self.physics, around)[1]

    def judge(self, state: State, action: Float[Array, "A"], drone: Any, params: Params) -> Transition:
        position, _ = load(drone, params.cable)
        error = add(position, tuple(params.goal), -1)
        lost = jnp.maximum(jnp.maximum(jnp.abs(error[0]), jnp.abs(error[1])), jnp.abs(error[2])) > params.arena
        pull = self.pull(state, drone, params)
        slack = pull < 0
        failed = lost | slack | (rotations.up(drone.quaternion)[2] < 0)
        distance = norm(error)
        gain = reward(distance, cable_rate(drone), drone.body_rates, failed, params.weights)
        info = {"distance": distance, "tension": pull, "slack": slack}
        return Transition((), gain, failed, jnp.bool_(False), info)

    def validate(self, params: Params) -> None:
        super().validate(params)
        require_positive(self, params, "load_mass", "cable", "arena")
        require_non_negative(self, params, "start_position", "start_swing")
        swing = np.asarray(params.start_swing)
        if np.any(swing > math.pi / 2):
            raise ValueError(f"{self.id}: start_swing={swing}; a cable that hangs is at most pi/2 from straight down.")

    def scene(self, state: State, params: Params) -> Scene:
        from jaxrl.canvas import INK, ORANGE

        goal = np.array([float(x) for x in params.goal])
        scene = Scene.of_arena(goal - float(params.arena), goal + float(params.arena))  # of the load
        scene.mark(goal)
        hanging = load(state.drone, params.cable)[0]
        scene.path([state.drone.position, hanging], INK, 0.6)
        scene.mark(hanging, ORANGE)
        return scene
