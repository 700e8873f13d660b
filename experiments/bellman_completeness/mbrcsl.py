"""MBRCSL: a model, a behaviour policy, rollouts of one in the other, and cloning by return of the best of them."""

from __future__ import annotations

import behaviour
import jax
import jax.numpy as jnp
import maze

from jaxrl.algos import rvs
from jaxrl.data import dynamics
from jaxrl.data.datasets import Windows
from jaxrl.replay.ring import Replay

MODEL = dynamics.Config(4, 3, (64, 64), num_checks=10, num_updates=200, batch_size=128)
ROLLOUTS, KEPT = 1000, 100
BEHAVIOURS = {
    "diffusion": behaviour.by_diffusion,
    "mixture": behaviour.by_mixture(5),
    "Gaussian": behaviour.by_mixture(1),
}


def imagine(key, act, model, start):
    """`(obs, action, reward)` of `act(key, obs)` in a model: (horizon, N, ...)."""

    def step(obs, key):
        act_key, model_key = jax.random.split(key)
        action = act(act_key, obs)
        predicted = model(model_key, obs, action)
        return predicted.next_obs, (obs, action, predicted.reward)

    return jax.lax.scan(step, start, jax.random.split(key, maze.HORIZON))[1]


def kept(steps, best):
    """`((obs, action, return to go) of the KEPT rollouts with the largest returns, how many count, their returns)`.

    Those count whose return is above `best`; where none is, all KEPT.
    """
    total = steps[2].sum(0)
    rows = jnp.argsort(-total)[:KEPT]
    obs, action, reward = (x[:, rows] for x in steps)
    above = jnp.sum(total[rows] > best)
    return (obs, action, jnp.cumsum(reward[::-1], 0)[::-1]), jnp.where(above > 0, above, KEPT), total


def _empty(item):
    zeros = jnp.zeros((maze.HORIZON, KEPT, 2))
    return (zeros, zeros, zeros[..., 0]), jnp.int32(0)


def _sample(key, state, n):
    (obs, action, return_to_go), count = state
    u = jax.random.uniform(key, (2, n))
    time, row = (u[0] * maze.HORIZON).astype(jnp.int32), (u[1] * count).astype(jnp.int32)
    windows = Windows(obs[time, row], action[time, row], return_to_go[time, row], time, jnp.ones(n, bool))
    return jax.tree.map(lambda x: x[:, None], windows)


IMAGINED = Replay(_empty, None, _sample)
"""A memory whose state is what is kept of rollouts, and how many of them count."""


def arm(env, dataset, best, kind, configs, updates):
    """`f(key) -> (algo, policy, what is known of the rollouts)` of every output policy `{suffix: its Config}`."""

    def fitted(key):
        model_key, behaviour_key, rollout_key, start_key, key = jax.random.split(key, 5)
        data = jax.tree.map(jnp.asarray, dataset)
        ensemble, _ = dynamics.fit(model_key, dataset, MODEL)
        act = BEHAVIOURS[kind](behaviour_key, data.obs, data.action)
        first = data.obs[:: maze.HORIZON]
        start = first[jax.random.randint(start_key, (ROLLOUTS,), 0, len(first))]
        steps = imagine(rollout_key, act, dynamics.predictor(ensemble), start)
        memory, count, total = kept(steps, best)
        found = {}
        for suffix, config in configs.items():
            algo = rvs.make(env, config, replay=IMAGINED)
            hyper = rvs.Hyper(learning_rate=1e-3, return_scale=maze.HORIZON, target_return=total.max())
            state = algo.init(key, hyper, env.default_params).replace(replay=(memory, count))
            state, _ = jax.lax.scan(lambda s, _, a=algo: a.update(s), state, length=updates // config.num_updates)
            known = {"above": jnp.mean(total > best), "asked_for": total.max()}
            found[suffix] = algo, algo.policy(state), known
        return found

    return fitted
