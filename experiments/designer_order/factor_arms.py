"""Who learns from a designer's factors of a step: DDPG from a weighted sum of them, HERON from their order."""

import dataclasses
from typing import Any, NamedTuple

import jax.numpy as jnp

import jaxrl
from jaxrl.algos import ddpg, heron
from jaxrl.data.transitions import Transition
from jaxrl.wrappers import ActionRepeat
from jaxrl.wrappers.base import Wrapper

OTHER_UNIT = 1000.0  # the last factor in a thousandth of its unit, so in numbers a thousand times as large


class Task(NamedTuple):
    words: tuple[str, ...]  # factors, the most important first
    weights: tuple[float, ...]  # of the sum that is the task's own reward, or near it
    steps: int
    config: dict[str, Any]  # of both learners
    hyper: dict[str, Any]
    repeat: int = 1  # steps of the task a decision: noise that lasts leaves a valley


TASKS = {
    "Pendulum-v1": Task(
        ("next_obs[0]", "-|next_obs[2]|", "-|action[0]|"),
        (1.0, 0.1, 0.01),
        20_000,
        {"hidden": (64, 64), "batch_size": 128},
        {"learning_rate": 1e-3, "learning_starts": 200, "gamma": 0.98},
    ),
    "MountainCarContinuous-v0": Task(
        ("terminated", "-|action[0]|"),
        (100.0, 0.8),
        20_000,
        {"hidden": (64, 64), "batch_size": 128},
        {"learning_rate": 1e-3, "learning_starts": 1000, "gamma": 0.98, "exploration_noise": 0.5},
        repeat=8,
    ),
}


@dataclasses.dataclass(frozen=True)
class SumOfFactors(Wrapper):
    """The task with another reward: a weighted sum of the factors of the step. For observations without noise."""

    factors: heron.Factors
    weights: tuple[float, ...]

    def transition(self, key, state, action, params):
        after = self.env.transition(key, state, action, params)
        obs = self.env.observe(key, after.state, params)
        unit = jnp.reshape(action, -1) / self.env.action_space(params).high  # of the box, as HERON's factors see it
        step = Transition(obs=None, action=unit, reward=after.reward, next_obs=obs, terminated=after.terminated)
        return after._replace(reward=jnp.sum(self.factors(step) * jnp.array(self.weights)))


def environment(id):
    """`(env, params)` of the task as both learners see it."""
    env, params = jaxrl.make(id)
    return (ActionRepeat(env, TASKS[id].repeat) if TASKS[id].repeat > 1 else env), params


def factors(id, unit):
    """The task's factors, the last one in numbers `unit` times as large."""
    env, params = environment(id)
    words, space = TASKS[id].words, env.action_space(params)
    named = heron.factors_of(words, env.observation_space(params).shape[0], space.shape[0])
    return lambda batch: named(batch) * jnp.array((*(1.0,) * (len(words) - 1), unit))


def on_sum(id, unit=1.0):
    task = TASKS[id]
    env = SumOfFactors(environment(id)[0], factors(id, unit), task.weights)
    return ddpg.make(env, ddpg.Config(**task.config)), ddpg.Hyper(**task.hyper)


def by_order(id, unit=1.0, **config):
    task = TASKS[id]
    algo = heron.make(environment(id)[0], heron.Config(**task.config, **config), factors=factors(id, unit))
    return algo, heron.Hyper(**task.hyper, reward_learning_rate=1e-3)


def own_reward(id):
    task = TASKS[id]
    return ddpg.make(environment(id)[0], ddpg.Config(**task.config)), ddpg.Hyper(**task.hyper)


ARMS = {
    "the task's own reward": own_reward,
    "sum": on_sum,
    "sum, other unit": lambda id: on_sum(id, OTHER_UNIT),
    "order": by_order,
    "order, other unit": lambda id: by_order(id, OTHER_UNIT),
    "order, rewards as first predicted": lambda id: by_order(id, relabel=False),
    "order, nothing after an end": lambda id: by_order(id, absorbing=False),
}
