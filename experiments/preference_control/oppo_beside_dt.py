"""Is OPPO's context worth a decision transformer on learned rewards? Both on the Pendulum data of this study.

    python experiments/preference_control/oppo_beside_dt.py [--only ROW] [--seeds 3] [--table]

Goes on where it stopped: each row (labels, pairs, learner) is in oppo.json beside this file, a return a seed.
"""

import argparse
import json
import re
import time
from pathlib import Path

import compared_learners as study
import jax
import numpy as np
from context_learners import TASK, of_seed

from jaxrl.host.run.run_folder import environment_of_run
from jaxrl.host.statistics import bootstrap_interval

HERE = Path(__file__).parent
LEARNERS = "oppo", "oppo, triplets weighed 1", "dt on learned rewards"
ROWS = [f"return/{pairs}/{name}" for pairs in (500, 1000) for name in LEARNERS]
ROWS += ["none/0/dt on true rewards"]


def measure(labels, pairs, name, row, seeds):
    """The row with the seeds that it has not yet."""
    env, params = study.judged_on(TASK)
    began = time.process_time()
    found = None if labels == "none" else study.compared(TASK, labels, int(pairs))
    keys = jax.random.split(jax.random.key(1), seeds)[len(row["returns"]) :]
    returns = [round(of_seed(key, name, found, env, params), 2) for key in keys]
    spent = row["cpu_seconds"] + time.process_time() - began
    return {"returns": row["returns"] + returns, "cpu_seconds": round(spent, 1)}


def table(rows):
    for name in ROWS:
        if name in rows:
            returns = rows[name]["returns"]
            told = f"{np.mean(returns):.0f} ({min(returns):.0f} to {max(returns):.0f})"
            print(f"| {name.replace('/', ' | ')} | {told} | {len(returns)} | {rows[name]['cpu_seconds']:.0f} |")
    for pairs in (500, 1000):
        both = [rows.get(f"return/{pairs}/{name}", {"returns": []})["returns"] for name in LEARNERS[::2]]
        more = np.array([one - other for one, other in zip(*both, strict=False)])  # seed by seed
        if len(more):
            low, high = bootstrap_interval(more, np.mean)
            seeds = f"on {(more > 0).sum()} seeds of {len(more)}"
            print(f"{pairs} pairs: oppo is {more.mean():.0f} ({low:.0f} to {high:.0f}) above, {seeds}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--table", action="store_true")
    args = parser.parse_args()
    file = HERE / "oppo.json"
    results = json.loads(file.read_text()) if file.exists() else {"rows": {}}
    for name in () if args.table else [x for x in ROWS if re.search(args.only, x)]:
        row = results["rows"].get(name, {"returns": [], "cpu_seconds": 0.0})
        if len(row["returns"]) >= args.seeds:
            continue
        results["rows"][name] = measure(*name.split("/"), row, args.seeds)
        file.write_text(json.dumps({**results, **environment_of_run()}, indent=1) + "\n")
        print(name, results["rows"][name], flush=True)
    table(results["rows"])


if __name__ == "__main__":
    main()
