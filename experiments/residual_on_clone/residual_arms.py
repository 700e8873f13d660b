"""The tasks, a clone of a few steps of an expert, and who learns: alone, with these steps, or as a correction."""

from typing import Any, NamedTuple

import jax

import jaxrl
from jaxrl import zoo
from jaxrl.actors import of_policy
from jaxrl.algos import bc, sac
from jaxrl.data import datasets
from jaxrl.environment import strongly_typed
from jaxrl.host.data.recording import recorded
from jaxrl.replay.ring import uniform
from jaxrl.wrappers import Residual


class Task(NamedTuple):
    expert: str  # of the zoo
    shown: int  # steps of it that are cloned
    cloning: int  # gradient steps
    steps: int
    gamma: float


CONFIG = {"hidden": (64, 64), "batch_size": 128}
TASKS = {
    "Pendulum-v1": Task("ppo/Pendulum-v1", 800, 300, 10_000, 0.98),
    "MountainCarContinuous-v0": Task("ppo/MountainCarContinuous-v0", 150, 150, 20_000, 0.99),
}
POINTS = 20  # evaluations while it learns; the steps before the first are random
ARMS = ("alone", "alone, half of each batch the expert's", "clone + 0.25", "clone + 1")
"""SAC's part; of a correction its bound, as a share of half the action's box."""


def cloned(id):
    """`(the expert's steps, algorithm, policy)` of a clone of them; of all seeds the same."""
    env, params = jaxrl.make(id)
    task, expert = TASKS[id], zoo.load(TASKS[id].expert)
    who = of_policy(expert.algo, expert.policy, None)
    shown = jax.jit(lambda key: recorded(env, params, who, key, 1, task.shown))(jax.random.key(0))
    algo = bc.make(env, bc.Config(hidden=(64, 64), batch_size=64), replay=shown)
    train = jax.jit(lambda key: algo.policy(jaxrl.train(algo, key, task.cloning, bc.Hyper(learning_rate=1e-3))[0]))
    return shown, algo, train(jax.random.key(1))


def learner(id, arm):
    """`(algorithm, hyper, env, params)` of an arm."""
    env, params = jaxrl.make(id)
    task, params, given = TASKS[id], strongly_typed(params), {}
    hyper: dict[str, Any] = {"learning_rate": 1e-3, "gamma": task.gamma, "learning_starts": task.steps // POINTS}
    if arm != "alone":
        shown, base, policy = cloned(id)
        if arm.startswith("clone"):
            env = Residual(env, lambda policy, obs: base.act(policy, jax.random.key(0), obs, (), greedy=True)[0])
            params = env.on(params, policy, float(arm.split("+")[1]))
        else:  # as RLPD does
            steps = datasets.stored(shown, env.action_space(params), gamma=task.gamma)
            given = {"replay": datasets.mixed(steps, uniform(task.steps))}
    return sac.make(env, sac.Config(**CONFIG), **given), sac.Hyper(**hyper), env, params
