"""A bandit in which a dimension alone does not tell its sign: a ridge along x = -y, cut in the middle."""

import dataclasses

import jax
import jax.numpy as jnp

from jaxrl import Environment, Transition, pytree
from jaxrl.data import transitions as data
from jaxrl.environment import Hints
from jaxrl.replay.ring import Replay
from jaxrl.spaces import Box


@pytree
class Params:
    max_steps: jax.Array = 1
    width: jax.Array = 0.25  # of both hills


@pytree
class State:
    time: jax.Array


def reward(action, width=0.25):
    """Two hills of height 1, at (1/2, -1/2) and (-1/2, 1/2): exclusive or, of signs."""
    x, y = action[..., 0], action[..., 1]

    def hill(at):
        return jnp.exp(-((x - at) ** 2 + (y + at) ** 2) / (2 * width**2))

    return hill(0.5) + hill(-0.5)


@dataclasses.dataclass(frozen=True)
class Ridge(Environment):
    """One step, one observation (a constant)."""

    id = "Ridge-v0"
    Params = Params
    hints = Hints(deterministic=True)

    def initial(self, key, params):
        return State(jnp.int32(0))

    def transition(self, key, state, action, params):
        return Transition(state, reward(action, params.width), jnp.bool_(True), jnp.bool_(False), {})

    def observe(self, key, state, params):
        return jnp.ones(1)

    def observation_space(self, params):
        return Box(0.0, 1.0, (1,))

    def action_space(self, params):
        return Box(-1.0, 1.0, (2,))

    def validate(self, params):
        pass


def pulls(key, state, n):
    """`n` pulls at random, new ones each time: a dataset without end."""
    action = jax.random.uniform(key, (n, 2), minval=-1.0, maxval=1.0)
    obs, ended = jnp.ones((n, 1)), jnp.ones(n, bool)
    return data.Transition(obs, action, reward(action), ended, obs)


PULLS = Replay(lambda item: (), None, pulls)
