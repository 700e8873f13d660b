"""ProcMaze-v0: out of a maze that is new in each episode. OpenGrid-v0: the same grid without walls, one goal.

Young, Ramesh, Kirsch and Schmidhuber (2023), "The Benefits of Model-Based Generalization in Reinforcement Learning",
ICML, arXiv:2211.02222, and its code. A depth-first walk with a random first cell opens cells of a `size` x `size` grid:
from where it is, any wall whose only open neighbour that is; where there is none, back to the last cell that has one.
The open cells thus form a tree, and start and goal are two of them, each drawn at random (they may coincide).

| observation, flattened from (size, size, 4), boolean | |
|---|---|
| plane 0 | the agent |
| plane 1 | the goal (OpenGrid, whose goal is the last cell, has plane 0 only) |
| plane 2, plane 3 | walls, open cells |

Actions: 0 stay, 1 up, 2 left, 3 down, 4 right; a wall or the border stops a move. After it, with `teleport_probability`
the agent is put on the goal. Reward: -1 every step. Ends: with the step taken *on* the goal, whatever the action, so
the agent sees itself there. Default teleport probability: a tenth of one over the longest way the paper reckons with,
0.1 / ((size + 1) ceil(size / 2) - size mod 2); OpenGrid 0.1 / size.

Levels: a maze with its start and goal is a `Level`, the params of `ProcMaze(size).as_levels()`.
"""

from __future__ import annotations

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Integer, UInt8

from jaxrl.canvas import GREEN, INK, ORANGE, PALE, Canvas, Color
from jaxrl.environment import NO_LIMIT, Environment, Transition, pytree, strongly_typed
from jaxrl.math import below, choose
from jaxrl.spaces import Box, Discrete

Cell = Integer[Array, ""]  # row * size + column
Grid = Bool[Array, "size size"]


@pytree
class Params:
    max_steps: jax.Array = NO_LIMIT
    teleport_probability: jax.Array = 0.1 / 55  # of being put on the goal, each step


@pytree
class Level:
    """One maze as params: the fields of `Params`, and where everything is."""

    max_steps: jax.Array
    teleport_probability: jax.Array
    walls: jax.Array  # (size, size) bool
    start: jax.Array  # int32, row * size + column
    goal: jax.Array


@pytree
class State:
    time: jax.Array  # steps since reset
    walls: jax.Array  # (size, size) bool
    goal: jax.Array  # int32, row * size + column
    position: jax.Array


# ---- level kit


def carve(bits: Integer[Array, "size size"], first: Cell) -> Grid:
    """The walls that the depth-first walk from `first` leaves; `bits`, uint32, decide among the ways on.

    The walk needs no stack: of all cells with a way on, the one opened last is the one it would come back to. A cell
    competes only with others of the same one neighbour, so one random rank a cell gives each choice its uniform chance.
    """
    size = bits.shape[0]
    # The grid has 2 size (size - 1) sides between cells, a tree of n cells n - 1, and a wall removes at most 4:
    # n <= (2 size^2 + 2 size - 1) / 3.
    most = (2 * size * size + 2 * size - 1) // 3
    one = 1 << most.bit_length()  # an open cell holds one + its number, so that a sum of four tells how many are open
    row, column = jnp.mgrid[:size, :size].astype(jnp.uint32)
    # The neighbours of a cell differ in (row + 2 column) mod 5: ranks are never equal.
    rank = (bits >> (most.bit_length() + 3)) << 3 | (row + 2 * column) % 5
    shift = 32 - most.bit_length()

    def open_one(number: Array, held: Array) -> Array:
        padded = jnp.pad(held, 1)
        around = padded[:-2, 1:-1] + padded[2:, 1:-1] + padded[1:-1, :-2] + padded[1:-1, 2:]
        ways_on = (held == 0) & (around >= one) & (around < 2 * one)
        # Latest opened neighbour first, then rank; the shift drops `one`.
        claim = jnp.where(ways_on, around << shift | rank, 0)
        best = jnp.max(claim)
        return jnp.where((claim == best) & (best > 0), jnp.uint32(one) + number.astype(jnp.uint32), held)

    at_first = row * size + column == first.astype(jnp.uint32)
    held = jnp.where(at_first, jnp.uint32(one + 1), jnp.uint32(0))
    return jax.lax.fori_loop(2, most + 1, open_one, held) == 0


def generate(key: Array, params: Params | Level, size: int = 10) -> Level:
    """A maze as the paper draws it, with the limits and probabilities of `params`."""
    bits = jax.random.bits(key, (size * size + 3,), jnp.uint32)
    first = below(bits[-1], jnp.int32(size * size))
    walls = carve(bits[:-3].reshape(size, size), first)
    start, goal = choose(bits[-2], ~walls.reshape(-1)), choose(bits[-3], ~walls.reshape(-1))
    return Level(params.max_steps, params.teleport_probability, walls, start, goal)


def mutate(key: Array, level: Level) -> Level:
    """A neighbour of `level`: its start moved, its goal moved, or one cell opened or walled up, at equal chance.

    A wall that would cut the start from the goal is not built, nor one on either.
    """
    what, where = jax.random.bits(key, (2,), jnp.uint32)
    what = below(what, jnp.int32(3))
    cells = cells_of(level.walls.shape[0])
    flip = (cells == below(where, jnp.int32(cells.size))) & (cells != level.start) & (cells != level.goal)
    flipped = level.replace(walls=level.walls ^ flip)
    walls = jnp.where((what == 2) & solvable(flipped), flipped.walls, level.walls)
    anywhere = choose(where, ~level.walls.reshape(-1))
    return level.replace(
        walls=walls,
        start=jnp.where(what == 0, anywhere, level.start),
        goal=jnp.where(what == 1, anywhere, level.goal),
    )


def distances(walls: Grid, goal: Cell) -> Integer[Array, "size size"]:
    """Steps from each cell to `goal`; size^2, more than any way is long, where there is no way or a wall."""
    far = jnp.int32(walls.size)

    def spread(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        distance, _ = carry
        padded = jnp.pad(distance, 1, constant_values=far)
        near = jnp.minimum(
            jnp.minimum(padded[:-2, 1:-1], padded[2:, 1:-1]), jnp.minimum(padded[1:-1, :-2], padded[1:-1, 2:])
        )
        new = jnp.where(walls, far, jnp.minimum(distance, near + 1))
        return new, jnp.any(new != distance)

    start = jnp.where((cells_of(walls.shape[0]) == goal) & ~walls, 0, far)
    return jax.lax.while_loop(lambda carry: carry[1], spread, (start, jnp.bool_(True)))[0]


def solvable(level: Level) -> Bool[Array, ""]:
    """Whether a way leads from the start to the goal."""
    return _at(distances(level.walls, level.goal), level.start) < level.walls.size


def optimal_value(level: Level, discount: float | Float[Array, ""] = 1.0) -> Float[Array, ""]:
    """The expected return of the best policy from the start, without time limit; -inf if there is no way.

    At each distance d: `V(0) = -1`, `V(d) = -1 + discount (p V(0) + (1 - p) V(d - 1))` with p the teleport probability.
    """
    distance = _at(distances(level.walls, level.goal), level.start)
    p = level.teleport_probability
    last = -jnp.ones_like(p)

    def one_further(d: Array, value: Array) -> Array:
        return jnp.where(d < distance, -1 + discount * (p * last + (1 - p) * value), value)

    value = jax.lax.fori_loop(0, level.walls.size, one_further, last)
    return jnp.where(distance < level.walls.size, value, -jnp.inf)


def validate(level: Level) -> None:
    """Raise ValueError for a level that cannot be played. Host only; leaves may be batched."""
    walls = np.asarray(level.walls)
    size = walls.shape[-1]
    flat = walls.reshape(*walls.shape[:-2], size * size)
    for name in ("start", "goal"):
        cell = np.asarray(getattr(level, name))
        if np.any((cell < 0) | (cell >= size * size)):
            raise ValueError(f"maze level: {name}={cell} must be a cell of 0 .. {size * size - 1}.")
        if np.any(np.take_along_axis(flat, cell[..., None], -1)):
            raise ValueError(f"maze level: {name}={cell} is a wall.")
    rows = flat.reshape(-1, size, size), np.ravel(level.goal), np.ravel(level.start)
    with jax.ensure_compile_time_eval():  # `reset` may be traced while its params are not
        ways = jax.vmap(distances)(jnp.asarray(rows[0]), jnp.asarray(rows[1])).reshape(-1, size * size)
        ways = np.asarray(ways)
    cut = ways[np.arange(len(ways)), rows[2]] == size * size
    if np.any(cut):
        raise ValueError(f"maze level: no way from the start to the goal in {int(cut.sum())} of {len(cut)}.")


# ---- the task


def move(position: Cell, action: Integer[Array, ""], walls: Grid) -> Cell:
    """Where one action leads (0 stay, 1 up, 2 left, 3 down, 4 right)."""
    size = walls.shape[0]
    row, column = position // size, position % size
    action = action.astype(jnp.int32)
    new_row = row + (action == 3) - (action == 1)
    new_column = column + (action == 4) - (action == 2)
    inside = (new_row >= 0) & (new_row < size) & (new_column >= 0) & (new_column < size)
    new = jnp.where(inside, new_row * size + new_column, position)
    # A comparison with every cell: under vmap, indexing is a gather, which nothing fuses with.
    return jnp.where(jnp.any(walls & (cells_of(walls.shape[0]) == new)), position, new)


def planes(state: State) -> Bool[Array, " planes"]:
    """The observation: agent, goal, walls and open cells, flattened with the plane as the last axis."""
    cells = cells_of(state.walls.shape[0])
    return jnp.stack([cells == state.position, cells == state.goal, state.walls, ~state.walls], -1).reshape(-1)


@dataclasses.dataclass(frozen=True)
class GridTask(Environment):
    """What a maze, a level and an open grid share: everything but where an episode starts and what is seen of it."""

    size: int = 10

    Params = Params
    action_names = ("action, 0 stay, 1 up, 2 left, 3 down, 4 right",)
    static_ranges = {"size": (2, 100)}

    def transition(self, key: Array, state: State, action: Integer[Array, ""], params: Params | Level) -> Transition:
        p = params.teleport_probability
        teleport = jax.random.uniform(key, (), jnp.float32) < p
        position = jnp.where(teleport, state.goal, move(state.position, action, state.walls))
        on_goal = state.position == state.goal
        return Transition(state.replace(position=position), -jnp.ones_like(p), on_goal, jnp.bool_(False), {})

    def observe(self, key: Array, state: State, params: Params | Level) -> Bool[Array, " planes"]:
        return planes(state)

    def observation_space(self, params: Params | Level) -> Box:
        return Box(0, 1, (4 * self.size * self.size,), jnp.bool_)

    def action_space(self, params: Params | Level) -> Discrete:
        return Discrete(5)

    def validate(self, params: Params | Level) -> None:
        p = np.asarray(params.teleport_probability)
        if not np.all((p >= 0) & (p <= 1)):
            raise ValueError(f"{self.id}: teleport_probability={p} must be from 0 to 1.")

    def render(self, state: State, params: Params | Level) -> np.ndarray:
        discs = [(int(state.goal), 0.38, GREEN), (int(state.position), 0.24, ORANGE)]
        return draw_cells(np.asarray(state.walls), discs)


@dataclasses.dataclass(frozen=True)
class ProcMaze(GridTask):
    id: str = dataclasses.field(default="ProcMaze-v0", kw_only=True)

    @property
    def default_params(self) -> Params:
        longest = (self.size + 1) * math.ceil(self.size / 2) - self.size % 2
        return strongly_typed(Params(teleport_probability=jnp.asarray(0.1 / longest)))

    def as_levels(self) -> MazeLevel:
        """The task whose params are the maze."""
        return MazeLevel(self.size)

    def generate(self, key: Array, params: Params | Level) -> Level:
        return generate(key, params, self.size)

    def mutate(self, key: Array, level: Level) -> Level:
        return mutate(key, level)

    def initial(self, key: Array, params: Params) -> State:
        level = generate(key, params, self.size)
        return State(jnp.int32(0), level.walls, level.goal, level.start)


@dataclasses.dataclass(frozen=True)
class MazeLevel(GridTask):
    """`ProcMaze` with the maze in the params. The default level is one draw from the distribution."""

    id: str = dataclasses.field(default="MazeLevel-v0", kw_only=True)
    Params = Level
    hints = GridTask.hints._replace(reset="dense")

    @property
    def default_params(self) -> Level:
        return generate(jax.random.key(0), ProcMaze(self.size).default_params, self.size)

    def initial(self, key: Array, params: Level) -> State:
        return State(jnp.int32(0), params.walls, params.goal, params.start)

    def validate(self, params: Level) -> None:
        super().validate(params)
        if np.shape(params.walls)[-2:] != (self.size, self.size):
            raise ValueError(f"{self.id}: walls {np.shape(params.walls)} do not have the size {self.size}.")
        validate(params)


@dataclasses.dataclass(frozen=True)
class OpenGrid(GridTask):
    """No walls, the goal in the last cell, the start anywhere (the goal included)."""

    id: str = dataclasses.field(default="OpenGrid-v0", kw_only=True)

    @property
    def default_params(self) -> Params:
        return strongly_typed(Params(teleport_probability=jnp.asarray(0.1 / self.size)))

    def initial(self, key: Array, params: Params) -> State:
        cells = self.size * self.size
        start = below(jax.random.bits(key, (), jnp.uint32), jnp.int32(cells))
        return State(jnp.int32(0), jnp.zeros((self.size, self.size), bool), jnp.int32(cells - 1), start)

    def observe(self, key: Array, state: State, params: Params) -> Bool[Array, " planes"]:
        return (cells_of(self.size) == state.position).reshape(-1)

    def observation_space(self, params: Params) -> Box:
        return Box(0, 1, (self.size * self.size,), jnp.bool_)


# ---- cells


def cells_of(size: int) -> Integer[Array, "size size"]:
    """The number of each cell: row * size + column."""
    return jnp.arange(size * size, dtype=jnp.int32).reshape(size, size)


def _at(grid: Array, cell: Cell) -> Array:
    return grid.reshape(-1)[cell]


def draw_cells(
    walls: Bool[np.ndarray, "size size"], discs: list[tuple[int, float, Color]]
) -> UInt8[np.ndarray, "height width 3"]:
    """A picture of the grid, with discs of (cell, radius in cells, colour) on it."""
    size = len(walls)
    canvas = Canvas(400, 400, span=size + 0.4, center=((size - 1) / 2, -(size - 1) / 2))
    for row, column in np.ndindex(walls.shape):
        colour = INK if walls[row, column] else PALE
        canvas.rectangle((column - 0.48, -row - 0.48), (column + 0.48, -row + 0.48), colour)
    for cell, radius, colour in discs:
        canvas.circle((float(cell % size), -float(cell // size)), radius, colour)
    return canvas.image()
