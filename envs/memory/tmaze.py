"""TMaze: a cue at the start of a corridor says which way to turn at its end.

Bakker (2001), "Reinforcement learning with long short-term memory", as in POBAX (Tao et al. 2025, github taodav/pobax,
`pobax/envs/jax/tmaze.py`, commit a5e1d62). The agent starts in cell 0; cells 1 to `length` are the corridor; cell
`length` + 1 is the junction, where turning to either side ends the episode:

    place' = clip(place + 1 or - 1, 0, length + 1);  a turn elsewhere than at the junction changes nothing.

| observation | range | |
|---|---|---|
| cue | 0, 1 | 1 in cell 0 where the goal is below; 0 everywhere else, also in cell 0 where the goal is above |
| corridor | 0, 1 | 1 but at the junction |
| junction | 0, 1 | 1 at the junction |
| unused | 0 | always 0 |

| action | |
|---|---|
| 0, 1 | turn up, turn down |
| 2, 3 | one cell on, one cell back |

Reward: 4 for the right turn, -0.1 for the wrong one, else 0. The episode ends on the turn at the junction;
`info["success"]` says that it was the right one. Time limit: 1,000 steps as in POBAX, or two times the steps it takes
where that is more. POBAX's experiments have discount 0.99.

POBAX's `slip_prob` is left out: it does not compile, and as written it is the chance of moving.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Integer

from jaxrl.environment import NO_LIMIT, Environment, Hints, Transition, pytree, require_int32, strongly_typed
from jaxrl.spaces import Box, Discrete

UP, DOWN, ON, BACK = range(4)


@pytree
class Params:
    max_steps: jax.Array = 1000
    length: jax.Array = 10  # cells between the start and the junction
    good_reward: jax.Array = 4.0
    bad_reward: jax.Array = -0.1


@pytree
class State:
    time: jax.Array  # steps since reset
    place: jax.Array  # int32, 0 the start, length + 1 the junction, length + 2 after the turn
    goal: jax.Array  # int32, UP or DOWN


class Turn(NamedTuple):
    """What one step comes to."""

    place: Integer[Array, ""]
    turned: Bool[Array, ""]  # at the junction
    right: Bool[Array, ""]  # the way of the goal


def dynamics(
    place: Integer[Array, ""], goal: Integer[Array, ""], action: Integer[Array, ""], length: Integer[Array, ""]
) -> Turn:
    """One step from cell `place`."""
    turned = (action < ON) & (place == length + 1)
    walked = jnp.clip(place + jnp.where(action == ON, 1, -1), 0, length + 1)
    there = jnp.where(turned, place + 1, jnp.where(action < ON, place, walked))
    return Turn(there.astype(place.dtype), turned, turned & (action == goal))


def reward(turn: Turn, params: Params) -> Float[Array, ""]:
    """`good_reward` or `bad_reward` for a turn at the junction, else 0."""
    return jnp.where(turn.turned, jnp.where(turn.right, params.good_reward, params.bad_reward), 0)


@dataclasses.dataclass(frozen=True)
class TMaze(Environment):
    length: int = 10  # of `default_params`; `params.length` is what counts
    id: str = dataclasses.field(default="TMaze-v0", kw_only=True)
    Params = Params
    hints = Hints(deterministic=True)
    static_ranges = {"length": (1, 100_000_000)}
    action_names = ("action, 0 up, 1 down, 2 on, 3 back",)
    observation_names = ("cue", "corridor", "junction", "unused")

    @property
    def default_params(self) -> Params:
        return strongly_typed(Params(jnp.int32(max(1000, 2 * (self.length + 2))), jnp.int32(self.length)))

    def initial(self, key: Array, params: Params) -> State:
        goal = (jax.random.bits(key, dtype=jnp.uint32) >> 31).astype(jnp.int32)
        return State(jnp.int32(0), jnp.int32(0), goal)

    def transition(self, key: Array, state: State, action: Integer[Array, ""], params: Params) -> Transition:
        turn = dynamics(state.place, state.goal, action.astype(jnp.int32), params.length)
        info = {"success": turn.right}
        state = state.replace(place=turn.place)
        return Transition(state, reward(turn, params), turn.turned, jnp.bool_(False), info)

    def observe(self, key: Array, state: State, params: Params) -> Float[Array, "4"]:
        junction = state.place == params.length + 1
        cue = (state.place == 0) & (state.goal == DOWN)
        return jnp.stack([cue, ~junction, junction, jnp.bool_(False)]).astype(jnp.float32)

    def observation_space(self, params: Params) -> Box:
        return Box(0.0, 1.0, (4,))

    def action_space(self, params: Params) -> Discrete:
        return Discrete(4)

    def validate(self, params: Params) -> None:
        require_int32("length", params.length)
        length = np.asarray(params.length)
        if np.any(length < 1) or np.any(length > NO_LIMIT - 2):
            raise ValueError(f"{self.id}: length={params.length} must be from 1 to {NO_LIMIT - 2}.")

    def optimal_value(self, params: Params, gamma: float | Float[Array, ""] = 1.0) -> Float[Array, ""]:
        """The best return: gamma^(length + 1) good_reward, if that is above 0 and the time limit allows it."""
        steps = params.length + 2
        best = jnp.asarray(gamma) ** (steps - 1) * params.good_reward
        return jnp.where(params.max_steps >= steps, jnp.maximum(best, 0), 0)
