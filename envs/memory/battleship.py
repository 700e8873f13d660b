"""Battleship: sink every ship of a hidden fleet by shots at cells, one a step.

Silver and Veness (2010), "Monte-Carlo planning in large POMDPs", as in POBAX (Tao et al. 2025, github taodav/pobax,
`pobax/envs/jax/battleship.py`, commit a5e1d62). Ships of `ship_lengths` (5, 4, 3, 2) lie on a board of 10 x 10 cells.
They are placed one after the other: across or down at equal chance, then on one of the places of that direction that
are free, at equal chance; ships may touch.

| observation | range | |
|---|---|---|
| `obs` [0] | 0, 1 | the last shot hit a ship; 0 at the start and for a cell that had been shot at before |
| `obs` [1:] (rows * columns) | 0, 1 | which cell the last shot was at, all 0 at the start |
| `action_mask` (rows * columns) | bool | the cells without a shot so far |

Action: the number of the cell, row by row. A second shot at a cell is a wasted step.

Reward: -1 a step, and the number of cells, 100, for the last hit, which ends the episode: 100 - n + 1 after n shots.
`info["success"]` says that all are sunk. Time limit 1,000 steps; POBAX has discount 1.

POBAX's environment shows the hit alone and the wrapper of its experiments adds the last action, as here;
`show_shot=False` leaves it out. The mask is for the distribution of actions: it is no input of policies.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Integer, Key

from jaxrl.environment import Environment, Hints, Transition, pytree, require_product
from jaxrl.spaces import Box, Dict, Discrete

from . import drawing


@pytree
class Params:
    max_steps: jax.Array = 1000
    step_reward: jax.Array = -1.0


@pytree
class State:
    time: jax.Array  # steps since reset
    ships: jax.Array  # (rows * columns,) bool, part of a ship
    tried: jax.Array  # (rows * columns,) bool, shot at
    shot: jax.Array  # int32, the cell of the last shot; -1 before the first
    hit: jax.Array  # bool, of the last shot


def covers(rows: int, columns: int, length: int, down: bool) -> np.ndarray:
    """Every place of a ship and the cells it covers: (places, rows * columns) bool, row by row. Computed once."""
    high, wide = (length, 1) if down else (1, length)
    places = [(r, c) for r in range(rows - high + 1) for c in range(columns - wide + 1)]
    out = np.zeros((len(places), rows, columns), bool)
    for n, (r, c) in enumerate(places):
        out[n, r : r + high, c : c + wide] = True
    return out.reshape(len(places), rows * columns)


def fleet(key: Key[Array, ""], rows: int, columns: int, lengths: tuple[int, ...]) -> Bool[Array, " cells"]:
    """Cells of ships of these `lengths`, placed at random one after the other.

    Where no place of the drawn direction is free, the other direction is taken; where none is free at all, which the
    published fleets do not come to, the ship is left out.
    """
    draws = jax.random.uniform(key, (len(lengths), 2))
    ships = jnp.zeros(rows * columns)
    for length, (across, where) in zip(lengths, draws, strict=True):
        # Products of matrices of 0 and 1, exact in any precision, cost an accelerator next to nothing.
        down, wide = (covers(rows, columns, length, down).astype(np.float32) for down in (True, False))
        cells = jnp.asarray(np.concatenate([down, wide]), ships.dtype)
        free = cells @ ships == 0
        is_down = np.arange(len(cells)) < len(down)
        go_down = ((across < 0.5) & jnp.any(free & is_down)) | ~jnp.any(free & ~is_down)
        allowed = free & (is_down == go_down)
        number = jnp.cumsum(allowed)
        # The product with a number below 1 may round to the whole.
        wanted = jnp.minimum(jnp.floor(where * number[-1]), number[-1] - 1) + 1
        chosen = allowed & (number == wanted.astype(number.dtype))
        ships = ships + chosen.astype(ships.dtype) @ cells
    return ships > 0


def dynamics(state: State, action: Integer[Array, ""]) -> State:
    """The state after a shot at cell `action`, without the clock."""
    there = jnp.arange(state.ships.shape[0]) == action
    hit = jnp.any(there & state.ships & ~state.tried)
    return state.replace(tried=state.tried | there, shot=action.astype(jnp.int32), hit=hit)


def sunk(state: State) -> Bool[Array, ""]:
    """Whether every cell of the ships was hit."""
    return jnp.all(state.tried | ~state.ships)


def reward(won: Bool[Array, ""], cells: int, params: Params) -> Float[Array, ""]:
    """The number of cells for the last hit, else what a step costs."""
    return jnp.where(won, cells, params.step_reward)


@dataclasses.dataclass(frozen=True)
class Battleship(Environment):
    rows: int = 10
    columns: int = 10
    ship_lengths: tuple[int, ...] = (5, 4, 3, 2)
    show_shot: bool = True
    id: str = dataclasses.field(default="Battleship-v0", kw_only=True)
    Params = Params
    hints = Hints(deterministic=True)
    static_ranges = {"rows": (1, 64), "columns": (1, 64)}

    def __post_init__(self) -> None:
        super().__post_init__()
        require_product(self, 1024, "rows", "columns")
        object.__setattr__(self, "ship_lengths", tuple(self.ship_lengths))
        short, long = sorted((self.rows, self.columns))
        lengths = self.ship_lengths
        if not lengths or not all(1 <= length <= long for length in lengths):
            raise ValueError(
                f"{self.id}: ship_lengths={lengths} must be some, each from 1 to {long} for {self._board}."
            )
        if sum(lengths) > short * long // 2:
            raise ValueError(f"{self.id}: ship_lengths={lengths} must cover at most half of {self._board}.")

    @property
    def _board(self) -> str:
        return f"rows={self.rows}, columns={self.columns}"

    @property
    def cells(self) -> int:
        """How many cells the board has, and actions the task."""
        return self.rows * self.columns

    def initial(self, key: Array, params: Params) -> State:
        ships = fleet(key, self.rows, self.columns, self.ship_lengths)
        return State(jnp.int32(0), ships, jnp.zeros(self.cells, bool), jnp.int32(-1), jnp.bool_(False))

    def transition(self, key: Array, state: State, action: Integer[Array, ""], params: Params) -> Transition:
        state = dynamics(state, action)
        won = sunk(state)
        return Transition(state, reward(won, self.cells, params), won, jnp.bool_(False), {"success": won})

    def observe(self, key: Array, state: State, params: Params) -> dict[str, Array]:
        hit = state.hit.astype(jnp.float32)[None]
        shot = (jnp.arange(self.cells) == state.shot).astype(jnp.float32)
        return {"obs": jnp.concatenate([hit, shot]) if self.show_shot else hit, "action_mask": ~state.tried}

    def observation_space(self, params: Params) -> Dict:
        seen = Box(0.0, 1.0, (1 + self.cells * self.show_shot,))
        return Dict({"obs": seen, "action_mask": Box(0, 1, (self.cells,), jnp.bool_)})

    def action_space(self, params: Params) -> Discrete:
        return Discrete(self.cells)

    def render(self, state: State, params: Params) -> np.ndarray:
        return drawing.battleship(self.rows, self.columns, state)
