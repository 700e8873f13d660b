"""Expert's episodes in random ones, and a memory whose data is an argument of the program, not a constant of it."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxrl
from jaxrl import zoo
from jaxrl.actors import of_policy
from jaxrl.data import datasets
from jaxrl.data.transitions import Transition
from jaxrl.host.data.dataset_recipes import best_of_zoo
from jaxrl.host.data.recording import at_random, nearest_episode, recorded, returns_of, streams, unbroken
from jaxrl.replay.ring import Replay, take


class Task(NamedTuple):
    env: object
    params: object
    expert: datasets.Dataset  # whole episodes
    random: datasets.Dataset
    best: float  # the expert's mean return
    worst: float  # that of uniform actions


def task(name: str, expert_steps: int, random_steps: int, episodes: int = 100) -> Task:
    """Of the best policy of the zoo. Deterministic."""
    env, params = jaxrl.make(name)
    trained = zoo.load(best_of_zoo(env, params)[0].removeprefix(zoo.PREFIX))
    most, keys = int(params.max_steps), jax.random.split(jax.random.key(0), 3)

    def acting(who, key, steps):
        num_envs, enough = streams(steps, most)
        length = enough + most - 1
        found = jax.jit(lambda key: recorded(env, params, who, key, num_envs, length))(key)
        return unbroken(found, num_envs, enough)

    who = of_policy(trained.algo, trained.policy, None)
    expert = acting(who, keys[0], expert_steps)
    best = float(datasets.Episodes(expert).total.mean())
    random = acting(at_random(env, params), keys[1], random_steps)
    worst = jax.jit(lambda key: returns_of(env, params, at_random(env, params), key, episodes, most))(keys[2])
    return Task(env, params, expert, nearest_episode(random, random_steps), best, float(worst.mean()))


def mixed(task: Task, share: float, num_steps: int) -> datasets.Dataset:
    """`share` of the STEPS are the expert's, in whole episodes, one at least; the others uniform actions'."""
    expert = _experts(task, share, num_steps)
    rest = nearest_episode(task.random, num_steps - expert.size)
    return datasets.joined(expert, rest)


def expert_episodes(task: Task, share: float, num_steps: int) -> int:
    """How many of them `mixed` has."""
    return len(datasets.Episodes(_experts(task, share, num_steps)))


def _experts(task: Task, share: float, num_steps: int) -> datasets.Dataset:
    return nearest_episode(task.expert, round(share * num_steps))


class Data(NamedTuple):
    items: Transition  # (size, ...)
    upto: jax.Array  # (size,) sums of the steps' probabilities


def data_of(task: Task, dataset: datasets.Dataset, weights: np.ndarray, size: int) -> Data:
    """What `memory` draws from, filled up to `size` steps by ones that are never drawn.

    Rewards are multiplied so that the dataset's returns span 100.
    """
    episodes = datasets.Episodes(dataset)
    of_step = np.zeros(size)
    of_step[: dataset.size] = weights[episodes.of_step()]
    unit = datasets.to_unit(task.env.action_space(task.params), jnp.asarray(dataset.action))
    scale = 100 / (np.ptp(episodes.total) or 1.0)
    items = Transition(dataset.obs, unit, dataset.reward * scale, dataset.terminated, dataset.next_obs)
    rows = np.minimum(np.arange(size), dataset.size - 1)
    items = jax.tree.map(lambda x: jnp.asarray(np.asarray(x)[rows]), items)
    return Data(items, jnp.asarray(np.cumsum(of_step / of_step.sum()), jnp.float32))


def _sample(key, data, n):
    rows = jnp.searchsorted(data.upto, jax.random.uniform(key, (n,)) * data.upto[-1], side="right")
    return take(data.items, jnp.minimum(rows, len(data.upto) - 1))


memory = Replay(lambda item=None: (), None, _sample)
"""Of `Data`, which goes into the state after `init`."""
