"""The datasets, 10,000 steps each: Pendulum-v1 by a controller with much noise, PointMass-v0 by a slack one.
Deterministic. Pendulum's rewards are a tenth of their size."""

import dataclasses

import jax
import jax.numpy as jnp

import jaxrl
from jaxrl.actors import Actor
from jaxrl.host.data.recording import recorded
from jaxrl.wrappers.base import Wrapper

STEPS, STREAMS = 10_000, 10
SCALES = {"Pendulum-v1, medium": 0.1, "PointMass-v0, slack": 1.0}
TASKS = tuple(SCALES)


@dataclasses.dataclass(frozen=True)
class Scaled(Wrapper):
    """Rewards times `scale`."""

    scale: float = 1.0

    def transition(self, key, state, action, params):
        out = self.env.transition(key, state, action, params)
        return out._replace(reward=self.scale * out.reward)


def swinging(key, env_state, obs, env_params, carry):
    """Pumps up, mostly, and holds the pendulum where it is nearly up, with noise of half the torque."""
    up, side, speed = obs[:, :1], obs[:, 1:2], obs[:, 2:]
    torque = jnp.where(up > 0.8, -10 * side - 2 * speed, 2 * jnp.sign(speed))
    return jnp.clip(0.8 * torque + jax.random.normal(key, torque.shape), -2, 2), carry


def slack(key, env_state, obs, env_params, carry):
    """Towards the goal, hardly braked."""
    position, velocity, to_goal = obs[:, :2], obs[:, 2:4], obs[:, 4:]
    return jnp.clip(0.5 * to_goal - 0.2 * velocity + 0.5 * jax.random.normal(key, position.shape), -1, 1), carry


def made(task):
    """`(env, params, dataset)` of a task."""
    name, kind = task.split(", ")
    env, params = jaxrl.make(name)
    env = Scaled(env, SCALES[task])
    who = {"medium": Actor(swinging), "slack": Actor(slack)}[kind]
    run = jax.jit(lambda key: recorded(env, params, who, key, STREAMS, STEPS // STREAMS))
    return env, params, run(jax.random.key(1))
