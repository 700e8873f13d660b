"""Does it pay to correct a cloned policy instead of learning from nothing? Residual SAC on a clone, and SAC alone.

    python experiments/residual_on_clone/run.py [--only "Pendulum-v1, alone"] [--seeds 10]

Writes results.json beside this file after each arm, goes on where it stopped, and prints the table of README.md.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxrl
from jaxrl import zoo
from jaxrl.actors import of_policy
from jaxrl.algos import bc, sac
from jaxrl.environment import strongly_typed
from jaxrl.evaluation import evaluate
from jaxrl.host.data.recording import recorded
from jaxrl.host.run.run_folder import environment_of_run
from jaxrl.host.statistics import bootstrap_interval, iqm
from jaxrl.wrappers import Residual

HERE = Path(__file__).parent
POINTS, EPISODES = 20, 32  # evaluations while it learns, and episodes of each


class Task(NamedTuple):
    expert: str  # of the zoo
    shown: int  # steps of it that are cloned
    cloning: int  # gradient steps
    steps: int
    hyper: dict[str, Any]


CONFIG = {"hidden": (64, 64), "batch_size": 128}
TASKS = {
    "Pendulum-v1": Task("ppo/Pendulum-v1", 800, 300, 10_000, {"learning_rate": 1e-3, "gamma": 0.98}),
    "MountainCarContinuous-v0": Task(
        "ppo/MountainCarContinuous-v0", 150, 150, 20_000, {"learning_rate": 1e-3, "gamma": 0.99}
    ),
}
ARMS = {"alone": None, "clone + 0.25": 0.25, "clone + 1": 1.0}
"""The largest correction, as a share of half the box."""


def cloned(id):
    """`(algorithm, policy)` of a clone of a few steps of an expert; of all seeds the same."""
    env, params = jaxrl.make(id)
    task, expert = TASKS[id], zoo.load(TASKS[id].expert)
    who = of_policy(expert.algo, expert.policy, None)
    shown = jax.jit(lambda key: recorded(env, params, who, key, 1, task.shown))(jax.random.key(0))
    algo = bc.make(env, bc.Config(hidden=(64, 64), batch_size=64), replay=shown)
    train = jax.jit(lambda key: algo.policy(jaxrl.train(algo, key, task.cloning, bc.Hyper(learning_rate=1e-3))[0]))
    return algo, train(jax.random.key(1))


def measure(id, arm, seeds):
    """`(seeds, POINTS + 1)` mean returns of the deployed policy in the task itself, before and while it learns."""
    env, params = jaxrl.make(id)
    task, params = TASKS[id], strongly_typed(params)
    if ARMS[arm] is not None:
        base, policy = cloned(id)
        env = Residual(env, lambda policy, obs: base.act(policy, jax.random.key(0), obs, (), greedy=True)[0])
        params = env.on(params, policy, ARMS[arm])
    algo = sac.make(env, sac.Config(**CONFIG))
    hyper = sac.Hyper(**task.hyper, learning_starts=task.steps // POINTS)

    def score(state, key):
        how = {"num_episodes": EPISODES, "greedy": True}
        return evaluate(algo, algo.policy(state), key, env, params, **how).returns.mean()

    def part(state, key):
        state, _ = jax.lax.scan(lambda state, _: (algo.update(state)[0], None), state, length=task.steps // POINTS)
        return state, score(state, key)

    @jax.jit
    def run(key):
        keys = jax.random.split(key, POINTS + 2)
        state = algo.init(keys[0], hyper, params)
        return jnp.concatenate([score(state, keys[1])[None], jax.lax.scan(part, state, keys[2:])[1]])

    return np.stack([np.asarray(run(key), float) for key in jax.random.split(jax.random.key(0), seeds)])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="ARM", help="one arm, as results.json names it")
    parser.add_argument("--seeds", type=int, default=10)
    args = parser.parse_args()
    path = HERE / "results.json"
    found = json.loads(path.read_text()) if path.exists() else {}
    print("| task | | before | mean while learning | at the end | lowest at the end | CPU s |\n|" + "---|" * 7)
    for id in TASKS:
        if id not in found:
            algo, policy = cloned(id)
            own = evaluate(algo, policy, jax.random.key(0), num_episodes=256, greedy=True).returns.mean()
            found[id] = {"clone": round(float(own), 2)}
        print(f"| {id} | the clone | {found[id]['clone']:.0f} | | | | |")
        for arm in ARMS:
            name = f"{id}, {arm}"
            if name not in found and args.only in (None, name):
                begin = time.process_time()
                curves = measure(id, arm, args.seeds).round(2).tolist()
                found[name] = {"curves": curves, "cpu_seconds": round(time.process_time() - begin)}
                found[name]["where"] = environment_of_run()
                path.write_text(json.dumps(found) + "\n")
            if name in found:
                curves = np.array(found[name]["curves"])
                parts = curves[:, 0], curves[:, 1:].mean(1), curves[:, -1]
                cells = [told(x) for x in parts]
                cells += [f"{parts[2].min():.0f}", str(found[name]["cpu_seconds"])]
                print(f"| {id} | {arm} | {' | '.join(cells)} |", flush=True)


def told(values):
    low, high = bootstrap_interval(values, iqm)
    return f"{iqm(values):.0f} ({low:.0f} to {high:.0f})"


if __name__ == "__main__":
    main()
