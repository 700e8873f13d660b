"""Hybrid natural policy gradient for log-linear policies, one for each level.

Zhou, Sekhari, Song and Sun (2024), "Offline data enhanced on-policy policy gradient with provable guarantees". A policy
pi_h(a | s) ~ exp(theta_h[a] . s) and a critic Q_h(s, a) = w_h[a] . s at each level h. An iteration rolls the policy
out, fits the critic from the last level to the first, the on-policy returns G and the offline bootstrap together,

    w_h = argmin mean_on (w[a] . s - G_h)^2 + mean_off (w[a] . s - r - sum_a' pi_{h+1}(a' | s') w_{h+1}[a'] . s')^2
          + ridge |w|^2,

and takes the natural gradient's step of such policies, theta_h += rate w_h.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp


class Steps(NamedTuple):
    """Of n episodes, leaves (H, n, ...)."""

    obs: jax.Array
    action: jax.Array
    reward: jax.Array


def episodes(key, env, params, act, n):
    """`act(key, level, obs, state) -> action`."""
    reset_key, run_key = jax.random.split(key)
    obs, state = jax.vmap(env.reset, (0, None))(jax.random.split(reset_key, n), params)

    def step(carry, x):
        (obs, state), (level, key) = carry, x
        act_key, step_key = jax.random.split(key)
        action = act(act_key, level, obs, state)
        step = jax.vmap(env.step, (0, 0, 0, None))(jax.random.split(step_key, n), state, action, params)
        return (step.obs, step.state), Steps(obs, action, step.reward)

    return jax.lax.scan(step, (obs, state), (jnp.arange(env.horizon), jax.random.split(run_key, env.horizon)))[1]


def behaviour(key, env, params, n):
    """The best actions, with one in H at random; in dead states all are at random."""

    def act(key, level, obs, state):
        latent = state.index % 3
        own_key, share_key = jax.random.split(key)
        random = jax.random.randint(own_key, (n,), 0, env.num_actions)
        best = params.good_actions[jnp.minimum(latent, 1), level]
        at_random = (jax.random.uniform(share_key, (n,)) < 1 / env.horizon) | (latent == 2)
        return jnp.where(at_random, random, best)

    return episodes(key, env, params, act, n)


def policy_act(theta):
    return lambda key, level, obs, state: jax.random.categorical(key, obs @ theta[level].T)


def chosen(steps, num_actions):
    """(H, n, A): which action was taken, over n: weights of a mean."""
    return jax.nn.one_hot(steps.action, num_actions) / steps.action.shape[1]


def gram(steps, num_actions):
    """(H, A, d, d): second moments of observations by action, in one action's term at a time."""
    taken = chosen(steps, num_actions)
    one = lambda a: jnp.einsum("hnd,hne->hde", steps.obs * taken[..., a, None], steps.obs)  # noqa: E731
    return jnp.swapaxes(jax.lax.map(one, jnp.arange(num_actions)), 0, 1)


def fit(theta, on, off, off_gram, shares, ridge):
    """w (H, A, d). `shares`: weights of the on-policy and of the offline term."""
    H, A, d = theta.shape
    return_to_go = jnp.cumsum(on.reward[::-1], 0)[::-1]
    matrix = shares[0] * gram(on, A) + shares[1] * off_gram + ridge * jnp.eye(d)
    factor = jax.scipy.linalg.cho_factor(matrix)[0]
    on_side = jnp.einsum("hnd,hna,hn->had", on.obs, chosen(on, A), return_to_go)
    taken = chosen(off, A)

    def level(ahead, h):
        side = jnp.einsum("nd,na,n->ad", off.obs[h], taken[h], off.reward[h] + ahead)
        total = shares[0] * on_side[h] + shares[1] * side
        w = jax.scipy.linalg.cho_solve((factor[h], False), total[..., None])[..., 0]
        pi = jax.nn.softmax(off.obs[h] @ theta[h].T)  # of the states that the level before bootstraps from
        return jnp.sum(pi * (off.obs[h] @ w.T), -1), w

    return jax.lax.scan(level, jnp.zeros(off.reward.shape[1]), jnp.arange(H), reverse=True)[1]


def train(key, env, params, off, iterations, n, rate, shares, ridge=1e-3):
    """theta (H, A, d), and the mean return of each iteration's episodes."""
    H, A, d = env.horizon, env.num_actions, env.size
    off_gram = gram(off, A)

    def iteration(theta, key):
        on = episodes(key, env, params, policy_act(theta), n)
        w = fit(theta, on, off, off_gram, shares, ridge)
        return theta + rate * w, jnp.mean(jnp.sum(on.reward, 0))

    return jax.lax.scan(iteration, jnp.zeros((H, A, d)), jax.random.split(key, iterations))
