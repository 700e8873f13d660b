"""OGBench's medium point maze: its dataset "stitch", and what of it never was in one trajectory."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

import jaxrl
from jaxrl.data.datasets import Dataset, Episodes
from jaxrl.envs.physics.maze_walker import collector
from jaxrl.envs.physics.point_maze import CELL, END, TASKS, PointMaze
from jaxrl.host.data import dataset_recipes

ID = "PointMazeMedium-v0"


def record(steps: int, seed: int = 0) -> tuple[Dataset, np.ndarray]:
    """`(dataset, places before and after each step (2, n, 2))` [m]."""
    dataset, _ = dataset_recipes.make(*jaxrl.make(ID), "stitch", steps, seed)
    return dataset, np.stack([np.asarray(obs["position"]) for obs in (dataset.obs, dataset.next_obs)])


def tasks(env: PointMaze) -> list:
    """Params of the held-out pairs, the five tasks of the benchmark, and of pairs that were recorded."""
    params = env.default_params
    recorded = collector(env, "stitch")[0]
    return [params, recorded.replace(at_goal=jnp.int32(END))]


def cells_of(places: np.ndarray) -> np.ndarray:
    """The number of each place's cell."""
    return np.floor(places / CELL + 1.5).astype(np.int32) @ np.array([1, 64], np.int32)


def check(dataset: Dataset, places: np.ndarray) -> int:
    """How many trajectories there are; AssertionError if any has been in both cells of a held-out pair."""
    episodes, cells = Episodes(dataset), cells_of(places)
    for first, length in zip(episodes.first, episodes.length, strict=True):
        visited = set(cells[:, first : first + length].ravel().tolist())
        for (row, column), (goal_row, goal_column) in TASKS["medium"]:
            both = {64 * row + column, 64 * goal_row + goal_column} <= visited
            assert not both, f"a trajectory was in ({row}, {column}) and ({goal_row}, {goal_column})"
    return len(episodes)


def reached(achieved: jax.Array, goal: jax.Array) -> jax.Array:
    """Within a metre, as in the task."""
    return jnp.sum((achieved - goal) ** 2, -1) <= 1
