"""Three systems with known dynamics, and what signal temporal logic asks of each of them.

The same for all, in 30 steps of 0.2 s: be in A at some step of 0 to 14, in B for three steps that begin at some of 8 to
20, in C at some of 22 to 30, and never touch one of two poles (nor, of a drone, the floor). A signal is the places
(T + 1, d) [m].
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

import jaxrl
from jaxrl.envs.classic import point_mass
from jaxrl.envs.quadcopter import dynamics
from jaxrl.exact import stl

T, DT = 30, 0.2  # steps, s
RADIUS, POLE_RADIUS = 0.25, 0.3  # m
START, SPREAD = (-0.9, -0.7, 0.6), 0.3  # m, middle and half the side of where episodes begin
POLES = ((0.0, -0.7), (-0.1, 0.85))  # m, upright, on the straight ways to A and to C


class Goal(NamedTuple):
    """Be in a ball for `hold` more steps after one from `first` to `last`."""

    place: tuple[float, float, float]  # m
    first: int
    last: int
    hold: int = 0


GOALS = (Goal((0.9, -0.6, 0.5), 0, 14), Goal((0.7, 0.9, 1.2), 8, 20, 2), Goal((-0.9, 0.7, 0.8), 22, T))


class System(NamedTuple):
    at: Callable[..., Any]  # place (d,) -> state, at rest there
    step: Callable[..., Any]  # (state, action (actions,) in [-1, 1]) -> state
    place: Callable[..., jax.Array]  # state -> (d,) [m]
    features: Callable[..., jax.Array]  # state -> what a network sees of it
    dimensions: int
    actions: int

    def starts(self, key, n):
        """Places (n, d) [m]."""
        noise = jax.random.uniform(key, (n, self.dimensions), minval=-SPREAD, maxval=SPREAD)
        return jnp.array(START[: self.dimensions]) + noise

    def flown(self, state, actions):
        """The signal of `actions` (k, m) from `state` on: places (k + 1, d)."""

        def step(state, action):
            state = self.step(state, action)
            return state, self.place(state)

        places = jax.lax.scan(step, state, actions)[1]
        return jnp.concatenate([self.place(state)[None], places])


# ---- the formula


def distance(places, place):
    """[m]; its derivative is zero, not NaN, where there is none."""
    squares = jnp.sum((places - jnp.asarray(place)[..., : places.shape[-1]]) ** 2, -1)
    return jnp.sqrt(jnp.maximum(squares, 1e-12))


def clearance(places):
    """To the nearest pole, and of drones to the floor [m]; negative within."""
    poles = jnp.stack([distance(places[..., :2], pole) - POLE_RADIUS for pole in POLES])
    return jnp.minimum(poles.min(0), places[..., 2] if places.shape[-1] == 3 else jnp.inf)


def visit(goal: Goal) -> stl.Formula:
    there = stl.predicate(lambda places: RADIUS - distance(places, goal.place))
    return stl.eventually(stl.always(there, 0, goal.hold) if goal.hold else there, goal.first, goal.last)


PARTS = (*map(visit, GOALS), stl.always(stl.predicate(clearance)))
FORMULA = functools.reduce(lambda f, g: f & g, PARTS)


def robustness(places, temperature=None):
    """Of the whole formula [m]: positive where it holds, if exact."""
    return stl.rho(FORMULA, places, temperature)[0]


# ---- the systems


def point() -> System:
    """PointMass-v0: a mass that is pushed with up to 2 m/s^2 along each axis."""
    params = point_mass.Params(dt=DT)

    def at(place):
        zero = jnp.zeros(())
        return point_mass.State(jnp.int32(0), place[0], place[1], zero, zero, zero, zero)

    def step(state, action):
        return point_mass.dynamics(state, tuple(params.max_force * action), params)

    def features(state):
        return jnp.stack([state.x, state.y, state.x_dot, state.y_dot])

    return System(at, step, lambda state: jnp.stack([state.x, state.y]), features, 2, 2)


def car() -> System:
    """x, y [m], heading [rad], speed [m/s]: up to 2 m/s, also backwards, and a turning circle of 0.4 m radius."""

    def step(state, action):
        x, y, heading, speed = state
        speed = speed + DT * (3 * action[0] - 1.5 * speed)
        heading = heading + DT * speed * 2.5 * action[1]
        return jnp.stack([x + DT * speed * jnp.cos(heading), y + DT * speed * jnp.sin(heading), heading, speed])

    def features(state):
        x, y, heading, speed = state
        return jnp.stack([x, y, jnp.cos(heading), jnp.sin(heading), speed])

    return System(lambda place: jnp.concatenate([place, jnp.zeros(2)]), step, lambda s: s[:2], features, 2, 2)


def drone() -> System:
    """A Crazyflie's rigid body behind its velocity loop: up to 2 m/s along each axis are asked for.

    Physics steps of 20 ms: after 6 s of random actions within 15 cm of the flight by steps of 5 ms and RK4.
    """
    physics = dynamics.L2F.replace(integrator="semi_implicit")
    env, params = jaxrl.make("Quadcopter-Reach-v0", action="velocity", substeps=10, physics=physics)
    params = params.replace(dt=jnp.float32(DT / 10), scales=params.scales.replace(speed=jnp.float32(2)))
    rest = env.initial(jax.random.key(0), params)

    def at(place):
        zero = (jnp.zeros(()),) * 3
        still = rest.drone._replace(position=tuple(place), velocity=zero, body_rates=zero)
        return rest.replace(drone=still)

    def step(state, action):
        flown, control = env.fly(state, jnp.append(action, 0.0), params)  # without yaw
        return state.replace(drone=flown, control=control)

    def features(state):
        d = state.drone
        return jnp.stack([*d.position, *d.velocity, *d.quaternion, *(0.1 * x for x in d.body_rates)])

    return System(at, step, lambda state: jnp.stack(state.drone.position), features, 3, 3)


SYSTEMS = {"point": point, "car": car, "drone": drone}
