"""Is a designer's order of factors worth as much as a reward that was tuned? HERON beside DDPG on sums of factors.

    python experiments/designer_order/run.py [--only "Pendulum-v1, order"] [--seeds 10]

Writes results.json beside this file after each arm, goes on where it stopped, and prints the table of README.md. An arm
with other settings is measured again.
"""

import argparse
import json
import time
from pathlib import Path

import jax
import numpy as np
from factor_arms import ARMS, TASKS, environment

import jaxrl
from jaxrl.environment import strongly_typed
from jaxrl.evaluation import evaluate
from jaxrl.host.run.run_folder import environment_of_run
from jaxrl.host.statistics import bootstrap_interval, iqm

HERE = Path(__file__).parent


def measure(id, arm, seeds):
    """Returns of final policies in the task itself, 128 episodes each, and seconds of a seed."""
    env, params = environment(id)
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
        settings = json.loads(json.dumps([TASKS[id], args.seeds]))
        for arm in ARMS:
            name = f"{id}, {arm}"
            if arm == "order, nothing after an end" and "terminated" not in TASKS[id].words:
                continue  # no end by itself, so the same as "order"
            if found.get(name, {}).get("settings") != settings and args.only in (None, name):
                where = {"settings": settings, "where": environment_of_run()}
                found[name] = measure(id, arm, args.seeds) | where
                path.write_text(json.dumps(found, indent=1) + "\n")
            if name in found:
                returns = np.array(found[name]["returns"])
                low, high = bootstrap_interval(returns)
                told = f"{iqm(returns):.0f} ({low:.0f} to {high:.0f})"
                print(f"| {id} | {arm} | {told} | {returns.min():.0f} | {found[name]['cpu_seconds']:.0f} |", flush=True)


if __name__ == "__main__":
    main()
