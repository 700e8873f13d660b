"""Two ways to train a hover policy from rotor speeds: learning-to-fly's and the fastest of ours."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

import jaxrl
from jaxrl.algos import apg, td3
from jaxrl.environment import strongly_typed
from jaxrl.envs.quadcopter.tasks import hover
from jaxrl.nn.networks import MLP

STEPS = 300_000  # of learning-to-fly


class PrivilegedCritic(nn.Module):
    """Sees the true state, the disturbances and the rotors; not the noisy observation nor the past actions."""

    @nn.compact
    def __call__(self, obs: Any, action: jax.Array) -> jax.Array:
        return MLP((64, 64), 1, "tanh")(jnp.concatenate([obs["privileged"], action], -1))[..., 0]


def rewards(transition: Any, weights: hover.Weights) -> jax.Array:
    """The reward of stored transitions under other weights, from what the critic sees of them."""
    x = transition.obs["privileged"]
    position, velocity = (tuple(x[..., i + k] for k in range(3)) for i in (0, 12))
    w = jnp.sqrt(jnp.maximum(1 + x[..., 3] + x[..., 7] + x[..., 11], 0)) / 2  # of the quaternion, from the trace
    reward = sum(hover.rewards(position, (w,), velocity, transition.action, weights).values())
    return jnp.where(transition.terminated, 0, reward)


def harden(state: Any) -> Any:
    """The next stage of the curriculum, in the task and in everything that the replay remembers."""
    old = state.env_params.weights
    weights = old.replace(
        position=jnp.minimum(1.2 * old.position, 40),
        velocity=jnp.minimum(1.4 * old.velocity, 1),
        action=jnp.minimum(1.4 * old.action, 1),
    )
    items = state.replay.items
    items = items._replace(reward=rewards(items, weights))
    replay = state.replay.replace(items=items)
    return state.replace(env_params=state.env_params.replace(weights=weights), replay=replay)


def td3_recipe():
    """Eschmann et al. (2024): one environment, a gradient step each ten steps, three stages of 100k steps.

    Deviations: random actions instead of the untrained policy's before learning starts, which is at 15k steps for actor
    and critics alike; the target critics move when the actor learns; no weight decay; plain tanh.
    """
    env = hover.Hover(privileged=True)
    config = td3.Config(num_steps=10, num_updates=1, buffer_size=STEPS, hidden=(64, 64), activation="tanh")
    algo = td3.make(env, config, critic=PrivilegedCritic())
    hyper = td3.Hyper(learning_rate=1e-3, learning_starts=15_000, tau=0.01)

    def train(key):
        stage = STEPS // 3 // algo.steps_per_update
        state = algo.init(key, strongly_typed(hyper), env.default_params)

        def update(state, _):
            return algo.update(state)[0], None

        def one(state, number):
            state = jax.lax.cond(number > 0, harden, lambda state: state, state)
            return jax.lax.scan(update, state, None, stage)[0], None

        return algo.policy(jax.lax.scan(one, state, jnp.arange(3))[0])

    return algo, train


def apg_recipe(total_steps: int = 2_000_000, learning_rate: float = 3e-3, force: float = 0.07, speed: float = 1.0):
    """Gradients through the flight itself (SHAC): 64 environments, windows of 32 steps.

    Larger forces and speeds than the task's, so that the accelerations of a path are nothing new.
    """
    env = hover.Hover()
    algo = apg.make(env, apg.Config(num_envs=64, num_steps=32))
    hyper = strongly_typed(apg.Hyper(learning_rate=learning_rate, anneal_steps=total_steps))
    params = env.default_params
    weights = params.weights.replace(constant=4.0, position=40.0, velocity=0.1)
    params = strongly_typed(params.replace(weights=weights, force_std=force, start_velocity=speed))

    def train(key):
        return algo.policy(jaxrl.train(algo, key, total_steps, hyper, params)[0])

    return algo, train
