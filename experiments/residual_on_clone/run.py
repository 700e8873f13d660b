"""Does it pay to correct a cloned policy instead of learning from nothing? Residual SAC on a clone, and SAC alone.

    python experiments/residual_on_clone/run.py [--only "Pendulum-v1, alone"] [--seeds 5]

Writes results.json and results.png beside this file after each arm, goes on where it stopped, and prints the table of
README.md. An arm with other settings is measured again.
"""

import argparse
import json
import time
from pathlib import Path

import jax
import numpy as np
from residual_arms import ARMS, CONFIG, POINTS, TASKS, cloned, learner

import jaxrl
from jaxrl.evaluation import evaluate
from jaxrl.host.plotting import curves_by_task
from jaxrl.host.run.run_folder import environment_of_run
from jaxrl.host.statistics import bootstrap_interval, iqm

HERE = Path(__file__).parent
EPISODES = 32


def measure(id, arm, seeds):
    """`(seeds, POINTS)` mean returns of the greedy policy in the task itself, while it learns."""
    algo, hyper, env, params = learner(id, arm)

    def part(state, key):
        updates = TASKS[id].steps // POINTS
        state, _ = jax.lax.scan(lambda state, _: (algo.update(state)[0], None), state, length=updates)
        how = {"num_episodes": EPISODES, "greedy": True}
        return state, evaluate(algo, algo.policy(state), key, env, params, **how).returns.mean()

    @jax.jit
    def run(key):
        keys = jax.random.split(key, POINTS + 1)
        return jax.lax.scan(part, algo.init(keys[0], hyper, params), keys[1:])[1]

    return np.stack([np.asarray(run(key), float) for key in jax.random.split(jax.random.key(0), seeds)])


def of_clone(id):
    """Its own mean return."""
    _, algo, policy = cloned(id)
    stats = jaxrl.evaluate(algo, policy, jax.random.key(0), num_episodes=256, greedy=True)
    return round(float(stats.returns.mean()), 2)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="ARM", help="one arm, as results.json names it")
    parser.add_argument("--seeds", type=int, default=5)
    args = parser.parse_args()
    path = HERE / "results.json"
    found = json.loads(path.read_text()) if path.exists() else {}
    curves = {}
    print("| task | SAC | mean while learning | at the end | lowest at the end | CPU s |\n|" + "---|" * 6)
    for id in TASKS:
        settings = json.loads(json.dumps([TASKS[id], CONFIG, args.seeds]))
        for arm in ARMS:
            name = f"{id}, {arm}"
            if found.get(name, {}).get("settings") != settings and args.only in (None, name):
                begin = time.process_time()
                row = {"settings": settings, "curves": measure(id, arm, args.seeds).round(2).tolist()}
                row |= {"cpu_seconds": round(time.process_time() - begin), "where": environment_of_run()}
                found |= {name: row, id: {"clone": of_clone(id)}}
                path.write_text(json.dumps(found) + "\n")
            if name in found:
                returns = np.array(found[name]["curves"])
                steps = np.arange(1, POINTS + 1) * TASKS[id].steps // POINTS
                curves.setdefault(id, {})[arm] = steps, returns
                cells = [told(returns.mean(1)), told(returns[:, -1]), f"{returns[:, -1].min():.0f}"]
                print(f"| {id} | {arm} | {' | '.join(cells)} | {found[name]['cpu_seconds']} |", flush=True)
        print(f"| {id} | none: the clone | | {found[id]['clone']:.0f} | | |")
    curves_by_task(curves, HERE / "results.png", "return of the greedy policy")


def told(values):
    low, high = bootstrap_interval(values, iqm)
    return f"{iqm(values):.0f} ({low:.0f} to {high:.0f})"


if __name__ == "__main__":
    main()
