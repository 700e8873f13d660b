"""JaxNav-v0: drive a robot with lidar among blocks to a goal without touching any. The level is the params.

Rutherford, Beukman, Willi, Lacerda, Hawes and Foerster (2024), "No Regrets: Investigating and Improving Regret
Approximations for Curriculum Discovery", NeurIPS, arXiv:2408.15099, with one robot; constants are those of its
experiments. A map is cells of 1 m, `wall_map[y, x]`, walls all around; x goes right, y up. The robot is a square that
drives in the direction theta it faces; what is asked for is reached within the limits of acceleration:

    v' = clip(v + clip(v_asked - v, -+ max_v_acc dt), min_v, max_v)             x' = x + v' cos(theta) dt
    w' = clip(w + clip(w_asked - w, -+ max_w_acc dt), -max_w, max_w)            y' = y + v' sin(theta) dt
                                                                            theta' = theta + w' dt, in [-pi, pi)

| action | unit | range |
|---|---|---|
| speed v asked for | m/s | [min_v, max_v] |
| rate of turning w asked for | rad/s | [-pi / 6, pi / 6] |

`actions="discrete"` has the paper's 15: speeds 0, 0.5, 1, and to each the rates 0.5, 0.25, 0, -0.25, -0.5.

| observation, in this order | unit of 1 | range |
|---|---|---|
| 200 ranges: what a beam at -pi, ..., pi from the heading meets, less 0.5 | `lidar_range`, 6 m | [-0.5, 0.5] |
| v, less 0.5; w | max_v; max_w | [-1.5, 0.5]; [-1, 1] |
| distance to the goal, at most `lidar_range`, less 0.5 | `lidar_range` | [-0.5, 0.5] |
| angle from the heading to the goal | pi | [-1, 1] |

Reward: 4 for a step into the goal's circle, else 0.25 for each metre nearer to it; -4 for touching a wall; -0.01 a
step; -0.1 for one after which a range is at most 0.4 m. The goal and a touch terminate; truncated after `max_steps`,
500 steps of 0.1 s. `info["success"]` and `info["collision"]` say which.

The lidar is exact: a beam's distance is the least over the lines of the grid that it crosses, `lidar_cells` of each
direction, of those behind which a wall is; a row of cells is the bits of a word, so that no beam gathers anything. Then
it is rounded up to a multiple of `lidar_spacing`, as the paper's samples along a beam are (0: not rounded).

What differs from the authors' code (JaxMARL c793d09):
- a beam there passes the corner of a wall between two of its samples; here it does not;
- the weight of rewards shared among robots is no observation: of one robot it is the constant 0;
- no penalty on the rate of turning: its weight is 0 there;
- `mutate` also opens walls: there they are masked, so that a mutated map never loses one.

Levels: `JaxNav` draws one for each episode: walls on a number of cells drawn from 0 up to `fill` of all (the number at
`fill` is not reached, as in the paper), start and goal in the middle of two free cells. Many cannot be solved;
`solvable=True` draws the goal among what can be reached from the start, as the paper's held-out levels are drawn.
`JaxNav().as_levels()` is the same task whose params are a `Level`.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Int32, Integer, UInt32

from jaxrl.canvas import BLUE, GREEN, INK, ORANGE, PALE, WHITE, Canvas
from jaxrl.environment import (
    Environment,
    Hints,
    Transition,
    pytree,
    require_non_negative,
    require_order,
    require_positive,
    require_product,
    strongly_typed,
)
from jaxrl.math import below, choose, fence, on_cpu, wrap
from jaxrl.spaces import Box, Discrete
from jaxrl.telemetry import Curve, Plane, Quantity

UNREACHABLE = np.iinfo(np.int32).max
"""In `distances`: no way leads to the goal."""

OUTSIDE = np.uint32(0xFFFFFFFF)  # a word of walls
MOST = 32  # cells of a row or column: bits of a word
PARALLEL = 1e-9  # a beam's least part along an axis, so that nothing is divided by 0

WallMap = Bool[Array, "height width"]
Words = UInt32[Array, " n"]  # a row (or column) each; bit k is its k-th cell, 1 where that is a wall


@pytree
class Robot:
    """The robot, its lidar and what it is paid for."""

    dt: jax.Array = 0.1  # s
    min_v: jax.Array = 0.0  # m/s
    max_v: jax.Array = 1.0  # m/s
    max_v_acc: jax.Array = 1.0  # m/s^2
    max_w: jax.Array = 0.6  # rad/s
    max_w_acc: jax.Array = 1.0  # rad/s^2
    half_width: jax.Array = 0.25  # m, of the square
    lidar_range: jax.Array = 6.0  # m
    lidar_spacing: jax.Array = 6.0 / 119  # m, between the paper's 120 samples from 0 to 6 m; 0: exact ranges
    goal_radius: jax.Array = 0.3  # m
    goal_reward: jax.Array = 4.0
    progress_weight: jax.Array = 0.25  # 1/m
    collision_reward: jax.Array = -4.0
    time_reward: jax.Array = -0.01  # of every step
    near_reward: jax.Array = -0.1  # of a step that ends with a range of at most `near`
    near: jax.Array = 0.4  # m


@pytree
class Params:
    """Of the distribution that `JaxNav` draws from."""

    max_steps: jax.Array = 500
    fill: jax.Array = 0.6  # the number of walls is below this share of the cells within the rim
    robot: Any = Robot()


@pytree
class Level:
    """A map with start and goal, as params."""

    wall_map: jax.Array  # (height, width) bool; the rim is walls
    start: jax.Array  # (3,) x [m], y [m], theta [rad]
    goal: jax.Array  # (2,) x, y [m]
    max_steps: jax.Array
    robot: Any


@pytree
class State:
    time: jax.Array  # steps since reset
    x: jax.Array  # m
    y: jax.Array  # m
    theta: jax.Array  # rad, from x towards y, in [-pi, pi)
    v: jax.Array  # m/s
    w: jax.Array  # rad/s
    goal_x: jax.Array  # m
    goal_y: jax.Array  # m
    rows: jax.Array  # (height,) uint32: `words` of the map
    columns: jax.Array  # (width,) uint32: those of its transpose
    ranges: jax.Array  # (lidar_beams,) m: what the lidar reads from here


# ---- the map as words


def words(wall_map: WallMap) -> Words:
    """A word for each row: bit x is cell x, and what is outside are walls."""
    free = ~wall_map
    return ~jnp.sum(free.astype(jnp.uint32) << np.arange(free.shape[1], dtype=np.uint32), 1, dtype=jnp.uint32)


def wall_map_of(rows: Words, width: int) -> WallMap:
    """The map of which `words` makes these."""
    return (rows[:, None] >> np.arange(width, dtype=np.uint32) & 1).astype(bool)


def words_at(table: Words, index: Int[Array, " k"]) -> UInt32[Array, " k"]:
    """These words of the table, `OUTSIDE` beyond its ends."""
    n = table.shape[0]

    def gathered(table, index):
        return table.at[jnp.where(index < 0, n, index)].get(mode="fill", fill_value=OUTSIDE)

    def summed(table, index):
        missing = jnp.where(np.arange(n) == index[:, None], ~table, 0)
        return ~jnp.sum(missing, 1, dtype=jnp.uint32)

    return on_cpu(gathered, summed, table, index)


def bit(word: UInt32[Array, "..."], place: Float[Array, "..."]) -> Bool[Array, "..."]:
    """Whether a wall is at `place` [m] along the row that a word is."""
    # By way of int32, and masked: a conversion to uint32 and a shift beyond the word take several instructions each.
    k = jnp.clip(place, 0, MOST - 1).astype(jnp.int32) & MOST - 1
    return word >> k.astype(jnp.uint32) & 1 == 1


# ---- physics


def dynamics(state: State, v: Float[Array, ""], w: Float[Array, ""], robot: Robot) -> State:
    """The state a step later where speed `v` [m/s] and rate `w` [rad/s] are asked for. The lidar is not read."""
    dt = robot.dt
    v_change, w_change = robot.max_v_acc * dt, robot.max_w_acc * dt
    v = jnp.clip(state.v + jnp.clip(v - state.v, -v_change, v_change), robot.min_v, robot.max_v)
    w = jnp.clip(state.w + jnp.clip(w - state.w, -w_change, w_change), -robot.max_w, robot.max_w)
    return state.replace(
        x=state.x + v * jnp.cos(state.theta) * dt,
        y=state.y + v * jnp.sin(state.theta) * dt,
        theta=wrap(state.theta + w * dt, -math.pi, math.pi),
        v=v,
        w=w,
    )


def collides(
    x: Float[Array, ""], y: Float[Array, ""], theta: Float[Array, ""], half_width: Float[Array, ""], rows: Words
) -> Bool[Array, ""]:
    """Whether the square robot touches a wall. Its diagonal is below 1 m, so four cells are near enough to look at.

    Two squares are apart where one of the four directions of their sides tells them apart (separating axes).
    """
    c, s = jnp.cos(theta), jnp.sin(theta)
    spread = jnp.abs(c) + jnp.abs(s)
    straight, turned = 0.5 + half_width * spread, half_width + 0.5 * spread
    column, row = jnp.floor(x), jnp.floor(y)
    off_x, off_y = x - column - 0.5, y - row - 0.5
    side_x, side_y = jnp.where(off_x < 0, -1, 1), jnp.where(off_y < 0, -1, 1)
    here, beside = words_at(rows, row.astype(jnp.int32) + jnp.stack([jnp.int32(0), side_y.astype(jnp.int32)]))
    touched = bit(here, column)
    for dx, dy, word in ((side_x, 0, here), (0, side_y, beside), (side_x, side_y, beside)):
        u, v = dx - off_x, dy - off_y
        near = (jnp.abs(u) <= straight) & (jnp.abs(v) <= straight)
        near &= (jnp.abs(u * c + v * s) <= turned) & (jnp.abs(v * c - u * s) <= turned)
        touched |= near & bit(word, column + dx)
    return touched


def ahead_and_behind(at: Float[Array, ""], table: Words, cells: int) -> tuple[UInt32[Array, " k"], UInt32[Array, " k"]]:
    """The words of the next `cells` cells on both sides of a place [m] along the axis that `table` has a word for each
    cell of, the nearest first."""
    cell = jnp.floor(at).astype(jnp.int32)
    return words_at(table, cell + np.arange(1, cells + 1)), words_at(table, cell - np.arange(1, cells + 1))


def first_wall(
    at: Float[Array, ""],
    beside: Float[Array, ""],
    along: Float[Array, " beams"],
    across: Float[Array, " beams"],
    ahead: UInt32[Array, " k"],
    behind: UInt32[Array, " k"],
) -> Float[Array, " beams"]:
    """How far beams go until they enter a wall through one of the next k lines across the axis of `at`; infinite where
    they do not. (along, across) is the direction; the words are of `ahead_and_behind`."""
    forward = along > 0
    per_metre = 1 / jnp.maximum(jnp.abs(along), PARALLEL)
    part = at - jnp.floor(at)
    first = jnp.where(forward, 1 - part, part)
    distance = jnp.full_like(along, jnp.inf)
    for k in reversed(range(ahead.shape[0])):  # the nearest is written last
        length = (first + k) * per_metre
        wall = bit(jnp.where(forward, ahead[k], behind[k]), beside + length * across)
        distance = jnp.where(wall, length, distance)
    return distance


def lidar(
    x: Float[Array, ""],
    y: Float[Array, ""],
    theta: Float[Array, ""],
    rows: UInt32[Array, " height"],
    columns: UInt32[Array, " width"],
    robot: Robot,
    beams: int,
    cells: int,
) -> Float[Array, " beams"]:
    """The ranges [m] of beams at -pi, ..., pi from the heading; 0 within a wall."""
    angles = np.linspace(-np.pi, np.pi, beams)
    cos, sin = (jnp.asarray(f(angles), x.dtype) for f in (np.cos, np.sin))
    # Fenced: what is the same for all beams is not looked up by each.
    c, s, right_left, up_down = fence(
        (jnp.cos(theta), jnp.sin(theta), ahead_and_behind(x, columns, cells), ahead_and_behind(y, rows, cells))
    )
    dx, dy = cos * c - sin * s, sin * c + cos * s
    ranges = jnp.minimum(first_wall(x, y, dx, dy, *right_left), first_wall(y, x, dy, dx, *up_down))
    ranges = jnp.minimum(ranges, robot.lidar_range)
    rounds = robot.lidar_spacing > 0
    spacing = jnp.where(rounds, robot.lidar_spacing, 1)
    sampled = jnp.minimum(jnp.ceil(ranges / spacing) * spacing, robot.lidar_range)
    inside = bit(words_at(rows, jnp.floor(y).astype(jnp.int32)[None])[0], x)
    return fence(jnp.where(inside, 0, jnp.where(rounds, sampled, ranges)))


def to_goal(state: State) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Distance [m] and direction [rad] of the goal, with a derivative at the goal, too."""
    dx, dy = state.goal_x - state.x, state.goal_y - state.y
    there = (dx == 0) & (dy == 0)
    dx, dy = jnp.where(there, 1, dx), jnp.where(there, 0, dy)
    return jnp.where(there, 0, jnp.sqrt(dx * dx + dy * dy)), jnp.where(there, 0, jnp.arctan2(dy, dx))


def reward_terms(
    before: State, after: State, success: Bool[Array, ""], collision: Bool[Array, ""], robot: Robot
) -> dict[str, Float[Array, ""]]:
    """What the reward is the sum of."""
    progress = robot.progress_weight * (to_goal(before)[0] - to_goal(after)[0])
    near = jnp.min(after.ranges) <= robot.near
    return {
        "reward/goal": jnp.where(success, robot.goal_reward, 0),
        "reward/progress": jnp.where(success, 0, progress),
        "reward/collision": jnp.where(collision, robot.collision_reward, 0),
        "reward/time": robot.time_reward,
        "reward/near": jnp.where(near, robot.near_reward, 0),
    }


# ---- levels


def distances(wall_map: WallMap, goal: Float[Array, "2"]) -> Int32[Array, "height width"]:
    """Fewest steps from cell to neighbouring cell that lead to the goal's; `UNREACHABLE` where none do."""
    height, width = wall_map.shape
    y, x = np.mgrid[:height, :width]

    def search(carry):
        reached, steps, _ = carry
        padded = jnp.pad(reached, 1)
        around = padded[:-2, 1:-1] | padded[2:, 1:-1] | padded[1:-1, :-2] | padded[1:-1, 2:]
        new = (reached | around) & ~wall_map
        return new, steps + ~new, jnp.any(new != reached)

    here = (x == jnp.floor(goal[0])) & (y == jnp.floor(goal[1])) & ~wall_map
    start: Any = here, (~here).astype(jnp.int32), jnp.bool_(True)
    reached, steps, _ = jax.lax.while_loop(lambda carry: carry[2], search, start)
    return jnp.where(reached, steps, UNREACHABLE)


def shortest(level: Level) -> Int32[Array, ""]:
    """Fewest cells to go through from the start's to the goal's; `UNREACHABLE` where no way leads there."""
    x, y = (jnp.floor(z).astype(jnp.int32) for z in level.start[:2])
    return distances(level.wall_map, level.goal)[y, x]


def is_solvable(level: Level) -> Bool[Array, ""]:
    """Whether a way leads to the goal, however long: free cells, side by side, from start to goal.

    Exact for starts and goals in the middles of cells with goal_radius <= 0.5 m and min_v <= 0: the robot has room to
    turn in the middle of a cell and to go on to the next one, and where two free cells meet at a corner it has none.
    """
    return shortest(level) < UNREACHABLE


def generate(key: Array, params: Params, height: int = 11, width: int = 11, solvable: bool = False) -> Level:
    """A level with walls on cells drawn at random, start and goal in the middle of two free cells, all equally likely.

    With `solvable` the goal is one of the cells that can be reached from the start, which has a free neighbour.
    """
    inner = (height - 2) * (width - 2)
    most = jnp.clip(jnp.floor(params.fill * inner), 1, inner - 1).astype(jnp.int32)

    def draw(key):
        bits = jax.random.bits(key, (inner + 4,), jnp.uint32)
        number = below(bits[0], most)
        walls = bits[4:] < jnp.sort(bits[4:])[number]
        wall_map = jnp.pad(walls.reshape(height - 2, width - 2), 1, constant_values=True)
        free = ~wall_map.reshape(-1)
        starts = free
        if solvable:
            side = ~wall_map
            around = jnp.pad(side[:-2] | side[2:], ((1, 1), (0, 0))) | jnp.pad(
                side[:, :-2] | side[:, 2:], ((0, 0), (1, 1))
            )
            starts = (side & around).reshape(-1)
        start = choose(bits[1], starts)
        middle = cell_middle(start, width, params.robot.dt.dtype)
        reached = (distances(wall_map, middle) < UNREACHABLE).reshape(-1) if solvable else free
        goal = choose(bits[2], reached & (np.arange(height * width) != start))
        theta = ((bits[3] >> 8).astype(middle.dtype) * 2.0**-23 - 1) * math.pi
        pose = jnp.concatenate([middle, theta[None]])
        return Level(wall_map, pose, cell_middle(goal, width, middle.dtype), params.max_steps, params.robot), starts

    if not solvable:
        return draw(key)[0]

    def again(carry):
        key, draw_key = jax.random.split(carry[0])
        level, starts = draw(draw_key)
        return key, level, jnp.any(starts)

    nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(lambda key: draw(key)[0], key))
    loop: Any = key, nothing, jnp.bool_(False)
    return jax.lax.while_loop(lambda carry: ~carry[2], again, loop)[1]


def cell_middle(cell: Integer[Array, ""], width: int, dtype: Any) -> Float[Array, "2"]:
    """x and y [m] of the middle of a cell, counted row by row."""
    return jnp.stack([cell % width, cell // width]).astype(dtype) + 0.5


def mutate(key: Array, level: Level, num_edits: int = 1) -> Level:
    """A neighbour of `level` after ACCEL: edits, each with equal chance nothing, a cell within the rim away from start
    and goal opened or walled up, or the goal moved to the middle of a free cell."""
    height, width = level.wall_map.shape
    cells = np.arange(height * width)
    y, x = np.divmod(cells, width)
    inside = (x > 0) & (x < width - 1) & (y > 0) & (y < height - 1)
    half = level.robot.half_width * math.sqrt(2)  # the robot may face anywhere
    under = (jnp.abs(x + 0.5 - level.start[0]) <= 0.5 + half) & (jnp.abs(y + 0.5 - level.start[1]) <= 0.5 + half)

    def edit(carry, bits):
        walls, goal = carry
        what = below(bits[0], 3)
        goal_here = (x == jnp.floor(goal[0])) & (y == jnp.floor(goal[1]))
        flipped = choose(bits[1], inside & ~under & ~goal_here)
        moved = choose(bits[1], ~walls & ~under)
        walls = walls ^ ((what == 1) & (cells == flipped))
        moves = (what == 2) & (moved < cells.size)
        return (walls, jnp.where(moves, cell_middle(moved, width, goal.dtype), goal)), None

    bits = jax.random.bits(key, (num_edits, 2), jnp.uint32)
    (walls, goal), _ = jax.lax.scan(edit, (level.wall_map.reshape(-1), level.goal), bits)
    return level.replace(wall_map=walls.reshape(height, width), goal=goal)


# ---- the task


@dataclasses.dataclass(frozen=True)
class JaxNav(Environment):
    id: str = dataclasses.field(default="JaxNav-v0", kw_only=True)
    height: int = 11  # cells, the rim among them
    width: int = 11
    solvable: bool = False  # draw only levels that can be solved, and accept no others
    actions: str = "continuous"  # or "discrete"
    lidar_beams: int = 200
    lidar_cells: int = 6  # lines of the grid, of each direction, at which a beam looks for walls
    params_are_level: bool = dataclasses.field(default=False, kw_only=True)

    hints = Hints(deterministic=True, fenced=False)  # the lidar's ranges are fenced, the rest is little
    rows_go_up = True
    """The first row of a map is the lowest of the picture."""
    static_ranges = {
        "height": (3, MOST),
        "width": (3, MOST),
        "lidar_beams": (1, 10_000),
        "lidar_cells": (1, MOST),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.actions not in ("continuous", "discrete"):
            raise ValueError(f"{self.id}: actions={self.actions!r}; it is 'continuous' or 'discrete'.")
        if (self.height - 2) * (self.width - 2) < 2:
            raise ValueError(
                f"{self.id}: height={self.height}, width={self.width}: within the rim there must be two cells."
            )
        require_product(self, 100_000, "lidar_beams", "lidar_cells")

    @property
    def observation_names(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        ranges = (f"range {k}, 0.5 is lidar_range" for k in range(self.lidar_beams))
        return (
            *ranges,
            "v, 0.5 is max_v",
            "w, 1 is max_w",
            "distance to the goal, 0.5 is lidar_range",
            "angle, 1 is pi",
        )

    @property
    def action_names(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return ("v [m/s]", "w [rad/s]") if self.actions == "continuous" else ("speed and rate of turning",)

    @property
    def Params(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        """`Level` with `as_levels`, else that of the distribution."""
        return Level if self.params_are_level else Params

    @property
    def default_params(self) -> Any:
        params = Params()
        robot = params.robot.replace(lidar_range=min(6.0, float(self.lidar_cells)))
        params = strongly_typed(params.replace(robot=robot))
        return self.generate(jax.random.key(0), params) if self.params_are_level else params

    def as_levels(self) -> Self:
        """The same task whose params are the `Level`. The default level is one draw of the generator."""
        return dataclasses.replace(self, params_are_level=True)

    def generate(self, key: Array, params: Params) -> Level:
        """Draw a level; see `generate`."""
        return generate(key, params, self.height, self.width, self.solvable)

    def mutate(self, key: Array, level: Level, num_edits: int = 1) -> Level:
        """A neighbour of `level`; see `mutate`."""
        return mutate(key, level, num_edits)

    def level(self, text: str, params: Params | None = None) -> Level:
        """A level written as lines, the first the highest: `.` free, `#` wall, `G` goal, `>` `^` `<` `v` the robot and
        where it faces. Raises ValueError for one that does not fit this task."""
        lines = text.split()[::-1]
        cells = np.array([list(line) for line in lines if len(line) == len(lines[0])])
        robots, goals = np.argwhere(np.isin(cells, list(">^<v"))), np.argwhere(cells == "G")
        if len(cells) != len(lines) or len(robots) != 1 or len(goals) != 1:
            raise ValueError(f"{self.id}: a level is lines of one length with one robot, > ^ < or v, and one goal, G.")
        facing = math.pi / 2 * ">^<v".index(str(cells[tuple(robots[0])]))
        start = [*(robots[0][::-1] + 0.5), facing - 2 * math.pi * (facing >= math.pi)]
        given: Any = dataclasses.replace(self, params_are_level=False).default_params if params is None else params
        start, goal = (jnp.asarray(x, given.robot.dt.dtype) for x in (start, goals[0][::-1] + 0.5))
        level = Level(jnp.asarray(cells == "#"), start, goal, given.max_steps, given.robot)
        self.as_levels().validate(level)
        return level

    def _read(self, state: State, robot: Robot) -> State:
        """The state with what the lidar reads there."""
        place = (state.x, state.y, state.theta, state.rows, state.columns)
        return state.replace(ranges=lidar(*place, robot, self.lidar_beams, self.lidar_cells))

    def initial(self, key: Array, params: Any) -> State:
        level = params if isinstance(params, Level) else self.generate(key, params)
        (x, y, theta), (goal_x, goal_y), zero = level.start, level.goal, jnp.zeros_like(level.start[0])
        maps = words(level.wall_map), words(level.wall_map.T)
        return self._read(State(jnp.int32(0), x, y, theta, zero, zero, goal_x, goal_y, *maps, zero), level.robot)

    def transition(self, key: Array, state: State, action: Any, params: Any) -> Transition:
        robot = params.robot
        if self.actions == "discrete":
            number = action.astype(jnp.int32)
            v, w = (z.astype(state.x.dtype) for z in (0.5 * (number // 5), 0.5 - 0.25 * (number % 5)))
        else:
            v, w = action[0], action[1]
        after = self._read(dynamics(state, v, w, robot), robot)
        success = to_goal(after)[0] <= robot.goal_radius
        collision = collides(after.x, after.y, after.theta, robot.half_width, after.rows)
        terms = reward_terms(state, after, success, collision, robot)
        reward = sum(terms.values(), jnp.zeros_like(state.x))
        info = {**terms, "success": success, "collision": collision}
        return Transition(after, reward, success | collision, jnp.bool_(False), info)

    def observe(self, key: Array, state: State, params: Any) -> Float[Array, " n"]:
        robot = params.robot
        distance, direction = to_goal(state)
        rest = (
            state.v / robot.max_v - 0.5,
            state.w / robot.max_w,
            jnp.minimum(distance, robot.lidar_range) / robot.lidar_range - 0.5,
            wrap(direction - state.theta, -math.pi, math.pi) / math.pi,
        )
        return jnp.concatenate([state.ranges / robot.lidar_range - 0.5, jnp.stack(rest)])

    def observation_space(self, params: Any) -> Box:
        ends = (-0.5, 0.5), (-1.5, 0.5), (-1, 1), (-0.5, 0.5), (-1, 1)
        low, high = np.repeat(np.array(ends, np.float32), (self.lidar_beams, 1, 1, 1, 1), 0).T
        return Box(low, high, low.shape)

    def action_space(self, params: Any) -> Box | Discrete:
        if self.actions == "discrete":
            return Discrete(15)
        low, high = (
            (v, jnp.full_like(v, w)) for v, w in ((params.robot.min_v, -math.pi / 6), (params.robot.max_v, math.pi / 6))
        )
        return Box(jnp.stack(low, -1), jnp.stack(high, -1), (2,))

    def describe(self, params: Any) -> dict[str, Array]:
        """How many `walls` a map has within its rim."""
        return {"walls": params.wall_map[1:-1, 1:-1].sum(dtype=jnp.int32)} if isinstance(params, Level) else {}

    def telemetry(self, state: State, params: Any) -> dict[str, Quantity]:
        robot = params.robot
        return {
            "x [m]": Quantity(state.x, state.goal_x),
            "y [m]": Quantity(state.y, state.goal_y),
            "v [m/s]": Quantity(state.v, low=robot.min_v, high=robot.max_v),
            "w [rad/s]": Quantity(state.w, low=-robot.max_w, high=robot.max_w),
            "nearest wall [m]": Quantity(jnp.min(state.ranges, -1), low=robot.near),
        }

    def planes(self, telemetry: dict[str, Quantity], params: Any) -> list[Plane]:
        x, y = telemetry["x [m]"], telemetry["y [m]"]
        curves = [Curve("robot", x.value, y.value, "path"), Curve("goal", x.reference[:1], y.reference[:1], "dots")]
        if isinstance(params, Level):
            blocks = np.argwhere(np.asarray(params.wall_map)) + 0.5
            curves.append(Curve("middles of walls", blocks[:, 1], blocks[:, 0], "dots"))
        return [Plane("The map from above", "x [m]", "y [m]", curves, equal=True)]

    def validate(self, params: Any) -> None:
        robot = params.robot
        names = ("dt", "max_v", "max_v_acc", "max_w", "max_w_acc", "half_width", "lidar_range", "goal_radius")
        require_positive(self, robot, *names)
        require_non_negative(self, robot, "lidar_spacing", "near")
        require_order(self, robot, "min_v", "max_v")
        if np.any(np.asarray(robot.min_v) < -np.asarray(robot.max_v)):
            raise ValueError(f"{self.id}: min_v={robot.min_v} must be at least -max_v={-robot.max_v}.")
        if np.any(np.asarray(robot.half_width) > 0.35):
            raise ValueError(
                f"{self.id}: half_width={robot.half_width} must be at most 0.35 m: it turns within a cell."
            )
        if np.any(np.asarray(robot.lidar_range) > self.lidar_cells):
            raise ValueError(f"{self.id}: lidar_range={robot.lidar_range}: lidar_cells={self.lidar_cells} m are seen.")
        step = np.asarray(robot.max_v) * np.asarray(robot.dt)
        if np.any(step > 2 * np.asarray(robot.half_width)):
            raise ValueError(f"{self.id}: max_v dt={step} must be at most the robot's width, or it could pass a wall.")
        if isinstance(params, Level):
            self._validate_level(params)
        elif not np.all((np.asarray(params.fill) >= 0) & (np.asarray(params.fill) <= 1)):
            raise ValueError(f"{self.id}: fill={params.fill} must be from 0 to 1.")

    def _validate_level(self, level: Level) -> None:
        walls = np.asarray(level.wall_map)
        if walls.shape[-2:] != (self.height, self.width) or walls.dtype != np.bool_:
            raise ValueError(
                f"{self.id}: wall_map is {walls.dtype} {walls.shape}; it is boolean ({self.height}, {self.width})."
            )
        if not (walls[..., [0, -1], :].all() and walls[..., [0, -1]].all()):
            raise ValueError(f"{self.id}: wall_map: the rim has no gap.")
        with jax.ensure_compile_time_eval():  # `reset` may be traced while its params are not
            batch = walls.shape[:-2]

            def rows_of(x, shape):
                return jnp.broadcast_to(jnp.asarray(x), (*batch, *shape)).reshape(-1, *shape)

            wall_map, start, goal = (
                rows_of(x, s) for x, s in ((walls, walls.shape[-2:]), (level.start, (3,)), (level.goal, (2,)))
            )

            def faults(wall_map, start, goal, half_width):
                rows, point = words(wall_map), jnp.zeros_like(half_width)
                ways = distances(wall_map, goal)
                x, y = (
                    jnp.clip(jnp.floor(z).astype(jnp.int32), 0, n - 1)
                    for z, n in ((start[0], self.width), (start[1], self.height))
                )
                start_collides = collides(start[0], start[1], start[2], half_width, rows)
                return start_collides, collides(goal[0], goal[1], point, point, rows), ways[y, x] == UNREACHABLE

            found = jax.vmap(faults)(wall_map, start, goal, rows_of(level.robot.half_width, ()))
            collision, blocked, no_way = (np.asarray(x) for x in found)
        for name, wrong, places in (("start", collision, start), ("goal", blocked, goal)):
            if wrong.any():
                raise ValueError(f"{self.id}: {name}={np.asarray(places)[wrong][0].tolist()} is in or at a wall.")
        if self.solvable and no_way.any():
            raise ValueError(f"{self.id}: no way leads to the goal in {int(no_way.sum())} of {no_way.size}.")

    def render(self, state: State, params: Any) -> np.ndarray:
        canvas = Canvas(400, 400 * self.height // self.width, float(self.width), (self.width / 2, self.height / 2))
        x, y, theta = float(state.x), float(state.y), float(state.theta)
        angles = theta + np.linspace(-np.pi, np.pi, self.lidar_beams)
        reach = zip(np.asarray(state.ranges).tolist(), angles.tolist(), strict=True)
        ends = [(x + length * math.cos(angle), y + length * math.sin(angle)) for length, angle in reach]
        for end in ends[:: max(1, self.lidar_beams // 50)]:
            canvas.line([(x, y), end], 0.02, PALE)
        walls = np.asarray(wall_map_of(jnp.asarray(state.rows), self.width))
        for row, column in np.argwhere(walls).astype(float).tolist():
            canvas.rectangle((column, row), (column + 1, row + 1), INK)
        for end in ends:
            canvas.circle(end, 0.04, BLUE)
        goal = float(state.goal_x), float(state.goal_y)
        canvas.circle(goal, float(params.robot.goal_radius), GREEN)
        half = float(params.robot.half_width)
        turn = np.array([[math.cos(theta), -math.sin(theta)], [math.sin(theta), math.cos(theta)]])
        corners = (x, y) + half * np.array([(-1, -1), (1, -1), (1, 1), (-1, 1)]) @ turn.T
        canvas.polygon([(corner[0], corner[1]) for corner in corners.tolist()], ORANGE)
        canvas.line([(x, y), (x + half * math.cos(theta), y + half * math.sin(theta))], 0.06, WHITE)
        canvas.text((0.15, self.height - 0.5), f"t = {int(state.time)}   v = {float(state.v):.2f} m/s", WHITE)
        return canvas.image()
