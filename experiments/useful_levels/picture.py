"""The tables of README.md and its figure."""

import json
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from methods import METHODS
from scipy import stats

from jaxrl.host.plotting import COLORS
from jaxrl.host.statistics import bootstrap_interval, told

FILE = Path(__file__).with_name("results.json")
TITLES = {
    "maze13": "mazes",
    "maze13_fast": "mazes, twice the rate",
    "maze13_long": "mazes, 10 x the steps",
    "maze17": "larger mazes",
    "car": "cars",
    "rules": "rule worlds",
    "nav": "navigation",
}
MEASURES = ("mean", "worst tenth", "worst hundredth")


def solved(row):
    """(seeds, MEASURES)"""
    return np.array([row["seeds"][seed]["solved"] for seed in sorted(row["seeds"], key=int)])


def differences(row, baseline):
    """Less the baseline's, of the seeds that both have: (seeds, MEASURES)."""
    both = sorted(set(row["seeds"]) & set(baseline["seeds"]), key=int)
    return np.array([np.subtract(row["seeds"][s]["solved"], baseline["seeds"][s]["solved"]) for s in both])


def half_width(x):
    """Of a 95 % interval of the mean, by Student's t."""
    return stats.t.ppf(0.975, len(x) - 1) * x.std(ddof=1) / len(x) ** 0.5


def tables(report):
    head = ["family", "method", "seeds", "updates", *MEASURES, "CPU s a seed"]
    print(f"| {' | '.join(head)} |\n{'|---' * len(head)}|")
    for pair, row in report.items():
        family, method = pair.split("/")
        updates, cpu = (np.median([seed[x] for seed in row["seeds"].values()]) for x in ("updates", "cpu"))
        cells = [told(x, ".2f", np.mean) for x in solved(row).T]
        cells = [TITLES[family], METHODS[method].title, str(len(row["seeds"])), f"{updates:.0f}", *cells, f"{cpu:.1f}"]
        print(f"| {' | '.join(cells)} |")
    head = ["family", "method", "seeds", *MEASURES]
    print(f"\n| {' | '.join(head)} |\n{'|---' * len(head)}|")
    for pair, row in report.items():
        family, method = pair.split("/")
        if method == "dr" or f"{family}/dr" not in report:
            continue
        found = differences(row, report[f"{family}/dr"])
        cells = []
        for x in found.T:
            mark = "**" if abs(x.mean()) > half_width(x) else ""
            cells.append(f"{mark}{x.mean():+.2f} ± {half_width(x):.2f}{mark}")
        print(f"| {TITLES[family]} | {METHODS[method].title} | {len(found)} | {' | '.join(cells)} |")


def draw(report, out):
    """All held-out levels and their worst tenth, by family: a method a row, with its interval."""
    families = [name for name in TITLES if any(pair.startswith(f"{name}/") for pair in report)]
    rows = -(-len(families) // 2)
    figure, axes = plt.subplots(
        rows, 2, figsize=(10, 3.6 * rows), layout="constrained", sharex=True, sharey=True, squeeze=False
    )
    for axis in axes.flat[len(families) :]:
        axis.set_axis_off()
    names = [name for name in METHODS if any(pair.endswith(f"/{name}") for pair in report)][::-1]
    for axis, family in zip(axes.flat, families, strict=False):
        for y, name in enumerate(names):
            if f"{family}/{name}" not in report:
                continue
            for i, (column, color) in enumerate(((0, COLORS[1]), (1, COLORS[0]))):
                x = solved(report[f"{family}/{name}"])[:, column]
                low, high = bootstrap_interval(x, np.mean)
                axis.plot([low, high], [y + 0.12 - 0.24 * i] * 2, color=color, linewidth=2)
                label = ("all held-out levels", "their worst tenth")[i]
                axis.plot(x.mean(), y + 0.12 - 0.24 * i, "o", color=color, markersize=5, label=label)
        axis.set(title=TITLES[family], xlim=(0, 1))
        axis.set_yticks(range(len(names)), [METHODS[name].title for name in names])
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(axis="x", alpha=0.25)
    for axis in axes[-1]:
        axis.set_xlabel("share of the episodes solved")
    handles, labels = axes.flat[0].get_legend_handles_labels()
    axes.flat[0].legend(handles[:2], labels[:2], frameon=False, fontsize=7)
    figure.savefig(out, dpi=120)
    plt.close(figure)


def main():
    report = json.loads(FILE.read_text())
    tables(report)
    draw(report, FILE.with_suffix(".png"))


if __name__ == "__main__":
    main()
