"""A wrong simulator and a little real data: H2O against CQL on the data and SAC in the simulator.

    python experiments/wrong_simulator/run.py [--seeds 10] [--tasks NAME ...] [--arms NAME ...]

Writes results.json and results.png beside this file and prints the table of README.md.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from worlds import RATES, SIZES, TASKS, Task, real_data

import jaxrl
from jaxrl.algos import cql, h2o, sac
from jaxrl.data import datasets
from jaxrl.evaluation import evaluate
from jaxrl.host.plotting import COLORS
from jaxrl.host.run.run_folder import environment_of_run
from jaxrl.host.statistics import iqm, told

HERE = Path(__file__).parent
STEPS = 4000  # gradient steps of each learner


def arms(task: Task, memory) -> dict[str, Callable[[], tuple]]:
    """Of each name: the algorithm, its settings, the params it acts under."""
    env, online = task.env, dict(num_updates=1, buffer_size=STEPS, **SIZES)
    rates = dict(gamma=task.gamma, **RATES)
    hybrid = h2o.Hyper(min_q_weight=0.01, learning_starts=500, **rates)
    offline = cql.Config(num_updates=200, num_actions=4, **SIZES)
    return {
        "H2O, both": lambda: (h2o.make(env, h2o.Config(**online), real=memory), hybrid, task.wrong),
        "H2O with w = 1, both": lambda: (
            h2o.make(env, h2o.Config(**online, trusting=True), real=memory),
            hybrid,
            task.wrong,
        ),
        "SAC, simulator": lambda: (
            sac.make(env, sac.Config(**online)),
            sac.Hyper(learning_starts=500, **rates),
            task.wrong,
        ),
        "CQL, data": lambda: (cql.make(env, offline, replay=memory), cql.Hyper(min_q_weight=1.0, **rates), task.real),
    }


ARMS = ("H2O, both", "H2O with w = 1, both", "SAC, simulator", "CQL, data")


def measure(task: Task, algo, hyper, trained_in, seeds: int) -> dict[str, Any]:
    def run(key):
        key, test_key = jax.random.split(key)
        state, metrics = jaxrl.train(algo, key, STEPS, hyper, trained_in)
        policy = algo.policy(state)

        def score(params):
            return evaluate(
                algo, policy, test_key, task.env, params, num_episodes=task.episodes, greedy=True
            ).returns.mean()

        trust = metrics["trust"][-1000:].mean() if "trust" in metrics else jnp.nan
        both = jax.tree.map(lambda *x: jnp.stack(x), task.real, trained_in)
        return *jax.lax.map(score, both), trust

    begin = time.perf_counter()
    found = jax.jit(jax.vmap(run))(jax.random.split(jax.random.key(0), seeds))
    real, own, trust = (np.asarray(x, float).round(2).tolist() for x in found)
    row = {"real": real, "where trained": own, "seconds": round(time.perf_counter() - begin, 1)}
    return row if np.isnan(trust).all() else row | {"trust": trust}


def table(tasks: dict[str, Any]) -> str:
    lines = ["| what is wrong | learner | real return, IQM | 95 % interval | where it was trained |", "|---" * 5 + "|"]
    for name, found in tasks.items():
        for arm, row in found["arms"].items():
            cells = told(row["real"], ".1f", cells=True), f"{iqm(row['where trained']):.1f}"
            lines.append(f"| {name} | {arm} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def picture(tasks: dict[str, Any], out: Path) -> None:
    """A panel a task: each seed as a dot, the mean as a bar."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, len(tasks), figsize=(4 * len(tasks) + 1, 2.6), layout="constrained", sharey=True)
    for axes, (name, found) in zip(np.atleast_1d(panels), tasks.items(), strict=True):
        for row, arm in enumerate(found["arms"].values()):
            axes.plot(arm["real"], np.full(len(arm["real"]), row), "o", color=COLORS[0], alpha=0.35, markersize=5)
            axes.plot([np.mean(arm["real"])] * 2, [row - 0.3, row + 0.3], color=COLORS[0], linewidth=2.5)
        axes.set_yticks(range(len(found["arms"])), list(found["arms"]))
        axes.set(title=name, xlabel="return in the real system")
        axes.locator_params(axis="x", nbins=5)
    np.atleast_1d(panels)[0].invert_yaxis()
    figure.savefig(out, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--tasks", nargs="*", choices=TASKS, default=list(TASKS))
    parser.add_argument("--arms", nargs="*", choices=ARMS, default=list(ARMS), help="the others stay as they are")
    args = parser.parse_args()
    where, path = environment_of_run(), HERE / "results.json"
    keep = {key: where[key] for key in ("started", "device", "processors", "versions")}
    everything = set(args.tasks) == set(TASKS) and set(args.arms) == set(ARMS)
    tasks = {} if everything else json.loads(path.read_text())["tasks"]
    for name in args.tasks:
        task = TASKS[name]()
        dataset = real_data(task)
        memory = datasets.stored(dataset, task.env.action_space(task.real))
        totals = datasets.Episodes(dataset).total
        row = tasks.setdefault(name, {"arms": {}})
        mean, best = (round(float(x), 1) for x in (totals.mean(), totals.max()))
        row["data"] = {"episodes": len(totals), "mean": mean, "best": best}
        print(name, row["data"], flush=True)
        choices = arms(task, memory)
        for arm in args.arms:
            row["arms"][arm] = measure(task, *choices[arm](), args.seeds)
            print(arm, row["arms"][arm], flush=True)
            path.write_text(json.dumps(keep | {"tasks": tasks}, indent=1) + "\n")
        row["arms"] = {arm: row["arms"][arm] for arm in ARMS if arm in row["arms"]}
    path.write_text(json.dumps(keep | {"tasks": tasks}, indent=1) + "\n")
    print(table(tasks))
    picture(tasks, HERE / "results.png")


if __name__ == "__main__":
    main()
