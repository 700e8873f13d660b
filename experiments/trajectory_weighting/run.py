"""Does drawing good episodes more often help offline learners where few are good? RW, AW and the best tenth.

    python experiments/trajectory_weighting/run.py [--seeds 10] [--steps 2000]

Writes results.json and results.png beside this file and prints the tables of README.md.
"""

import argparse
import json
import time
from pathlib import Path

import jax
import numpy as np
from mixed import data_of, expert_episodes, memory, mixed, task
from report import report

from jaxrl.algos import cql, iql, td3_bc
from jaxrl.data import datasets, quality
from jaxrl.evaluation import evaluate
from jaxrl.host.run.run_folder import environment_of_run

HERE = Path(__file__).parent
TASKS = ("MountainCarContinuous-v0", "InvertedPendulum-v5", "PointMass-v0")
SHARES = (0.01, 0.05, 0.1)
NUM_STEPS = 100_000  # of a dataset
SIZES = dict(batch_size=64, hidden=(32, 32), num_updates=100, normalize_obs=False)
RATES = dict(learning_rate=1e-3, tau=0.01)
LEARNERS = {
    "cql": (cql, cql.Config(**SIZES, num_actions=4), cql.Hyper(**RATES, min_q_weight=0.5)),
    "iql": (iql, iql.Config(**SIZES), iql.Hyper(**RATES)),
    "td3_bc": (td3_bc, td3_bc.Config(**SIZES), td3_bc.Hyper(**RATES)),
}
SAMPLING = {
    "uniform": lambda dataset: np.ones(len(datasets.Episodes(dataset))),
    "RW": datasets.return_weights,
    "AW": datasets.advantage_weights,
    "top 10 %": datasets.best_weights,
}


def program_of(learner, on, seeds, steps):
    module, config, hyper = LEARNERS[learner]
    algo = module.make(on.env, config, replay=memory)

    def run(key, data):
        init_key, eval_key = jax.random.split(key)
        state = algo.init(init_key, hyper, on.params).replace(replay=data)
        state, _ = jax.lax.scan(lambda s, _: (algo.update(s)[0], None), state, length=steps // config.num_updates)
        return evaluate(
            algo, algo.policy(state), eval_key, on.env, on.params, num_episodes=8, greedy=True
        ).returns.mean()

    keys = jax.random.split(jax.random.key(1), seeds)
    run = jax.jit(jax.vmap(run, (0, None)))
    return lambda data: np.asarray(run(keys, data))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--learners", nargs="*", default=list(LEARNERS))
    parser.add_argument("--tasks", nargs="*", default=list(TASKS))
    parser.add_argument("--picture", action="store_true")
    args = parser.parse_args()
    file = HERE / "results.json"
    if args.picture:
        return report(json.loads(file.read_text()), HERE)
    where = {key: environment_of_run()[key] for key in ("started", "device", "processors", "versions")}
    results = {"where": where, "num_steps": NUM_STEPS, "gradient_steps": args.steps, "tasks": {}, "rows": []}
    for name in args.tasks:
        on = task(name, int(max(SHARES) * NUM_STEPS), NUM_STEPS)
        results["tasks"][name] = {"random": on.worst, "expert": on.best}
        programs = {learner: program_of(learner, on, args.seeds, args.steps) for learner in args.learners}
        for share in SHARES:
            dataset = mixed(on, share, NUM_STEPS)
            told = {
                "task": name,
                "share": share,
                "episodes": len(datasets.Episodes(dataset)),
                "expert episodes": int(expert_episodes(on, share, NUM_STEPS)),
                "variance": quality.positive_sided_variance(dataset),
            }
            for sampling, weights in SAMPLING.items():
                data = data_of(on, dataset, weights(dataset), NUM_STEPS + 3000)
                for learner, program in programs.items():
                    begin = time.perf_counter()
                    scores = 100 * (program(data) - on.worst) / (on.best - on.worst)
                    row = told | {"sampling": sampling, "learner": learner, "scores": scores.round(2).tolist()}
                    results["rows"].append(row | {"seconds": round(time.perf_counter() - begin, 1)})
                    print(name, share, sampling, learner, scores.mean().round(1), flush=True)
            file.write_text(json.dumps(results) + "\n")
    report(results, HERE)


if __name__ == "__main__":
    main()
