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
import td

import jaxrl
from jaxrl.algos.offline import decision_transformer, iql, rvs
from jaxrl.evaluation import evaluate
from jaxrl.host.plotting import bars
from jaxrl.host.run_folder import environment_of_run
from jaxrl.host.statistics import bootstrap_interval, iqm
from jaxrl.replay.datasets import Hindsight, stored, windows

HERE = Path(__file__).parent
EPISODES, RECORDED, CLUSTERS, GAMMA, CONTEXT = 200, 2000, 40, 0.95, 5
STEPS = {"rvs": 4000, "dt": 2000, "td": 4000}
LEARNERS = ["chance/-", *(f"{a}/{g}" for a in ("rvs", "dt") for g in ("plain", "cells", "k-means")), "td/random goals"]


def clusters_of(goals: str, places: np.ndarray) -> np.ndarray | None:
    """Of the places after each step; of random goals all are one, so that any of the dataset's is a goal."""
    after = places[1]
    one = np.zeros(len(after), np.int32)
    return {"plain": None, "cells": mazes.cells_of(after), "random goals": one}.get(
        goals, mazes.k_means(after, CLUSTERS)
    )


def measure(run: str, seeds: int) -> dict:
    """The success of every seed on held-out and on seen pairs, all seeds in one program."""
    maze, name, goals = run.split("/")
    env = mazes.Maze(point=maze == "point")
    dataset, places = mazes.record(env.point, RECORDED)
    trajectories = mazes.check(dataset, places)
    space = env.action_space(env.default_params)
    cell = 2 / (mazes.SIDE - 1)

    def reached(achieved, goal):
        return jnp.sum((achieved - goal) ** 2, -1) < ((mazes.RADIUS * cell) ** 2 if env.point else 0.5)

    hindsight = Hindsight(lambda obs: obs["obs"], GAMMA, clusters_of(goals, places), 0.5, reached)
    tasks = [env.default_params.replace(pairs=jnp.asarray(mazes.pairs(across), jnp.int32)) for across in (True, False)]

    def success(algo, policy, key):
        """By the most likely action."""
        found = [evaluate(algo, policy, env, p, key, EPISODES, greedy=True) for p in tasks]
        return [x.returns.mean() for x in found]

    sizes = dict(outcome="goal", num_updates=100, batch_size=128, max_steps=100)
    rvs_config = rvs.Config(**sizes, hidden=(64, 64))
    if name in ("rvs", "chance"):
        algo, hyper = rvs.make(env, rvs_config, windows(dataset, space, 1, None, hindsight)), rvs.Hyper()
    elif name == "dt":
        sizes |= dict(batch_size=32, context=CONTEXT, width=32, layers=2)
        memory = windows(dataset, space, CONTEXT, None, hindsight)
        algo = decision_transformer.make(env, decision_transformer.Config(**sizes), memory)
        hyper = decision_transformer.Hyper(learning_rate=1e-3)
    elif env.point:
        memory = stored(dataset, space, None, GAMMA, hindsight)
        algo = iql.make(env, iql.Config(num_updates=100, batch_size=128, hidden=(64, 64)), memory)
        hyper = iql.Hyper(learning_rate=1e-3, gamma=GAMMA, tau=0.01, expectile=0.9, beta=10.0)
    else:
        memory = stored(dataset, space, None, GAMMA, hindsight)
        algo, hyper = rvs.make(env, rvs_config), None

    def train_and_try(key):
        train_key, eval_key = jax.random.split(key)
        if name == "chance":  # uniform actions
            random = algo._replace(act=lambda policy, key, obs, carry, greedy: (draw(key, len(obs["obs"])), carry))
            return success(random, None, eval_key)
        if hyper is None:
            act = td.greedy(env, memory, (64, 64), train_key, STEPS["td"])
            return success(algo._replace(act=lambda policy, key, obs, carry, greedy: (act(obs), carry)), None, eval_key)
        state, _ = jaxrl.train(algo, train_key, STEPS[name], hyper)
        return success(algo, algo.policy(state), eval_key)

    def draw(key, n):
        return jax.random.uniform(key, (n, 2), minval=-1) if env.point else jax.random.randint(key, (n,), 0, 4)

    keys = jax.random.split(jax.random.key(0), seeds)
    begin = time.perf_counter()
    held_out, seen = (np.asarray(x, float).round(4).tolist() for x in jax.jit(jax.vmap(train_and_try))(keys))
    seconds = round(time.perf_counter() - begin, 1)
    return dict(held_out=held_out, seen=seen, seconds=seconds, trajectories=trajectories, transitions=dataset.size)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--maze", choices=("grid", "point"), default="grid")
    parser.add_argument("--only", help="one of the rows, as rvs/cells, printed and not written")
    args = parser.parse_args()
    where = environment_of_run()
    results = {"where": {k: where[k] for k in ("started", "device", "processors", "versions")}, "runs": {}}
    print("| maze | learner | goals | held-out pairs, IQM | 95 % | seen pairs, IQM | 95 % | s |\n" + "|---" * 8 + "|")
    for learner in [args.only] if args.only else LEARNERS:
        run = f"{args.maze}/{learner}"
        row = results["runs"][run] = measure(run, args.seeds)
        low_high = [(iqm(row[k]), *bootstrap_interval(row[k])) for k in ("held_out", "seen")]
        cells = [f"{middle:.2f} | {low:.2f} to {high:.2f}" for middle, low, high in low_high]
        print("| " + " | ".join([*run.split("/"), *cells, str(row["seconds"])]) + " |", flush=True)
        if not args.only:
            (HERE / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    if not args.only:
        scores = {f"{run}, {k}": row[k] for run, row in results["runs"].items() for k in ("held_out", "seen")}
        bars({k.replace("_", " "): v for k, v in scores.items()}, HERE / "results.png", "share of goals reached")


if __name__ == "__main__":
    main()
