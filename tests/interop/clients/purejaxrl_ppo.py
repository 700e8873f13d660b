"""PPO in purejaxrl's manner on `to_gymnax`. Prints a line of JSON a task: its id, its mean return at first and at last.

purejaxrl is a repository, not a package. This makes the calls that its `ppo.py`, `ppo_continuous_action.py` and
`wrappers.py` make of a gymnax environment: proxies with jitted methods that reshape and log, an `isinstance` of its
Box, bounds, raw keys, a batch by `vmap`, python zeros as the first log, the whole of `info` through the scan, all of it
one jitted program.
"""

import functools
import json
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from gymnax.environments import spaces

from jaxrl import make
from jaxrl.interop.gymnax import to_gymnax

NUM_ENVS, NUM_STEPS, EPOCHS, MINIBATCHES = 32, 64, 4, 4


class Proxy:
    def __init__(self, env):
        self._env = env

    def __getattr__(self, name):
        return getattr(self._env, name)


class Flatten(Proxy):
    def observation_space(self, params):
        space = self._env.observation_space(params)
        assert isinstance(space, spaces.Box)
        return spaces.Box(space.low, space.high, (np.prod(space.shape),), space.dtype)

    @functools.partial(jax.jit, static_argnums=0)
    def reset(self, key, params=None):
        obs, state = self._env.reset(key, params)
        return obs.reshape(-1), state

    @functools.partial(jax.jit, static_argnums=0)
    def step(self, key, state, action, params=None):
        obs, *rest = self._env.step(key, state, action, params)
        return obs.reshape(-1), *rest


class Logged(NamedTuple):
    env: Any
    running: Any
    last: Any


class Log(Proxy):
    @functools.partial(jax.jit, static_argnums=0)
    def reset(self, key, params=None):
        obs, state = self._env.reset(key, params)
        return obs, Logged(state, 0, 0)

    @functools.partial(jax.jit, static_argnums=0)
    def step(self, key, state, action, params=None):
        obs, env_state, reward, done, info = self._env.step(key, state.env, action, params)
        running = state.running + reward
        state = Logged(env_state, running * (1 - done), state.last * (1 - done) + running * done)
        info["returned_episode_returns"], info["returned_episode"] = state.last, done
        return obs, state, reward, done, info


class Clip(Proxy):
    def step(self, key, state, action, params=None):
        space = self._env.action_space(params)
        return self._env.step(key, state, jnp.clip(action, space.low, space.high), params)


class Batch(Proxy):
    def __init__(self, env):
        super().__init__(env)
        self.reset = jax.vmap(env.reset, in_axes=(0, None))
        self.step = jax.vmap(env.step, in_axes=(0, 0, 0, None))


class ActorCritic(nn.Module):
    outputs: int

    @nn.compact
    def __call__(self, x):
        def head(outputs, scale):
            h = x
            for _ in range(2):
                h = nn.tanh(nn.Dense(64, kernel_init=nn.initializers.orthogonal(np.sqrt(2)))(h))
            return nn.Dense(outputs, kernel_init=nn.initializers.orthogonal(scale))(h)

        log_std = self.param("log_std", nn.initializers.zeros, (self.outputs,))
        return head(self.outputs, 0.01), log_std, head(1, 1.0)[..., 0]


class Step(NamedTuple):
    done: Any
    action: Any
    value: Any
    reward: Any
    log_prob: Any
    obs: Any
    info: Any


def make_train(id, updates, gamma=0.99, learning_rate=1e-3):
    env = to_gymnax(make(id)[0], api="0.0")
    params = env.default_params
    discrete = isinstance(env.action_space(params), spaces.Discrete)
    env = Batch(Log(Flatten(env))) if discrete else Batch(Clip(Log(Flatten(env))))
    outputs = env.action_space(params).n if discrete else env.action_space(params).shape[0]
    network = ActorCritic(outputs)
    optimiser = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(learning_rate, eps=1e-5))

    def log_prob_and_entropy(out, log_std, action):
        if discrete:
            logits = jax.nn.log_softmax(out)
            log_prob = jnp.take_along_axis(logits, action[..., None], -1)[..., 0]
            return log_prob, -jnp.sum(jnp.exp(logits) * logits, -1)
        z = (action - out) * jnp.exp(-log_std)
        return -jnp.sum(0.5 * z**2 + log_std, -1), jnp.sum(log_std)

    def loss(weights, batch, advantage, target):
        out, log_std, value = network.apply(weights, batch.obs)
        log_prob, entropy = log_prob_and_entropy(out, log_std, batch.action)
        ratio = jnp.exp(log_prob - batch.log_prob)
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        actor = jnp.minimum(ratio * advantage, jnp.clip(ratio, 0.8, 1.2) * advantage).mean()
        return 0.5 * jnp.square(value - target).mean() - actor - 0.001 * jnp.mean(entropy)

    def env_step(carry, _):
        weights, env_state, obs, key = carry
        key, act_key, step_key = jax.random.split(key, 3)
        out, log_std, value = network.apply(weights, obs)
        if discrete:
            action = jax.random.categorical(act_key, out)
        else:
            action = out + jnp.exp(log_std) * jax.random.normal(act_key, out.shape)
        log_prob, _ = log_prob_and_entropy(out, log_std, action)
        keys = jax.random.split(step_key, NUM_ENVS)
        next_obs, env_state, reward, done, info = env.step(keys, env_state, action, params)
        step = Step(done, action, value, reward, log_prob, obs, info)
        return (weights, env_state, next_obs, key), step

    def advantages(steps, last_value):
        def back(carry, step):
            gae, next_value = carry
            going = 1 - step.done
            delta = step.reward + gamma * next_value * going - step.value
            gae = delta + gamma * 0.95 * going * gae
            return (gae, step.value), gae

        return jax.lax.scan(back, (jnp.zeros_like(last_value), last_value), steps, reverse=True)[1]

    def update(carry, _):
        weights, opt_state, env_state, obs, key = carry
        (_, env_state, obs, key), steps = jax.lax.scan(env_step, (weights, env_state, obs, key), None, NUM_STEPS)
        advantage = advantages(steps, network.apply(weights, obs)[2])
        rows = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), (steps, advantage, advantage + steps.value))

        def minibatch(carry, batch):
            weights, opt_state = carry
            changes, opt_state = optimiser.update(jax.grad(loss)(weights, *batch), opt_state)
            return (optax.apply_updates(weights, changes), opt_state), None

        def epoch(carry, key):
            order = jax.random.permutation(key, NUM_ENVS * NUM_STEPS)
            batches = jax.tree.map(lambda x: x[order].reshape(MINIBATCHES, -1, *x.shape[1:]), rows)
            return jax.lax.scan(minibatch, carry, batches)

        key, epochs_key = jax.random.split(key)
        epoch_keys = jax.random.split(epochs_key, EPOCHS)
        (weights, opt_state), _ = jax.lax.scan(epoch, (weights, opt_state), epoch_keys)
        return (weights, opt_state, env_state, obs, key), steps.info

    @jax.jit
    def train(key):
        key, network_key, reset_key = jax.random.split(key, 3)
        weights = network.init(network_key, jnp.zeros(env.observation_space(params).shape))
        obs, env_state = env.reset(jax.random.split(reset_key, NUM_ENVS), params)
        carry = (weights, optimiser.init(weights), env_state, obs, key)
        return jax.lax.scan(update, carry, None, updates)[1]

    return train


def mean_return(info, part):
    ended = info["returned_episode"][part]
    return float(info["returned_episode_returns"][part][ended].mean())


for id, updates, settings in (
    ("CartPole-v1", 32, {}),
    ("Catch-bsuite", 32, {}),
    ("Pendulum-v1", 200, {"gamma": 0.9}),
):
    info = jax.device_get(make_train(id, updates, **settings)(jax.random.PRNGKey(0)))
    few = 8  # Pendulum's episodes last three rollouts and end together
    before, after = (
        mean_return(info, slice(None, few if id == "Pendulum-v1" else 1)),
        mean_return(info, slice(-few, None)),
    )
    print(json.dumps({"id": id, "before": before, "after": after}), flush=True)
