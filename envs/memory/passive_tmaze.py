"""TMazePassive, TMazeActive: a cue at the start of a corridor says which way to turn at its end; being late costs.

Ni, Ma, Eysenbach and Bacon (2023), "When do transformers shine in RL? Decoupling memory from credit assignment"
(github twni2016/Memory-RL, `envs/tmaze.py`, commit c9b8b39). Unlike in `TMaze-v0`, staying behind costs at every step:
what is left to learn is memory, not exploration. The oracle is in cell x = 0 and the junction in cell J = `oracle` +
`length`; above and below it are the two ends, y = 1 and y = -1. The agent starts in cell x = `oracle`: on the oracle
(0, passive: it sees the cue without doing anything), or a cell beside it (1, active: it has to go back and look).

    (x, y)' = (x, y) + move, if that is a cell;   an episode has T = length + 2 oracle + 1 steps, whatever is done.

| observation | range | |
|---|---|---|
| junction | 0, 1 | 1 at the junction and at the ends |
| cue | -1, 0, 1 | on the first visit of the oracle the y of the goal, at the ends one's own y, else 0 |

| action | move |
|---|---|
| 0, 1, 2, 3 | on (x + 1), up (y + 1), back (x - 1), down (y - 1) |

Reward: at the last step 1 where y is the goal's; at the step to time t before it -1 / length where x < t - oracle. The
episode ends after T steps, which is the task's own end; `info["success"]` says whether it ended at the goal. The best
return is 1 of both tasks, since going back to look costs nothing; a guess at the junction gets 1/2.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Integer

from jaxrl.environment import NO_LIMIT, Environment, Hints, Transition, pytree, strongly_typed
from jaxrl.spaces import Box, Discrete


@pytree
class Params:
    max_steps: jax.Array = NO_LIMIT  # the task ends by itself
    length: jax.Array = 10  # cells from the start to the junction
    oracle: jax.Array = 0  # cells from the oracle to the start
    goal_reward: jax.Array = 1.0
    penalty: jax.Array = -1.0  # of all steps together, if the agent never moves


@pytree
class State:
    time: jax.Array  # steps since reset
    x: jax.Array  # int32
    y: jax.Array  # int32, -1, 0 or 1
    goal: jax.Array  # int32, -1 or 1
    seen: jax.Array  # bool, the oracle was visited before the last move


def dynamics(
    x: Integer[Array, ""], y: Integer[Array, ""], action: Integer[Array, ""], junction: Integer[Array, ""]
) -> tuple[Integer[Array, ""], Integer[Array, ""]]:
    """The cell after a move; a move that leads to no cell changes nothing."""
    to_x = x + (action == 0) - (action == 2)
    to_y = y + (action == 1) - (action == 3)
    cell = (to_x >= 0) & (to_x <= junction) & (jnp.abs(to_y) <= 1) & ((to_y == 0) | (to_x == junction))
    return jnp.where(cell, to_x, x).astype(x.dtype), jnp.where(cell, to_y, y).astype(y.dtype)


def reward(
    time: Integer[Array, ""], x: Integer[Array, ""], success: Bool[Array, ""], end: Bool[Array, ""], params: Params
) -> Float[Array, ""]:
    """Of the step that ends at `time` in column `x`."""
    late = x < time - params.oracle
    return jnp.where(end, success * params.goal_reward, late * params.penalty / params.length)


@dataclasses.dataclass(frozen=True)
class PassiveTMaze(Environment):
    length: int = 10  # of `default_params`, as `oracle`; those of params are what counts
    oracle: int = 0
    id: str = dataclasses.field(default="TMazePassive-v0", kw_only=True)
    Params = Params
    hints = Hints(deterministic=True)
    static_ranges = {"length": (1, 100_000_000), "oracle": (0, 100_000_000)}
    action_names = ("action, 0 on, 1 up, 2 back, 3 down",)
    observation_names = ("junction", "cue")

    @property
    def default_params(self) -> Params:
        return strongly_typed(Params(length=jnp.int32(self.length), oracle=jnp.int32(self.oracle)))

    def initial(self, key: Array, params: Params) -> State:
        goal = 2 * (jax.random.bits(key, dtype=jnp.uint32) >> 31).astype(jnp.int32) - 1
        return State(jnp.int32(0), params.oracle, jnp.int32(0), goal, jnp.bool_(False))

    def transition(self, key: Array, state: State, action: Integer[Array, ""], params: Params) -> Transition:
        x, y = dynamics(state.x, state.y, action.astype(jnp.int32), params.oracle + params.length)
        time = state.time + 1
        end = time >= params.length + 2 * params.oracle + 1
        success = end & (y == state.goal)
        state = state.replace(x=x, y=y, seen=state.seen | (state.x == 0))
        return Transition(state, reward(time, x, success, end, params), end, jnp.bool_(False), {"success": success})

    def observe(self, key: Array, state: State, params: Params) -> Float[Array, "2"]:
        there = state.x == params.oracle + params.length
        cue = jnp.where((state.x == 0) & ~state.seen, state.goal, jnp.where(there, state.y, 0))
        return jnp.stack([there, cue]).astype(jnp.float32)

    def observation_space(self, params: Params) -> Box:
        return Box(np.array([0.0, -1.0]), np.ones(2), (2,))

    def action_space(self, params: Params) -> Discrete:
        return Discrete(4)

    def validate(self, params: Params) -> None:
        for name, least in (("length", 1), ("oracle", 0)):
            value = np.asarray(getattr(params, name))
            if np.any(value < least) or np.any(value > 100_000_000):
                raise ValueError(f"{self.id}: {name}={value} must be from {least} to 100000000.")

    def optimal_value(self, params: Params, gamma: float | Float[Array, ""] = 1.0) -> Float[Array, ""]:
        """The best return, for rewards of the published signs: the goal's at the last step, and nothing lost before."""
        steps = params.length + 2 * params.oracle + 1
        best = jnp.asarray(gamma) ** (steps - 1) * params.goal_reward
        return jnp.where(params.max_steps >= steps, best, 0)
