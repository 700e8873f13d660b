"""The tables and the figure of results.json."""

from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from jaxrl.host.plotting import COLORS
from jaxrl.host.statistics import bootstrap_interval, iqm


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
    lines = []
    for arm, found in row["arms"].items():
        low, high = bootstrap_interval(found["success"])
        cells = [f"{iqm(found['success']):.2f}", f"{low:.2f} to {high:.2f}", f"{max(found['curve']['success'][0]):.2f}"]
        bisim = iqm(found["bisimulation"])
        cells += [f"{bisim:.3f}" if bisim < 1 else f"{bisim:.1f}", f"{iqm(found['share']):.2f}"]
        cells.append(f"{iqm(found['merging']):.2f}" if arm != "present look" else "")
        lines.append(f"| {learner} | {size} | {arm} | {' | '.join(cells)} |")
    return lines


HEAD = "| learner | episodes | phi of | success, IQM | 95 % | highest on the way | loss | its share | merging |\n" + (
    "|---" * 9 + "|"
)


def correlations(results: dict[str, Any]) -> str:
    """Spearman's, of the final success and what phi is like, over the seeds of all sizes."""
    lines = []
    for learner in dict.fromkeys(name.split("/")[0] for name in results["runs"]):
        mine = [row["arms"] for name, row in results["runs"].items() if name.startswith(learner)]
        for of in ("bisimulation", "share", "merging"):
            found = []
            for arms in (("history",), [a for a in mine[0] if a != "present look"]):
                x, y = (np.concatenate([r[a][k] for r in mine for a in arms]) for k in (of, "success"))
                found.append(f"{spearmanr(x, y).statistic:.2f}")
            lines.append(f"{learner}, {of}: {found[0]} over runs of history alone, {found[1]} with those that train it")
    return "\n".join(lines)


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
        grid[0, column].set_title(f"{learner}, {size} episodes")
        grid[1, column].set(yscale="log", xlabel="gradient steps")
    grid[0, 0].set_ylabel("success")
    grid[1, 0].set_ylabel("bisimulation loss")
    handles, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    figure.savefig(out, dpi=100)
    plt.close(figure)
