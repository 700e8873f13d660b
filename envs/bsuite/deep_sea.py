"""DeepSea-bsuite, DeepSeaStochastic-bsuite and DeepSea-v0: dive to the bottom right of an N x N sea, or learn nothing.

Osband et al. (2019), "Deep exploration via randomized value functions" (arXiv:1703.07608), as in bsuite's experiments
`deep_sea` and `deep_sea_stochastic`. The diver starts top left and sinks one row a step. Which of the two actions goes
right (the other one left, up to the walls) differs from cell to cell. Going right costs `move_cost / N`; going right in
the last column pays 1, which only the path of N times right reaches. Ends after N steps. The stochastic variant: going
right fails to move with probability 1 / N, and on the bottom row the two corner cells add standard normal noise.

Observation: `grid`: (N, N), 1 where the diver is, all 0 at the end. `index`: row * N + column, of the bottom row at the
end. `info["regret"]`: 1 on the step that leaves the diagonal to the left, which bsuite counts as a bad episode.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Integer

from jaxrl.environment import NO_LIMIT, Hints, Transition, pytree, strongly_typed
from jaxrl.exact.mdp import Outcomes, TabularEnvironment
from jaxrl.spaces import Box, Discrete


@pytree
class Params:
    action_mapping: jax.Array  # (N, N) int32: the action that goes right in each cell
    max_steps: jax.Array = NO_LIMIT
    move_cost: jax.Array = 0.01  # of N steps to the right


@pytree
class StochasticParams(Params):
    slip: jax.Array = 0.0  # probability that a step to the right does not move; 1 / N in bsuite
    noise: jax.Array = 1.0  # standard deviation, on the two corners of the bottom row


@pytree
class State:
    time: jax.Array  # steps since reset
    row: jax.Array  # int32; N at the end
    column: jax.Array  # int32


def bsuite_mapping(size: int, mapping_seed: int = 42) -> np.ndarray:
    """Which action goes right in each cell of bsuite's task of this seed, (size, size). Host only."""
    return np.random.RandomState(mapping_seed).binomial(1, 0.5, [size, size])


def random_mapping(key: Array, params: Params) -> Params:
    """`params` with fair coins for the action that goes right: a task distribution, as a `level_fn`."""
    mapping = params.action_mapping
    return params.replace(action_mapping=jax.random.bernoulli(key, shape=mapping.shape).astype(mapping.dtype))


def move(
    column: Integer[Array, ""], right: Bool[Array, ""], slips: Bool[Array, ""] | bool, size: int
) -> Integer[Array, ""]:
    """The next column."""
    return jnp.clip(column + jnp.where(right, jnp.where(slips, 0, 1), -1), 0, size - 1)


def reward(column: Integer[Array, ""], right: Bool[Array, ""], params: Params, size: int) -> Float[Array, ""]:
    """Of a step from `column`, without noise."""
    return jnp.where(right, (column == size - 1) - params.move_cost / size, 0)


@dataclasses.dataclass(frozen=True)
class DeepSea(TabularEnvironment):
    size: int = 10
    observation: str = "grid"
    id: str = dataclasses.field(default="DeepSea-bsuite", kw_only=True)
    Params = Params
    hints = Hints(deterministic=True, reset="dense")
    static_ranges = {"size": (1, 1000)}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.observation not in ("grid", "index"):
            raise ValueError(f"{self.id}: observation={self.observation!r} is neither 'grid' nor 'index'.")

    @property
    def num_states(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.size**2

    @property
    def num_actions(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return 2

    @property
    def default_params(self) -> Params:
        """bsuite's task of this size."""
        return strongly_typed(Params(jnp.asarray(bsuite_mapping(self.size), jnp.int32)))

    def initial(self, key: Array, params: Params) -> State:
        return State(jnp.int32(0), jnp.int32(0), jnp.int32(0))

    def goes_right(self, state: State, action: Integer[Array, ""], params: Params) -> Bool[Array, ""]:
        return action.astype(jnp.int32) == params.action_mapping[state.row, state.column]

    def transition(self, key: Array, state: State, action: Integer[Array, ""], params: Params) -> Transition:
        return self.after_chance(state, self.goes_right(state, action, params), False, 0, params)

    def after_chance(self, state: State, right: Bool[Array, ""], slips: Any, noise: Any, params: Params) -> Transition:
        """What follows once chance has spoken: whether the step slips, and the noise on its reward."""
        earned = reward(state.column, right, params, self.size) + noise
        regret = (~right & (state.row == state.column)).astype(earned.dtype)
        end = state.row == self.size - 1
        state = state.replace(row=state.row + 1, column=move(state.column, right, slips, self.size))
        return Transition(state, earned, end, jnp.bool_(False), {"regret": regret})

    def observe(self, key: Array, state: State, params: Params) -> Any:
        index = state.row * self.size + state.column
        if self.observation == "index":
            return jnp.where(state.row == self.size, index - self.size, index)
        cell = jnp.arange(self.num_states).reshape(self.size, self.size)
        return (cell == index).astype(jnp.float32)

    def observation_space(self, params: Params) -> Any:
        return Discrete(self.num_states) if self.observation == "index" else Box(0.0, 1.0, (self.size, self.size))

    def outcomes(self, state: Integer[Array, ""], action: Integer[Array, ""], params: Params) -> Outcomes:
        """Of the cell of this index; its reward is without the noise, whose mean is 0."""
        row, column = state // self.size, state % self.size
        right = self.goes_right(State(row, row, column), action, params)
        slips, probability = self._chances(params)
        below = jnp.minimum(row + 1, self.size - 1) * self.size
        next_state = jax.vmap(lambda s: below + move(column, right, s, self.size))(slips)
        earned = jnp.broadcast_to(reward(column, right, params, self.size), probability.shape)
        return Outcomes(probability, next_state.astype(jnp.int32), earned, jnp.full(slips.shape, row == self.size - 1))

    def _chances(self, params: Any) -> tuple[Bool[Array, " K"], Float[Array, " K"]]:
        """Whether a step slips, and how likely."""
        return jnp.zeros(1, bool), jnp.ones_like(params.move_cost)[None]

    def validate(self, params: Params) -> None:
        mapping = np.asarray(params.action_mapping)
        if mapping.shape[-2:] != (self.size, self.size) or not np.isin(mapping, (0, 1)).all():
            raise ValueError(f"{self.id}: action_mapping {mapping.shape} must be 0 or 1 in {self.size} x {self.size}.")


@dataclasses.dataclass(frozen=True)
class DeepSeaStochastic(DeepSea):
    id: str = dataclasses.field(default="DeepSeaStochastic-bsuite", kw_only=True)
    Params = StochasticParams
    hints = DeepSea.hints._replace(deterministic=False)

    @property
    def default_params(self) -> StochasticParams:
        """bsuite's task of this size."""
        mapping = jnp.asarray(bsuite_mapping(self.size), jnp.int32)
        return strongly_typed(StochasticParams(mapping, slip=jnp.asarray(1 / self.size)))

    def transition(self, key: Array, state: State, action: Integer[Array, ""], params: StochasticParams) -> Transition:
        u = jax.random.uniform(key, (3,), params.noise.dtype)
        # Box and Muller (1958), so that one draw serves the slip and the noise.
        normal = jnp.sqrt(-2 * jnp.log1p(-u[0])) * jnp.cos(2 * jnp.pi * u[1])
        corner = (state.row == self.size - 1) & ((state.column == 0) | (state.column == self.size - 1))
        noise = jnp.where(corner, params.noise * normal, 0)
        return self.after_chance(state, self.goes_right(state, action, params), u[2] < params.slip, noise, params)

    def _chances(self, params: StochasticParams) -> tuple[Bool[Array, " K"], Float[Array, " K"]]:
        return jnp.array([False, True]), jnp.stack([1 - params.slip, params.slip])

    def validate(self, params: StochasticParams) -> None:
        super().validate(params)
        if not np.all((np.asarray(params.slip) >= 0) & (np.asarray(params.slip) <= 1)):
            raise ValueError(f"{self.id}: slip={params.slip} must be from 0 to 1.")
