"""A real system, a simulator of it with one wrong number, and what a young agent did in the real one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxrl
from jaxrl.algos import sac
from jaxrl.data import datasets

REAL_STEPS = 1500
SIZES = dict(batch_size=64, hidden=(64, 64))
RATES = dict(learning_rate=1e-3, alpha_learning_rate=1e-3, tau=0.01)


class Task(NamedTuple):
    env: Any
    real: Any  # params
    wrong: Any  # params of the simulator
    gamma: float
    episodes: int  # of an evaluation


def pendulum() -> Task:
    """Gravity halved."""
    env, params = jaxrl.make("Pendulum-v1")
    return Task(env, params, params.replace(gravity=jnp.float32(5)), 0.99, 64)


def motor() -> Task:
    """A current loop; the simulator's inductance is four times too large."""
    env, params = jaxrl.make("Cont-CC-PermExDc-v0")
    params = params.replace(max_steps=jnp.int32(200))
    machine = params.machine.replace(l_a=4 * params.machine.l_a)
    return Task(env, params, params.replace(machine=machine), 0.9, 64)


TASKS: dict[str, Callable[[], Task]] = {
    "pendulum's gravity": pendulum,
    "motor's inductance": motor,
}


def real_data(task: Task) -> datasets.Dataset:
    """The first steps of a SAC agent in the real system: what its memory holds then."""
    algo = sac.make(task.env, sac.Config(buffer_size=REAL_STEPS, **SIZES))
    hyper = sac.Hyper(learning_starts=500, gamma=task.gamma, **RATES)
    state, _ = jax.jit(lambda key: jaxrl.train(algo, key, REAL_STEPS, hyper, task.real))(jax.random.key(7))
    items = state.replay.items
    last = np.append(np.any(np.asarray(items.next_obs[:-1] != items.obs[1:]), -1), True)  # a reset came between
    action = task.env.action_space(task.real).from_unit(items.action)
    return datasets.Dataset(items.obs, action, items.reward, items.terminated, last, items.next_obs)
