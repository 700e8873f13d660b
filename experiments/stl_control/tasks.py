"""Three systems with known dynamics, and what signal temporal logic asks of them.

The same task for each: be in A at some time of the first half, in B at some time of the second, and never touch the
pole. A signal is the states (T + 1, d), whose first numbers are the position [m].
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxrl.exact import stl

T = 24  # steps
A, B, POLE = (1.0, 0.6, 0.5), (-0.8, 1.0, 1.0), (0.1, 0.55, 0.6)
RADIUS, POLE_RADIUS = 0.3, 0.45


class System(NamedTuple):
    initial: Callable  # (key, n) -> states (n, d)
    step: Callable  # (state (d,), action (m,) in [-1, 1]) -> state
    actions: int
    dimensions: int  # of the position
    parts: tuple[stl.Formula, ...]  # A in time, B in time, clear of the pole throughout

    @property
    def formula(self) -> stl.Formula:
        return self.parts[0] & self.parts[1] & self.parts[2]


def point(state, action):
    """A point that moves up to 0.25 m a step along each axis."""
    return state + 0.25 * action


def car(state, action):
    """A unicycle: up to 0.3 m a step forwards or backwards, and a turn of up to 0.6 rad."""
    x, y, heading = state
    return jnp.stack(
        [x + 0.3 * action[0] * jnp.cos(heading), y + 0.3 * action[0] * jnp.sin(heading), heading + 0.6 * action[1]]
    )


def double_integrator(state, action):
    """A mass in three dimensions with an acceleration of up to 3 m/s^2 along each axis; 0.2 s a step."""
    position, velocity = state[:3], state[3:] + 0.6 * action
    return jnp.concatenate([position + 0.2 * velocity, velocity])


def system(step, dimensions: int, actions: int, rest: int) -> System:
    """Starts: around (-0.8, -0.6, 0), 0.3 m to each side, the `rest` of the state zero."""

    def distance(signal, place):
        return jnp.linalg.norm(signal[:, :dimensions] - jnp.array(place[:dimensions]), axis=-1)

    in_a = stl.predicate(lambda signal: RADIUS - distance(signal, A))
    in_b = stl.predicate(lambda signal: RADIUS - distance(signal, B))
    # The pole is upright: its distance is horizontal.
    clear = stl.predicate(lambda s: jnp.linalg.norm(s[:, :2] - jnp.array(POLE[:2]), axis=-1) - POLE_RADIUS)
    half = T // 2

    def initial(key, n):
        centre = jnp.array([-0.8, -0.6, 0.0])[:dimensions]
        place = centre + jax.random.uniform(key, (n, dimensions), minval=-0.3, maxval=0.3)
        return jnp.concatenate([place, jnp.zeros((n, rest))], -1)

    parts = stl.eventually(in_a, 0, half), stl.eventually(in_b, half, T), stl.always(clear)
    return System(initial, step, actions, dimensions, parts)


SYSTEMS = {
    "point": system(point, 2, 2, 0),
    "car": system(car, 2, 2, 1),
    "double integrator": system(double_integrator, 3, 3, 3),
}


def signal_of(task: System, state, actions):
    """The states (k + 1, d) from `state` on that `actions` (k, m) lead through."""

    def step(state, action):
        state = task.step(state, action)
        return state, state

    return jnp.concatenate([state[None], jax.lax.scan(step, state, actions)[1]])
