"""The families of tasks that policies adapt to: points that are told nothing of their goal, pendulums of their gear."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from jaxrl import Environment, Transition, pytree
from jaxrl.environment import Hints, strongly_typed
from jaxrl.spaces import Box
from jaxrl.wrappers.base import Wrapper


@pytree
class Goal:
    max_steps: jax.Array = 100
    x: jax.Array = 0.0
    y: jax.Array = 0.0


@pytree
class Place:
    time: jax.Array
    x: jax.Array
    y: jax.Array


@dataclasses.dataclass(frozen=True)
class Navigation(Environment):
    """Move a point to a goal that only the reward tells of."""

    id: str = dataclasses.field(default="Navigation", kw_only=True)
    Params = Goal
    hints = Hints(deterministic=True)

    def initial(self, key, params):
        return Place(jnp.int32(0), jnp.float32(0), jnp.float32(0))

    def transition(self, key, state, action, params):
        move = jnp.clip(action, -0.1, 0.1)
        state = state.replace(x=state.x + move[0], y=state.y + move[1])
        squared = (state.x - params.x) ** 2 + (state.y - params.y) ** 2
        return Transition(state, -squared, squared < 1e-4, jnp.bool_(False), {})

    def observe(self, key, state, params):
        return jnp.stack([state.x, state.y])

    def observation_space(self, params):
        return Box(-jnp.inf, jnp.inf, (2,))

    def action_space(self, params):
        return Box(-1.0, 1.0, (2,))

    def generate(self, key, params):
        x, y = jax.random.uniform(key, (2,), minval=-0.5, maxval=0.5)
        return params.replace(x=x, y=y)


@pytree
class Gear:
    """A pendulum's params, and what its motor makes of an action."""

    rod: Any
    gear: jax.Array = 1.0

    @property
    def max_steps(self):
        return self.rod.max_steps


@dataclasses.dataclass(frozen=True)
class GearedPendulum(Wrapper):
    """Pendulums whose motor turns one way or the other, which is not seen: what lifts one brings another down."""

    Params = Gear

    @property
    def default_params(self):
        # Half the gravity, and a motor that can lift the rod at once: what has to be found is which way it turns.
        rod = self.env.default_params.replace(max_steps=100, gravity=5.0, max_torque=5.0)
        return strongly_typed(Gear(rod))

    def initial(self, key, params):
        return self.env.initial(key, params.rod)

    def transition(self, key, state, action, params):
        return self.env.transition(key, state, params.gear * action, params.rod)

    def observe(self, key, state, params):
        return self.env.observe(key, state, params.rod)

    def observation_space(self, params):
        return self.env.observation_space(params.rod)

    def action_space(self, params):
        return self.env.action_space(params.rod)

    def validate(self, params):
        self.env.validate(params.rod)

    def generate(self, key, params):
        turns, gear, mass, length = jax.random.uniform(key, (4,))
        rod = params.rod.replace(mass=0.8 + 0.4 * mass, length=0.8 + 0.4 * length)
        return params.replace(rod=rod, gear=jnp.where(turns < 0.5, -1, 1) * (0.5 + gear))
