"""Can supervised learners stitch? RvS and decision transformers with and without temporal goal augmentation.

    python experiments/stitching/run.py [--seeds 10] [--maze grid|point] [--only rvs/cells]

Writes results.json and results.png beside this file and prints the table of README.md.
"""

import argparse
import json
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import mazes
import numpy as np
import point
import td

import jaxrl
from jaxrl.algos import decision_transformer, iql, rvs
from jaxrl.data.datasets import stored, windows
from jaxrl.data.hindsight import Hindsight
from jaxrl.evaluation import evaluate
from jaxrl.host.plotting import bars
from jaxrl.host.run.run_folder import environment_of_run
from jaxrl.host.statistics import told

HERE = Path(__file__).parent
EPISODES, RECORDED, CLUSTERS, GAMMA, POINT_GAMMA, CONTEXT = 200, 2000, 40, 0.95, 0.99, 5
RECORDED_STEPS = 100_000  # of the point maze
STEPS = {"rvs": 4000, "dt": 2000}  # of gradients; in the point maze POINT_STEPS
POINT_STEPS = 20_000
LEARNERS = {
    "grid": ["chance/-", *(f"{a}/{g}" for a in ("rvs", "dt") for g in ("plain", "cells", "k-means")), "td/-"],
    "point": ["chance/-", *(f"rvs/{g}" for g in ("plain", "cells", "k-means")), "td/-"],
}


def measure(run: str, seeds: int) -> dict:
    """The success of every seed on held-out and on seen pairs, all seeds in one program."""
    maze, name, goals = run.split("/")
    on_grid = maze == "grid"
    if on_grid:
        env = mazes.Maze()
        dataset, places = mazes.record(RECORDED)
        pairs = [jnp.asarray(mazes.pairs(across), jnp.int32) for across in (True, False)]
        tasks = [env.default_params.replace(pairs=x) for x in pairs]
    else:
        env = jaxrl.make(point.ID)[0]
        (dataset, places), tasks = point.record(RECORDED_STEPS), point.tasks(env)
    module, width = (mazes, 64) if on_grid else (point, 128)
    trajectories = module.check(dataset, places)
    space = env.action_space(env.default_params)
    entry, reached = ("obs", mazes.reached) if on_grid else ("position", point.reached)
    clusters = {"cells": lambda: module.cells_of(places[1]), "k-means": lambda: mazes.k_means(places[1], CLUSTERS)}
    hindsight = Hindsight(
        lambda obs: obs[entry], GAMMA if on_grid else POINT_GAMMA, clusters.get(goals, lambda: None)(), 0.5, reached
    )

    def success(algo, policy, key):
        """By the most likely action."""
        found = [evaluate(algo, policy, key, env, p, num_episodes=EPISODES, greedy=True) for p in tasks]
        return [x.returns.mean() for x in found]

    sizes = dict(outcome="goal", num_updates=100, batch_size=128)
    rvs_config = rvs.Config(**sizes, hidden=(width, width))
    if name in ("rvs", "chance"):
        algo, hyper = rvs.make(env, rvs_config, replay=windows(dataset, space, 1, None, hindsight)), rvs.Hyper()
    elif name == "dt":
        sizes |= dict(batch_size=32, context=CONTEXT, width=32, layers=2)
        memory = windows(dataset, space, CONTEXT, None, hindsight)
        algo = decision_transformer.make(env, decision_transformer.Config(**sizes), replay=memory)
        hyper = decision_transformer.Hyper(learning_rate=1e-3)
    elif not on_grid:
        # TD learning needs goals that it cannot reach, too: any of the dataset's.
        anywhere = hindsight._replace(clusters=np.zeros(dataset.size, np.int32))
        memory = stored(dataset, space, None, POINT_GAMMA, anywhere)
        algo = iql.make(env, iql.Config(num_updates=100, batch_size=128, hidden=(width, width)), replay=memory)
        hyper = iql.Hyper(learning_rate=1e-3, gamma=POINT_GAMMA, tau=0.01, expectile=0.9, beta=10.0)
    else:
        algo, hyper, by_table = rvs.make(env, rvs_config), None, td.greedy(dataset)

    def train_and_try(key):
        train_key, eval_key = jax.random.split(key)
        if name == "chance":  # uniform actions
            random = algo._replace(act=lambda policy, key, obs, carry, greedy: (draw(key, len(obs["goal"])), carry))
            return success(random, None, eval_key)
        if hyper is None:
            table = algo._replace(act=lambda policy, key, obs, carry, greedy: (by_table(obs), carry))
            return success(table, None, eval_key)
        state, _ = jaxrl.train(algo, train_key, STEPS[name] if on_grid else POINT_STEPS, hyper)
        return success(algo, algo.policy(state), eval_key)

    def draw(key, n):
        return jax.random.randint(key, (n,), 0, 4) if on_grid else jax.random.uniform(key, (n, 2), minval=-1)

    keys = jax.random.split(jax.random.key(0), seeds)
    begin = time.perf_counter()
    held_out, seen = (np.asarray(x, float).round(4).tolist() for x in jax.jit(jax.vmap(train_and_try))(keys))
    seconds = round(time.perf_counter() - begin, 1)
    return dict(held_out=held_out, seen=seen, seconds=seconds, trajectories=trajectories, transitions=dataset.size)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--maze", choices=("grid", "point"), default="grid")
    parser.add_argument("--only", help="one row, as rvs/cells, measured again")
    args = parser.parse_args()
    out = HERE / ("results.json" if args.maze == "grid" else f"results_{args.maze}.json")
    where = environment_of_run()
    results = {"where": {k: where[k] for k in ("started", "device", "processors", "versions")}, "runs": {}}
    if args.only:
        results = json.loads(out.read_text())
    print("| learner | goals | held-out pairs, IQM | 95 % | seen pairs, IQM | 95 % | s |\n" + "|---" * 7 + "|")
    for learner in [args.only] if args.only else LEARNERS[args.maze]:
        row = results["runs"][learner] = measure(f"{args.maze}/{learner}", args.seeds)
        out.write_text(json.dumps(results, indent=1) + "\n")
        cells = [told(row[k], cells=True) for k in ("held_out", "seen")]
        print("| " + " | ".join([*learner.split("/"), *cells, str(row["seconds"])]) + " |", flush=True)
    scores = {f"{name}, {k}": row[k] for name, row in results["runs"].items() for k in ("held_out", "seen")}
    scores = {name.replace("_", " ").replace("/-", "").replace("/", " "): x for name, x in scores.items()}
    bars(scores, out.with_suffix(".png"), "share of goals reached")


if __name__ == "__main__":
    main()
