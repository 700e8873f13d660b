"""Goal-conditioned double DQN on a dataset, to compare with; it needs no penalty where all actions were tried."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from jaxrl.environment import Environment
from jaxrl.nn.optim import optimizer_of, polyak
from jaxrl.replay.off_policy import Critic
from jaxrl.replay.ring import Replay

GAMMA, TAU, RATE = 0.95, 0.01, 1e-3


def greedy(env: Environment, memory: Replay, hidden: tuple[int, ...], key: jax.Array, steps: int) -> Any:
    """`act(obs) -> action` (B,) after so many gradient steps on (Q(s, a) - r - gamma (1 - terminated) Q'(s', argmax_a
    Q(s', a)))^2."""
    params: Any = env.default_params
    actions: Any = env.action_space(params)
    critic = Critic(env.observation_space(params), hidden, "relu", num_actions=actions.n)
    init_key, key = jax.random.split(key)
    obs = env.reset(init_key, params)[0]
    flat, unravel = ravel_pytree(critic.init(init_key, obs))
    optimizer = optimizer_of("adam")

    def step(carry, key):
        flat, target, state = carry
        batch = memory.sample(key, (), 128)

        def loss(weights):
            q: Any = critic.apply(weights, batch.obs)
            best = jnp.argmax(critic.apply(weights, batch.next_obs), -1)
            after: Any = critic.apply(unravel(target), batch.next_obs)
            value = jnp.take_along_axis(after, best[:, None], -1)[:, 0]
            y = jax.lax.stop_gradient(batch.reward + GAMMA * jnp.where(batch.terminated, 0, value))
            own = jnp.take_along_axis(q, batch.action[:, None], -1)[:, 0]
            return jnp.mean((own - y) ** 2)

        flat, state, _ = optimizer.descend(flat, state, jax.grad(loss)(unravel(flat)), RATE)
        return (flat, polyak(target, flat, TAU), state), None

    start = flat, flat, optimizer.init(unravel(flat), RATE)
    (flat, _, _), _ = jax.lax.scan(step, start, jax.random.split(key, steps))
    return lambda obs: jnp.argmax(critic.apply(unravel(flat), obs), -1)
