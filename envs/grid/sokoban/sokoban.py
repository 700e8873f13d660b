"""Sokoban-v0: push every box onto a target. New levels, solvable by construction, in each episode.

Rules, reward and room shapes as in gym-sokoban (Schrader 2018), after Racaniere et al. (2017), "Imagination-Augmented
Agents for Deep Reinforcement Learning", NeurIPS, arXiv:1707.06203; levels in the format of DeepMind's Boxoban (Guez et
al. 2018) are read by `parse`.

| observation (rows, columns, 4), boolean | walls, targets, boxes, player |
|---|---|

Actions: 0 up, 1 right, 2 down, 3 left (as in Jumanji; gym-sokoban's "push" 1, 4, 2, 3). The player walks onto a free
cell, or onto a box's, pushing it, if the cell behind is free; walls and the border stop both. Reward: `step_reward`,
plus `box_reward` for a box pushed onto a target and minus it for one pushed off, plus `solved_reward` when all boxes
are on targets, which is the end.

`levels.py` tells how a room is made, and has the level kit.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Integer

from jaxrl.canvas import BLUE, GREEN, GREY, INK, ORANGE, PALE, RED, Canvas
from jaxrl.environment import Environment, Hints, Transition, pytree
from jaxrl.spaces import Box, Discrete

from .levels import Level, Params, default_level, generate, mutate, parse, to_text, validate

__all__ = [
    "Level",
    "Params",
    "Sokoban",
    "SokobanLevel",
    "generate",
    "mutate",
    "parse",
    "push",
    "to_text",
    "validate",
]


@pytree
class State:
    time: jax.Array  # steps since reset
    cells: jax.Array  # (rows, columns) uint8: WALL, TARGET and BOX, added where several are
    player: jax.Array  # int32, row * columns + column


WALL, TARGET, BOX = 1, 2, 4


def started(level: Level) -> State:
    """The room at the beginning."""
    parts = ((WALL, level.walls), (TARGET, level.targets), (BOX, level.boxes))
    return State(jnp.int32(0), sum((n * x.astype(jnp.uint8) for n, x in parts), jnp.uint8(0)), level.player)


def push(state: State, action: Integer[Array, ""]) -> tuple[State, Integer[Array, ""]]:
    """The room after one action, and how many boxes more are on targets (1, 0 or -1)."""
    rows, columns = state.cells.shape
    action = action.astype(jnp.int32)
    down = (action == 2).astype(jnp.int32) - (action == 0)
    right = (action == 1).astype(jnp.int32) - (action == 3)
    row, column = state.player // columns + down, state.player % columns + right

    def at(row: Array, column: Array) -> Array:
        inside = (row >= 0) & (row < rows) & (column >= 0) & (column < columns)
        cell = state.cells.reshape(-1)[jnp.clip(row * columns + column, 0, rows * columns - 1)]
        return jnp.where(inside, cell, WALL).astype(jnp.int32)

    ahead, behind = at(row, column), at(row + down, column + right)
    pushes = (ahead & BOX > 0) & (behind & (WALL | BOX) == 0)
    moves = pushes | (ahead & (WALL | BOX) == 0)
    player = jnp.where(moves, row * columns + column, state.player)
    number = jnp.arange(rows * columns).reshape(rows, columns)
    # The box's old cell is the player's new one.
    moved = ((number == player) | (number == player + down * columns + right)) & pushes
    cells = state.cells ^ jnp.where(moved, BOX, 0).astype(jnp.uint8)
    gained = jnp.where(pushes, (behind & TARGET) - (ahead & TARGET), 0) // TARGET
    return state.replace(cells=cells, player=player), gained


@dataclasses.dataclass(frozen=True)
class Room(Environment):
    """What drawn and given rooms share: everything but where they come from."""

    rows: int = 10
    columns: int = 10

    hints = Hints(deterministic=True, fenced=False)
    action_names = ("action, 0 up, 1 right, 2 down, 3 left",)
    static_ranges = {"rows": (3, 32), "columns": (3, 32)}

    def __post_init__(self) -> None:
        super().__post_init__()
        if max(self.rows, self.columns) < 5:  # a box needs a cell on either side
            raise ValueError(f"{self.id}: {self.rows} x {self.columns} is too small for a push; one side must be 5.")

    def transition(self, key: Array, state: State, action: Integer[Array, ""], params: Params | Level) -> Transition:
        state, gained = push(state, action)
        solved = ~jnp.any(state.cells & (TARGET | BOX) == BOX)
        reward = params.step_reward + params.box_reward * gained + params.solved_reward * solved
        return Transition(state, reward, solved, jnp.bool_(False), {})

    def observe(self, key: Array, state: State, params: Params | Level) -> Bool[Array, "rows columns 4"]:
        player = jnp.arange(self.rows * self.columns).reshape(self.rows, self.columns) == state.player
        return jnp.stack([*(state.cells & part > 0 for part in (WALL, TARGET, BOX)), player], -1)

    def observation_space(self, params: Params | Level) -> Box:
        return Box(0, 1, (self.rows, self.columns, 4), jnp.bool_)

    def action_space(self, params: Params | Level) -> Discrete:
        return Discrete(4)

    def render(self, state: State, params: Params | Level) -> np.ndarray:
        rows, columns = self.rows, self.columns
        width, height = (max(1, round(400 * n / max(rows, columns))) for n in (columns, rows))
        canvas = Canvas(width, height, float(columns), ((columns - 1) / 2, -(rows - 1) / 2), PALE)
        walls, targets, boxes = (np.asarray(state.cells) & part > 0 for part in (WALL, TARGET, BOX))
        for row, column in np.ndindex(rows, columns):
            x, y = float(column), -float(row)
            if walls[row, column]:
                canvas.rectangle((x - 0.5, y - 0.5), (x + 0.5, y + 0.5), GREY)
                canvas.rectangle((x - 0.46, y - 0.46), (x + 0.46, y + 0.46), INK)
            if targets[row, column]:
                canvas.circle((x, y), 0.2, RED)
            if boxes[row, column]:
                colour = GREEN if targets[row, column] else ORANGE
                canvas.rectangle((x - 0.4, y - 0.4), (x + 0.4, y + 0.4), INK)
                canvas.rectangle((x - 0.35, y - 0.35), (x + 0.35, y + 0.35), colour)
                canvas.line([(x - 0.3, y - 0.3), (x + 0.3, y + 0.3)], 0.06, INK)
                canvas.line([(x - 0.3, y + 0.3), (x + 0.3, y - 0.3)], 0.06, INK)
        row, column = divmod(int(state.player), columns)
        canvas.circle((float(column), -float(row)), 0.34, BLUE)
        canvas.circle((float(column), -float(row)), 0.12, PALE)
        return canvas.image()


@dataclasses.dataclass(frozen=True)
class Sokoban(Room):
    id: str = dataclasses.field(default="Sokoban-v0", kw_only=True)
    num_boxes: int = 4
    pulls: int = 80

    Params = Params
    # A room costs hundreds of steps, and an episode is about as long as the time limit.
    # A v5e's compiler schedules a step of 4,096 with sparse resets for 1 ms, with dense ones for 19 ms.
    hints = Room.hints._replace(reset="sparse", reset_share=1 / 128)
    static_ranges = {"num_boxes": (1, 225), "pulls": (1, 100_000)}

    def __post_init__(self) -> None:
        super().__post_init__()
        most = (self.rows - 2) * (self.columns - 2) // 4
        if not 1 <= self.num_boxes <= most:
            size = f"rows={self.rows}, columns={self.columns}"
            raise ValueError(f"{self.id}: num_boxes={self.num_boxes} must be from 1 to {most}, a quarter of {size}.")

    def as_levels(self) -> SokobanLevel:
        """The task whose params are the room."""
        return SokobanLevel(self.rows, self.columns, id=self.id)

    def generate(self, key: Array, params: Params) -> Level:
        return generate(key, params, self.rows, self.columns, self.num_boxes, self.pulls)

    def mutate(self, key: Array, level: Level) -> Level:
        return mutate(key, level)

    def initial(self, key: Array, params: Params) -> State:
        return started(generate(key, params, self.rows, self.columns, self.num_boxes, self.pulls))

    def validate(self, params: Params) -> None:
        p = np.asarray(params.turn_probability)
        if not np.all((p >= 0) & (p <= 1)):
            raise ValueError(f"{self.id}: turn_probability={p} must be from 0 to 1.")


@dataclasses.dataclass(frozen=True)
class SokobanLevel(Room):
    """`Sokoban` with the room in the params. The default level is one draw."""

    id: str = dataclasses.field(default="SokobanLevel-v0", kw_only=True)
    Params = Level
    hints = Room.hints._replace(reset="dense")

    @property
    def default_params(self) -> Level:
        return default_level(self.rows, self.columns)

    def initial(self, key: Array, params: Level) -> State:
        return started(params)

    def validate(self, params: Level) -> None:
        if np.shape(params.walls)[-2:] != (self.rows, self.columns):
            raise ValueError(f"{self.id}: walls {np.shape(params.walls)} are not {self.rows} x {self.columns}.")
        validate(params)
