"""Write `point_maze.npz`: steps of OGBench's pointmaze, for tests.

    pip install ogbench==1.2.2; MUJOCO_GL=egl python tests/golden/make_point_maze.py

For each maze, arrays `<maze>/<name>` of STEPS steps, time-major: `xy` before the step, `action`, `next_xy` after it,
`success` with the goal `goal_xy`, and `contacts` at its end; `walls`, and `tasks` with start and goal in metres.
Actions keep a direction for a while, so that walls and corners are pushed, and every twentieth step puts the ball
anywhere that MuJoCo lets it be. The solver runs until it has converged. Teleports are switched off but for
`teleport/portals`, `teleport/exits` [m] and the radius `teleport/near`.

`medium/navigate/<name>` and `medium/stitch/<name>` are of EPISODES recorded as OGBench's datasets are: `successes` of
each episode, `moved`, the mean distance of a step [m] of each, and `cells`, the share of all steps in each cell.
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import ogbench.locomaze  # noqa: F401, registers the tasks

STEPS = 400
EPISODES = {"navigate": (100, 1000), "stitch": (1500, 200)}
MAZES = ("medium", "large", "giant", "teleport")


def record(maze: str) -> dict[str, np.ndarray]:
    env: Any = gymnasium.make(f"pointmaze-{maze}-v0", terminate_at_goal=False, max_episode_steps=10**6)
    task, rng = env.unwrapped, np.random.default_rng(20261125)
    env.reset(seed=0)
    out = {"walls": task.maze_map == 1}
    out["tasks"] = np.array([[info["init_xy"], info["goal_xy"]] for info in task.task_infos], float)
    if maze == "teleport":
        told = task._teleport_info
        out["portals"], out["exits"] = np.array(told["teleport_in_xys"]), np.array(told["teleport_out_xys"])
        out["near"] = np.float64(1.5 * told["teleport_radius"])
        task._teleport_info = None
    task.model.opt.tolerance, task.model.opt.iterations, task.model.opt.ls_iterations = 0.0, 100, 100
    free = np.argwhere(task.maze_map == 0)
    rows: dict[str, list[Any]] = {}
    action = np.zeros(2)
    for n in range(STEPS):
        if n % 20 == 0:
            i, j = free[rng.integers(len(free))]
            xy = np.array(task.ij_to_xy((i, j))) + rng.uniform(-2, 2, 2)
            near = xy - np.array([task.ij_to_xy(cell) for cell in np.argwhere(task.maze_map == 1)])
            gap = np.linalg.norm(np.maximum(np.abs(near) - 2, 0), axis=1).min()
            task.set_xy(xy if gap > 0.6 else np.array(task.ij_to_xy((i, j)), float))
            task.set_goal(goal_xy=task.get_xy() + rng.uniform(-1.5, 1.5, 2))
        if n % 10 == 0:
            action = rng.uniform(-1, 1, 2)
            action /= np.abs(action).max()
        given = np.clip(action + rng.normal(0, 0.2, 2), -1, 1)
        row = {"xy": task.get_xy(), "action": given, "goal_xy": np.array(task.cur_goal_xy)}
        _, _, _, _, info = env.step(given)
        row |= {"next_xy": task.get_xy(), "success": bool(info["success"]), "contacts": task.data.ncon}
        for name, x in row.items():
            rows.setdefault(name, []).append(x)
    return out | {name: np.array(x) for name, x in rows.items()}


def collect(recipe: str) -> dict[str, np.ndarray]:
    """By shortest ways through the middles of cells and noise of 0.5, as the benchmark's authors describe it."""
    env: Any = gymnasium.make("pointmaze-medium-v0", terminate_at_goal=False, max_episode_steps=10**6)
    task, rng = env.unwrapped, np.random.default_rng(20261126)
    np.random.seed(0)  # by which the task itself draws
    free = [tuple(cell) for cell in np.argwhere(task.maze_map == 0).tolist()]

    def corridor(i: int, j: int) -> bool:
        up, down, left, right = (task.maze_map[i + a, j + b] for a, b in ((-1, 0), (1, 0), (0, -1), (0, 1)))
        return up == down and left == right and up != left

    ends = [cell for cell in free if not corridor(*cell)]
    count, length = EPISODES[recipe]
    successes, moved, cells = np.zeros(count), np.zeros(count), np.zeros(task.maze_map.shape)
    for episode in range(count):
        start = free[rng.integers(len(free))]
        near = task.get_oracle_subgoal(task.ij_to_xy(start), task.ij_to_xy(start))[1]
        there = ends if recipe == "navigate" else [cell for cell in free if near[cell] == 4] or [start]
        env.reset(options={"task_info": {"init_ij": start, "goal_ij": there[rng.integers(len(there))]}})
        for _ in range(length):
            before = task.get_xy()
            way = task.get_oracle_subgoal(before, task.cur_goal_xy)[0] - before
            action = way / (np.linalg.norm(way) + 1e-6) + rng.normal(0, 0.5, 2)
            _, _, _, _, info = env.step(np.clip(action, -1, 1))
            cells[task.xy_to_ij(before)] += 1 / (count * length)
            moved[episode] += np.linalg.norm(task.get_xy() - before) / length
            successes[episode] += info["success"]
            if info["success"] and recipe == "navigate":
                task.set_goal(ends[rng.integers(len(ends))])
    return {"successes": successes, "moved": moved, "cells": cells}


def main() -> None:
    found = {f"{maze}/{name}": x for maze in MAZES for name, x in record(maze).items()}
    found |= {f"medium/{recipe}/{name}": x for recipe in EPISODES for name, x in collect(recipe).items()}
    found["versions"] = np.array([f"{name} {version(name)}" for name in ("ogbench", "mujoco", "gymnasium")])
    np.savez_compressed(Path(__file__).parent / "point_maze.npz", **found)


if __name__ == "__main__":
    main()
