"""PointMazeMedium-v0, -Large-v0, -Giant-v0, -Teleport-v0: a ball is moved through a maze to a goal.

OGBench's pointmaze (Park, Frans, Eysenbach and Levine 2025, "OGBench: Benchmarking offline goal-conditioned RL"). A
step puts the ball `step` times the action further, at rest, and lets MuJoCo push it out of walls for 0.1 s: five steps
of Runge-Kutta with soft contacts and a pyramid of friction, here written out for a ball among square blocks. From the
same place ball and simulator agree to rounding, where the simulator's solver is run until it has converged.

| observation | unit | |
|---|---|---|
| goal x, y | m | where to go |
| position x, y | m | of the ball |

Action: x, y in [-1, 1], clipped; 1 is 0.2 m. Cells are 4 m wide, the ball's radius is 0.7 m; the middle of the cell in
row i and column j is x = 4 (j - 1), y = 4 (i - 1). Reward: 1 where the ball is within 1 m of the goal after the step,
which ends the episode, else 0; `info["success"]` says the same.

An episode draws one of the maze's five pairs of a start and a goal, and moves both by up to 1 m along each axis. In the
Teleport maze a ball that a step brings within 1.5 m of one of two portals is at one of three exits, drawn, when the
next step begins.

Who recorded OGBench's datasets of these mazes is in `maze_walker.py`.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxrl.environment import Environment, Hints, Transition, pytree, require_positive, strongly_typed
from jaxrl.math import rarely
from jaxrl.spaces import Box, Dict
from jaxrl.telemetry import Curve, Plane, Quantity

MAPS = {
    "medium": (
        "########",
        "#  ##  #",
        "#  #   #",
        "##   ###",
        "#  #   #",
        "# #  # #",
        "#   #  #",
        "########",
    ),
    "large": (
        "############",
        "#    #     #",
        "# ## # # # #",
        "#      #   #",
        "# #### ### #",
        "#  # #     #",
        "## # # # ###",
        "#  #   #   #",
        "############",
    ),
    "giant": (
        "################",
        "# #      ##    #",
        "# # ## # #  ## #",
        "#   #  #   #   #",
        "# ### ###### # #",
        "#   #   #    # #",
        "### # #  # # ###",
        "#   #  #   #   #",
        "# # # ###### # #",
        "# ###   #   ## #",
        "#     #   #    #",
        "################",
    ),
    "teleport": (
        "############",
        "#     # #  #",
        "## #   #  ##",
        "## ###     #",
        "#    # # # #",
        "# ## # # # #",
        "# ## # # # #",
        "#    #   # #",
        "############",
    ),
}
"""Rows from y = -4 m up."""

TASKS = {
    "medium": (((1, 1), (6, 6)), ((6, 1), (1, 6)), ((5, 3), (4, 2)), ((6, 5), (6, 1)), ((2, 6), (1, 1))),
    "large": (((1, 1), (7, 10)), ((5, 4), (7, 1)), ((7, 4), (1, 10)), ((3, 8), (5, 4)), ((1, 1), (5, 4))),
    "giant": (((1, 1), (10, 14)), ((1, 14), (10, 1)), ((8, 14), (1, 1)), ((8, 3), (5, 12)), ((5, 9), (3, 8))),
    "teleport": (((1, 10), (7, 1)), ((1, 1), (7, 10)), ((5, 6), (7, 10)), ((7, 1), (7, 10)), ((5, 6), (7, 1))),
}
"""Cells, (row, column), of start and goal."""

PORTALS, EXITS = ((4, 6), (5, 1)), ((1, 7), (6, 1), (6, 10))  # cells, of the teleport maze

CELL, RADIUS, NEAR_PORTAL = 4.0, 0.7, 1.5  # m
DT, SUBSTEPS = 0.02, 5  # s
ITERATIONS = 4  # of Newton, enough for the stored steps to agree to rounding

# MuJoCo's soft contacts: stiffness and damping of a time constant of two steps, damping ratio 1; impedance from, to,
# and the depth over which. The ball's friction is 1.
SOFT, HARD, WIDTH = 0.9, 0.95, 0.001
STIFFNESS, DAMPING = 1 / (HARD * 2 * DT) ** 2, 2 / (HARD * 2 * DT)

END, STAY, AGAIN = 0, 1, 2
"""What reaching the goal does: it ends the episode, nothing more, or it draws another goal."""


@pytree
class Params:
    max_steps: jax.Array
    walls: jax.Array  # (R, C) bool; the rim is walls
    tasks: jax.Array  # (T, 2, 2) int32 cells, (row, column) of start and goal
    weights: jax.Array  # (T,) how often each is drawn, in any unit
    portals: jax.Array  # (P, 2) m, x and y; none: (0, 2)
    exits: jax.Array  # (E, 2) m
    step: jax.Array = 0.2  # m, of an action of 1
    noise: jax.Array = 1.0  # m, by which start and goal are moved at most, along each axis
    goal_radius: jax.Array = 1.0  # m
    at_goal: jax.Array = END  # END, STAY or AGAIN


@pytree
class State:
    time: jax.Array  # steps since reset
    x: jax.Array  # m
    y: jax.Array  # m
    goal_x: jax.Array  # m
    goal_y: jax.Array  # m


def place(cell: Any) -> Any:
    """The middle [m], (..., 2) x and y, of cells (..., 2), row and column; arrays of jax or numpy."""
    return CELL * (cell[..., ::-1] - 1)


def cell_of(x: Float[Array, ""], y: Float[Array, ""]) -> tuple[Int[Array, ""], Int[Array, ""]]:
    """Row and column."""
    return jnp.floor(y / CELL + 1.5).astype(jnp.int32), jnp.floor(x / CELL + 1.5).astype(jnp.int32)


# ---- physics


def push(u: Any, v: Any, u_dot: Any, v_dot: Any, blocked: tuple[Any, Any, Any]) -> tuple[Any, Any]:
    """Accelerations [m/s^2] of a ball at (u, v) [m] in its cell, whose nearest walls are at u, v = CELL / 2.

    `blocked` tells whether the next cell along u, along v and across the corner are walls. The acceleration minimises
    |a|^2 + sum_i d_i min(J_i a - r_i, 0)^2 over the edges n + t, n - t, n, n of each contact's pyramid (Todorov 2014).
    """
    half, rows = CELL / 2, []
    for along_u, along_v, wall in ((1, 0, blocked[0]), (0, 1, blocked[1]), (1, 1, blocked[2])):
        du = u - jnp.clip(u, CELL * along_u - half, CELL * along_u + half)
        dv = v - jnp.clip(v, CELL * along_v - half, CELL * along_v + half)
        square = du * du + dv * dv
        distance = jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1)), 0)  # with a slope at 0, too
        depth = distance - RADIUS
        away = jnp.maximum(distance, 1e-6)
        n, t = (du / away, dv / away), (-dv / away, du / away)
        part = jnp.minimum(-depth / WIDTH, 1)
        impedance = SOFT + (HARD - SOFT) * jnp.where(part < 0.5, 2 * part**2, 1 - 2 * (1 - part) ** 2)
        # MuJoCo's weight of an edge, imp / (1 - imp) / (2 mu^2 A) with A = (1 + mu^2) 2 / (3 m) and mu = 1, over m.
        weight = jnp.where(wall & (depth < 0), 0.375 * impedance / (1 - impedance), 0)
        for share, skew in ((1, 1), (1, -1), (2, 0)):
            ju, jv = n[0] + skew * t[0], n[1] + skew * t[1]
            target = -DAMPING * (ju * u_dot + jv * v_dot) - STIFFNESS * impedance * depth
            rows.append((ju, jv, target, share * weight))

    au, av = jnp.zeros_like(u), jnp.zeros_like(v)
    for _ in range(ITERATIONS):
        gu, gv, huu, huv, hvv = au, av, 1.0, 0.0, 1.0
        for ju, jv, target, weight in rows:
            residual = ju * au + jv * av - target
            d = jnp.where(residual < 0, weight, 0)
            gu, gv = gu + d * residual * ju, gv + d * residual * jv
            huu, huv, hvv = huu + d * ju * ju, huv + d * ju * jv, hvv + d * jv * jv
        determinant = huu * hvv - huv * huv
        au, av = au - (hvv * gu - huv * gv) / determinant, av - (huu * gv - huv * gu) / determinant
    return au, av


def settled(x: Float[Array, ""], y: Float[Array, ""], walls: Bool[Array, "R C"]) -> tuple[Array, Array]:
    """Where a ball that was put down at (x, y) is 0.1 s later [m]."""
    row, column = cell_of(x, y)
    middle = CELL * (column - 1), CELL * (row - 1)
    # The nearest walls lie where the ball is off the middle of its cell: mirrored, these are at u, v = CELL / 2.
    side_u, side_v = (jnp.where(at < m, -1, 1) for at, m in ((x, middle[0]), (y, middle[1])))
    blocked = walls[row, column + side_u], walls[row + side_v, column], walls[row + side_v, column + side_u]

    def stage(before: tuple, numbers: tuple) -> tuple[tuple, None]:
        base, rates, total = before
        part, weight, ends = numbers
        at = [x + part * rate for x, rate in zip(base, rates, strict=True)]
        rates = [at[2], at[3], *push(at[0], at[1], at[2], at[3], blocked)]
        total = [x + weight * rate for x, rate in zip(total, rates, strict=True)]
        base = [x + ends * change for x, change in zip(base, total, strict=True)]
        return (base, rates, [(1 - ends) * x for x in total]), None

    # One loop over the stages of all steps: `push` is compiled once.
    stages = np.array(((0, 1, 0), (0.5, 2, 0), (0.5, 2, 0), (1, 1, 1)), float)  # part, weight, whether a step ends
    table = np.tile(stages * (DT, DT / 6, 1), (SUBSTEPS, 1)).astype(x.dtype)
    zero = jnp.zeros_like(x)
    start = [side_u * (x - middle[0]), side_v * (y - middle[1]), zero, zero]
    ((u, v, *_), _, _), _ = jax.lax.scan(stage, (start, [zero] * 4, [zero] * 4), tuple(table.T))
    return middle[0] + side_u * u, middle[1] + side_v * v


# ---- the task


def reached(state: State, params: Params) -> Bool[Array, ""]:
    """Within the goal's radius."""
    return (state.x - state.goal_x) ** 2 + (state.y - state.goal_y) ** 2 <= params.goal_radius**2


@dataclasses.dataclass(frozen=True)
class PointMaze(Environment):
    """`maze`: the name in `MAPS` whose walls, tasks and portals `default_params` have."""

    id: str = dataclasses.field(default="PointMazeMedium-v0", kw_only=True)
    maze: str = "medium"
    Params = Params
    hints = Hints(noiseless=True)
    observation_names = ("goal x [m]", "goal y [m]", "x [m]", "y [m]")
    action_names = ("x, 1 is step", "y, 1 is step")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.maze not in MAPS:
            raise ValueError(f"{self.id}: maze={self.maze!r}: it is one of {', '.join(MAPS)}.")

    @property
    def default_params(self) -> Params:
        portals, exits = (PORTALS, EXITS) if self.maze == "teleport" else ((), ())
        walls = np.array([[block == "#" for block in row] for row in MAPS[self.maze]])
        tasks = np.array(TASKS[self.maze], np.int32)
        places = [place(np.array(cells, np.float32).reshape(-1, 2)) for cells in (portals, exits)]
        numbers = (np.int32(1000), walls, tasks, np.ones(len(tasks), np.float32), *places)
        return strongly_typed(Params(*(jnp.asarray(x) for x in numbers)))

    def initial(self, key: Array, params: Params) -> State:
        x, y, goal_x, goal_y = self._drawn(key, params)
        return State(jnp.int32(0), x, y, goal_x, goal_y)

    def _drawn(self, key: Array, params: Params) -> Float[Array, "4"]:
        """Start and goal [m]."""
        task_key, noise_key = jax.random.split(key)
        upto = jnp.cumsum(params.weights)
        number = jnp.searchsorted(upto, upto[-1] * jax.random.uniform(task_key), side="right")
        cells = params.tasks[jnp.minimum(number, len(upto) - 1)]
        places = place(cells).reshape(4).astype(upto.dtype)
        return places + params.noise * jax.random.uniform(noise_key, (4,), minval=-1.0)

    def transition(self, key: Array, state: State, action: Float[Array, "2"], params: Params) -> Transition:
        exit_key, goal_key = jax.random.split(key)
        x, y = state.x, state.y
        if len(params.portals):
            square = (x - params.portals[:, 0]) ** 2 + (y - params.portals[:, 1]) ** 2
            # MuJoCo's task moves the ball after it was observed at the portal, and observes it after the next step.
            inside = jnp.any(square <= NEAR_PORTAL**2) & (state.time > 0)
            drawn = params.exits[jax.random.randint(exit_key, (), 0, len(params.exits))]
            x, y = jnp.where(inside, drawn[0], x), jnp.where(inside, drawn[1], y)
        move = params.step * jnp.clip(action, -1, 1)
        x, y = settled(x + move[0], y + move[1], params.walls)
        state = state.replace(x=x, y=y)
        success = reached(state, params)
        old = jnp.stack([state.goal_x, state.goal_y])
        goal = rarely(success & (params.at_goal == AGAIN), lambda: self._drawn(goal_key, params)[2:], old)
        state = state.replace(goal_x=goal[0], goal_y=goal[1])
        ended = success & (params.at_goal == END)
        return Transition(state, success.astype(x.dtype), ended, jnp.bool_(False), {"success": success})

    def observe(self, key: Array, state: State, params: Params) -> dict[str, Float[Array, "2"]]:
        return {"goal": jnp.stack([state.goal_x, state.goal_y]), "position": jnp.stack([state.x, state.y])}

    def observation_space(self, params: Params) -> Dict:
        rows, columns = params.walls.shape[-2:]
        low, high = -CELL / 2, CELL * (np.array([columns, rows], np.float32) - 2.5)
        return Dict({name: Box(low, high, (2,)) for name in ("goal", "position")})

    def action_space(self, params: Params) -> Box:
        return Box(-1.0, 1.0, (2,))

    def telemetry(self, state: State, params: Params) -> dict[str, Quantity]:
        return {"x [m]": Quantity(state.x, state.goal_x), "y [m]": Quantity(state.y, state.goal_y)}

    def planes(self, telemetry: dict[str, Quantity], params: Params) -> list[Plane]:
        x, y = telemetry["x [m]"], telemetry["y [m]"]
        blocks = place(np.argwhere(np.asarray(params.walls)))
        curves = [
            Curve("ball", x.value, y.value, "path"),
            Curve("goal", x.reference[:1], y.reference[:1], "dots"),
            Curve("middles of walls", blocks[:, 0], blocks[:, 1], "dots"),
        ]
        return [Plane("The maze from above", "x [m]", "y [m]", curves, equal=True)]

    def validate(self, params: Params) -> None:
        require_positive(self, params, "goal_radius")
        walls, tasks, weights = (np.asarray(x) for x in (params.walls, params.tasks, params.weights))
        rim = np.concatenate([walls[..., [0, -1], :].ravel(), walls[..., :, [0, -1]].ravel()])
        if not rim.all():
            raise ValueError(f"{self.id}: walls: a maze's rim has no gap.")
        step, noise = np.asarray(params.step), np.asarray(params.noise)
        if not np.all((step >= 0) & (step <= CELL / 20)):
            raise ValueError(f"{self.id}: step={step} must be from 0 to {CELL / 20} m, or the ball could cross a wall.")
        if not np.all((noise >= 0) & (noise <= CELL / 2 - RADIUS)):
            raise ValueError(f"{self.id}: noise={noise} must be from 0 to {CELL / 2 - RADIUS} m: no start in a wall.")
        if not np.all(np.isfinite(weights) & (weights >= 0)) or not np.all(weights.sum(-1) > 0):
            raise ValueError(f"{self.id}: weights={weights} must be finite, at least 0 and not all 0.")
        if not np.isin(np.asarray(params.at_goal), (END, STAY, AGAIN)).all():
            raise ValueError(f"{self.id}: at_goal={params.at_goal}: it is {END} (ends), {STAY} (stays) or {AGAIN}.")
        if tasks.shape[-3:-2] != weights.shape[-1:] or tasks.dtype.kind not in "iu":
            raise ValueError(f"{self.id}: tasks {tasks.dtype}{tasks.shape}: integers (T, 2, 2), and a weight of each.")
        if np.shape(params.portals)[-2] and not np.shape(params.exits)[-2]:
            raise ValueError(f"{self.id}: portals: there are {np.shape(params.portals)[-2]}, and no exits.")
        for cells, maze in zip(*_each(tasks, walls), strict=True):
            inside = np.all((cells >= 0) & (cells < maze.shape), (1, 2))
            free = inside & ~maze[tuple(np.clip(cells, 0, np.array(maze.shape) - 1).T)].any(0)
            if not free.all():
                raise ValueError(f"{self.id}: tasks: {cells[~free][0].tolist()} begins or ends in a wall.")

    def render(self, state: State, params: Params) -> np.ndarray:
        from .drawing import draw_point_maze

        return draw_point_maze(state, params, CELL, RADIUS)


def _each(tasks: np.ndarray, walls: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Tasks and walls of each maze of a batch."""
    batch = np.broadcast_shapes(tasks.shape[:-3], walls.shape[:-2])
    tasks = np.broadcast_to(tasks, (*batch, *tasks.shape[-3:])).reshape(-1, *tasks.shape[-3:])
    walls = np.broadcast_to(walls, (*batch, *walls.shape[-2:])).reshape(-1, *walls.shape[-2:])
    return tasks, walls
