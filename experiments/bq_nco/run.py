"""Trained on exact knapsacks of 50 items, how good is a policy on 200? BQ-NCO by behaviour cloning.

    python experiments/bq_nco/run.py [--instances 4096] [--steps 3000]

Writes results.json beside this file.
"""

import argparse
import json
import time
from pathlib import Path

import jax
import numpy as np
from rests import RestActor, dataset, gaps

import jaxrl
from jaxrl.algos import bc
from jaxrl.envs.routing.knapsack import Knapsack
from jaxrl.host.run.run_folder import environment_of_run

HERE = Path(__file__).parent
ACTOR, CONFIG, HYPER = RestActor(24, 2), bc.Config(batch_size=64), bc.Hyper(learning_rate=1e-3, max_grad_norm=1.0)
TESTS = {"50": (50, 12_500), "100": (100, 25_000), "200": (200, 25_000)}  # items, capacity as in BQ-NCO


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("--instances", 4096), ("--steps", 3000), ("--states", 16), ("--tested", 64), ("--seeds", 1)):
        parser.add_argument(name, type=int, default=default)
    args = parser.parse_args()
    results = {"settings": vars(args), "seeds": []}
    for seed in range(args.seeds):
        data_key, train_key, test_key = jax.random.split(jax.random.key(seed), 3)
        began = time.process_time()
        data = dataset(data_key, 50, args.instances, args.states)
        labelled = time.process_time() - began
        print(f"{data.size:,} steps of exact solutions, {labelled:.0f} CPU s", flush=True)
        algo = bc.make(Knapsack(50, 25_000), CONFIG, replay=data, actor=ACTOR)
        policy = jax.jit(lambda key, algo=algo: algo.policy(jaxrl.train(algo, key, args.steps, HYPER)[0]))(train_key)
        jax.block_until_ready(policy)
        trained = time.process_time() - began - labelled
        row = {"labels_cpu_seconds": labelled, "training_cpu_seconds": trained}
        for name, (items, capacity) in TESTS.items():
            test = jax.jit(lambda policy, key, items=items, capacity=capacity: gaps(
                lambda env: bc.make(env, CONFIG, actor=ACTOR), policy, items, capacity, args.tested, key))  # fmt: skip
            found = [np.asarray(x) for x in test(policy, test_key)]
            row[name] = {who: x.tolist() for who, x in zip(("learned", "greedy"), found, strict=True)}
            found.append(found[0] - found[1])  # paired by instance
            told = [f"{x.mean():.3f} (+-{1.96 * x.std() / len(x) ** 0.5:.3f})" for x in found]
            print(f"| {seed} | {name} | {' | '.join(told)} |", flush=True)
        results["seeds"].append(row)
    (HERE / "results.json").write_text(json.dumps({**results, **environment_of_run()}) + "\n")


if __name__ == "__main__":
    main()
