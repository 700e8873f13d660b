"""The figure: the data, which learners stitch, and what widths LinearQ needs."""

import itertools

import matplotlib.pyplot as plt
import maze
import numpy as np

from jaxrl.host.plotting import COLORS
from jaxrl.host.statistics import bootstrap_interval, iqm


def draw(results, dataset, out):
    figure, axes = plt.subplots(1, 4, figsize=(18, 4.2), layout="constrained", width_ratios=(1, 1.2, 1.2, 1))
    _maze(axes[0], dataset)
    _arms(axes[1], results["maze"])
    _linear_q(axes[2], results["LinearQ"])
    _units(axes[3], results["units"])
    figure.savefig(out, dpi=110)
    plt.close(figure)


def _linear_q(ax, table):
    rows = {tuple(name.split(", ")): row for name, row in table.items()}
    sizes, widths = (sorted({int(k[i].split()[j]) for k in rows}) for i, j in ((1, 0), (2, 1)))
    styles = {"Q-learning": "o-", "Q-learning without an end": "^:", "RCSL": "s--"}
    for (learner, style), (i, size) in itertools.product(styles.items(), enumerate(sizes)):
        chosen = [rows[learner, f"{size} states", f"width {width}"]["return"] for width in widths]
        middle, (low, high) = [iqm(row) for row in chosen], np.transpose([bootstrap_interval(row) for row in chosen])
        x, error = np.array(widths) * 1.06 ** (i - 1.5), (middle - low, high - middle)
        color = plt.get_cmap("viridis")(i / len(sizes))
        label = f"{learner}, {size} states" if i in (0, len(sizes) - 1) else None
        ax.errorbar(x, middle, error, fmt=style, color=color, label=label, markersize=4, linewidth=1, elinewidth=1)
    ax.set_xscale("log", base=2)
    ax.set(xlabel="width of the hidden layer", xticks=widths, xticklabels=widths)
    ax.set(title="LinearQ, 12 to 96 states", ylabel="share of the optimal return")
    ax.set_ylim(0.56, 1.02)
    ax.legend(frameon=False, fontsize=8, loc="lower right")


def _units(ax, units):
    sizes = [int(size) for size in units]
    for style, name, label in (
        ("o-", "rewards", "the backup of 0 (rewards)"),
        ("s--", "optimal values", "optimal values"),
    ):
        ax.plot(sizes, [row[name] for row in units.values()], style, label=label)
    ax.set(title="LinearQ", xlabel="states", ylabel="hidden units, at least", xticks=sizes)
    ax.legend(frameon=False, fontsize=8)


def _maze(ax, dataset):
    places = dataset.obs.reshape(-1, maze.HORIZON, 2) * maze.CENTRE + maze.CENTRE
    ax.imshow(~maze.FREE, cmap="Greys", vmax=2)
    for i, label in enumerate(("down, then on to D", "the long way to G")):
        for way in places[i:40:2]:
            ax.plot(way[:, 1], way[:, 0], ".-", color=COLORS[i], alpha=0.3, linewidth=0.8, markersize=3)
        ax.plot([], [], ".-", color=COLORS[i], label=label)
    for name in "SMGD":
        ax.text(*getattr(maze, name)[::-1], name, fontsize=12, fontweight="bold", ha="center", va="center")
    ax.set(title="the data", xticks=(), yticks=())
    ax.legend(frameon=False, fontsize=8, loc="upper right")
    ax.grid(False)


def _arms(ax, rows):
    for y, (name, row) in enumerate(rows.items()):
        low, high = bootstrap_interval(row["success"])
        color = COLORS[0] if name.startswith("MBRCSL") else COLORS[1]
        ax.plot(row["success"], np.full(len(row["success"]), y), "o", color=color, alpha=0.25, markersize=5)
        ax.plot([low, high], [y, y], color=color, linewidth=2)
        ax.plot(iqm(row["success"]), y, "|", color=color, markersize=14, markeredgewidth=3)
    ax.set_yticks(range(len(rows)), list(rows))
    ax.invert_yaxis()
    ax.set(title="stitched", xlabel="share of episodes above the best return in the data", xlim=(-0.03, 1.03))
