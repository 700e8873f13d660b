"""The tables and the figure of results.json."""

from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from jaxrl.host.plotting import COLORS
from jaxrl.host.statistics import iqm, told


def data_table(results: dict[str, Any]) -> str:
    lines = [
        "| episodes | steps | histories | pairs of state and move seen | behaviour's success | what states allow |"
    ]
    lines.append("|" + "---|" * 6)
    for size, row in results["data"].items():
        cells = [f"{row[k]:,.0f}" for k in ("steps", "histories")] + [f"{row['pairs']:.0%}"]
        lines.append(f"| {size} | {' | '.join(cells)} | {row['behaviour']:.2f} | {row['possible']:.2f} |")
    return "\n".join(lines)


def rows_of(name: str, row: dict[str, Any]) -> list[str]:
    """Of one learner and size of the data: a line an arm."""
    learner, size = name.split("/")
    size = size.replace("longer", f"{row['steps']:,} steps")
    lines = []
    for arm, found in row["arms"].items():
        cells = [told(found["success"], cells=True), f"{max(found['curve']['success'][0]):.2f}"]
        bisim = iqm(found["bisimulation"])
        cells += [f"{bisim:.3f}" if bisim < 1 else f"{bisim:.1f}", f"{iqm(found['share']):.2f}"]
        cells.append(f"{iqm(found['merging']):.2f}" if arm != "present look" else "")
        lines.append(f"| {learner} | {size} | {arm} | {' | '.join(cells)} |")
    return lines


HEAD = "| learner | episodes | phi of | success, IQM | 95 % | highest on the way | loss | its share | merging |\n" + (
    "|---" * 9 + "|"
)


def gains(results: dict[str, Any]) -> str:
    """What training the loss adds to a seed's success: both arms have the same data, first weights and draws."""
    lines = []
    for name, row in results["runs"].items():
        for arm in list(row["arms"])[2:]:
            gain = np.subtract(row["arms"][arm]["success"], row["arms"]["history"]["success"])
            lines.append(f"{name}, {arm} less history: {told(gain, '+.2f')}")
    return "\n".join(lines)


def correlations(results: dict[str, Any]) -> str:
    """Spearman's, of the final success and what phi is like, over runs that do not train the loss: over the seeds of
    all sizes, and the mean of those over the seeds of one."""
    lines = []
    for learner in ("CQL", "IQL"):
        mine = [row["arms"]["history"] for name, row in results["runs"].items() if name in _named(learner, results)]
        for of in ("bisimulation", "share", "merging"):
            each = [spearmanr(row[of], row["success"]).statistic for row in mine if np.ptp(row["success"]) > 0]
            x, y = (np.concatenate([row[k] for row in mine]) for k in (of, "success"))
            lines.append(f"{learner}, {of}: {spearmanr(x, y).statistic:.2f}; within a size {np.mean(each):.2f}")
    return "\n".join(lines)


def _named(learner: str, results: dict[str, Any]) -> list[str]:
    return [f"{learner}/{size}" for size in results["data"]]


def picture(results: dict[str, Any], out: Path) -> None:
    """Success above, the bisimulation loss below, over gradient steps; a column a learner and size."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    runs = results["runs"]
    figure, grid = plt.subplots(2, len(runs), figsize=(2.7 * len(runs), 5.4), layout="constrained", sharey="row")
    for column, (name, row) in enumerate(runs.items()):
        for axes, of in zip(grid[:, column], ("success", "bisimulation"), strict=True):
            for color, (arm, found) in zip(COLORS, row["arms"].items(), strict=False):
                middle, low, high = found["curve"][of]
                at = np.arange(1, len(middle) + 1) * row["steps"] / len(middle)
                axes.plot(at, middle, color=color, label=arm)
                axes.fill_between(at, low, high, color=color, alpha=0.2, linewidth=0)
            axes.grid(alpha=0.25)
        learner, size = name.split("/")
        grid[0, column].set_title(f"{learner}, {size.removesuffix(', longer')} episodes", fontsize=11)
        grid[1, column].set(yscale="log", xlabel="gradient steps")
    grid[0, 0].set_ylabel("success")
    grid[1, 0].set_ylabel("bisimulation loss")
    handles, labels = grid[0, -1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    figure.savefig(out, dpi=100)
    plt.close(figure)
