"""Darkroom: find the one cell that pays, which cannot be seen.

Laskin et al. (2022), "In-context reinforcement learning with algorithm distillation", and Lee et al. (2023),
"Supervised pretraining can learn in-context reinforcement learning" (DPT), arXiv:2306.14892, whose numbers these are.

The observation is the number of one of 10 x 10 cells, x * 10 + y; episodes start in cell 0. Actions: 0 and 1 add and
subtract 1 from x, 2 and 3 from y, 4 stays; the border stops a move. Reward: 1 for each step that ends in the goal.
Episodes never end; the time limit is 100 steps.

A level is the params: `generate(key, params)` draws the goal among all cells, `generate_permuted(key, params)` puts it
in the last corner and draws what each action means (one of 120 ways), as DPT's permuted variant.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Integer, Key

from jaxrl.canvas import GREEN
from jaxrl.environment import Hints, pytree
from jaxrl.exact.mdp import Outcomes, TabularEnvironment, TabularState, certain

from ..checks import require_index, require_shape
from .drawing import draw_grid
from .grid import moved


@pytree
class Params:
    goal: jax.Array  # int32, cell
    meaning: jax.Array  # (5,) int32, the action that is carried out for each
    max_steps: jax.Array


@dataclasses.dataclass(frozen=True)
class Darkroom(TabularEnvironment):
    id: str = dataclasses.field(default="Darkroom-v0", kw_only=True)
    size: int = 10
    num_actions: int = dataclasses.field(default=5, init=False)
    Params = Params
    hints = Hints(deterministic=True, reset="dense")
    static_ranges = {"size": (1, 1000)}

    @property
    def num_states(self) -> int:
        return self.size * self.size

    @property
    def default_params(self) -> Params:
        """The goal in the corner farthest from the start."""
        return Params(jnp.int32(self.num_states - 1), jnp.arange(5, dtype=jnp.int32), jnp.int32(100))

    def generate(self, key: Key[Array, ""], params: Params) -> Params:
        """A task: the goal in any cell."""
        return params.replace(goal=jax.random.randint(key, (), 0, self.num_states, jnp.int32))

    def generate_permuted(self, key: Key[Array, ""], params: Params) -> Params:
        """A task: the goal in the last corner, the actions permuted."""
        meaning = jax.random.permutation(key, 5).astype(jnp.int32)
        return params.replace(goal=jnp.full_like(params.goal, self.num_states - 1), meaning=meaning)

    def optimal_action(self, state: Integer[Array, ""], params: Params) -> Integer[Array, ""]:
        """An action of a shortest way to the goal, or that stays there: first along x, then y (the label in DPT)."""
        dx, dy = params.goal // self.size - state // self.size, params.goal % self.size - state % self.size
        along_y = jnp.where(dy > 0, 2, jnp.where(dy < 0, 3, 4))
        wanted = jnp.where(dx > 0, 0, jnp.where(dx < 0, 1, along_y))
        return jnp.argmax(params.meaning == wanted).astype(jnp.int32)

    def optimal_value(self, params: Params) -> Float[Array, ""]:
        """The return of the best policy within the time limit: one for each step from the first visit on."""
        distance = jnp.maximum(params.goal // self.size + params.goal % self.size, 1)
        return jnp.maximum(params.max_steps - distance + 1, 0).astype(float)

    def outcomes(self, state: Integer[Array, ""], action: Integer[Array, ""], params: Params) -> Outcomes:
        move = params.meaning[action]
        sign = jnp.where(move % 2 == 0, 1, -1)
        x, y = jnp.where(move < 2, sign, 0), jnp.where((move == 2) | (move == 3), sign, 0)
        cell = moved(state, x, y, self.size, self.size)
        return certain(cell, (cell == params.goal).astype(float))

    def validate(self, params: Params) -> None:
        require_index(self, params, "goal", self.num_states)
        require_shape(self, params, "meaning", 5)
        if not np.all(np.sort(np.asarray(params.meaning), -1) == np.arange(5)):
            raise ValueError(f"{self.id}: meaning={params.meaning} must be a permutation of 0 to 4.")

    def render(self, state: TabularState, params: Params) -> np.ndarray:
        return draw_grid(self.size, self.size, {int(params.goal): GREEN}, int(state.index), f"t = {int(state.time)}")
