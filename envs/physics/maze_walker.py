"""Who recorded OGBench's datasets of its point mazes: a walker by shortest ways from cell to cell, with noise.

Facts are those of its script `generate_locomaze.py` (Park et al. 2025), for the noise of 0.5 that its pointmaze has.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from .point_maze import AGAIN, STAY, Params, PointMaze, State, cell_of, place

WAYS = ((-1, 0), (0, -1), (1, 0), (0, 1))  # to the next cell; of equally short ones the first
NOISE = 0.5  # of actions


def collector(
    env: PointMaze, recipe: str, params: Params | None = None
) -> tuple[Params, Callable[[Key[Array, ""], State], Array]]:
    """`(params, act)` of the dataset `navigate` or `stitch` in the walls of `params`, of one maze. Host only.

    `act(key, env_state)` is an action. `navigate`: from any cell to any that is not in a corridor, and on to another,
    for 1,000 steps (the giant maze: 2,000); `stitch`: to a cell four steps away, for 200, so that no trajectory shows a
    long way. Rewards count the steps at a goal; learners take goals in hindsight.

    At a portal the walker aims from there, as it sees the ball, and its action is carried out from the exit; the
    benchmark's, which looks at the simulator, aims from the exit.

    Raises ValueError for another recipe, or walls of more than one maze.
    """
    params = env.default_params if params is None else params
    walls = np.asarray(params.walls)
    if walls.ndim != 2:
        raise ValueError(f"{env.id}: walls {walls.shape}: a dataset is recorded in one maze.")
    cells = [(int(i), int(j)) for i, j in np.argwhere(~walls)]
    steps = {cell: distances(walls, cell) for cell in cells}
    if recipe == "navigate":
        ends = [cell for cell in cells if not in_corridor(walls, cell)]
        length, at_goal = 2000 if env.maze == "giant" else 1000, AGAIN
        pairs = [(a, b, 1.0) for a in cells for b in ends]
    elif recipe == "stitch":
        length, at_goal = 200, STAY
        near = {a: [b for b in cells if steps[a][b] == 4] or [a] for a in cells}
        pairs = [(a, b, 1 / len(near[a])) for a in cells for b in near[a]]
    else:
        raise ValueError(f"{env.id}: recipe {recipe!r}: it is navigate or stitch.")
    following = np.zeros((*walls.shape, *walls.shape, 2), np.int32)
    for goal in cells:
        for cell in cells:
            around = [(cell[0] + i, cell[1] + j) for i, j in WAYS]
            following[(*cell, *goal)] = min([cell, *around], key=lambda c: steps[goal][c])
    table = jnp.asarray(following)

    def act(key: Key[Array, ""], state: State) -> Float[Array, "2"]:
        row, column = cell_of(state.x, state.y)
        target = place(table[row, column, *cell_of(state.goal_x, state.goal_y)])
        way = target - jnp.stack([state.x, state.y])
        noise = NOISE * jax.random.normal(key, (2,))
        return jnp.clip(way / (jnp.sqrt(jnp.sum(way**2)) + 1e-6) + noise, -1, 1)

    return params.replace(
        max_steps=jnp.int32(length),
        at_goal=jnp.int32(at_goal),
        tasks=jnp.array([pair[:2] for pair in pairs], jnp.int32),
        weights=jnp.array([pair[2] for pair in pairs], jnp.float32),
    ), act


def distances(walls: Bool[np.ndarray, "R C"], goal: tuple[int, int]) -> Float[np.ndarray, "R C"]:
    """Moves from each cell to `goal` by shortest ways; infinite where there is none."""
    found = np.full(walls.shape, np.inf)
    found[goal], queue = 0, deque([goal])
    while queue:
        row, column = queue.popleft()
        for i, j in WAYS:
            if not walls[row + i, column + j] and np.isinf(found[row + i, column + j]):
                found[row + i, column + j] = found[row, column] + 1
                queue.append((row + i, column + j))
    return found


def in_corridor(walls: Bool[np.ndarray, "R C"], cell: tuple[int, int]) -> bool:
    """Open on two opposite sides, walls on the others."""
    up, left, right, down = (walls[cell[0] + i, cell[1] + j] for i, j in ((-1, 0), (0, -1), (0, 1), (1, 0)))
    return bool(up == down and left == right and up != left)
