"""How many steps does a learned model save? MBPO beside soft actor-critic on Pendulum-v1, ten seeds each.

    python experiments/model_based/run.py [--only MBPO] [--seeds 10]

Writes results.json beside this file after each seed, goes on where it stopped, and prints the table of README.md.
"""

import argparse
import functools
import json
import time
from pathlib import Path

import jax
import numpy as np

import jaxrl
from jaxrl.algos import mbpo, sac
from jaxrl.evaluation import evaluate
from jaxrl.host.run.run_folder import environment_of_run
from jaxrl.host.statistics import bootstrap_interval

HERE = Path(__file__).parent
STEPS, PART = (500, 750, 1000, 1500, 2000, 5000), 250
"""Environment steps after which the policy is evaluated; all are multiples of PART."""
COMMON = {"hidden": (64, 64), "batch_size": 128, "buffer_size": STEPS[-1]}
MODEL = {"num_members": 5, "model_hidden": (64, 64), "model_updates": 1000, "num_rollouts": 5000, "num_steps": 250}
ARMS = {  # module, config, gradient steps an environment step
    "SAC, 1 gradient step": (sac, {}, 1),
    "SAC, 10": (sac, {"num_updates": 10}, 10),
    "MBPO, 10": (mbpo, MODEL | {"num_updates": 2500}, 10),
    "MBPO, 10, stored steps alone": (mbpo, MODEL | {"num_updates": 2500, "real_ratio": 1.0}, 10),
}
HYPER = {"learning_rate": 1e-3, "alpha_learning_rate": 1e-3, "learning_starts": 250}


@functools.cache
def program(arm):
    """Of a key, the mean return of 64 episodes after each of STEPS, greedy."""
    module, config, ratio = ARMS[arm]
    env, params = jaxrl.make("Pendulum-v1")
    algo = module.make(env, module.Config(**COMMON, **config))
    hyper = module.Hyper(**HYPER, replay_ratio=float(ratio))

    def run(key):
        train_key, eval_key = jax.random.split(key)

        def part(state, _):
            updates = PART // algo.steps_per_update
            state, metrics = jax.lax.scan(lambda state, _: algo.update(state), state, None, updates)
            stats = evaluate(algo, algo.policy(state), eval_key, env, params, num_episodes=64, greedy=True)
            return state, (stats.returns.mean(), metrics["gradient_steps"].sum())

        start = algo.init(train_key, hyper, params)
        returns, taken = jax.lax.scan(part, start, None, STEPS[-1] // PART)[1]
        return returns[np.array(STEPS) // PART - 1], taken.sum()

    return jax.jit(run).lower(jax.random.key(0)).compile()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=ARMS)
    parser.add_argument("--seeds", type=int, default=10)
    args = parser.parse_args()
    path = HERE / "results.json"
    found = json.loads(path.read_text()) if path.exists() else {}
    for arm in [arm for arm in ARMS if args.only in (None, arm)]:
        settings = json.loads(json.dumps([COMMON, HYPER, *ARMS[arm][1:]]))
        row = found.get(arm, {})
        row = row if row.get("settings") == settings else {"settings": settings, "returns": [], "seconds": []}
        for seed in range(len(row["returns"]), args.seeds):
            run = program(arm)
            begin = time.process_time()
            returns, taken = run(jax.random.key(seed))
            row["returns"].append(np.asarray(returns, float).round(2).tolist())
            row["seconds"].append(round(time.process_time() - begin, 1))
            row["gradient_steps"] = int(taken)
            found |= {arm: row, "where": environment_of_run()}
            path.write_text(json.dumps(found) + "\n")
    print(f"| arm | {' | '.join(f'{steps:,} steps' for steps in STEPS)} | gradient steps | CPU s/seed |")
    print("|" + "---|" * (len(STEPS) + 3))
    for arm in [arm for arm in ARMS if arm in found]:
        row = found[arm]
        cells = [interval(x) for x in np.transpose(row["returns"])]
        print(f"| {arm} | {' | '.join(cells)} | {row['gradient_steps']:,} | {np.median(row['seconds']):.0f} |")


def interval(values):
    low, high = bootstrap_interval(values, np.mean)
    return f"{np.mean(values):.0f} ({low:.0f} to {high:.0f})"


if __name__ == "__main__":
    main()
