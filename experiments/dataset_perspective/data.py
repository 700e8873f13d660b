"""Five kinds of data of one task, all from one training of DQN: what acts in each, and how large they are."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxrl
from jaxrl.actors import of_policy
from jaxrl.algos import dqn
from jaxrl.data.datasets import Dataset, joined, transitions
from jaxrl.data.quality import state_action_coverage, trajectory_quality
from jaxrl.data.transitions import Stored
from jaxrl.host.data.recording import at_random, recorded, returns_of, trained

KINDS = ("random", "expert", "mixed", "noisy", "replay")
POINTS = 11  # policies of the training, whose equal shares are the replay
GAMMA = 0.95  # the paper's
STREAMS = 2


class Task(NamedTuple):
    env: Any
    params: Any
    items: Stored  # leaves (kinds, n, ...)
    random: float
    best: float
    tq: list[float]
    saco: list[float]


def first(dataset: Dataset, n: int) -> Dataset:
    found = jax.tree.map(lambda x: np.asarray(x)[:n], dataset)
    return found.replace(last=np.append(found.last[:-1], True))


def task(env_id: str, settings: dict, max_steps: int, train_steps: int, size: int, seed: int = 0) -> Task:
    env, params = jaxrl.make(env_id, **settings)
    params = params.replace(max_steps=jnp.int32(max_steps))
    sizes = dict(num_envs=8, num_updates=2, batch_size=64, buffer_size=48_000, n_step=3, hidden=(64, 64))
    algo = dqn.make(env, dqn.Config(**sizes))
    hyper = dqn.Hyper(learning_rate=1e-3, learning_starts=1000, exploration_steps=train_steps // 2, target_period=400)
    train_key, *keys = jax.random.split(jax.random.key(seed), 8)
    policies, returns = jax.jit(lambda key: trained(algo, key, train_steps, hyper, params, POINTS))(train_key)
    at = int(np.argmax(np.asarray(returns)))
    best = jax.tree.map(lambda x: x[at], policies)

    def record(who_of, policy, key, n):
        steps = -(-n // STREAMS)
        return first(jax.jit(lambda p, k: recorded(env, params, who_of(p), k, STREAMS, steps))(policy, key), n)

    uniform, learning = (lambda _: at_random(env, params)), (lambda p: of_policy(algo, p, False))
    deployed = lambda p: of_policy(algo, p, True)  # noqa: E731
    random, expert = record(uniform, (), keys[0], size), record(deployed, best, keys[1], size)
    noisy = record(learning, best._replace(epsilon=jnp.full_like(best.epsilon, 0.2)), keys[2], size)
    share = -(-size // POINTS)
    part = jax.jit(jax.vmap(lambda p, k: recorded(env, params, learning(p), k, 1, share)))
    parts = part(policies, jax.random.split(keys[3], POINTS))
    replay = first(joined(*(jax.tree.map(lambda x, i=i: np.asarray(x)[i], parts) for i in range(POINTS))), size)
    mixed = joined(first(random, size * 4 // 5), first(expert, size - size * 4 // 5))
    all_of = dict(zip(KINDS, (random, expert, mixed, noisy, replay), strict=True))
    lowest = float(np.mean(jax.jit(lambda k: returns_of(env, params, uniform(()), k, 200, max_steps))(keys[4])))
    highest = float(
        np.mean(jax.jit(lambda p, k: returns_of(env, params, deployed(p), k, 200, max_steps))(best, keys[5]))
    )
    return Task(
        env,
        params,
        jax.tree.map(
            lambda *x: np.stack(x), *(transitions(x, env.action_space(params), GAMMA) for x in all_of.values())
        ),
        lowest,
        highest,
        [trajectory_quality(x, lowest, highest) for x in all_of.values()],
        [state_action_coverage(x, replay) for x in all_of.values()],
    )
