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
import numpy as np
import oracle
from compared_learners import EPISODES, LEARNERS, SHARES, judged_on, learned

from jaxrl.host.data.recording import returns_of
from jaxrl.host.run.run_folder import environment_of_run

HERE = Path(__file__).parent
SETTINGS = [(task, labels, name) for name in LEARNERS for task in oracle.TASKS for labels in ("regret", "return")]
SETTINGS = [x for x in SETTINGS if x[1:] != ("return", "cloning")]  # which looks at no label


def table(results):
    for task in oracle.TASKS:
        for name in LEARNERS:
            labels = ("regret",) if name == "cloning" else ("regret", "return")
            rows = [results["rows"].get(f"{task}/{x}/{name}") for x in labels]
            if None not in rows:
                cells = [
                    f"{np.mean(row['returns']):.4g} ({min(row['returns']):.4g} to {max(row['returns']):.4g})"
                    for row in rows
                ]
                if task != "Pendulum":  # steps of the seeds that arrive
                    arrived = [np.compress(np.array(row["returns"]) > 0, row.get("lengths", [])) for row in rows]
                    cells = [
                        x + (f", {y.mean():.0f} steps" if y.size else "") for x, y in zip(cells, arrived, strict=True)
                    ]
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
            for who, share in (("random", 0.0), ("behaviour", SHARES[task]), ("oracle", 1.0))
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
