"""Does the cross term of PARL's bi-level gradient save queries? Rewards of small tables, learned with and without it.

    python experiments/bilevel_preferences/run.py [--only SETTING] [--table]

Goes on where it stopped: each setting is a row of results.json beside this file. `--table`: the tables of README.md.
"""

import argparse
import json
import re
from pathlib import Path

import bilevel_learners as learners
import jax
import numpy as np
from bilevel_tasks import TASKS

from jaxrl.host.run.run_folder import environment_of_run
from jaxrl.host.statistics import bootstrap_interval

HERE = Path(__file__).parent
SEEDS, TUNED_ON = range(10), range(100, 105)  # tables that are judged, and others on which the rate is chosen
RATES = 0.01, 0.03, 0.1, 0.3, 1.0
CLOSE, IN_A_ROW = 0.95, 10  # of the best value, in as many rounds one after the other
LABELS = {"logistic": True, "error-free": False}
PAIRS = {"new": False, "kept": True}  # of which pairs the gradient is
SETTINGS = [(task, labels, pairs) for task in TASKS for labels in LABELS for pairs in PAIRS]
NEVER = learners.QUERIES * learners.ROUNDS


def needed(worth):
    """Queries until the first of IN_A_ROW rounds that are all CLOSE; NEVER where there are none."""
    close = np.convolve(np.asarray(worth) >= CLOSE, np.ones(IN_A_ROW, int), "valid") == IN_A_ROW
    return learners.QUERIES * (int(np.argmax(close)) + 1) if close.any() else NEVER


def queries(task, labels, pairs, cross, rate, seeds):
    """Of each table: queries needed, and the mean worth of the last IN_A_ROW rounds."""
    static = cross, PAIRS[pairs], LABELS[labels]
    curves = [learners.learned(jax.random.key(seed), TASKS[task](seed), rate, *static) for seed in seeds]
    return [needed(x) for x in curves], [round(float(np.mean(x[-IN_A_ROW:])), 4) for x in curves]


def measure(task, labels, pairs, cross):
    """The setting at the rate that needs the fewest queries on other tables, in the geometric mean."""
    tried = {rate: queries(task, labels, pairs, cross, rate, TUNED_ON)[0] for rate in RATES}
    rate = min(RATES, key=lambda rate: np.mean(np.log(tried[rate])))
    asked, last = queries(task, labels, pairs, cross, rate, SEEDS)
    return {"rate": rate, "queries": asked, "last": last}


def exact(task, labels, cross):
    found = [learners.of_all_pairs(TASKS[task](seed), cross, LABELS[labels]) for seed in SEEDS]
    return {"worth": [round(float(x), 4) for x, _ in found], "loss": [round(float(x), 4) for _, x in found]}


def told(values, statistic, form):
    low, high = bootstrap_interval(values, statistic)
    return f"{statistic(np.asarray(values)):{form}} ({low:{form}} to {high:{form}})"


def table(rows):
    for setting in SETTINGS:
        two = [rows.get("/".join((*setting, which))) for which in ("without", "with")]
        if None not in two:
            got = [sum(q < NEVER for q in x["queries"]) for x in two]
            asked = [told(x["queries"], np.median, ".0f") for x in two]
            cells = [f"{x}, {n}; {np.mean(y['last']):.2f}" for x, n, y in zip(asked, got, two, strict=True)]
            ratio = np.log(two[1]["queries"]) - np.log(two[0]["queries"])
            print(f"| {' | '.join((*setting, *cells, told(ratio, lambda x: np.exp(np.mean(x)), '.2f')))} |")
    for task in TASKS:
        for labels in LABELS:
            two = [rows.get(f"exact/{task}/{labels}/{which}") for which in ("without", "with")]
            if None not in two:
                cells = (f"{np.mean(x['worth']):.3f} (least {min(x['worth']):.2f})" for x in two)
                print(f"| {task} | {labels} | {' | '.join(cells)} |")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    parser.add_argument("--table", action="store_true")
    args = parser.parse_args()
    file = HERE / "results.json"
    results = json.loads(file.read_text()) if file.exists() else {"rows": {}}
    work = [(exact, ("exact", task, labels)) for task in TASKS for labels in LABELS] + [(measure, x) for x in SETTINGS]
    for run, setting in () if args.table else work:
        for cross in (False, True):
            name = "/".join((*setting, "with" if cross else "without"))
            if name not in results["rows"] and re.search(args.only, name):
                results["rows"][name] = run(*(setting if run is measure else setting[1:]), cross)
                file.write_text(json.dumps({**results, **environment_of_run()}, indent=1) + "\n")
                print(name, results["rows"][name], flush=True)
    table(results["rows"])


if __name__ == "__main__":
    main()
