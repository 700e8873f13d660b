"""How far does one step go? MAML, FOMAML and ES-MAML, against a policy trained on all tasks at once.

    python experiments/maml/run.py [--family robot] [--seeds 3] [--updates 150]

The 2-D navigation of Finn et al. (2017), section 5.3: a point starts at the origin, moves by its action, at most 0.1
along each axis, and pays its squared distance to a goal that it does not see, uniform in [-0.5, 0.5]^2; an episode has
100 steps and ends within 0.01 of the goal. All have 64 x 64 tanh units, 20 tasks of 20 episodes an outer step, one
inner step of 0.1 in training; at test three inner steps of 20 episodes on each of 40 goals that are not trained on.
`--family pendulum` is pendulums whose motors turn one way or the other. Writes results.json and results.png (of
pendulums pendulum.json and pendulum.png) beside this file and prints the table of README.md.
"""

import argparse
import json
import time
from pathlib import Path
from typing import NamedTuple

import jax
import matplotlib
import numpy as np
from families import GearedPendulum, Navigation

import jaxrl
from jaxrl import Environment
from jaxrl.algos.meta import es_maml, maml
from jaxrl.envs.classic.pendulum import Pendulum
from jaxrl.host.run.run_folder import environment_of_run
from jaxrl.host.statistics import bootstrap_interval

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

HERE = Path(__file__).parent
INNER = 0.1  # the size of an inner step
STEPS = 3
"""Inner steps at test."""


class Family(NamedTuple):
    """What is adapted to, the settings of all methods and those of MAML, and where results go."""

    env: Environment
    title: str
    new: str  # what a new task is
    config: dict
    hyper: dict
    file: str


FAMILIES = {
    "robot": Family(Navigation(), "2-D navigation", "goal", {}, {}, "results"),
    "pendulum": Family(
        GearedPendulum(Pendulum()),
        "geared pendulums",
        "pendulum",
        {"num_tasks": 16, "num_envs": 10, "hidden": (32, 32)},
        {"learning_rate": 3e-3, "gamma": 0.95},
        "pendulum",
    ),
}


def methods(family: Family):
    """Name, algorithm, settings, outer steps for each of those asked for."""
    env, config = family.env, family.config
    usual = maml.Hyper(**{"learning_rate": 1e-3, "inner_learning_rate": INNER, **family.hyper})
    yield "MAML", maml.make(env, maml.Config(**config)), usual, 1.0
    yield "FOMAML", maml.make(env, maml.Config(**config, first_order=True)), usual, 1.0
    es = es_maml.Hyper(**{**family.hyper, "learning_rate": 1e-2, "inner_learning_rate": INNER})
    yield "ES-MAML", es_maml.make(env, es_maml.Config(**config)), es, 1.0
    # No inner step while training: the policy that is best without knowing the task. What would be the episodes before
    # the step teach nothing, so that there are twice as many after it.
    twice = maml.Config(**{**config, "num_envs": 2 * maml.Config(**config).num_envs}, first_order=True)
    yield "joint training", maml.make(env, twice), usual.replace(inner_learning_rate=0.0), 1.0
    yield "untrained", maml.make(env, maml.Config(**config)), usual, 0.0


def row(values: np.ndarray) -> list[float]:
    """Mean and 95 % interval of tasks."""
    return [float(values.mean()), *map(float, bootstrap_interval(values, np.mean))]


def draw(family: Family, found: dict) -> None:
    """Those that were trained; the untrained policy is far below."""
    figure, ax = plt.subplots(figsize=(5, 3.5))
    for name, row in found.items():
        if name != "untrained":
            low, high = np.array(row["intervals"]).T
            ax.plot(row["mean"], marker="o", label=name)
            ax.fill_between(range(STEPS + 1), low, high, alpha=0.1)
    ax.set(xlabel=f"inner steps on a new {family.new}", ylabel="return", xticks=range(STEPS + 1))
    ax.set_title(family.title)
    ax.legend(frameon=False)
    figure.tight_layout()
    figure.savefig(HERE / f"{family.file}.png", dpi=110)


def over_seeds(found, name):
    """Print what MAML has more after the first step, paired by seed."""
    ours, theirs = (np.mean(found[which]["returns"], 1)[:, 1] for which in ("MAML", name))
    low, high = bootstrap_interval(ours - theirs, np.mean)
    print(
        f"over seeds {np.mean(ours - theirs):+.0f} ({low:+.0f} to {high:+.0f}), median {np.median(ours - theirs):+.0f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--family", choices=FAMILIES, default="robot")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--updates", type=int, default=150)
    args = parser.parse_args()
    family = FAMILIES[args.family]
    env = family.env
    keys = jax.random.split(jax.random.key(10_000), 40)
    tasks = jax.vmap(env.generate, (0, None))(keys, env.default_params)
    judge = maml.make(env, maml.Config(**family.config))  # adapts all of them by as many episodes
    at_test = jaxrl.environment.strongly_typed(maml.Hyper(**{**family.hyper, "inner_learning_rate": INNER}))

    @jax.jit
    def adapted(weights, key):
        def one(key, task):
            return maml.adapt(judge, weights, key, task, at_test, STEPS)[1]

        return jax.vmap(one)(jax.random.split(jax.random.fold_in(key, 1), 40), tasks)

    found = {}
    for name, algo, hyper, share in methods(family):
        updates = int(share * args.updates)

        @jax.jit
        def trained(key, algo=algo, hyper=hyper, updates=updates):
            if not updates:
                return algo.init(key, hyper).weights
            return jaxrl.train(algo, key, updates * algo.steps_per_update, hyper)[0].weights

        begin = time.perf_counter()
        keys = [jax.random.key(seed) for seed in range(args.seeds)]
        returns = np.stack([np.asarray(adapted(trained(key), key)) for key in keys])
        seconds = (time.perf_counter() - begin) / args.seeds
        of_tasks = returns.mean(0)
        intervals = [bootstrap_interval(of_tasks[:, i], np.mean) for i in range(STEPS + 1)]
        first = np.mean(found["MAML"]["returns"], 0)[:, 1] if found else of_tasks[:, 1]
        found[name] = {
            "mean": of_tasks.mean(0).tolist(),
            "intervals": [list(map(float, x)) for x in intervals],
            "first step": row(of_tasks[:, 1] - of_tasks[:, 0]),
            "MAML more": row(first - of_tasks[:, 1]),
            "returns": returns.round(3).tolist(),  # (seeds, tasks, inner steps)
            "seconds": seconds,
        }
        cells = " | ".join(
            f"{m:.1f} ({a:.1f} to {b:.1f})" for m, (a, b) in zip(of_tasks.mean(0), intervals, strict=True)
        )
        print(f"| {name} | {cells} | {seconds:.0f} |", flush=True)
        print("the first step brings {:+.2f} ({:+.2f} to {:+.2f})".format(*found[name]["first step"]))
        print("after it MAML has {:+.2f} more ({:+.2f} to {:+.2f})".format(*found[name]["MAML more"]), flush=True)
        over_seeds(found, name)
        where = {"updates": args.updates, "date": time.strftime("%Y-%m-%d"), "where": environment_of_run()}
        (HERE / f"{family.file}.json").write_text(json.dumps({**where, "results": found}, indent=1) + "\n")
    draw(family, found)


if __name__ == "__main__":
    main()
