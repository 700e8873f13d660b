"""Is a designer's order of factors worth as much as a reward that was tuned? HERON beside DDPG on sums of factors.

    python experiments/designer_order/run.py [--only "Pendulum-v1, order"] [--seeds 10]

Writes results.json beside this file after each arm, goes on where it stopped, and prints the table of README.md.
"""

import argparse
import dataclasses
import json
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxrl
from jaxrl.algos import ddpg, heron
from jaxrl.data.transitions import Transition
from jaxrl.environment import strongly_typed
from jaxrl.evaluation import evaluate
from jaxrl.host.run.run_folder import environment_of_run
from jaxrl.host.statistics import bootstrap_interval, iqm
from jaxrl.wrappers.base import Wrapper

HERE = Path(__file__).parent
OTHER_UNIT = 1000.0  # the last factor in a thousandth of its unit, so in numbers a thousand times as large


class Task(NamedTuple):
    words: tuple[str, ...]  # factors, the most important first
    weights: tuple[float, ...]  # of the sum that is the task's own reward, or near it
    steps: int
    config: dict[str, Any]  # of both learners
    hyper: dict[str, Any]


TASKS = {
    "Pendulum-v1": Task(
        ("next_obs[0]", "-|next_obs[2]|", "-|action[0]|"),
        (1.0, 0.1, 0.01),
        20_000,
        {"hidden": (64, 64), "batch_size": 128},
        {"learning_rate": 1e-3, "learning_starts": 200, "gamma": 0.98},
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


def factors(id, unit):
    """The task's factors, the last one in numbers `unit` times as large."""
    env, params = jaxrl.make(id)
    words, space = TASKS[id].words, env.action_space(params)
    named = heron.factors_of(words, env.observation_space(params).shape[0], space.shape[0])
    return lambda batch: named(batch) * jnp.array((*(1.0,) * (len(words) - 1), unit))


def on_sum(id, unit=1.0):
    task = TASKS[id]
    env = SumOfFactors(jaxrl.make(id)[0], factors(id, unit), task.weights)
    return ddpg.make(env, ddpg.Config(**task.config)), ddpg.Hyper(**task.hyper)


def by_order(id, unit=1.0, **config):
    task = TASKS[id]
    algo = heron.make(jaxrl.make(id)[0], heron.Config(**task.config, **config), factors=factors(id, unit))
    return algo, heron.Hyper(**task.hyper, reward_learning_rate=1e-3)


def own_reward(id):
    task = TASKS[id]
    return ddpg.make(jaxrl.make(id)[0], ddpg.Config(**task.config)), ddpg.Hyper(**task.hyper)


ARMS = {
    "the task's own reward": own_reward,
    "sum": on_sum,
    "sum, other unit": lambda id: on_sum(id, OTHER_UNIT),
    "order": by_order,
    "order, other unit": lambda id: by_order(id, OTHER_UNIT),
    "order, rewards as first predicted": lambda id: by_order(id, relabel=False),
}


def measure(id, arm, seeds):
    """Returns of final policies in the task itself, 128 episodes each, and seconds of a seed."""
    env, params = jaxrl.make(id)
    params = strongly_typed(params)
    algo, hyper = ARMS[arm](id)

    def run(key):
        train_key, eval_key = jax.random.split(key)
        state, _ = jaxrl.train(algo, train_key, TASKS[id].steps, hyper, params)
        return evaluate(algo, algo.policy(state), eval_key, env, params, num_episodes=128, greedy=True).returns.mean()

    keys = jax.random.split(jax.random.key(0), seeds)
    program = jax.jit(run).lower(keys[0]).compile()
    begin = time.process_time()
    returns = [round(float(program(key)), 2) for key in keys]
    return {"returns": returns, "cpu_seconds": round((time.process_time() - begin) / seeds, 1)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="ARM", help="one arm, as results.json names it")
    parser.add_argument("--seeds", type=int, default=10)
    args = parser.parse_args()
    path = HERE / "results.json"
    found = json.loads(path.read_text()) if path.exists() else {}
    print("| task | DDPG learns from | return | lowest | CPU s a seed |\n|---|---|---|---|---|")
    for id in TASKS:
        for arm in ARMS:
            name = f"{id}, {arm}"
            if name not in found and args.only in (None, name):
                found[name] = measure(id, arm, args.seeds) | {"where": environment_of_run()}
                path.write_text(json.dumps(found, indent=1) + "\n")
            if name in found:
                returns = np.array(found[name]["returns"])
                low, high = bootstrap_interval(returns)
                told = f"{iqm(returns):.0f} ({low:.0f} to {high:.0f})"
                print(f"| {id} | {arm} | {told} | {returns.min():.0f} | {found[name]['cpu_seconds']:.0f} |", flush=True)


if __name__ == "__main__":
    main()
