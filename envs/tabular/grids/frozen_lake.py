"""FrozenLake: to the goal over slippery ice, around the holes.

The tables are those of Gymnasium's `FrozenLake-v1` (4 x 4 cells, 100 steps) and `FrozenLake8x8-v1` (8 x 8, 200 steps),
with its options: another map (`params.tiles`), `success_rate`, the three rewards, and `slippery=False`.

The observation is the number of the cell, row by row. Actions: 0 left, 1 down, 2 right, 3 up; the border stops a move,
and on ice each move goes, with `success_rate` = 1/3, where it should, else to one of the two sides at equal chance.
Reward: of the tile that is entered, 1 for the goal and 0 for others. Reaching a hole or the goal ends the episode.

A level is the params: `generate(key, params)` draws a map that can be solved, as Gymnasium's `generate_random_map`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Integer, Key

from jaxrl.canvas import BLUE, GREEN, PALE, WHITE
from jaxrl.environment import Hints, pytree, strongly_typed
from jaxrl.exact.mdp import Outcomes, TabularEnvironment, TabularState, tabulate
from jaxrl.exact.solvers import value_iteration
from jaxrl.math import precise

from ..checks import require_probability, require_shape
from .drawing import draw_grid
from .grid import compass, moved, slip

FROZEN, START, HOLE, GOAL = range(4)

MAPS = {
    (4, 4): ("SFFF", "FHFH", "FFFH", "HFFG"),
    (8, 8): (
        "SFFFFFFF",
        "FFFFFFFF",
        "FFFHFFFF",
        "FFFFFHFF",
        "FFFHFFFF",
        "FHHFFFHF",
        "FHFFHFHF",
        "FFFHFFFG",
    ),
}  # Gymnasium's


@pytree
class Params:
    tiles: jax.Array  # (rows, columns) int32: FROZEN, START, HOLE or GOAL; episodes start on any START
    max_steps: jax.Array = 100
    success_rate: jax.Array = 1 / 3  # on slippery ice only
    goal_reward: jax.Array = 1.0
    hole_reward: jax.Array = 0.0
    frozen_reward: jax.Array = 0.0  # of START tiles, too
    hole_probability: jax.Array = 0.2  # of each tile that `generate` draws


def parse(lines: Sequence[str]) -> Integer[Array, "rows columns"]:
    """Tiles of a map in Gymnasium's letters S, F, H, G. Raises ValueError for others or lines of different length."""
    if len({len(line) for line in lines}) != 1 or set("".join(lines)) - set("FSHG"):
        raise ValueError(f"{list(lines)} must be lines of equal length, of the letters S, F, H and G.")
    return jnp.array([["FSHG".index(letter) for letter in line] for line in lines], jnp.int32)


def solvable(tiles: Integer[Array, "rows columns"]) -> Bool[Array, ""]:
    """Whether a goal can be reached from every start without a hole on the way."""

    def spread(carry):
        reached, _ = carry
        wide = jnp.pad(reached, 1)
        new = reached | ((wide[:-2, 1:-1] | wide[2:, 1:-1] | wide[1:-1, :-2] | wide[1:-1, 2:]) & (tiles != HOLE))
        return new, jnp.any(new != reached)

    # From the goals, so that one flood serves every start.
    reached, _ = jax.lax.while_loop(lambda carry: carry[1], spread, (tiles == GOAL, jnp.any(tiles == GOAL)))
    return jnp.any(tiles == START) & jnp.all(reached | (tiles != START))


_all_solvable = jax.jit(lambda tiles: jnp.all(jax.vmap(solvable)(tiles)))


@dataclasses.dataclass(frozen=True)
class FrozenLake(TabularEnvironment):
    id: str = dataclasses.field(default="FrozenLake-v1", kw_only=True)
    rows: int = 4
    columns: int = 4
    slippery: bool = True
    num_actions: int = dataclasses.field(default=4, init=False)
    Params = Params
    action_names = ("action, 0 left, 1 down, 2 right, 3 up",)
    static_ranges = {"rows": (1, 1000), "columns": (1, 1000)}

    @property
    def num_states(self) -> int:
        return self.rows * self.columns

    @property
    def hints(self) -> Hints:  # pyright: ignore[reportIncompatibleVariableOverride]
        return Hints(deterministic=not self.slippery)

    @property
    def default_params(self) -> Params:
        """Gymnasium's map where it has one of this size, else a fixed random one."""
        shape = (self.rows, self.columns)
        empty = jnp.zeros(shape, jnp.int32).at[0, 0].set(START).at[-1, -1].set(GOAL)
        params = strongly_typed(Params(empty, max_steps=jnp.int32(100 if shape == (4, 4) else 200)))
        return params.replace(tiles=parse(MAPS[shape])) if shape in MAPS else self.generate(jax.random.key(0), params)

    def outcomes(self, state: Integer[Array, ""], action: Integer[Array, ""], params: Params) -> Outcomes:
        way, probability = slip(action, params.success_rate) if self.slippery else (action[None], jnp.ones(1))
        tiles = params.tiles.reshape(-1)
        over = tiles[state] >= HOLE
        # Left, down, right, up is the compass read backwards.
        cell = jnp.where(over, state, moved(state, *compass(3 - way), self.rows, self.columns))
        tile = tiles[cell]
        reward = jnp.where(
            tile == GOAL, params.goal_reward, jnp.where(tile == HOLE, params.hole_reward, params.frozen_reward)
        )
        return Outcomes(probability, cell, jnp.where(over, 0, reward), tile >= HOLE)

    def initial_distribution(self, params: Params) -> Float[Array, " S"]:
        starts = (params.tiles.reshape(-1) == START).astype(params.success_rate.dtype)
        return starts / jnp.sum(starts)

    def generate(self, key: Key[Array, ""], params: Params) -> Params:
        """A solvable map: start and goal in opposite corners, each other tile a hole with `params.hole_probability`.

        After 100 maps in vain, which takes a probability far from Gymnasium's, a way along the border is opened.
        """

        def draw(carry):
            tries, key, _ = carry
            key, draw_key = jax.random.split(key)
            holes = jax.random.uniform(draw_key, (self.rows, self.columns)) < params.hole_probability
            tiles = jnp.where(holes, HOLE, FROZEN).astype(jnp.int32)
            tiles = jnp.where(tries == 100, tiles.at[0].set(FROZEN).at[:, -1].set(FROZEN), tiles)
            return tries + 1, key, tiles.at[0, 0].set(START).at[-1, -1].set(GOAL)

        first = draw((jnp.int32(0), key, jnp.zeros((self.rows, self.columns), jnp.int32)))
        return params.replace(tiles=jax.lax.while_loop(lambda carry: ~solvable(carry[2]), draw, first)[2])

    def mutate(self, key: Key[Array, ""], params: Params) -> Params:
        """The map with one tile turned from ice to hole or back; unchanged where that would make it unsolvable."""
        cell = jax.random.randint(key, (), 0, self.num_states)
        tile = params.tiles.reshape(-1)[cell]
        other = jnp.where(tile == FROZEN, HOLE, jnp.where(tile == HOLE, FROZEN, tile))
        tiles = params.tiles.reshape(-1).at[cell].set(other).reshape(params.tiles.shape)
        return params.replace(tiles=jnp.where(solvable(tiles), tiles, params.tiles))

    @precise
    def optimal_value(self, params: Params, gamma: float | Float[Array, ""] = 1.0) -> Float[Array, ""]:
        """The expected return of the best policy, without time limit."""
        mdp = tabulate(self, params)
        return mdp.initial @ value_iteration(mdp, gamma).value

    def validate(self, params: Params) -> None:
        require_shape(self, params, "tiles", self.rows, self.columns)
        require_probability(self, params, "success_rate", "hole_probability")
        tiles = np.asarray(params.tiles).reshape(-1, self.rows, self.columns)
        if tiles.min() < FROZEN or tiles.max() > GOAL:
            raise ValueError(f"{self.id}: tiles must be FROZEN, START, HOLE or GOAL (0 to 3).")
        with jax.ensure_compile_time_eval():  # `reset` may be traced while its params are not
            solvable = bool(_all_solvable(tiles))
        if not solvable:
            raise ValueError(f"{self.id}: no way from each START to a GOAL in {tiles.tolist()}.")

    def render(self, state: TabularState, params: Params) -> np.ndarray:
        colour = {FROZEN: PALE, START: WHITE, HOLE: BLUE, GOAL: GREEN}
        colours = {i: colour[int(tile)] for i, tile in enumerate(np.asarray(params.tiles).reshape(-1))}
        return draw_grid(self.rows, self.columns, colours, int(state.index), f"t = {int(state.time)}")
