"""Contextual tasks: an environment, the number that its context multiplies, and how a policy is trained on it."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

import jaxrl
from jaxrl.algos import ppo
from jaxrl.algos.curricula import mbtl
from jaxrl.environment import strongly_typed

CONTEXTS = jnp.arange(1, 101) / 10  # multipliers, as in the paper

SMALL = {"num_envs": 8, "hidden": (32, 32)}
SWING = {"num_envs": 32, "num_steps": 64, "num_epochs": 5, "num_minibatches": 16, "hidden": (32, 32)}
SWING |= {"activation": "silu", "clip_value": False, "normalize_obs": True, "normalize_reward": True}
DRIVE = SWING | {"num_minibatches": 8, "activation": "tanh"}


class Task(NamedTuple):
    id: str
    leaf: str  # of the env params
    steps: int  # of training a policy
    config: dict[str, Any]
    hyper: dict[str, Any]
    low: float  # returns that count as 0 and 1
    high: float
    changes: dict[str, Any] = {}  # of the env params


CARTPOLE = 200_000, SMALL, {"learning_rate": 1e-3}, 0.0, 500.0
PENDULUM = (
    100_000,
    SWING,
    {"learning_rate": 1e-3, "gamma": 0.95, "ent_coef": 0.0, "max_grad_norm": 10.0},
    -2200.0,
    -500.0,
)
TASKS = {
    "cartpole_masscart": Task("CartPole-v1", "mass_cart", *CARTPOLE),
    "pendulum_dt": Task("Pendulum-v1", "dt", *PENDULUM),
    "acrobot_length": Task("Acrobot-v1", "length_1", 200_000, SMALL, {"learning_rate": 1e-3}, -500.0, 0.0),
    "motor_inductance": Task(
        "Cont-CC-PermExDc-v0",
        "machine.l_a",
        100_000,
        DRIVE,
        {"learning_rate": 1e-3, "gamma": 0.9, "ent_coef": 0.0},
        -20.0,
        0.0,
        # There is no time limit. By default a passed limit costs 10, less than to keep it at low inductances.
        {"max_steps": 200, "violation_reward": -20.0},
    ),
    "cartpole_lenpole": Task("CartPole-v1", "length", *CARTPOLE),
    "cartpole_masspole": Task("CartPole-v1", "mass_pole", *CARTPOLE),
    "pendulum_l": Task("Pendulum-v1", "length", *PENDULUM),
    "pendulum_m": Task("Pendulum-v1", "mass", *PENDULUM),
}


def scaled(params: Any, leaf: str, factor: jax.Array) -> Any:
    """`params` with one number multiplied, `leaf` being its path with dots."""
    first, _, rest = leaf.partition(".")
    inner = getattr(params, first)
    return params.replace(**{first: scaled(inner, rest, factor) if rest else inner * factor})


def students(task: Task) -> tuple[Any, Any, Any, Any, Any]:
    """`(PPO, PPO on all contexts at once, its hyper-parameters, env params, levels)` of a task."""
    env, params = jaxrl.make(task.id)
    params = strongly_typed(params.replace(**task.changes))
    levels = mbtl.level_batch(params, lambda params, x: scaled(params, task.leaf, x), CONTEXTS)

    def any_level(key, params):
        return scaled(params, task.leaf, jax.random.choice(key, CONTEXTS))

    config = ppo.Config(**task.config)
    one = ppo.make(env, config)
    every = ppo.make(jaxrl.vectorize(env, config.num_envs, level_fn=any_level), config)
    return one, every, ppo.Hyper(**task.hyper), params, levels
