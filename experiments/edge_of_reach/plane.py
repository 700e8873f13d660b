"""A point in the plane: the smallest task whose states a policy reaches only after many steps.

`next = position + action`, each action at most 1 a side, no walls; reward 1 at the goal, falling with the squared
distance: exp(-|position - goal|^2 / 20). Observed as it is. Never ends but for the time limit of 30 steps.
"""

import dataclasses

import jax
import jax.numpy as jnp

from jaxrl.environment import Environment, Hints, Transition, pytree
from jaxrl.spaces import Box


@pytree
class Params:
    max_steps: jax.Array = 30
    goal: jax.Array = (3.0, 3.0)
    start: jax.Array = 2.0  # half the side of the square in which episodes begin


@pytree
class State:
    time: jax.Array
    position: jax.Array  # (2,)


@dataclasses.dataclass(frozen=True)
class PointInPlane(Environment):
    id: str = dataclasses.field(default="PointInPlane", kw_only=True)
    Params = Params
    hints = Hints(deterministic=True)

    @property
    def default_params(self):
        return Params(jnp.int32(30), jnp.array([3.0, 3.0]), jnp.float32(2.0))

    def initial(self, key, params):
        return State(jnp.int32(0), params.start * jax.random.uniform(key, (2,), minval=-1.0))

    def transition(self, key, state, action, params):
        position = state.position + jnp.clip(action, -1, 1)
        reward = jnp.exp(-jnp.sum((position - params.goal) ** 2) / 20)
        return Transition(state.replace(position=position), reward, jnp.bool_(False), jnp.bool_(False), {})

    def observe(self, key, state, params):
        return state.position

    def observation_space(self, params):
        return Box(-jnp.inf, jnp.inf, (2,))

    def action_space(self, params):
        return Box(-1.0, 1.0, (2,))


def state_of(obs):
    return State(jnp.int32(0), obs)
