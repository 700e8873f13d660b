"""Discrete2D: a point in a square goes to a goal in steps of one length, in one of many directions.

`Discrete2D100-v0` of the code of Corrado and Hanna (2023), "On-policy policy gradient reinforcement learning without
on-policy sampling" (PROPS), arXiv:2311.08290: many discrete actions, neighbours of similar effect.

| observation | range |
|---|---|
| position x, y | [-1, 1] |
| goal x, y | [-1, 1] |

Action i of n = 100 moves by 0.05 (sin, cos) of the angle 2 pi i / (n - 1), clipped to the square (so the first and the
last action are the same). Reward: minus the distance to the goal after the step; closer than 0.05 ends the episode.
Position and goal start uniform in the square, not closer than 0.05. The time limit is 50 steps. The position is
continuous: there is no table.
"""  # noqa: E501

from __future__ import annotations

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Integer

from jaxrl.canvas import GREEN, ORANGE, PALE, WHITE, Canvas
from jaxrl.environment import Environment, Hints, Transition, pytree
from jaxrl.math import sincos
from jaxrl.spaces import Box, Discrete


@pytree
class Params:
    max_steps: jax.Array = 50
    step_length: jax.Array = 0.05
    radius: jax.Array = 0.05  # of the goal


@pytree
class State:
    time: jax.Array  # steps since reset
    x: jax.Array
    y: jax.Array
    goal_x: jax.Array
    goal_y: jax.Array


def distance(state: State) -> Float[Array, "*N"]:
    """From the position to the goal."""
    return jnp.sqrt((state.x - state.goal_x) ** 2 + (state.y - state.goal_y) ** 2)


@dataclasses.dataclass(frozen=True)
class Discrete2D(Environment):
    id: str = dataclasses.field(default="Discrete2D-v0", kw_only=True)
    num_actions: int = 100
    Params = Params
    hints = Hints(deterministic=True)
    static_ranges = {"num_actions": (1, 1_000_000)}

    def initial(self, key: Array, params: Params) -> State:
        # Of four draws the first that is not at the goal: at the default radius all four are with probability 1e-11.
        draws = State(jnp.zeros(4, jnp.int32), *jax.random.uniform(key, (4, 4), minval=-1.0))
        first = jnp.argmax(distance(draws) >= params.radius)
        return jax.tree.map(lambda x: x[first], draws)

    def transition(self, key: Array, state: State, action: Integer[Array, ""], params: Params) -> Transition:
        angle = action * jnp.asarray(2 * math.pi / max(self.num_actions - 1, 1), params.step_length.dtype)
        sin, cos = sincos(angle)
        state = state.replace(
            x=jnp.clip(state.x + params.step_length * sin, -1, 1),
            y=jnp.clip(state.y + params.step_length * cos, -1, 1),
        )
        away = distance(state)
        return Transition(state, -away, away < params.radius, jnp.bool_(False), {})

    def observe(self, key: Array, state: State, params: Params) -> Float[Array, "4"]:
        return jnp.stack([state.x, state.y, state.goal_x, state.goal_y])

    def observation_space(self, params: Params) -> Box:
        return Box(-1.0, 1.0, (4,))

    def action_space(self, params: Params) -> Discrete:
        return Discrete(self.num_actions)

    def validate(self, params: Params) -> None:
        for name in ("step_length", "radius"):
            value = np.asarray(getattr(params, name))
            if not np.all((value > 0) & (value <= 0.5)):
                raise ValueError(f"{self.id}: {name}={value} must be above 0 and at most 0.5.")

    def render(self, state: State, params: Params) -> np.ndarray:
        canvas = Canvas(400, 400, span=2.2, background=PALE)
        canvas.rectangle((-1.0, -1.0), (1.0, 1.0), WHITE)
        canvas.circle((float(state.goal_x), float(state.goal_y)), float(params.radius), GREEN)
        canvas.circle((float(state.x), float(state.y)), 0.025, ORANGE)
        canvas.caption(f"t = {int(state.time)}")
        return canvas.image()
