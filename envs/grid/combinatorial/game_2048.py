"""Game2048-v0: slide the tiles of a board, equal ones join.

Cirulli (2014), "2048"; the rules, reward and start are those of Jumanji's `Game2048-v1` (Bonnet et al. 2024,
arXiv:2306.09884): one tile at the start (the original has two).

| observation | |
|---|---|
| `board` (size, size), int32 | the exponent of each tile: 1 is a 2, 11 is 2048; 0 is an empty cell |
| `action_mask` (4,) | the moves that change the board |

Actions: 0 up, 1 right, 2 down, 3 left. All tiles slide as far as they can; two equal ones that meet become one of twice
the value, each tile at most once a move, those further in the direction first. Then a tile appears on a random empty
cell: a 2, or with `four_probability` a 4. A move that changes nothing does nothing, and no tile appears. Reward: the
values of the tiles made. Ends: when no move changes the board.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Integer

from jaxrl.canvas import GREY, INK, PALE, WHITE, Canvas
from jaxrl.environment import NO_LIMIT, Environment, Hints, Transition, pytree
from jaxrl.math import choose
from jaxrl.spaces import Box, Dict, Discrete

Board = Integer[Array, "size size"]


@pytree
class Params:
    max_steps: jax.Array = NO_LIMIT
    four_probability: jax.Array = 0.1  # of a new tile being a 4


@pytree
class State:
    time: jax.Array  # steps since reset
    board: jax.Array  # (size, size) int32, exponents


def can_move(board: Board) -> Bool[Array, "4"]:
    """Which moves change the board: where a tile has, in that direction, an empty cell or its equal next to it."""

    def any_pair(near: Array, far: Array) -> Array:
        return jnp.any((far != 0) & ((near == 0) | (near == far)))

    up, down, left, right = board[:-1], board[1:], board[:, :-1], board[:, 1:]
    return jnp.stack([any_pair(up, down), any_pair(right, left), any_pair(down, up), any_pair(left, right)])


def slide_left(board: Board) -> tuple[Board, Integer[Array, ""]]:
    """The board after its tiles went left, and the sum of the values of the tiles made."""
    columns = list(compacted(board))
    made = jnp.int32(0)
    for i in range(len(columns) - 1):
        joins = (columns[i] == columns[i + 1]) & (columns[i] != 0)
        columns[i] = columns[i] + joins
        columns[i + 1] = jnp.where(joins, 0, columns[i + 1])
        made = made + jnp.sum(jnp.where(joins, 1 << columns[i], 0), dtype=jnp.int32)
    return compacted(jnp.stack(columns, 1)).T, made


def compacted(board: Board) -> Integer[Array, "size size"]:
    """The columns of the board after all tiles went left without joining."""
    size = board.shape[0]
    columns = [board[:, i] for i in range(size)]
    for last in range(size - 1, 0, -1):  # bubbles the empty cells to the right
        for i in range(last):
            empty = columns[i] == 0
            columns[i], columns[i + 1] = (
                jnp.where(empty, columns[i + 1], columns[i]),
                jnp.where(empty, 0, columns[i + 1]),
            )
    return jnp.stack(columns)


def slide(board: Board, action: Integer[Array, ""]) -> tuple[Board, Integer[Array, ""]]:
    """The board after a move, without the new tile, and the sum of the values of the tiles made."""

    def turned(board: Board) -> Board:  # so that the direction is left; each of these is its own inverse
        vertical = jnp.where(action % 2 == 0, board.T, board)
        return jnp.where(action == 1, vertical[:, ::-1], jnp.where(action == 2, vertical[::-1, ::-1], vertical))

    action = action.astype(jnp.int32)
    board, made = slide_left(turned(board))
    return turned(board), made


@dataclasses.dataclass(frozen=True)
class Game2048(Environment):
    id: str = dataclasses.field(default="Game2048-v0", kw_only=True)
    size: int = 4

    Params = Params
    action_names = ("action, 0 up, 1 right, 2 down, 3 left",)
    hints = Hints(noiseless=True, fenced=False)
    static_ranges = {"size": (2, 5)}  # a tile on 6 x 6 could be 2^37

    def initial(self, key: Array, params: Params) -> State:
        board = with_new_tile(key, jnp.zeros((self.size, self.size), jnp.int32), params)
        return State(jnp.int32(0), board)

    def transition(self, key: Array, state: State, action: Integer[Array, ""], params: Params) -> Transition:
        board, made = slide(state.board, action)
        changed = jnp.any(board != state.board)
        board = jnp.where(changed, with_new_tile(key, board, params), state.board)
        reward = made.astype(params.four_probability.dtype)
        return Transition(state.replace(board=board), reward, ~jnp.any(can_move(board)), jnp.bool_(False), {})

    def observe(self, key: Array, state: State, params: Params) -> dict[str, Array]:
        return {"board": state.board, "action_mask": can_move(state.board)}

    def observation_space(self, params: Params) -> Dict:
        # Of all chains of joins the longest ends with every cell one tile, each twice the next, and a 4 last.
        board = Box(0, self.size**2 + 1, (self.size, self.size), jnp.int32)
        return Dict({"board": board, "action_mask": Box(0, 1, (4,), jnp.bool_)})

    def action_space(self, params: Params) -> Discrete:
        return Discrete(4)

    def validate(self, params: Params) -> None:
        p = np.asarray(params.four_probability)
        if not np.all((p >= 0) & (p <= 1)):
            raise ValueError(f"{self.id}: four_probability={p} must be from 0 to 1.")

    def render(self, state: State, params: Params) -> np.ndarray:
        size, board = self.size, np.asarray(state.board)
        canvas = Canvas(400, 400, span=size + 0.12, center=((size - 1) / 2, -(size - 1) / 2), background=GREY)
        for row, column in np.ndindex(size, size):
            exponent = int(board[row, column])
            heat = min(exponent, 11) / 11
            red, green, blue = (round(a + (b - a) * heat) for a, b in ((247, 196), (236, 60), (215, 40)))
            box = (column - 0.45, -row - 0.45), (column + 0.45, -row + 0.45)
            canvas.rectangle(*box, (red, green, blue) if exponent else PALE)
            if exponent:
                text = str(2**exponent)
                pixels = round(150 / size * min(1, 3.2 / len(text)) * 0.85)
                left = column - 0.28 * len(text) * pixels * size / 400
                canvas.text((left, -float(row)), text, INK if exponent < 5 else WHITE, size=pixels)
        return canvas.image()


def with_new_tile(key: Array, board: Board, params: Params) -> Board:
    """The board with a new tile on a random empty cell."""
    where, which = jax.random.bits(key, (2,), jnp.uint32)
    four = (which >> 8).astype(params.four_probability.dtype) * 2.0**-24 < params.four_probability
    cell = choose(where, (board == 0).reshape(-1))
    return jnp.where(jnp.arange(board.size).reshape(board.shape) == cell, 1 + four.astype(jnp.int32), board)
