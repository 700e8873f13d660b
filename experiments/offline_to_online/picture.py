"""The table of README.md and results.png, of results.json."""

import numpy as np
from arms import ARMS

from jaxrl.host.plotting import curves_by_task
from jaxrl.host.statistics import bootstrap_interval, iqm

DIP = 1_200  # steps after the switch in which the dip is looked for
WINDOW = 3  # points that are averaged for it: a single one is of few episodes


def told(scores):
    low, high = bootstrap_interval(scores)
    digits = 1 if abs(high) < 100 else 0
    return f"{iqm(scores):.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def measures(returns, every):
    """Of (seeds, points): return at the switch, how far it sinks below that soon after, mean online, at the end."""
    smooth = np.stack([returns[:, i : i + WINDOW].mean(1) for i in range(1, 2 + DIP // every - WINDOW)], 1)
    return {
        "at the switch": returns[:, 0],
        "dip": np.maximum(returns[:, 0] - smooth.min(1), 0),
        "mean online": returns[:, 1:].mean(1),
        "final": returns[:, -3:].mean(1),
    }


def group_of(name):
    if ARMS[name].offline is None:
        return "from new weights"
    return "dataset kept" if ARMS[name].retained else "dataset not kept"


def report(found, folder):
    curves, every = {}, found["every"]
    for task, rows in found["tasks"].items():
        print(f"\n**{task}** (mean return of the data {rows['dataset']['mean return']:.0f})\n")
        print("| | at the switch | dip | mean online | final | less RLPD's |\n|---|---|---|---|---|---|")
        rlpd = measures(np.array(rows["RLPD"]["returns"]), every)["final"] if "RLPD" in rows else np.nan
        curves |= {f"{task}: {group_of(name)}": {} for name in ("IQL", "WSRL", "RLPD")}  # a panel each
        for name, row in rows.items():
            if name == "dataset":
                continue
            returns = np.array(row["returns"])
            of: dict = measures(returns, every)
            of["less RLPD's"] = None if name == "RLPD" or np.size(rlpd) != len(returns) else of["final"] - rlpd
            if ARMS[name].offline is None:
                of["dip"] = None
            print(f"| {name} | " + " | ".join("-" if x is None else told(x) for x in of.values()) + " |")
            curves[f"{task}: {group_of(name)}"][name] = np.arange(returns.shape[1]) * every, returns
    curves_by_task(curves, folder / "results.png", "return of the greedy policy")
