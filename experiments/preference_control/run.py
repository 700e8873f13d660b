"""Do learners from preferences fall when labels are by return? CPL, P-IQL and cloning on Pendulum and a point maze.

    python experiments/preference_control/run.py [--seeds 3] [--only SETTING] [--table]

Goes on where it stopped: each task, kind of labels and learner is a row of results.json beside this file.
"""

import argparse
import json
import re
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import oracle

import jaxrl
from jaxrl.algos import cpl, p_iql
from jaxrl.data import preferences
from jaxrl.host.data.recording import returns_of
from jaxrl.host.run.run_folder import environment_of_run

HERE = Path(__file__).parent
STEPS, PAIRS, LENGTH, SHARE, UPDATES, EPISODES = 20_000, 2_000, 16, 0.5, 4_000, 50
SMALL = dict(num_updates=100, batch_size=32, hidden=(64, 64))
LEARNERS = {
    "cpl": (cpl, cpl.Hyper(learning_rate=3e-4, cloning_steps=1_000, warmup_steps=100)),
    "p_iql": (p_iql, p_iql.Hyper(learning_rate=3e-4, reward_steps=1_500)),
    "cloning": (cpl, cpl.Hyper(learning_rate=3e-4, cloning_steps=UPDATES)),
}
SETTINGS = [(task, labels, name) for name in LEARNERS for task in oracle.TASKS for labels in ("regret", "return")]
SETTINGS = [x for x in SETTINGS if x[1:] != ("return", "cloning")]  # which looks at no label


def compared(task, labels):
    """Preferences of the task's data, error-free, by minus the regret or by the return."""
    steps, values = oracle.data(task, STEPS, SHARE, 0)
    first = preferences.uniform_queries(np.random.default_rng(0), steps, PAIRS, LENGTH)
    by = (oracle.GAMMA, values) if labels == "regret" else (1.0, None)
    score, apart = (of(steps, first, LENGTH, *by) for of in (preferences.scores, preferences.rounding))
    label = np.asarray(preferences.labels(jax.random.key(0), jnp.asarray(score, jnp.float32), rounding=apart))
    return preferences.Preferences(steps, first, label, LENGTH)


def judged_on(task):
    """The task of evaluations: of the maze from its far end alone."""
    made = oracle.TASKS[task]() if task == "Pendulum" else oracle.maze("first")
    return made.env, made.params


def learned(task, labels, name, seeds):
    """Mean returns, a seed each."""
    module, hyper = LEARNERS[name]
    env, params = judged_on(task)
    replay = preferences.stored(compared(task, labels), env.action_space(params))
    algo = module.make(env, module.Config(**SMALL), replay=replay)

    @jax.jit
    @jax.vmap
    def run(key):
        train_key, eval_key = jax.random.split(key)
        state, _ = jaxrl.train(algo, train_key, UPDATES, hyper, params)
        found = jaxrl.evaluate(algo, algo.policy(state), eval_key, env, params, num_episodes=EPISODES)
        return found.returns.mean(), found.lengths.mean()

    return run(jax.random.split(jax.random.key(1), seeds))


def table(results):
    for task in oracle.TASKS:
        for name in LEARNERS:
            labels = ("regret",) if name == "cloning" else ("regret", "return")
            rows = [results["rows"].get(f"{task}/{x}/{name}") for x in labels]
            if None not in rows:
                cells = (
                    f"{np.mean(row['returns']):.4g} ({min(row['returns']):.4g} to {max(row['returns']):.4g})"
                    for row in rows
                )
                print(f"| {task} | {name} | {' | '.join(cells)} |")
        if task in results["who"]:
            print(task, results["who"][task])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", default="")
    parser.add_argument("--table", action="store_true")
    args = parser.parse_args()
    file = HERE / "results.json"
    results = json.loads(file.read_text()) if file.exists() else {"who": {}, "rows": {}}
    for task in () if args.table else [task for task in oracle.TASKS if task not in results["who"]]:
        env, params = judged_on(task)
        results["who"][task] = {
            who: round(
                float(
                    returns_of(
                        env, params, oracle.behaviour(task, share), jax.random.key(2), EPISODES, int(params.max_steps)
                    ).mean()
                ),
                4,
            )
            for who, share in (("random", 0.0), ("behaviour", SHARE), ("oracle", 1.0))
        }
        print(task, results["who"][task], flush=True)
    for setting in [x for x in SETTINGS if "/".join(x) not in results["rows"] and re.search(args.only, "/".join(x))]:
        if not args.table:
            began = time.process_time()
            returns, lengths = learned(*setting, args.seeds)
            row = {"returns": np.round(returns, 4).tolist(), "lengths": np.round(lengths, 2).tolist()}
            results["rows"]["/".join(setting)] = {**row, "cpu_seconds": round(time.process_time() - began, 1)}
            file.write_text(json.dumps({**results, **environment_of_run()}, indent=1))
            print(*setting, row, round(time.process_time() - began), flush=True)
    table(results)


if __name__ == "__main__":
    main()
