"""RockSample: a rover with a noisy sensor takes samples of good rocks, avoids the bad ones, and leaves by the east.

Smith and Simmons (2004), "Heuristic search value iteration for POMDPs", as in POBAX (Tao et al. 2025, github
taodav/pobax, `pobax/envs/jax/rocksample.py`, commit a5e1d62): `rows` x `columns` cells, row 0 in the north; `num_rocks`
rocks, each good at chance 1/2. Reaching the last column ends the episode.

    checking a rock at distance d shows what it is with probability (1 + 2^(-d / d0)) / 2, d0 = 20, else the opposite;
    taking a sample where a rock is makes it bad; elsewhere it changes nothing.   The border stops moves.

| observation | range | |
|---|---|---|
| row (rows), column (columns) | 0, 1 | where the rover is, each one-hot |
| rocks (num_rocks) | -1, 0, 1 | 1 or -1 for the rock just checked, seen as good or bad; 0 for all others |

| action | |
|---|---|
| 0, 1, 2, 3 | one cell to the north, east, south, west |
| 4 | take a sample |
| 5 + i | check rock i |

Reward: 10 for a sample of a good rock, -10 of a bad one, 10 for leaving (`info["success"]`). Time limit 1,000 steps.

A level is the params: `rocks`, drawn by `generate` among the cells out of the last column, no two in one cell, as POBAX
draws them for a seed and keeps them; the default is one such draw. Each episode starts, as in POBAX, in any cell out
of the last column (`params.start` = -1), or in the cell `params.start`. POBAX's discount is 0.99 (0.999 for 15 x 15).

The map of Smith and Simmons, which planners are compared on, has its exits beyond the last column and a fixed start:
`columns` = `rows` + 1 is that map, for (5, 5), (7, 8) and (11, 11) with the rocks of the published files; the discount
is 0.95. There a sample where no rock is and a move against the border are not allowed; here they waste a step.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Integer, Key

from jaxrl.environment import Environment, Hints, Transition, pytree, require_positive, require_product, strongly_typed
from jaxrl.spaces import Box, Discrete

from . import drawing

NORTH, EAST, SOUTH, WEST, SAMPLE, CHECK = range(6)

PUBLISHED = {
    (5, 5): ((4, 2), (4, 0), (3, 3), (2, 2), (1, 4)),
    (7, 8): ((0, 2), (1, 0), (1, 3), (3, 6), (4, 2), (4, 3), (5, 5), (6, 1)),
    (11, 11): ((3, 0), (7, 0), (8, 1), (4, 2), (3, 3), (8, 3), (3, 4), (8, 5), (1, 6), (3, 9), (9, 9)),
}
"""Rows and columns of the rocks of the maps that planners are compared on, by rows and number of rocks."""


@pytree
class Params:
    rocks: jax.Array  # (num_rocks, 2) int32, row and column
    start: jax.Array  # (2,) int32, row and column; -1: any out of the last column
    max_steps: jax.Array = 1000
    good_reward: jax.Array = 10.0
    bad_reward: jax.Array = -10.0
    exit_reward: jax.Array = 10.0
    half_distance: jax.Array = 20.0  # cells at which half of the sensor's advantage over guessing is lost


@pytree
class State:
    time: jax.Array  # steps since reset
    place: jax.Array  # (2,) int32, row and column
    good: jax.Array  # (num_rocks,) bool
    reading: jax.Array  # (num_rocks,) int32, of the last action: -1, 0 or 1


def accuracy(
    place: Integer[Array, "2"], rocks: Integer[Array, "k 2"], half_distance: Float[Array, ""]
) -> Float[Array, " k"]:
    """The probability with which the sensor at `place` shows what each rock is."""
    gap = (rocks - place).astype(half_distance.dtype)
    return (1 + 2 ** (-jnp.sqrt(gap[:, 0] ** 2 + gap[:, 1] ** 2) / half_distance)) / 2


def here(state: State, params: Params) -> Bool[Array, " k"]:
    """Which rocks are where the rover is."""
    return jnp.all(params.rocks == state.place, -1)


def dynamics(
    state: State, action: Integer[Array, ""], shown: Bool[Array, " k"], shape: tuple[int, int], params: Params
) -> State:
    """The state after `action`, without the clock, on a map of `shape`.

    `shown`: of which rocks the sensor would show what they are.
    """
    down = (action == SOUTH).astype(jnp.int32) - (action == NORTH)
    right = (action == EAST).astype(jnp.int32) - (action == WEST)
    row = jnp.clip(state.place[0] + down, 0, shape[0] - 1)
    column = jnp.clip(state.place[1] + right, 0, shape[1] - 1)
    checked = jnp.arange(state.good.shape[0]) == action - CHECK
    reading = jnp.where(checked, jnp.where(state.good == shown, 1, -1), 0)
    good = state.good & ~(here(state, params) & (action == SAMPLE))
    return State(state.time, jnp.stack([row, column]), good, reading.astype(jnp.int32))


def reward(
    state: State, action: Integer[Array, ""], left: Bool[Array, ""], params: Params
) -> dict[str, Float[Array, ""]]:
    """The terms of the reward of `action` in `state`: the sample's, and that of having `left`."""
    worth = jnp.where(state.good, params.good_reward, params.bad_reward)
    sample = (action == SAMPLE) * jnp.sum(jnp.where(here(state, params), worth, 0))
    return {"sample": sample, "exit": left * params.exit_reward}


@dataclasses.dataclass(frozen=True)
class RockSample(Environment):
    rows: int = 7
    columns: int = 7
    num_rocks: int = 8
    id: str = dataclasses.field(default="RockSample-7-8-v0", kw_only=True)
    Params = Params
    hints = Hints(noiseless=True)
    static_ranges = {"rows": (1, 1000), "columns": (2, 1000), "num_rocks": (1, 1000)}

    def __post_init__(self) -> None:
        super().__post_init__()
        require_product(self, 250_000, "rows", "columns")
        if self.num_rocks > (free := self.rows * (self.columns - 1)):
            given = f"rows={self.rows}, columns={self.columns}, num_rocks={self.num_rocks}"
            raise ValueError(f"{self.id}: {given}: there must be at most {free} rocks out of the last column.")

    @property
    def default_params(self) -> Params:
        """The published map where `columns` is `rows` + 1 and there is one, else a fixed draw."""
        nowhere = Params(jnp.zeros((self.num_rocks, 2), jnp.int32), jnp.full(2, -1, jnp.int32))
        beyond = self.columns == self.rows + 1
        if beyond and (rocks := PUBLISHED.get((self.rows, self.num_rocks))):
            return strongly_typed(
                nowhere.replace(rocks=jnp.asarray(rocks, jnp.int32), start=jnp.array([self.rows // 2, 0], jnp.int32))
            )
        return self.generate(jax.random.key(0), strongly_typed(nowhere))

    def generate(self, key: Key[Array, ""], params: Params) -> Params:
        """Rocks in different cells out of the last column, each set of cells at equal chance."""
        cells = jax.random.permutation(key, self.rows * (self.columns - 1))[: self.num_rocks]
        return params.replace(rocks=self._places(cells))

    def mutate(self, key: Key[Array, ""], params: Params) -> Params:
        """One rock moved to another cell that is free; unchanged where the cell that is drawn has a rock."""
        which_key, where_key = jax.random.split(key)
        which = jax.random.randint(which_key, (), 0, self.num_rocks)
        cell = self._places(jax.random.randint(where_key, (), 0, self.rows * (self.columns - 1)))
        moved = jnp.where((jnp.arange(self.num_rocks) == which)[:, None], cell, params.rocks)
        taken = jnp.any(jnp.all(params.rocks == cell, -1))
        return params.replace(rocks=jnp.where(taken, params.rocks, moved))

    def _places(self, cells: Integer[Array, "*n"]) -> Integer[Array, "*n 2"]:
        width = self.columns - 1
        return jnp.stack([cells // width, cells % width], -1).astype(jnp.int32)

    def initial(self, key: Array, params: Params) -> State:
        place_key, good_key = jax.random.split(key)
        anywhere = self._places(jax.random.randint(place_key, (), 0, self.rows * (self.columns - 1)))
        place = jnp.where(params.start < 0, anywhere, params.start)
        good = jax.random.bernoulli(good_key, shape=(self.num_rocks,))
        return State(jnp.int32(0), place, good, jnp.zeros(self.num_rocks, jnp.int32))

    def transition(self, key: Array, state: State, action: Integer[Array, ""], params: Params) -> Transition:
        # One number serves all rocks: an action checks one of them.
        luck = jax.random.uniform(key, dtype=params.half_distance.dtype)
        shown = luck < accuracy(state.place, params.rocks, params.half_distance)
        action = action.astype(jnp.int32)
        after = dynamics(state, action, shown, (self.rows, self.columns), params)
        left = after.place[1] == self.columns - 1
        terms = reward(state, action, left, params)
        info: dict[str, Any] = {f"reward/{name}": x for name, x in terms.items()}
        return Transition(after, terms["sample"] + terms["exit"], left, jnp.bool_(False), {**info, "success": left})

    def observe(self, key: Array, state: State, params: Params) -> Float[Array, " n"]:
        row = jnp.arange(self.rows) == state.place[0]
        column = jnp.arange(self.columns) == state.place[1]
        return jnp.concatenate([x.astype(jnp.float32) for x in (row, column, state.reading)])

    def observation_space(self, params: Params) -> Box:
        size = self.rows + self.columns
        low = np.concatenate([np.zeros(size), -np.ones(self.num_rocks)])
        return Box(low, np.ones(size + self.num_rocks), (size + self.num_rocks,))

    def action_space(self, params: Params) -> Discrete:
        return Discrete(CHECK + self.num_rocks)

    def validate(self, params: Params) -> None:
        require_positive(self, params, "half_distance")
        rocks, start = np.asarray(params.rocks), np.asarray(params.start)
        if rocks.shape[-2:] != (self.num_rocks, 2) or start.shape[-1:] != (2,):
            raise ValueError(f"{self.id}: rocks {rocks.shape} must be ({self.num_rocks}, 2), start {start.shape} (2,).")
        last = np.array([self.rows - 1, self.columns - 2])
        if np.any(rocks < 0) or np.any(rocks > last):
            raise ValueError(f"{self.id}: rocks={rocks.tolist()} must lie in rows and columns 0 to {last.tolist()}.")
        if np.any(start < -1) or np.any(start > last):
            raise ValueError(f"{self.id}: start={start.tolist()} must be -1 or in 0 to {last.tolist()}.")
        numbers = np.sort(rocks[..., 0] * self.columns + rocks[..., 1], -1)
        if np.any(numbers[..., 1:] == numbers[..., :-1]):
            raise ValueError(f"{self.id}: rocks={rocks.tolist()}: no two may be in one cell.")

    def render(self, state: State, params: Params) -> np.ndarray:
        return drawing.rock_sample(self.rows, self.columns, np.asarray(params.rocks), state)
