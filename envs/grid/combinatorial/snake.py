"""Snake-v0: eat, grow, and run into nothing.

The rules are those of Jumanji's `Snake-v1` (Bonnet et al. 2024, "Jumanji: a Diverse Suite of Scalable Reinforcement
Learning Environments in JAX", ICLR, arXiv:2306.09884), which ends an episode also after 4,000 steps; here that is
truncation.

| observation | |
|---|---|
| `grid` (rows, columns, 5), 0 to 1 | body, head, tail, fruit, and the body again, 1 at the head falling to 1 / length |
| `action_mask` (4,) | the moves that neither leave the board nor hit the body |

The last cell moves on with the snake, so the head may follow it; a snake of two cells can therefore turn back.

Actions: 0 up, 1 right, 2 down, 3 left. Reward: 1 for a fruit, which is put on a free cell at random. Ends: with a move
that the mask excludes (nothing moves), or when the snake fills the board.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Integer

from jaxrl.canvas import GREEN, INK, PALE, RED, WHITE, Canvas
from jaxrl.environment import Environment, Hints, Transition, pytree
from jaxrl.math import below, choose, random_words
from jaxrl.spaces import Box, Dict, Discrete

Cell = Integer[Array, ""]  # row * columns + column


@pytree
class Params:
    max_steps: jax.Array = 4000


@pytree
class State:
    time: jax.Array  # steps since reset
    body: jax.Array  # (rows, columns) int32: 1 at the tail, rising to the length at the head, 0 where no snake is
    head: jax.Array  # int32, row * columns + column
    length: jax.Array  # int32, cells of the snake
    fruit: jax.Array  # int32; rows * columns where no cell is left for it


def moves(state: State) -> tuple[Integer[Array, "4"], Bool[Array, "4"]]:
    """The cell that each action leads to, and whether the snake survives it."""
    rows, columns = state.body.shape
    row = state.head // columns + jnp.array([-1, 0, 1, 0])
    column = state.head % columns + jnp.array([0, 1, 0, -1])
    inside = (row >= 0) & (row < rows) & (column >= 0) & (column < columns)
    cell = row * columns + column
    body = (state.body > 1).reshape(-1)  # all but the tail, which moves away
    hits = jnp.any(body & (jnp.arange(rows * columns) == cell[:, None]), axis=1)
    return cell, inside & ~hits


def advance(state: State, action: Integer[Array, ""]) -> tuple[State, Bool[Array, ""], Bool[Array, ""]]:
    """The snake after one move, whether it ate (the fruit is still there then), and whether it survived."""
    cells, valid = moves(state)
    chosen = jnp.arange(4) == action.astype(jnp.int32)
    cell, alive = jnp.sum(jnp.where(chosen, cells, 0), dtype=jnp.int32), jnp.any(chosen & valid)
    ate = alive & (cell == state.fruit)
    length = state.length + ate
    moved = jnp.where(ate, state.body, jnp.maximum(state.body - 1, 0))
    at = jnp.arange(state.body.size).reshape(state.body.shape) == cell
    body = jnp.where(alive, jnp.where(at, length, moved), state.body)
    return state.replace(body=body, head=jnp.where(alive, cell, state.head), length=length), ate, alive


def planes(state: State, like: Float[Array, ""]) -> Float[Array, "rows columns 5"]:
    """Body, head, tail, fruit, and order along the body."""
    cells = jnp.arange(state.body.size).reshape(state.body.shape)
    order = state.body / state.length.astype(like.dtype)
    seen = [state.body > 0, cells == state.head, state.body == 1, cells == state.fruit, order]
    return jnp.stack([x.astype(like.dtype) for x in seen], -1)


@dataclasses.dataclass(frozen=True)
class Snake(Environment):
    id: str = dataclasses.field(default="Snake-v0", kw_only=True)
    rows: int = 12
    columns: int = 12

    Params = Params
    action_names = ("action, 0 up, 1 right, 2 down, 3 left",)
    hints = Hints(noiseless=True, fenced=False)
    static_ranges = {"rows": (2, 100), "columns": (2, 100)}

    def initial(self, key: Array, params: Params) -> State:
        size = self.rows * self.columns
        first, second = random_words(key, (2,))
        head = below(first, size)
        fruit = below(second, size - 1)
        body = (jnp.arange(size) == head).astype(jnp.int32).reshape(self.rows, self.columns)
        return State(jnp.int32(0), body, head, jnp.int32(1), fruit + (fruit >= head))

    def transition(self, key: Array, state: State, action: Integer[Array, ""], params: Params) -> Transition:
        state, ate, alive = advance(state, action)
        anywhere = choose(jax.random.bits(key, (), jnp.uint32), (state.body == 0).reshape(-1))
        state = state.replace(fruit=jnp.where(ate, anywhere, state.fruit))
        end = ~alive | (state.length == state.body.size)
        return Transition(state, ate.astype(jnp.result_type(float)), end, jnp.bool_(False), {})

    def observe(self, key: Array, state: State, params: Params) -> dict[str, Array]:
        return {"grid": planes(state, jnp.zeros(())), "action_mask": moves(state)[1]}

    def observation_space(self, params: Params) -> Dict:
        grid = Box(0.0, 1.0, (self.rows, self.columns, 5))
        return Dict({"grid": grid, "action_mask": Box(0, 1, (4,), jnp.bool_)})

    def action_space(self, params: Params) -> Discrete:
        return Discrete(4)

    def render(self, state: State, params: Params) -> np.ndarray:
        rows, columns = self.rows, self.columns
        width, height = (max(1, round(400 * n / max(rows, columns))) for n in (columns, rows))
        canvas = Canvas(width, height, float(columns), ((columns - 1) / 2, -(rows - 1) / 2), PALE)
        body, length = np.asarray(state.body), int(state.length)
        at = {int(order): (float(cell % columns), -float(cell // columns)) for cell, order in enumerate(body.flat)}
        if int(state.fruit) < rows * columns:
            row, column = divmod(int(state.fruit), columns)
            canvas.circle((float(column), -float(row)), 0.32, RED)
        for order in range(1, length + 1):
            if order > 1:
                canvas.line([at[order - 1], at[order]], 0.62, GREEN)
            canvas.circle(at[order], 0.31, GREEN)
        x, y = at[length]
        back = at.get(length - 1, (x - 1, y)) if length > 1 else (x - 1, y)
        ahead, aside = (x - back[0], y - back[1]), (y - back[1], back[0] - x)
        for side in (-1, 1):
            eye = (x + 0.08 * ahead[0] + 0.14 * side * aside[0], y + 0.08 * ahead[1] + 0.14 * side * aside[1])
            canvas.circle(eye, 0.09, WHITE)
            canvas.circle(eye, 0.045, INK)
        return canvas.image()
