"""A point maze in which the best way is in the data only by halves, and the data.

    #######      S  start          Half of the data goes down from S to M, on to D, and stays there: return 0.
    #..S###      M  in the middle  The other half goes the long way round to the left, through M to G, and stays.
    #.#.###      G  goal           The short way, from S down to M and on to G, is in no trajectory.
    #..M.G#      D  dead end
    ###D###
    #######

These are the two kinds of data of Zhou et al. (2024), section 5.1, by the map in their repository, with a longer way
round, a dead end, and a reward at the goal alone.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.data.datasets import Dataset
from jaxrl.environment import Environment, Transition, pytree
from jaxrl.spaces import Box

MAP = ("#######", "#...###", "#.#.###", "#.....#", "###.###", "#######")
FREE = np.array([[c != "#" for c in row] for row in MAP])
S, M, G, D = (1, 3), (3, 3), (3, 5), (4, 3)
SHORT, LONG = [(2, 3), M], [(1, 2), (1, 1), (2, 1), (3, 1), (3, 2), M]
KINDS = [[*SHORT, D], [*LONG, (3, 4), G]]
STITCHED = [*SHORT, (3, 4), G]
HORIZON = 30
STEP = 0.5  # cells, at most, along each axis
RADIUS = 0.5  # of the goal, in cells
CENTRE = (np.array(FREE.shape) - 1) / 2


@pytree
class Params:
    max_steps: jax.Array


@pytree
class State:
    time: jax.Array
    position: jax.Array  # (2,) row and column


@dataclasses.dataclass(frozen=True)
class Maze(Environment):
    """Reward 1 for each step that ends at the goal; episodes last 30 steps. Walls stop a move along their axis."""

    id: str = "StitchMaze"

    @property
    def default_params(self) -> Params:
        return Params(jnp.int32(HORIZON))

    def observation_space(self, params: Params) -> Box:
        return Box(-1.0, 1.0, (2,))

    def action_space(self, params: Params) -> Box:
        return Box(-1.0, 1.0, (2,))

    def initial(self, key: jax.Array, params: Params) -> State:
        return State(jnp.int32(0), jnp.array(S) + jax.random.uniform(key, (2,), minval=-0.25, maxval=0.25))

    def transition(self, key: jax.Array, state: State, action: jax.Array, params: Params) -> Transition:
        position = moved(jnp, state.position, action)
        reward = jnp.sum((position - jnp.array(G)) ** 2) < RADIUS**2
        return Transition(
            state.replace(position=position), reward.astype(float), jnp.bool_(False), jnp.bool_(False), {}
        )

    def observe(self, key: jax.Array, state: State, params: Params) -> jax.Array:
        return (state.position - CENTRE) / CENTRE

    def validate(self, params: Params) -> None:
        pass


def moved(xp, position, action):
    """A move along rows, then one along columns, each where no wall is; `xp` is numpy or jax's."""
    for axis in np.eye(2):
        new = position + STEP * xp.clip(action, -1, 1) * axis
        cell = xp.round(new).astype(int)
        position = xp.where(xp.asarray(FREE)[cell[0], cell[1]], new, position)
    return position


def follow(way: list[tuple[int, int]], rng: np.random.Generator) -> list[tuple]:
    """A trajectory along the middles of these cells, with noise on the actions, that stays at the last one."""
    position, way, found = np.array(S) + rng.uniform(-0.25, 0.25, 2), list(way), []
    for _ in range(HORIZON):
        if len(way) > 1 and tuple(np.round(position).astype(int)) == way[0]:
            way.pop(0)
        action = np.clip((way[0] - position) / STEP + rng.normal(0, 0.3, 2), -1, 1)
        new = moved(np, position, action)
        found.append((position, action, float(np.sum((new - G) ** 2) < RADIUS**2), new))
        position = new
    return found


def record(ways: list[list], episodes: int, seed: int = 0) -> Dataset:
    """Trajectories along these ways in turn."""
    rng = np.random.default_rng(seed)
    steps = [step for i in range(episodes) for step in follow(ways[i % len(ways)], rng)]
    before, action, reward, after = (np.array(x, np.float32) for x in zip(*steps, strict=True))
    obs, next_obs = (((x - CENTRE) / CENTRE).astype(np.float32) for x in (before, after))
    last = np.arange(len(steps)) % HORIZON == HORIZON - 1
    return Dataset(obs, action, reward, last & False, last, next_obs)
