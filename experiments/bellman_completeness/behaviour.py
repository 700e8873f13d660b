"""What imitates the data, by a distribution of actions: a diffusion model, or a mixture of normal distributions."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax

from jaxrl.data import diffusion
from jaxrl.math import fast_key
from jaxrl.nn.networks import MLP

DIFFUSION = diffusion.Config(4000, 128, 1e-3, width=64, num_blocks=2, num_steps=10, churn=0.0)
HIDDEN, UPDATES, BATCH = (64, 64), 4000, 128


def by_diffusion(key, obs, action):
    """`act(key, obs)` of EDM's model of actions given observations: 10 steps from noise, as the authors' has."""
    mean, std = action.mean(0), action.std(0)
    weights, _ = diffusion.fit(key, (action - mean) / std, DIFFUSION, obs)

    def act(key, obs):
        found = diffusion.draw(key, diffusion.denoiser(DIFFUSION, weights, obs), (len(obs), action.shape[1]), DIFFUSION)
        return jnp.clip(found * std + mean, -1, 1)

    return act


def by_mixture(num: int):
    """Of `num` normal distributions with weights, means and deviations by a perceptron, of the largest likelihood."""

    def fitted(key, obs, action):
        size = action.shape[1]
        network = MLP(HIDDEN, num * (1 + 2 * size), "relu", out_scale=0.1)

        def parts(weights, obs):
            logits, mean, log_std = jnp.split(network.apply(weights, obs), [num, num * (1 + size)], -1)
            mean, log_std = (x.reshape(*x.shape[:-1], num, size) for x in (mean, log_std))
            return jax.nn.log_softmax(logits), mean, jnp.clip(log_std, -3, 1)

        def loss(weights, obs, action):
            log_share, mean, log_std = parts(weights, obs)
            each = -0.5 * ((action[:, None] - mean) / jnp.exp(log_std)) ** 2 - log_std
            return -jnp.mean(jax.nn.logsumexp(log_share + each.sum(-1), -1))

        init_key, key = jax.random.split(key)
        weights = {"params": network.init(init_key, obs[:1])["params"]}
        optimizer = optax.adam(optax.cosine_decay_schedule(1e-3, UPDATES))

        def step(carry, key):
            weights, state = carry
            row = jax.random.randint(key, (BATCH,), 0, len(obs))
            change, state = optimizer.update(jax.grad(loss)(weights, obs[row], action[row]), state)
            return (optax.apply_updates(weights, change), state), None

        keys = jax.random.split(fast_key(key), UPDATES)
        weights = jax.lax.scan(step, (weights, optimizer.init(weights)), keys)[0][0]

        def act(key, obs):
            log_share, mean, log_std = parts(weights, obs)
            which_key, noise_key = jax.random.split(key)
            which = jax.random.categorical(which_key, log_share)[:, None, None]
            mean, log_std = (jnp.take_along_axis(x, which, 1)[:, 0] for x in (mean, log_std))
            return jnp.clip(mean + jnp.exp(log_std) * jax.random.normal(noise_key, mean.shape), -1, 1)

        return act

    return fitted
