"""A point robot before a wall, with a goal behind it on either side, and a guide that goes round either way."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl import Environment, Transition, pytree
from jaxrl.data.datasets import Dataset
from jaxrl.environment import Hints
from jaxrl.spaces import Box

SPEED, RADIUS = 0.15, 0.25  # m a step; of a goal, m
WALL = (0.4, -0.2, 0.3)  # it reaches this far to either side, from this y to that one [m]


@pytree
class Params:
    max_steps: jax.Array = 24
    left: jax.Array = 1.0  # reward of the left goal, at (-0.6, 0.8)
    right: jax.Array = 1.0  # and of the right one, at (0.6, 0.8)


@pytree
class State:
    time: jax.Array
    place: jax.Array  # (2,), m


@dataclasses.dataclass(frozen=True)
class TwoGoals(Environment):
    """Action: velocity in [-1, 1], times 0.15 m. A goal ends the episode and is paid, the wall ends it unpaid."""

    id = "TwoGoals-v0"
    Params = Params
    hints = Hints(deterministic=True)

    def initial(self, key, params):
        return State(jnp.int32(0), jnp.array([0.0, -0.8]) + 0.05 * jax.random.normal(key, (2,)))

    def transition(self, key, state, action, params):
        place = jnp.clip(state.place + SPEED * jnp.clip(action, -1, 1), -1, 1)
        at = [jnp.hypot(place[0] - x, place[1] - 0.8) < RADIUS for x in (-0.6, 0.6)]
        wall = (jnp.abs(place[0]) < WALL[0]) & (place[1] > WALL[1]) & (place[1] < WALL[2])
        reward = params.left * at[0] + params.right * at[1]
        return Transition(state.replace(place=place), reward, at[0] | at[1] | wall, jnp.bool_(False), {})

    def observe(self, key, state, params):
        return state.place

    def observation_space(self, params):
        return Box(-2.0, 2.0, (2,))

    def action_space(self, params):
        return Box(-1.0, 1.0, (2,))

    def validate(self, params):
        pass


def guided(seed, episodes=400, noise=0.5):
    """`(dataset, share of episodes that end at a goal)` of a noisy guide that tosses a coin for the side.

    It steers for (+-0.6, 0), then for the goal. Which side it goes to nobody is told.
    """
    rng, rows, paid = np.random.default_rng(seed), [], 0.0
    for _ in range(episodes):
        side, place = rng.choice([-1, 1]), np.array([0, -0.8]) + 0.05 * rng.normal(size=2)
        for t in range(24):
            to = np.array([0.6 * side, 0.0 if place[1] < -0.1 else 0.8]) - place
            action = np.clip(to / max(np.hypot(*to), SPEED) + noise * rng.normal(size=2), -1, 1)
            after = np.clip(place + SPEED * action, -1, 1)
            goal = min(np.hypot(after[0] - x, after[1] - 0.8) for x in (-0.6, 0.6)) < RADIUS
            ended = goal or (abs(after[0]) < WALL[0] and WALL[1] < after[1] < WALL[2])
            rows.append((place, action, float(goal), ended, ended or t == 23, after))
            paid, place = paid + goal, after
            if ended:
                break
    obs, action, reward, terminated, last, next_obs = (np.array(x) for x in zip(*rows, strict=True))
    floats = [x.astype(np.float32) for x in (obs, action, reward, next_obs)]
    return Dataset(*floats[:3], terminated, last, floats[3]), paid / episodes
