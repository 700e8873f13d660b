"""ButtonGrid-v0: switch all buttons on by walking over them; each visit toggles.

Young, Ramesh, Kirsch and Schmidhuber (2023), "The Benefits of Model-Based Generalization in Reinforcement Learning",
ICML, arXiv:2211.02222, and its code.

| observation, flattened from (size, size, 3), boolean | |
|---|---|
| plane 0 | the agent |
| plane 1, plane 2 | buttons that are on, buttons that are off |

Actions: 0 stay, 1 up, 2 left, 3 down, 4 right; the border stops a move, and only a cell that is entered has its button
toggled. With `spontaneous_probability` a step ends with all buttons on (default 1 / (10 size^2)). Reward: 1 for the
step *after* all buttons were on, whatever the action; it puts agent and buttons in new places, all off. Never ends.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Integer

from jaxrl.canvas import GREEN, ORANGE, RED
from jaxrl.environment import NO_LIMIT, Environment, Transition, pytree, strongly_typed
from jaxrl.math import below
from jaxrl.spaces import Box, Discrete

from .proc_maze import cells_of, draw_cells, move


@pytree
class Params:
    max_steps: jax.Array = NO_LIMIT
    spontaneous_probability: jax.Array = 1e-3  # of all buttons being on, each step


@pytree
class State:
    time: jax.Array  # steps since reset
    position: jax.Array  # int32, row * size + column
    buttons: jax.Array  # (num_buttons,) int32 cells, all different
    on: jax.Array  # (num_buttons,) bool


def place(bits: Integer[Array, " draws"], size: int) -> tuple[Integer[Array, ""], Integer[Array, " buttons"]]:
    """A cell for the agent and different ones for the buttons, of one word more than there are buttons."""
    cells, num_buttons = size * size, bits.shape[0] - 1
    # Floyd's sample without replacement: one draw a button, no table of what is left.
    chosen: list[Array] = []
    for i in range(num_buttons):
        largest = cells - num_buttons + i
        cell = below(bits[i], jnp.int32(largest + 1))
        taken = jnp.bool_(False)
        for other in chosen:
            taken = taken | (cell == other)
        chosen.append(jnp.where(taken, largest, cell))
    return below(bits[-1], jnp.int32(cells)), jnp.stack(chosen)


def walk(state: State, action: Integer[Array, ""], size: int) -> State:
    """One action without chance, reward or clock: the move and the button it toggles."""
    position = move(state.position, action, jnp.zeros((size, size), bool))
    entered = (state.buttons == position) & (position != state.position)
    return state.replace(position=position, on=state.on ^ entered)


@dataclasses.dataclass(frozen=True)
class ButtonGrid(Environment):
    size: int = 10
    num_buttons: int = 3
    id: str = dataclasses.field(default="ButtonGrid-v0", kw_only=True)
    Params = Params
    action_names = ("action, 0 stay, 1 up, 2 left, 3 down, 4 right",)
    static_ranges = {"size": (2, 100), "num_buttons": (1, 10_000)}

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.num_buttons <= self.size**2:
            raise ValueError(f"{self.id}: num_buttons={self.num_buttons} must be from 1 to size^2 = {self.size**2}.")

    @property
    def default_params(self) -> Params:
        return strongly_typed(Params(spontaneous_probability=jnp.asarray(0.1 / self.size**2)))

    def initial(self, key: Array, params: Params) -> State:
        position, buttons = place(jax.random.bits(key, (self.num_buttons + 1,), jnp.uint32), self.size)
        return State(jnp.int32(0), position, buttons, jnp.zeros(self.num_buttons, bool))

    def transition(self, key: Array, state: State, action: Integer[Array, ""], params: Params) -> Transition:
        p = params.spontaneous_probability
        bits = jax.random.bits(key, (self.num_buttons + 2,), jnp.uint32)
        success = jnp.all(state.on)
        spontaneous = (bits[-1] >> 8).astype(jnp.float32) * 2.0**-24 < p
        after = walk(state, action, self.size)
        position, buttons = place(bits[:-1], self.size)
        state = state.replace(
            position=jnp.where(success, position, after.position),
            buttons=jnp.where(success, buttons, after.buttons),
            on=(after.on | spontaneous) & ~success,
        )
        return Transition(state, success.astype(p.dtype), jnp.bool_(False), jnp.bool_(False), {})

    def observe(self, key: Array, state: State, params: Params) -> Bool[Array, " planes"]:
        cells = cells_of(self.size)
        on, off = jnp.zeros(cells.shape, bool), jnp.zeros(cells.shape, bool)
        for i in range(self.num_buttons):
            here = cells == state.buttons[i]
            on, off = on | (here & state.on[i]), off | (here & ~state.on[i])
        return jnp.stack([cells == state.position, on, off], -1).reshape(-1)

    def observation_space(self, params: Params) -> Box:
        return Box(0, 1, (3 * self.size * self.size,), jnp.bool_)

    def action_space(self, params: Params) -> Discrete:
        return Discrete(5)

    def validate(self, params: Params) -> None:
        p = np.asarray(params.spontaneous_probability)
        if not np.all((p >= 0) & (p <= 1)):
            raise ValueError(f"{self.id}: spontaneous_probability={p} must be from 0 to 1.")

    def render(self, state: State, params: Params) -> np.ndarray:
        buttons = zip(np.asarray(state.buttons), np.asarray(state.on), strict=True)
        discs = [(int(cell), 0.4, GREEN if on else RED) for cell, on in buttons]
        return draw_cells(np.zeros((self.size, self.size), bool), [*discs, (int(state.position), 0.24, ORANGE)])
