"""What does the wrong model of preferences cost? Two reward learners on 100 random grids.

    python experiments/preferences/run.py [--grids 100] [--only SETTING] [--table]

Goes on where it stopped: each setting (labels, noise, crossing, pairs, learner) is a row of results.json beside this
file. `--table` prints the table of README.md from what is there.
"""

import argparse
import json
import re
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import tasks
from preference_learners import NOISES, judged, learned
from scipy.stats import wilcoxon

from jaxrl.host.run.run_folder import environment_of_run

HERE, NEAR = Path(__file__).parent, 0.9
SETTINGS = [("regret", noise, crossing, n) for noise in NOISES for crossing in (False, True) for n in (300, 3000)]
SETTINGS += [("return", "error-free", crossing, 3000) for crossing in (False, True)]
LEARNERS = ("regret", "return")


def table(results):
    """A line a setting: shares near-optimal, mean scaled returns cut at -1, and Wilcoxon's test of the pairs."""
    for setting in SETTINGS:
        name = "/".join(map(str, setting))
        rows = [results["rows"].get(f"{name}/{learner}") for learner in LEARNERS]
        if None in rows:
            continue
        scaled = [np.array(row["scaled"]) for row in rows]
        cut = [np.maximum(x, -1) for x in scaled]
        test = wilcoxon(*cut, alternative="greater").pvalue if np.any(cut[0] != cut[1]) else 1.0
        shares = " | ".join(f"{(x > NEAR).mean():.2f}" for x in scaled)
        print(
            f"| {' | '.join(map(str, setting))} | {shares} | {cut[0].mean():.2f} | {cut[1].mean():.2f} | {test:.1g} |"
        )


def grids_and_keys(count):
    """The first of 100 grids, which are the same however many there are."""
    grids = jax.tree.map(lambda *x: jnp.stack(x), *map(tasks.grid, range(count)))
    return grids, jax.random.split(jax.random.key(0), 100)[:count]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--grids", type=int, default=100)
    parser.add_argument("--only", default="")
    parser.add_argument("--table", action="store_true")
    args = parser.parse_args()
    jax.config.update("jax_enable_x64", True)  # with a discount of 0.999 float32 does not tell all actions apart
    file = HERE / "results.json"
    results = json.loads(file.read_text()) if file.exists() else {"grids": args.grids, "rows": {}}
    todo = [(s, x) for s in SETTINGS for x in LEARNERS if "/".join(map(str, (*s, x))) not in results["rows"]]
    todo = [] if args.table else [x for x in todo if re.search(args.only, "/".join(map(str, (*x[0], x[1]))))]
    if todo:
        grids, keys = grids_and_keys(args.grids)
        successor = jax.jit(lambda *x: jax.lax.map(lambda given: tasks.policies(*given), x))(keys, grids)
    for setting, learner in todo:
        began, name = time.process_time(), "/".join(map(str, (*setting, learner)))
        weights, loss, ended, early = jax.block_until_ready(learned(keys, grids, successor, *setting, learner))
        row = {"scaled": judged(grids, weights), "weights": weights, "loss": loss, "ended": ended, "early": early}
        row = {key: np.asarray(value, np.float64).round(4).tolist() for key, value in row.items()}
        results["rows"][name] = {**row, "cpu_seconds": round(time.process_time() - began, 1)}
        file.write_text(json.dumps({**results, **environment_of_run()}))
        print(name, f"{(np.array(row['scaled']) > NEAR).mean():.2f}", results["rows"][name]["cpu_seconds"], flush=True)
    table(results)


if __name__ == "__main__":
    main()
