"""Print the tables of README.md from results.json and variation.json: `python experiments/motor/page.py`."""

import json
from pathlib import Path

import numpy as np
from recipes import SETTINGS

HERE = Path(__file__).parent
TUNED = "PI, tuned for each motor"
NAMES = {"pi": "PI control", "mpc": "predictive control", "hysteresis": "hysteresis", "random": "random actions"}


def columns(row):
    """Of several seeds their number and steps."""
    return (f"{row['steps']:,}", len(row["seeds"])) if row["steps"] else ("", "")


def learners(results):
    print("| task | by | steps | seeds | reward a step, mean (least) | error, mean (largest) | limits passed in 1000 |")
    print("|---|---|---|---|---|---|---|")
    for task in SETTINGS:
        rows = {name.split("/")[0]: row for name, row in results.items() if name.endswith("/" + task)}
        for name, row in sorted(rows.items(), key=lambda item: np.mean([s["error"] for s in item[1]["seeds"]])):
            reward, error, passed = (np.array([s[k] for s in row["seeds"]]) for k in ("reward", "error", "passed"))
            least, most = (f" ({reward.min():.4f})", f" ({error.max():.4f})") if len(reward) > 1 else ("", "")
            steps, count = columns(row)
            print(
                f"| {task} | {NAMES.get(name, name)} | {steps} | {count} | {reward.mean():.4f}{least} | "
                f"{error.mean():.4f}{most} | {passed.mean():.2f} |"
            )


def motors(results):
    tuned = results[TUNED]["seeds"][0]
    print("| by | steps | seeds | error, mean (worst seed) | median motor | below tuned PI | limits passed in 1000 |")
    print("|---|---|---|---|---|---|---|")
    for name, row in sorted(results.items(), key=lambda item: np.mean([s["error"] for s in item[1]["seeds"]])):
        error, passed = (np.array([seed[k] for seed in row["seeds"]]) for k in ("error", "passed"))
        if not passed.any():  # else episodes began anew at other steps
            assert np.allclose([seed["wanted"] for seed in row["seeds"]], tuned["wanted"], atol=1e-4), name
        below = f"{(error.mean(0) < tuned['error']).sum()} of {error.shape[1]}" if name != TUNED else ""
        worst = f" ({error.mean(1).max():.4f})" if len(error) > 1 else ""
        steps, count = columns(row)
        print(
            f"| {name} | {steps} | {count} | {error.mean():.4f}{worst} | {np.median(error.mean(0)):.4f} | {below} | "
            f"{passed.mean():.3f} |"
        )


if __name__ == "__main__":
    learners(json.loads((HERE / "results.json").read_text()))
    print()
    motors(json.loads((HERE / "variation.json").read_text()))
