"""Does learning from the worst imagined branches alone raise the worst returns over new weather? MBPO in a greenhouse.

    python experiments/lettuce_weather/run.py [--only "MBPO"] [--seeds 10]

Writes results.json beside this file after each seed, goes on where it stopped, and prints the table of README.md. An
arm with other settings is measured again.
"""

import argparse
import json
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from greenhouse_arms import ARMS, SETTINGS, WHERE, program, rules

from jaxrl.host.run.run_folder import environment_of_run
from jaxrl.host.statistics import bootstrap_interval

HERE = Path(__file__).parent


def measure(arm, seed):
    keep_share, *branches = ARMS[arm]
    return np.asarray(program(*branches)(jax.random.key(seed), jnp.float32(keep_share)), float)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="ARM")
    parser.add_argument("--seeds", type=int, default=10)
    args = parser.parse_args()
    path = HERE / "results.json"
    found = json.loads(path.read_text()) if path.exists() else {}
    for seed in range(args.seeds):
        for arm in [x for x in ARMS if args.only in (None, x)]:
            settings = json.loads(json.dumps([ARMS[arm], *SETTINGS]))
            row = found.get(arm, {})
            row = row if row.get("settings") == settings else {"settings": settings, "found": {}, "cpu_seconds": 0}
            if str(seed) not in row["found"]:
                begin = time.process_time()
                row["found"][str(seed)] = measure(arm, seed).round(4).tolist()
                row |= {"cpu_seconds": round(row["cpu_seconds"] + time.process_time() - begin)}
                found |= {arm: row, "where": environment_of_run()}
                path.write_text(json.dumps(found) + "\n")
    if "a grower's rules" not in found:
        row = {where: np.asarray(rules(colder), float).round(4).tolist() for where, colder in WHERE.items()}
        path.write_text(json.dumps(found | {"a grower's rules": row}) + "\n")
        found["a grower's rules"] = row
    told(found)


def told(found):
    """Means over the last policies and over seeds, and differences from MBPO of the same seeds, with 95 % intervals.

    The gap is the mean less the worst tenth."""
    print(
        "| learns from | where | mean | worst tenth | mean - MBPO's | worst tenth - MBPO's | gap - MBPO's |\n|"
        + "---|" * 7
    )
    for where, (mean, worst) in found["a grower's rules"].items():
        print(f"| none: a grower's rules | {where} | {mean:.3f} | {worst:.3f} | | | |")
    for arm in ARMS:
        seeds = sorted(set(found.get(arm, {"found": {}})["found"]) & set(found["MBPO"]["found"]), key=int)
        if seeds:
            own, base = (np.mean([found[x]["found"][seed] for seed in seeds], 2) for x in (arm, "MBPO"))
            for i, where in enumerate(WHERE):
                cells = [interval(own[:, i, 0]), interval(own[:, i, 1])]
                less = own[:, i] - base[:, i]
                shown = less[:, 0], less[:, 1], less[:, 0] - less[:, 1]
                cells += [""] * 3 if arm == "MBPO" else [interval(x) for x in shown]
                print(f"| {arm} | {where} | {' | '.join(cells)} |", flush=True)


def interval(values):
    low, high = bootstrap_interval(values, np.mean)
    return f"{np.mean(values):.3f} ({low:.3f} to {high:.3f})"


if __name__ == "__main__":
    main()
