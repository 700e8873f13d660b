"""Is a policy that avoids what makes the expert act better than the expert? RLIF, HG-DAgger and DAgger; RLIF's faults.

    python experiments/interventions/run.py [--seeds 5] [--only WORDS] [--table]

Goes on where it stopped: each task and method is a row of results.json beside this file.
"""

import argparse
import json
import re
import time
from pathlib import Path

import drivers
import jax
import numpy as np

from jaxrl.host.run.run_folder import environment_of_run
from jaxrl.host.statistics import bootstrap_interval

HERE = Path(__file__).parent
ROWS = [f"{task}/{method}" for method in drivers.METHODS for task in drivers.TASKS]
ROWS = [name for name in ROWS if not (name.startswith("Pendulum") and name.endswith(drivers.ENDS))]  # which never ends


def table(results):
    for task, of_expert in results["expert"].items():
        rows = {name: results["rows"].get(f"{task}/{name}") for name in drivers.METHODS}
        if rows["HG-DAgger"] is None:
            continue
        print(f"\n{task}: the expert alone {of_expert:.4g}")
        most = np.asarray(rows["HG-DAgger"]["takeovers"])[:, -1]
        for name, row in rows.items():
            if row is not None:
                returns, takeovers = np.asarray(row["returns"]), np.asarray(row["takeovers"])
                ends, late, often = returns[:, -1], returns[:, -5:].mean(1), takeovers[:, -1].mean()
                less, theirs = np.minimum(most, takeovers[:, -1]), np.asarray(rows["HG-DAgger"]["returns"])
                equal = drivers.at_equal(returns, takeovers, less).mean()
                theirs = drivers.at_equal(theirs, np.asarray(rows["HG-DAgger"]["takeovers"]), less).mean()
                cells = [f"{x.mean():.4g} ({low:.4g} to {high:.4g})" for x in (ends, late)
                         for low, high in [bootstrap_interval(x, np.mean)]]  # fmt: skip
                cells += [f"{(ends > of_expert).sum()} of {len(ends)}", f"{often:.0f}"]
                cells += [f"{equal:.4g}", f"{theirs:.4g}"] if often else ["-", "-"]  # nobody takes over from DAgger
                print(f"| {name} | {' | '.join(cells)} |")
        both = [rows[name] for name in drivers.METHODS[:2] if rows[name] is not None]
        curves = [[np.asarray(row[part]) for part in ("returns", "takeovers")] for row in both]
        for most in (10, 20, 50, 80, 100, 200, 300, 400, 500, 550):
            print(most, "takeovers:", [round(drivers.at_equal(*x, [most] * len(x[0])).mean()) for x in curves])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", default="")
    parser.add_argument("--table", action="store_true")
    args = parser.parse_args()
    file = HERE / "results.json"
    results = json.loads(file.read_text()) if file.exists() else {"expert": {}, "rows": {}}
    for task in [] if args.table else [task for task in drivers.TASKS if task not in results["expert"]]:
        results["expert"][task] = round(float(drivers.of_expert(task, jax.random.key(0)).mean()), 2)
        print(task, results["expert"][task], flush=True)
    for name in [] if args.table else [x for x in ROWS if x not in results["rows"] and re.search(args.only, x)]:
        began = time.process_time()
        returns, takeovers = drivers.trained(*name.split("/"), args.seeds)
        row = {"returns": np.round(returns.astype(float), 2).tolist(), "takeovers": takeovers.tolist()}
        results["rows"][name] = {**row, "cpu_seconds": round(time.process_time() - began, 1)}
        file.write_text(json.dumps({**results, **environment_of_run()}, indent=1))
        print(name, row, flush=True)
    table(results)


if __name__ == "__main__":
    main()
