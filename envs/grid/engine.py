"""The grid engine: MiniGrid's moves, levels and tasks, on which the grid worlds of this family stand.

Chevalier-Boisvert et al. (2023), "Minigrid & Miniworld", NeurIPS, arXiv:2306.13831; mechanics of `minigrid` 3.2.0.

Cells, levels and states are in `tiles.py`, what the agent sees in `views.py`.

| action | | effect on the cell ahead |
|---|---|---|
| 0, 1 | turn left, right | |
| 2 | forward | enters an empty cell, a floor, a goal, lava, an open door |
| 3 | pick up | a key, ball or box, if nothing is carried |
| 4 | drop | onto an empty cell |
| 5 | toggle | opens or closes a door (a locked one with the key of its colour), replaces a box by what is in it |
| 6 | done | nothing, but some tasks look at it |

| observation | | |
|---|---|---|
| `image` | (n, n, 3) uint8 | kind, colour, state of the cells before the agent, who is in the middle of the last row, |
| | | `image[i, j]` being i-th from the left, j-th from afar; 0 where it cannot see; at its place what it carries |
| `direction` | int32 | 0 right, 1 down, 2 left, 3 up |
| `mission` | (K,) int32 | the task's own, see each file; `mission_text` tells it in MiniGrid's words |

`view="full"` shows the whole grid from above, (width, height, 3), the agent being (10, 0, direction);
`encoding="one_hot"` gives 20 planes of 0 and 1 (11 kinds, 6 colours, 3 states) for the 3 numbers.

Reward: 1 - 0.9 t / max_steps on success at step t, else 0. An environment file is a generator of levels and the check
of a task: `GridTask`. A level is a pytree, and `as_levels()` the same task whose params are the level.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from typing import Any, ClassVar, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int32, Integer, UInt32

from jaxrl.environment import Environment, Hints, Transition, strongly_typed
from jaxrl.math import below, choose, random_words
from jaxrl.spaces import Box, Dict, Discrete, MultiDiscrete

from .tiles import (
    BALL,
    BOX,
    CLOSED,
    COLORS,
    DOOR,
    DROP,
    EMPTY,
    FLOOR,
    FORWARD,
    GOAL,
    GREY,
    GREY_WALL,
    KEY,
    KINDS,
    LAVA,
    LEFT,
    LOCKED,
    NOTHING,
    PICKUP,
    RIGHT,
    TOGGLE,
    WALL,
    Grid,
    Index,
    Level,
    Params,
    State,
    cell_at,
    color_of,
    from_ascii,
    kind_of,
    pack,
    state_of,
)
from .views import look, look_down, one_hot, symbolic

# ---- mechanics


def ahead_of(position: Index, direction: Index, width: int) -> Index:
    """The cell that an agent faces."""
    across = jnp.where(direction == 0, 1, 0) - jnp.where(direction == 2, 1, 0)
    return position + across + jnp.where(direction == 1, width, 0) - jnp.where(direction == 3, width, 0)


class Move(NamedTuple):
    """What an action did."""

    state: Any  # after it
    index: Array  # the cell that was ahead
    cell: Array  # what was there
    new: Array  # what is there now
    entered: Array  # whether the agent is there now


def move(state: State, action: Integer[Array, ""], width: int) -> Move:
    """One action on the cell ahead; the clock is not ours."""
    action = action.astype(jnp.int32)
    index = ahead_of(state.position, state.direction, width)
    cell = cell_at(state.grid, index)  # `validate`: nobody can walk up to an open border
    kind, held = kind_of(cell), state.carrying

    passable = (kind == EMPTY) | (kind == FLOOR) | (kind == GOAL) | (kind == LAVA) | (cell & 0xF00FF == DOOR)
    entered = (action == FORWARD) & passable
    taken = (action == PICKUP) & ((kind == KEY) | (kind == BALL) | (kind == BOX)) & (held == 0)
    dropped = (action == DROP) & (cell == NOTHING) & (held != 0)

    fits = held & 0xFFFF == pack(KEY, color_of(cell))
    unlocked = jnp.where(fits, cell ^ LOCKED << 16, cell)
    door = jnp.where(state_of(cell) == LOCKED, unlocked, cell ^ CLOSED << 16)
    inside = cell >> 20 & 15
    box = jnp.where(inside > 0, pack(KEY, inside - 1), NOTHING)
    toggled = jnp.where(kind == DOOR, door, jnp.where(kind == BOX, box, cell))

    new = jnp.where(taken, NOTHING, jnp.where(dropped, held, jnp.where(action == TOGGLE, toggled, cell)))
    grid = jnp.where(jnp.arange(state.grid.size) == index, new, state.grid)
    turn = jnp.where(action == RIGHT, 1, 0) - jnp.where(action == LEFT, 1, 0)
    after = state.replace(
        grid=grid,
        position=jnp.where(entered, index, state.position),
        direction=state.direction + turn & 3,
        carrying=jnp.where(taken, cell, jnp.where(dropped, 0, held)),
    )
    return Move(after, index, cell, new, entered)


def success_reward(time: Array, max_steps: Array) -> Float[Array, ""]:
    """1 - 0.9 t / max_steps for success with the t-th step, taken at clock `time` = t - 1."""
    return 1 - 0.9 * ((time + 1) / max_steps)


# ---- making levels


def walled(height: int, width: int) -> Int32[np.ndarray, "height width"]:
    """An empty room with grey walls around it, to draw more into."""
    grid = np.full((height, width), NOTHING, np.int32)
    grid[[0, -1]] = GREY_WALL
    grid[:, [0, -1]] = GREY_WALL
    return grid


def put(grid: Grid, index: Any, cell: Any) -> Grid:
    """`grid` with `cell` at `index`."""
    return jnp.where(jnp.arange(grid.size) == index, cell, grid)


def place(bits: UInt32[Array, ""], grid: Grid, cell: Any, allowed: Any = True) -> tuple[Grid, Index]:
    """Put `cell` on one of the empty cells that are `allowed`, each equally likely: `(grid, index)`.

    Where there is none, nothing is put and `index` is the number of cells.
    """
    index = choose(bits, (grid == NOTHING) & allowed)
    return put(grid, index, cell), index


def random_color(bits: UInt32[Array, "..."]) -> Integer[Array, "..."]:
    """One of the six colours."""
    return below(bits, len(COLORS))


def permutation(bits: UInt32[Array, " n"]) -> Int32[Array, " n"]:
    """0 .. n-1 in random order: the rank of each of the `bits`. For few."""
    i = np.arange(bits.size)
    earlier = (bits < bits[:, None]) | ((bits == bits[:, None]) & (i < i[:, None]))
    return jnp.sum(earlier, 1, dtype=jnp.int32)


def until_valid(key: Array, draw: Any) -> Any:
    """The first valid one of `draw(key) -> (level, valid)`: for tasks that are defined by rejection."""

    def again(carry):
        key, _ = carry
        key, draw_key = jax.random.split(key)
        return key, draw(draw_key)

    # Not valid, and of the same structure: `draw` is compiled once, in the loop.
    nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(draw, key))
    _, (level, _) = jax.lax.while_loop(lambda carry: ~carry[1][1], again, (key, nothing))
    return level


def flood(passable: Bool[Array, "height width"], here: Bool[Array, "height width"]) -> Bool[Array, "height width"]:
    """`here`, the cells that can be walked to from there over `passable` ones, and their neighbours."""

    def spread(carry):
        reached, _ = carry
        padded = jnp.pad(reached & passable | here, 1)
        around = padded[:-2, 1:-1] | padded[2:, 1:-1] | padded[1:-1, :-2] | padded[1:-1, 2:]
        return reached | around, jnp.any(around & ~reached)

    return jax.lax.while_loop(lambda carry: carry[1], spread, (here, jnp.bool_(True)))[0]


def reachable(passable: Bool[Array, "height width"], start: Index) -> Bool[Array, "height width"]:
    """The cells that can be walked to from `start` over `passable` ones, and their neighbours."""
    return flood(passable, (jnp.arange(passable.size) == start).reshape(passable.shape))


def outside(grid: Int32[Array, "height width"], doors: bool = True) -> Bool[Array, "height width"]:
    """The cells from which the border can be walked up to, past everything but walls, and doors unless `doors`; and
    their neighbours. None where the border is walled off."""
    walkable = (kind_of(grid) != WALL) & (doors | (kind_of(grid) != DOOR))
    edge = np.ones(grid.shape, bool)
    edge[1:-1, 1:-1] = False
    return flood(walkable, walkable & edge)


def as_state(level: Level) -> State:
    """The first state of an episode on a level."""
    grid = jnp.append(level.grid.reshape(-1), jnp.int32(GREY_WALL))
    return State(
        jnp.int32(0), grid, level.position, level.direction, jnp.zeros_like(level.position), level.mission, level.target
    )


def mutate(key: Array, level: Level, doors: bool = True) -> Level:
    """A neighbour of `level`: an inner cell opened or walled up, the agent moved, or the agent turned, each equally
    likely. Objects stay, and what is `outside` (rooms may stand in an open grid); whether the task can still be solved
    is not looked at."""
    what, where, turn = random_words(key, (3,))
    what = below(what, 3)
    height, width = level.grid.shape
    row, column = np.divmod(np.arange(height * width), width)
    inner = (row > 0) & (row < height - 1) & (column > 0) & (column < width - 1)
    inner &= ~outside(level.grid, doors).reshape(-1)
    flat = level.grid.reshape(-1)
    empty, wall = flat == NOTHING, flat == GREY_WALL
    cells = np.arange(height * width)
    flipped = choose(where, (empty | wall) & inner & (cells != level.position))
    moved = choose(where, empty & inner & (cells != level.position))
    grid = put(flat, jnp.where(what == 0, flipped, -1), jnp.where(wall, NOTHING, GREY_WALL))
    return level.replace(
        grid=grid.reshape(height, width),
        position=jnp.where((what == 1) & (moved < cells.size), moved, level.position).astype(jnp.int32),
        direction=jnp.where(what == 2, level.direction + 1 + below(turn, 3) & 3, level.direction).astype(jnp.int32),
    )


# ---- the task


@dataclasses.dataclass(frozen=True)
class GridTask(Environment):
    """Base of the grid worlds. A subclass says `shape`, `time_limit`, `generate` and, unless the task is to reach the
    goal and avoid lava, `check`."""

    view: str = dataclasses.field(default="partial", kw_only=True)
    encoding: str = dataclasses.field(default="symbolic", kw_only=True)
    view_size: int = dataclasses.field(default=7, kw_only=True)
    params_are_level: bool = dataclasses.field(default=False, kw_only=True)  # params are a Level
    see_through_walls: bool = dataclasses.field(default=False, kw_only=True)  # nothing hides what is behind it

    hints = Hints(deterministic=True, reset_share=1 / 64)
    action_names = ("action, 0 turn left, 1 turn right, 2 forward, 3 pick up, 4 drop, 5 toggle, 6 done",)
    missions: ClassVar[tuple[int, ...]] = (1,)
    """How many values each number of the mission has."""
    doors: ClassVar[bool] = True
    """Whether agents walk through doors. Where they never do, these may be in the border."""
    static_ranges = {"view_size": (3, 29)}

    @property
    def shape(self) -> tuple[int, int]:
        """(height, width) of the grid."""
        raise NotImplementedError

    @property
    def time_limit(self) -> int:
        """The id's own `max_steps`."""
        raise NotImplementedError

    def generate(self, key: Array, params: Params | Level) -> Level:
        """Draw a level, with the time limit of `params`."""
        raise NotImplementedError

    def check(self, before: Any, action: Integer[Array, ""], move: Move) -> tuple[Any, Array, Array]:
        """`(state, success, failure)` after a move: the task."""
        return move.state, move.entered & (kind_of(move.cell) == GOAL), move.entered & (kind_of(move.cell) == LAVA)

    def mission_text(self, mission: Any) -> str:
        """The mission in MiniGrid's words."""
        raise NotImplementedError

    def mission_of(self, text: str) -> tuple[int, ...]:
        """The mission that `mission_text` puts into these words; the first of several. Host only.

        Raises ValueError for one that the task does not give.
        """
        found = _missions(self).get(text)
        if found is None:
            raise ValueError(
                f"{self.id} has no mission {text!r:.120}; it has {next(iter(_missions(self)))!r} and its like."
            )
        return found

    # ---- what all have

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.view not in ("partial", "full"):
            raise ValueError(f"{self.id}: view={self.view!r}; it is 'partial' or 'full'.")
        if self.encoding not in ("symbolic", "one_hot"):
            raise ValueError(f"{self.id}: encoding={self.encoding!r}; it is 'symbolic' or 'one_hot'.")
        if self.view_size % 2 == 0:
            raise ValueError(f"{self.id}: view_size={self.view_size} must be odd.")

    @property
    def Params(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        """`Level` with `levels`, else `Params`."""
        return Level if self.params_are_level else Params

    @property
    def default_params(self) -> Any:
        params = strongly_typed(Params(jnp.int32(self.time_limit)))
        return self.generate(jax.random.key(0), params) if self.params_are_level else params

    def as_levels(self) -> Self:
        """The same task whose params are the `Level`. The default level is one draw of the generator."""
        return dataclasses.replace(self, params_are_level=True)

    def mutate(self, key: Array, level: Level) -> Level:
        """A neighbour of `level`; see `engine.mutate`."""
        return mutate(key, level, self.doors)

    def walls(self, level: Level) -> Bool[np.ndarray, "height width"]:
        """Which cells of a level are walls. Host only."""
        return kind_of(np.asarray(level.grid)) == WALL

    def flip_wall(self, level: Level, row: int, column: int) -> Level:
        """The level with a wall at an empty cell, or none where one was. Host only.

        Raises ValueError for a cell where something else is.
        """
        grid = np.array(level.grid)
        kind = int(kind_of(grid[row, column]))
        if kind not in (EMPTY, WALL):
            raise ValueError(f"{self.id}: there is a {KINDS[kind]}: only an empty cell becomes a wall.")
        grid[row, column] = NOTHING if kind == WALL else GREY_WALL
        return level.replace(grid=jnp.asarray(grid))

    def level(
        self, text: str, mission: tuple[int, ...] = (), target: tuple[int, ...] = (), max_steps: int | None = None
    ) -> Level:
        """The level that `to_ascii` would write so. Raises ValueError for one that does not fit this task."""
        grid, position, direction = from_ascii(text)
        limit = self.time_limit if max_steps is None else max_steps
        mission = mission or (0,) * len(self.missions)
        numbers = (limit, grid, position, direction, mission, target)
        level = Level(*(jnp.asarray(x, jnp.int32) for x in numbers))
        self.as_levels().validate(level)
        return level

    def start(self, level: Level) -> Any:
        """The first state on a level."""
        return as_state(level)

    def initial(self, key: Array, params: Params | Level) -> Any:
        return self.start(params if isinstance(params, Level) else self.generate(key, params))

    def transition(self, key: Array, state: Any, action: Integer[Array, ""], params: Params | Level) -> Transition:
        moved = move(state, action, self.shape[1])
        after, success, failure = self.check(state, action.astype(jnp.int32), moved)
        reward = jnp.where(success, success_reward(state.time, params.max_steps), 0)
        return Transition(after, reward, success | failure, jnp.bool_(False), {})

    def observe(self, key: Array, state: Any, params: Params | Level) -> dict[str, Array]:
        if self.view == "full":
            cells, side = look_down(state, self.shape), self.shape[::-1]
        else:
            cells = look(state, self.shape, self.view_size, self.see_through_walls)
            side = (self.view_size, self.view_size)
        image = symbolic(cells) if self.encoding == "symbolic" else one_hot(cells)
        return {
            "image": image.reshape(*side, image.shape[-1]),
            "direction": state.direction,
            "mission": state.mission,
        }

    def observation_space(self, params: Params | Level) -> Dict:
        side = self.shape[::-1] if self.view == "full" else (self.view_size, self.view_size)
        symbols = self.encoding == "symbolic"
        image = Box(0, 10 if symbols else 1, (*side, 3 if symbols else 20), jnp.uint8)
        return Dict({"image": image, "direction": Discrete(4), "mission": MultiDiscrete(self.missions)})

    def action_space(self, params: Params | Level) -> Discrete:
        return Discrete(7)

    def validate(self, params: Params | Level) -> None:
        if np.any(np.asarray(params.max_steps) < 1):
            raise ValueError(f"{self.id}: max_steps={params.max_steps} must be at least 1.")
        if isinstance(params, Level):
            numbers = target_size(dataclasses.replace(self, params_are_level=False))
            if np.shape(params.target)[-1:] != (numbers,):
                raise ValueError(f"level: the target has shape {np.shape(params.target)}; it is {numbers} numbers.")
            validate(params, self.shape, self.missions, self.doors)

    def render(self, state: Any, params: Params | Level) -> np.ndarray:
        from .drawing import draw_state

        return draw_state(state, self.shape, self.view_size, self.see_through_walls, self.view == "full")


@functools.cache
def _missions(task: GridTask) -> dict[str, tuple[int, ...]]:
    """All missions of a task by their words."""
    numbers = itertools.product(*(range(n) for n in task.missions))
    return {task.mission_text(mission): mission for mission in reversed(list(numbers))}


@functools.cache
def target_size(task: GridTask) -> int:
    """How many numbers are the target of a task's levels."""
    return jax.eval_shape(task.generate, jax.random.key(0), task.default_params).target.shape[-1]


def validate(level: Level, shape: tuple[int, int], missions: tuple[int, ...], doors: bool = True) -> None:
    """Raise ValueError for a level that does not fit. Host only; leaves may be batched."""
    grid = np.asarray(level.grid)
    if grid.shape[-2:] != shape:
        raise ValueError(f"level: the grid is {grid.shape[-2:]}, the task's {shape}.")
    if np.shape(level.mission)[-1:] != (len(missions),):
        raise ValueError(f"level: the mission has shape {np.shape(level.mission)}; it is {len(missions)} numbers.")
    if np.any((np.asarray(level.mission) < 0) | (np.asarray(level.mission) >= np.array(missions))):
        raise ValueError(f"level: mission={np.asarray(level.mission)}; each number is from 0 and below {missions}.")
    cells = shape[0] * shape[1]
    position, direction = np.asarray(level.position), np.asarray(level.direction)
    if np.any((position < 0) | (position >= cells)):
        raise ValueError(f"level: position={position} must be a cell of 0 .. {cells - 1}.")
    if np.any((direction < 0) | (direction > 3)):
        raise ValueError(f"level: direction={direction} must be from 0 to 3.")
    kinds = kind_of(grid)
    unknown = (kinds < EMPTY) | (kinds > LAVA) | (color_of(grid) > GREY) | (state_of(grid) > LOCKED)
    unknown |= (grid >> 20 != 0) & ~((kinds == BOX) & (grid >> 20 <= len(COLORS)))
    if np.any(unknown):
        *_, row, column = np.argwhere(unknown)[0]
        cell = int(grid[unknown][0])
        raise ValueError(
            f"level: row {row}, column {column} holds {cell:#x}, no known kind, colour, state or contents."
        )
    flat = grid.reshape(*grid.shape[:-2], cells)
    under = np.take_along_axis(flat, position[..., None].astype(np.int64), -1)[..., 0]
    overlaps = np.isin(kind_of(under), (EMPTY, FLOOR, GOAL, LAVA)) | ((kind_of(under) == DOOR) & (state_of(under) == 0))
    if not np.all(overlaps):
        names = [KINDS[k] for k in np.atleast_1d(kind_of(under)[~overlaps])]
        raise ValueError(f"level: the agent starts inside a {names[0]}.")
    with jax.ensure_compile_time_eval():  # `reset` may be traced while its params are not
        out = np.asarray(jax.vmap(outside, (0, None))(jnp.asarray(grid).reshape(-1, *shape), doors))
    if np.any(np.take_along_axis(out.reshape(flat.shape), position[..., None].astype(np.int64), -1)):
        raise ValueError("level: the agent could walk up to the border, which must be walled off.")
