"""The tables and the figure of README.md, from results.json.

python experiments/mazes/picture.py [--updates 300]
"""

import argparse
import json
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from jaxrl.host.plotting import COLORS
from jaxrl.host.statistics import told

FILE = Path(__file__).with_name("results.json")
TITLES = {
    "dr": "DR, a maze an episode",
    "dr_rollout": "DR, a maze a rollout",
    "plr": "PLR",
    "plr_robust": "robust PLR",
    "plr_parallel": "parallel robust PLR",
    "plr_learnability": "robust PLR, learnability",
    "accel": "ACCEL",
    "accel_learnability": "ACCEL, learnability",
    "sfl": "SFL",
    "paired": "PAIRED",
}
OTHERS = ("Maze2", "LargeCorridor", "PerfectMazeMedium")  # as github.com/facebookresearch/dcd #3 calls them
PUBLISHED = {"ACCEL 1, its paper": (0.93, 0.94, 0.88), "ACCEL 2, its paper": (1.0, 1.0, 0.93)}
PALETTE = (*COLORS, "#b7791f", "#5f6b7a", "#8c564b", "#111111")


def shown(x):
    """IQM over seeds and its 95 % interval."""
    return told(x)


def judged(seeds, at):
    """What all seeds solved where the budget `at`, "steps" or "updates", was used up, as cells of the table."""
    rows = [row[at] for row in seeds.values()]
    shares = [np.mean(r["holdouts"]) for r in rows], [r["random"] for r in rows], [r["worst"] for r in rows]
    return [shown(share) for share in shares]


def made(seeds, at, what):
    return np.mean([row[at][what] for row in seeds.values()])


def tables(report):
    head = ["method", "seeds"]
    head += ["updates at equal steps", "hold-outs", "random", "worst 10 %"]
    head += ["steps at equal updates", "hold-outs", "random", "worst 10 %", "CPU min. a seed"]
    print(f"| {' | '.join(head)} |\n{'|---' * len(head)}|")
    for name, seeds in report.items():
        cells = [TITLES[name], str(len(seeds))]
        cells += [f"{made(seeds, 'steps', 'updates'):.0f}", *judged(seeds, "steps")]
        cells += [f"{made(seeds, 'updates', 'steps') / 1e6:.1f} M", *judged(seeds, "updates")]
        cells.append(f"{np.mean([row['seconds']['cpu'] for row in seeds.values()]) / 60:.1f}")
        print(f"| {' | '.join(cells)} |")
    print(f"\n{'solved of 100 episodes a seed':28}" + "".join(f"{name:>26}" for name in OTHERS))
    for name, row in PUBLISHED.items():
        print(f"{name:28}" + "".join(f"{x:26.2f}" for x in row))
    for name, seeds in report.items():
        solved = np.array([row["updates"]["others"] for row in seeds.values()])
        print(f"{TITLES[name]:28}" + "".join(f"{shown(x):>26}" for x in solved.T))


def draw(report, out):
    """Hold-outs solved along the way by updates and by steps; how many walls the mazes have that are played."""
    figure, axes = plt.subplots(1, 3, figsize=(14, 4), layout="constrained")
    for (name, seeds), color in zip(report.items(), PALETTE[: len(report)], strict=True):
        curves = [row["curve"] for row in seeds.values()]

        def mean(what, curves=curves):
            return np.mean([[point[what] for point in curve] for curve in curves], 0)

        line = {"color": color, "linewidth": 1.8, "label": TITLES[name]}
        axes[0].plot(mean("updates"), mean("holdouts"), **line)
        axes[1].plot(mean("steps") / 1e6, mean("holdouts"), **line)
        if np.isfinite(mean("walls")).any():
            axes[2].plot(mean("updates"), mean("walls"), **line)
    for axis, label in zip(axes, ("gradient updates", "environment steps, millions", "gradient updates"), strict=True):
        axis.set(xlabel=label, ylabel="share of the hold-outs solved", ylim=(0, None))
        axis.spines[["top", "right"]].set_visible(False)
    axes[2].set(ylabel="walls of the mazes played")
    axes[0].legend(frameon=False, fontsize=7)
    figure.savefig(out, dpi=150)
    plt.close(figure)


def main(updates: int = 300) -> None:
    everything = json.loads(FILE.read_text())
    report = {name: everything[f"{name}/{updates}"] for name in TITLES if f"{name}/{updates}" in everything}
    tables(report)
    if report:
        draw(report, FILE.with_suffix(".png"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=300)
    main(parser.parse_args().updates)
