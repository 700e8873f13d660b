"""Geared pendulums need no adaptation: a policy by hand, without memory, that holds those of either gear.

    python experiments/maml/by_hand.py

Rods that a positive action turns to the left are held a little left of the top, the others as far right of it: on one
side the policy is the mirror image of the other, and a rod on its wrong side is driven around. Prints the mean return
and the last angle [rad] by gear.
"""

import jax
import jax.numpy as jnp
from families import GearedPendulum

from jaxrl.envs.classic.pendulum import Pendulum
from jaxrl.math import wrap


def policy(obs):
    """(cos, sin, speed) to a torque [N m]: the top is approached from the side on which the rod is."""
    angle = jnp.arctan2(obs[1], obs[0])
    return 20 * (0.1 - jnp.abs(angle)) - 6 * obs[2] * jnp.sign(angle)


def main() -> None:
    env = GearedPendulum(Pendulum())

    def one(key):
        task_key, key = jax.random.split(key)
        task = env.generate(task_key, env.default_params)
        obs, state = env.reset(key, task)

        def step(carry, key):
            obs, state = carry
            ts = env.step(key, state, jnp.clip(policy(obs), -5, 5)[None], task)
            return (ts.obs, ts.state), ts.reward

        (_, state), rewards = jax.lax.scan(step, (obs, state), jax.random.split(key, 100))
        return task.gear, rewards.sum(), wrap(state.theta, -jnp.pi, jnp.pi)

    gear, returns, angle = jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(0), 10_000))
    for name, which in (("positive", gear > 0), ("negative", gear < 0)):
        print(f"{name} gear: return {returns[which].mean():.1f}, last angle {angle[which].mean():+.2f}")


if __name__ == "__main__":
    main()
