"""Stitching without Bellman backups: MBRCSL beside learners by return and by values, and which widths LinearQ needs.

    python experiments/bellman_completeness/run.py [--seeds 10] [--only CQL]

Writes results.json and results.png beside this file and prints the tables of README.md.
"""

import argparse
import itertools
import json
import time
from pathlib import Path

import jax
import learners
import linear_q
import maze
import numpy as np
import picture

from jaxrl.data.datasets import Episodes
from jaxrl.evaluation import evaluate
from jaxrl.host.run.run_folder import environment_of_run
from jaxrl.host.statistics import told

HERE = Path(__file__).parent
TRAJECTORIES, EPISODES = 400, 100
LINEAR_Q = ("Q-learning", "Q-learning without an end", "RCSL")
SIZES, WIDTHS = (3, 7, 15, 31), (4, 16, 64)  # u of 12 to 96 states; widths of the hidden layer


def measure(arm, best: float, seeds: int) -> dict:
    """Train and try every seed of one arm in one program: `{suffix: columns}`."""

    def run(key):
        train_key, eval_key = jax.random.split(key)
        found = {}
        for suffix, (algo, policy, known) in arm(train_key).items():
            env = algo.venv.env
            returns = evaluate(
                algo, policy, eval_key, env, env.default_params, num_episodes=EPISODES, greedy=True
            ).returns
            shares = {"success": (returns > best).mean(), "reached": (returns > 0).mean()}
            found[suffix] = shares | {"return": returns.mean()} | known
        return found

    keys = jax.random.split(jax.random.key(0), seeds)
    begin = time.perf_counter()
    found = jax.tree.map(lambda x: np.asarray(x, float).round(4).tolist(), jax.jit(jax.vmap(run))(keys))
    seconds = round(time.perf_counter() - begin, 1)
    return {suffix: {**columns, "seconds": seconds} for suffix, columns in found.items()}


def line(name: str, row: dict, columns: tuple[str, ...], digits: str = ".2f") -> str:
    cells = [name]
    for column in columns:
        cells.append(told(row[column], digits))
    return "| " + " | ".join([*cells, f"{row['seconds']:.0f}"]) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--only", help="measured again: arms whose names begin so, LinearQ, or a learner there")
    args = parser.parse_args()
    out, where = HERE / "results.json", environment_of_run()
    results = {"where": {k: where[k] for k in ("started", "device", "processors", "versions")}}
    results |= {"maze": {}, "LinearQ": {}, "units": {}}
    if args.only:
        results = json.loads(out.read_text())
    dataset = maze.record(maze.KINDS, TRAJECTORIES)
    short = Episodes(maze.record([maze.STITCHED], TRAJECTORIES, seed=1)).total
    best = float(Episodes(dataset).total.max())
    results["best_in_data"], results["short_way"] = best, round(float(short.mean()), 2)
    print("| learner | success | return | goal reached | s |\n" + "|---" * 5 + "|")
    for name, arm in learners.arms(maze.Maze(), dataset, best, short.mean()).items():
        if args.only and not name.startswith(args.only):
            continue
        for suffix, row in measure(arm, best, args.seeds).items():
            results["maze"][name + suffix] = row
            print(line(name + suffix, row, ("success", "return", "reached")), flush=True)
        out.write_text(json.dumps(results, indent=1) + "\n")
    print("\n| LinearQ | share of the optimal return | s |\n" + "|---" * 3 + "|")
    for u in SIZES:
        for learner, width in itertools.product(LINEAR_Q, WIDTHS):
            if args.only in (None, "LinearQ", learner):
                begin = time.perf_counter()
                row = linear_q.measure(u, width, learner, args.seeds)
                row["seconds"] = round(time.perf_counter() - begin, 1)
                name = f"{learner}, {3 * u + 3} states, width {width}"
                results["LinearQ"][name] = row
                print(line(name, row, ("return",), ".3f"), flush=True)
        tables = dict(zip(("optimal values", "rewards"), linear_q.tables(u)[:2], strict=True))
        results["units"][f"{3 * u + 3}"] = {name: linear_q.units_needed(x) for name, x in tables.items()}
        out.write_text(json.dumps(results, indent=1) + "\n")
    picture.draw(results, dataset, HERE / "results.png")


if __name__ == "__main__":
    main()
