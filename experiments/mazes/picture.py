"""The table and the figure of README.md, from results.json.

python experiments/mazes/picture.py
"""

import json
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from jaxrl.host.plotting import COLORS
from jaxrl.host.statistics import bootstrap_interval, iqm

FILE = Path(__file__).with_name("results.json")
TITLES = {
    "dr": "domain randomisation",
    "plr": "PLR",
    "plr_robust": "robust PLR",
    "plr_parallel": "parallel robust PLR",
    "accel": "ACCEL",
    "sfl": "SFL",
    "paired": "PAIRED",
}
RANDOM = 1000
PALETTE = (*COLORS, "#b7791f")


def random_solved(row):
    """Which of the random mazes each seed solved, (seeds, RANDOM)."""
    bits = np.frombuffer(bytes.fromhex(row["random"]), np.uint8).reshape(len(row["holdouts"]), -1)
    return np.unpackbits(bits, axis=1)[:, :RANDOM]


def cvar(solved, alpha=0.1):
    """What is solved of the worst share `alpha` of the levels, chosen by half of the seeds and judged by the others."""
    halves = solved[::2].mean(0), solved[1::2].mean(0)
    n = max(1, int(alpha * solved.shape[1]))
    return np.mean([judge[np.argsort(chooser)[:n]].mean() for chooser, judge in (halves, halves[::-1])])


def table(report):
    print("| method | hold-outs | random | worst 10 % of them | steps | minutes, CPU and wall |")
    print("|---" * 6 + "|")
    for name in sorted(report, key=lambda name: list(TITLES).index(name.split("/")[0])):
        row = report[name]
        cells = [TITLES.get(name, name)]
        for shares in (np.mean(row["holdouts"], 1), random_solved(row).mean(1)):
            cells.append("{:.2f} ({:.2f} to {:.2f})".format(iqm(shares), *bootstrap_interval(shares)))
        cells.append(f"{cvar(random_solved(row)):.2f}")
        seconds = row["seconds"]
        minutes = f"{seconds['cpu'] / 60:.0f}, {(seconds['compile'] + seconds['run']) / 60:.0f}"
        print(f"| {' | '.join(cells)} | {row['steps']:,} | {minutes} |")


def draw(report, out):
    """Left: hold-outs solved along the way. Right: each hold-out at the end, by method."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 3.8), layout="constrained", width_ratios=(1, 1.2))
    names = [name for name in TITLES if name in report]
    for name, color in zip(names, PALETTE, strict=False):
        curve = np.array(report[name]["curve"])  # seeds, points
        updates = 300 * np.arange(1, curve.shape[1] + 1) / curve.shape[1]
        bands = np.array([bootstrap_interval(point) for point in curve.T])
        left.plot(updates, [iqm(point) for point in curve.T], color=color, linewidth=1.8, label=TITLES[name])
        left.fill_between(updates, *bands.T, color=color, alpha=0.12, linewidth=0)
    left.set(xlabel="updates", ylabel="share of the hold-outs solved", ylim=(0, None))
    left.legend(frameon=False, fontsize=8)
    from jaxrl.envs.grid.maze.levels import HOLDOUTS

    mazes = list(HOLDOUTS)
    width = 0.8 / len(names)
    for i, (name, color) in enumerate(zip(names, PALETTE, strict=False)):
        place = np.arange(len(mazes)) + (i - (len(names) - 1) / 2) * width
        right.bar(place, np.mean(report[name]["holdouts"], 0), width, color=color)
    right.set_xticks(range(len(mazes)), mazes, rotation=25, ha="right", fontsize=8)
    right.set(ylabel="share of attempts, mean of seeds")
    for axis in (left, right):
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(out, dpi=150)


def main() -> None:
    report = json.loads(FILE.read_text())
    table(report)
    draw({name: row for name, row in report.items() if name in TITLES}, FILE.with_suffix(".png"))


if __name__ == "__main__":
    main()
