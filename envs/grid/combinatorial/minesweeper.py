"""Minesweeper-v0: open every square that has no mine; numbers tell how many mines are around.

The rules are those of Jumanji's `Minesweeper-v0` (Bonnet et al. 2024, arXiv:2306.09884): one square is opened at a time
(none opens by itself around a 0), and the first one may be a mine.

| observation | |
|---|---|
| `board` (rows, columns), int32 | mines in the 8 squares around an open square; -1 where it is closed |
| `num_mines`, int32 | on the board |
| `action_mask` (rows * columns,) | the closed squares |

Action: the square to open, row * columns + column. Reward: `safe_reward` for a closed square without mine. Ends: with a
mine, with a square that is open already, or when all squares without mine are open.

Levels: where the mines are is a `Level`, the params of `Minesweeper().as_levels()`.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Integer

from jaxrl.canvas import BLUE, GREEN, GREY, INK, ORANGE, PALE, RED, WHITE, Canvas
from jaxrl.environment import NO_LIMIT, Environment, Hints, Transition, pytree, strongly_typed
from jaxrl.math import choose
from jaxrl.spaces import Box, Dict, Discrete

Squares = Bool[Array, "rows columns"]


@pytree
class Params:
    max_steps: jax.Array = NO_LIMIT
    num_mines: jax.Array = 10  # int32
    safe_reward: jax.Array = 1.0  # for opening a square without mine
    mine_reward: jax.Array = 0.0
    open_reward: jax.Array = 0.0  # for choosing a square that is open already


@pytree
class Level:
    """One board as params."""

    max_steps: jax.Array
    safe_reward: jax.Array
    mine_reward: jax.Array
    open_reward: jax.Array
    mines: jax.Array  # (rows, columns) bool


@pytree
class State:
    time: jax.Array  # steps since reset
    mines: jax.Array  # (rows, columns) bool
    opened: jax.Array  # (rows, columns) bool


# ---- level kit


def generate(key: Array, params: Params, rows: int = 10, columns: int = 10) -> Level:
    """A board with `params.num_mines` mines, every layout equally likely."""
    order = jax.random.bits(key, (rows * columns,), jnp.uint32)
    last = jnp.sort(order)[jnp.maximum(params.num_mines - 1, 0)]
    mines = ((order <= last) & (params.num_mines > 0)).reshape(rows, columns)
    return Level(params.max_steps, params.safe_reward, params.mine_reward, params.open_reward, mines)


def mutate(key: Array, level: Level) -> Level:
    """A neighbour of `level`: one mine on another square."""
    source, target = jax.random.bits(key, (2,), jnp.uint32)
    flat = level.mines.reshape(-1)
    number, source, target = jnp.arange(flat.size), choose(source, flat), choose(target, ~flat)
    possible = (source < flat.size) & (target < flat.size)
    moved = flat ^ (((number == source) | (number == target)) & possible)
    return level.replace(mines=moved.reshape(level.mines.shape))


def validate(level: Level) -> None:
    """Raise ValueError for a board without a free square. Host only; leaves may be batched."""
    mines = np.asarray(level.mines)
    if mines.ndim < 2 or np.any(mines.all((-2, -1))):
        raise ValueError(f"minesweeper level: mines {mines.shape} must be a board with a square without mine.")


# ---- the task


def around(mines: Squares) -> Integer[Array, "rows columns"]:
    """Mines in the 8 squares around each."""
    padded = jnp.pad(mines, 1).astype(jnp.int32)
    three = padded[:-2] + padded[1:-1] + padded[2:]
    return three[:, :-2] + three[:, 1:-1] + three[:, 2:] - mines


@dataclasses.dataclass(frozen=True)
class Board(Environment):
    """What the random board and the given one share: everything but where the mines are."""

    rows: int = 10
    columns: int = 10

    hints = Hints(deterministic=True)
    static_ranges = {"rows": (2, 100), "columns": (2, 100)}

    def started(self, mines: Squares) -> State:
        """The closed board."""
        return State(jnp.int32(0), mines, jnp.zeros_like(mines))

    def transition(self, key: Array, state: State, action: Integer[Array, ""], params: Params | Level) -> Transition:
        chosen = jnp.arange(state.mines.size).reshape(state.mines.shape) == action.astype(jnp.int32)
        mine, was_open = jnp.any(state.mines & chosen), jnp.any(state.opened & chosen)
        opened = state.opened | chosen
        reward = jnp.where(was_open, params.open_reward, jnp.where(mine, params.mine_reward, params.safe_reward))
        end = mine | was_open | jnp.all(opened | state.mines)
        return Transition(state.replace(opened=opened), reward, end, jnp.bool_(False), {})

    def observe(self, key: Array, state: State, params: Params | Level) -> dict[str, Array]:
        return {
            "board": jnp.where(state.opened, around(state.mines), -1),
            "num_mines": jnp.sum(state.mines, dtype=jnp.int32),
            "action_mask": ~state.opened.reshape(-1),
        }

    def observation_space(self, params: Params | Level) -> Dict:
        squares = self.rows * self.columns
        return Dict(
            {
                "board": Box(-1, 8, (self.rows, self.columns), jnp.int32),
                "num_mines": Box(0, squares - 1, (), jnp.int32),
                "action_mask": Box(0, 1, (squares,), jnp.bool_),
            }
        )

    def action_space(self, params: Params | Level) -> Discrete:
        return Discrete(self.rows * self.columns)

    def render(self, state: State, params: Params | Level) -> np.ndarray:
        rows, columns = self.rows, self.columns
        width, height = (max(1, round(400 * n / max(rows, columns))) for n in (columns, rows))
        canvas = Canvas(width, height, float(columns), ((columns - 1) / 2, -(rows - 1) / 2), GREY)
        numbers = np.asarray(around(state.mines))
        all_opened, all_mines = np.asarray(state.opened), np.asarray(state.mines)
        for row, column in np.ndindex(rows, columns):
            opened, mine = all_opened[row, column], all_mines[row, column]
            box = (column - 0.46, -row - 0.46), (column + 0.46, -row + 0.46)
            canvas.rectangle(*box, (RED if mine else WHITE) if opened else PALE)
            if mine and opened:
                canvas.circle((float(column), -float(row)), 0.28, INK)
            elif opened and numbers[row, column]:
                count, pixels = int(numbers[row, column]), max(8, round(0.6 * 400 / max(rows, columns)))
                colour = (BLUE, GREEN, RED, INK, ORANGE)[min(count, 5) - 1]
                canvas.text((column - 0.17, -float(row)), str(count), colour, size=pixels)
        return canvas.image()


@dataclasses.dataclass(frozen=True)
class Minesweeper(Board):
    id: str = dataclasses.field(default="Minesweeper-v0", kw_only=True)
    Params = Params

    def as_levels(self) -> MinesweeperLevel:
        """The task whose params are the board."""
        return MinesweeperLevel(self.rows, self.columns, id=self.id)

    def generate(self, key: Array, params: Params) -> Level:
        return generate(key, params, self.rows, self.columns)

    def mutate(self, key: Array, level: Level) -> Level:
        return mutate(key, level)

    def initial(self, key: Array, params: Params) -> State:
        return self.started(generate(key, params, self.rows, self.columns).mines)

    def validate(self, params: Params) -> None:
        n = np.asarray(params.num_mines)
        if np.any((n < 0) | (n >= self.rows * self.columns)):
            raise ValueError(f"{self.id}: num_mines={n} must be from 0 to {self.rows * self.columns - 1}.")


@dataclasses.dataclass(frozen=True)
class MinesweeperLevel(Board):
    """`Minesweeper` with the mines in the params. The default level is one draw."""

    id: str = dataclasses.field(default="MinesweeperLevel-v0", kw_only=True)
    Params = Level
    hints = Board.hints._replace(reset="dense")

    @property
    def default_params(self) -> Level:
        count = min(10, self.rows * self.columns // 5)
        params = strongly_typed(Params(num_mines=jnp.int32(count)))
        return generate(jax.random.key(0), params, self.rows, self.columns)

    def initial(self, key: Array, params: Level) -> State:
        return self.started(params.mines)

    def validate(self, params: Level) -> None:
        if np.shape(params.mines)[-2:] != (self.rows, self.columns):
            raise ValueError(f"{self.id}: mines {np.shape(params.mines)} are not {self.rows} x {self.columns}.")
        validate(params)
