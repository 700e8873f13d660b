"""Models of tasks whose observations are bits: the task itself, independent bits, and a categorical latent.

A `Model` is three functions of weights. Transitions are rows (B, ...): obs and next_obs of bits, action of integers.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from jaxrl.envs.tabular.generalization import button_grid, pan_flute, proc_maze
from jaxrl.nn.networks import MLP


class Model(NamedTuple):
    init: Callable[..., Any]  # (key, obs (d,)) -> weights
    loss: Callable[..., Any]  # (weights, key, transition) -> scalar; None: there is nothing to learn
    step: Callable[..., Any]  # (weights, key, obs, action) -> (next_obs, reward, terminated)


# ---- the task itself


def state_of(env, obs):
    """The state that an observation shows: each of these tasks shows all of it."""
    if isinstance(env, pan_flute.PanFlute):
        return pan_flute.State(jnp.int32(0), obs)
    if isinstance(env, button_grid.ButtonGrid):
        agent, on, off = obs.reshape(-1, 3).T
        buttons = jnp.flatnonzero(on | off, size=env.num_buttons).astype(jnp.int32)
        return button_grid.State(jnp.int32(0), jnp.argmax(agent).astype(jnp.int32), buttons, on[buttons])
    agent, goal, walls, _ = obs.reshape(-1, 4).T
    cells = jnp.argmax(goal).astype(jnp.int32), jnp.argmax(agent).astype(jnp.int32)
    return proc_maze.State(jnp.int32(0), walls.reshape(env.size, env.size), *cells)


def perfect(env, params):
    def one(key, obs, action):
        ts = env.step(key, state_of(env, obs), action, params)
        return ts.obs, ts.reward, ts.terminated

    def step(weights, key, obs, action):
        return jax.vmap(one)(jax.random.split(key, action.shape[0]), obs, action)

    return Model(lambda key, obs: {}, None, step)


# ---- learned ones


def likelihood(bits, end, reward, transition):
    """Minus the log-probability of the next bits and of the end, and half the squared error of the reward."""
    of_bits = optax.sigmoid_binary_cross_entropy(bits, transition.next_obs.astype(bits.dtype)).sum(-1)
    of_end = optax.sigmoid_binary_cross_entropy(end, transition.terminated.astype(end.dtype))
    return jnp.mean(of_bits + of_end + 0.5 * (reward - transition.reward) ** 2)


class Decoder(nn.Module):
    """Logits of the next bits, each one's own kept or switched, the logit of the end, and the reward."""

    hidden: tuple[int, ...]

    @nn.compact
    def __call__(self, obs, *inputs):
        out = MLP(self.hidden, 2 * obs.shape[-1] + 2, "elu")(jnp.concatenate([obs, *inputs], -1))
        fresh, keep, end, reward = jnp.split(out, [obs.shape[-1], 2 * obs.shape[-1], 2 * obs.shape[-1] + 1], -1)
        return fresh + keep * (2 * obs - 1), end[..., 0], reward[..., 0]


def draw(key, bits, end, reward):
    """The bits and the end, each by its probability."""
    uniform = jax.random.uniform(key, (*end.shape, bits.shape[-1] + 1))
    drawn = uniform < jax.nn.sigmoid(jnp.concatenate([bits, end[..., None]], -1))
    return drawn[..., :-1], reward, drawn[..., -1]


def bernoulli(num_actions, hidden=(64, 64)):
    """Given observation and action, every bit for itself."""
    net = Decoder(hidden)

    def of(weights, obs, action):
        return net.apply(weights, obs.astype(float), jax.nn.one_hot(action, num_actions))

    def init(key, obs):
        return net.init(key, obs.astype(float), jnp.zeros(num_actions))

    def loss(weights, key, transition):
        return likelihood(*of(weights, transition.obs, transition.action), transition)

    def step(weights, key, obs, action):
        return draw(key, *of(weights, obs, action))

    return Model(init, loss, step)


def latent(num_actions, hidden=(64, 64), groups=4, classes=8, balance=0.8):
    """Given also a latent of `groups` categorical variables, drawn by a learned prior of observation and action.

    Learned with a posterior that sees the next observation: straight-through gradients and the balanced KL of Hafner et
    al. (2021), "Mastering Atari with discrete world models".
    """
    prior, posterior, decoder = (
        MLP(hidden, groups * classes, "elu"),
        MLP(hidden, groups * classes, "elu"),
        Decoder(hidden),
    )

    def logits(net, weights, *inputs):
        out = net.apply(weights, jnp.concatenate(inputs, -1))
        return jax.nn.log_softmax(out.reshape(*out.shape[:-1], groups, classes))

    def sample(key, logits):
        return jax.nn.one_hot(jax.random.categorical(key, logits), classes)

    def init(key, obs):
        keys, obs = jax.random.split(key, 3), obs.astype(float)
        action, z = jnp.zeros(num_actions), jnp.zeros(groups * classes)
        return {
            "prior": prior.init(keys[0], jnp.concatenate([obs, action])),
            "posterior": posterior.init(keys[1], jnp.concatenate([obs, action, obs])),
            "decoder": decoder.init(keys[2], obs, action, z),
        }

    def loss(weights, key, transition):
        obs, action = transition.obs.astype(float), jax.nn.one_hot(transition.action, num_actions)
        before = logits(prior, weights["prior"], obs, action)
        after = logits(posterior, weights["posterior"], obs, action, transition.next_obs.astype(float))
        probability = jnp.exp(after)
        z = jax.lax.stop_gradient(sample(key, after) - probability) + probability
        z = z.reshape(*action.shape[:-1], -1)

        def kl(p, q):
            return jnp.sum(jnp.exp(p) * (p - q), (-2, -1)).mean()

        fixed = jax.lax.stop_gradient
        divergence = balance * kl(fixed(after), before) + (1 - balance) * kl(after, fixed(before))
        return likelihood(*decoder.apply(weights["decoder"], obs, action, z), transition) + divergence

    def step(weights, key, obs, action):
        latent_key, draw_key = jax.random.split(key)
        obs, action = obs.astype(float), jax.nn.one_hot(action, num_actions)
        z = sample(latent_key, logits(prior, weights["prior"], obs, action)).reshape(*action.shape[:-1], -1)
        return draw(draw_key, *decoder.apply(weights["decoder"], obs, action, z))

    return Model(init, loss, step)
