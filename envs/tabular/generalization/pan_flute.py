"""PanFlute-v0: pipes of length 1 to N; blow each at the moment that lets all notes come out together.

Young, Ramesh, Kirsch and Schmidhuber (2023), "The Benefits of Model-Based Generalization in Reinforcement Learning",
ICML, arXiv:2211.02222, and its code. Pipe i (from 0) is a shift register of i + 1 cells: each step every cell moves one
on, the last ones drop out, and the first cell of pipe `action` alone is on.

Observation: the cells as booleans, (N (N + 1) / 2,), pipe after pipe, each from its first cell to its last. Action: the
pipe to blow, 0 to N - 1. Reward: 1 for the step *after* the last cells of all pipes were on, whatever the action. With
`spontaneous_probability` (default 1 / N^2) a step ends with all last cells on. Starts empty, never ends.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Integer

from jaxrl.environment import NO_LIMIT, Environment, Hints, Transition, pytree, strongly_typed
from jaxrl.exact.mdp import MDP
from jaxrl.spaces import Box, Discrete


@pytree
class Params:
    max_steps: jax.Array = NO_LIMIT
    spontaneous_probability: jax.Array = 0.04  # of all last cells being on, each step


@pytree
class State:
    time: jax.Array  # steps since reset
    cells: jax.Array  # (N (N + 1) / 2,) bool, pipe after pipe


def layout(num_pipes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of each cell: the pipe it is in, whether it is the first and whether it is the last there."""
    pipe = np.repeat(np.arange(num_pipes), np.arange(1, num_pipes + 1))
    change = pipe[1:] != pipe[:-1]
    return pipe, np.concatenate([[True], change]), np.concatenate([change, [True]])


def blow(cells: Bool[Array, " cells"], action: Integer[Array, ""], num_pipes: int) -> Bool[Array, " cells"]:
    """One step without chance: every pipe moves on, and pipe `action` gets a note."""
    pipe, first, _ = layout(num_pipes)
    moved = jnp.concatenate([cells[:1], cells[:-1]])
    return jnp.where(first, pipe == action.astype(jnp.int32), moved)


def together(cells: Bool[Array, " cells"], num_pipes: int) -> Bool[Array, ""]:
    """Whether the last cells of all pipes are on."""
    return jnp.all(cells | ~layout(num_pipes)[2])


def tabulate(params: Params, num_pipes: int) -> MDP:
    """The exact MDP; bit i of a state's index is cell i, K = 2 (without and with the spontaneous notes).

    Raises ValueError for more than 5 pipes, 2^15 states.
    """
    pipe, _, last = layout(num_pipes)
    if num_pipes > 5:
        raise ValueError(f"num_pipes={num_pipes}: a table of 2^{len(pipe)} states; at most 5 pipes.")
    weight = 1 << jnp.arange(len(pipe))
    cells = (jnp.arange(1 << len(pipe))[:, None] & weight) != 0  # (S, cells)
    after = jax.vmap(jax.vmap(blow, (None, 0, None)), (0, None, None))(cells, jnp.arange(num_pipes), num_pipes)
    both = jnp.stack([after, after | last], -2)  # (S, A, 2, cells)
    p = params.spontaneous_probability
    probability = jnp.broadcast_to(jnp.stack([1 - p, p]), both.shape[:-1])
    reward = jax.vmap(together, (0, None))(cells, num_pipes).astype(p.dtype)
    return MDP(
        probability=probability,
        next_state=jnp.sum(both * weight, -1, dtype=jnp.int32),
        reward=jnp.broadcast_to(reward[:, None, None], probability.shape),
        terminated=jnp.zeros(probability.shape, bool),
        initial=jnp.zeros(len(cells), p.dtype).at[0].set(1),
    )


@dataclasses.dataclass(frozen=True)
class PanFlute(Environment):
    num_pipes: int = 5
    id: str = dataclasses.field(default="PanFlute-v0", kw_only=True)
    Params = Params
    hints = Hints(reset="dense")
    static_ranges = {"num_pipes": (1, 100)}

    @property
    def default_params(self) -> Params:
        return strongly_typed(Params(spontaneous_probability=jnp.asarray(1 / self.num_pipes**2)))

    def initial(self, key: Array, params: Params) -> State:
        return State(jnp.int32(0), jnp.zeros(self.num_pipes * (self.num_pipes + 1) // 2, bool))

    def transition(self, key: Array, state: State, action: Integer[Array, ""], params: Params) -> Transition:
        p = params.spontaneous_probability
        spontaneous = jax.random.uniform(key, (), jnp.float32) < p
        reward = together(state.cells, self.num_pipes).astype(p.dtype)
        cells = blow(state.cells, action, self.num_pipes) | (layout(self.num_pipes)[2] & spontaneous)
        return Transition(state.replace(cells=cells), reward, jnp.bool_(False), jnp.bool_(False), {})

    def observe(self, key: Array, state: State, params: Params) -> Bool[Array, " cells"]:
        return state.cells

    def observation_space(self, params: Params) -> Box:
        return Box(0, 1, (self.num_pipes * (self.num_pipes + 1) // 2,), jnp.bool_)

    def action_space(self, params: Params) -> Discrete:
        return Discrete(self.num_pipes)

    def validate(self, params: Params) -> None:
        p = np.asarray(params.spontaneous_probability)
        if not np.all((p >= 0) & (p <= 1)):
            raise ValueError(f"{self.id}: spontaneous_probability={p} must be from 0 to 1.")
