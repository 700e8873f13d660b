"""The figure of the experiment, and its table on the terminal."""

import matplotlib.pyplot as plt
import numpy as np

from jaxrl.host.plotting import COLORS
from jaxrl.host.statistics import bootstrap_interval, told

NAMES = {
    "default": "PPO, default context",
    "dr": "domain randomisation",
    "alp_gmm": "ALP-GMM",
    "plr": "PLR",
    "robust_plr": "robust PLR",
    "accel": "ACCEL",
    "sfl": "SFL",
    "mbtl": "MBTL",
}
TITLES = {"cartpole": "CartPole-v1", "pendulum": "Pendulum-v1", "hopper": "Hopper-v5", "walker": "Walker2d-v5"}


def scores(row):
    """Of each seed: the mean over the contexts, and over the tenth of them that is the worst for it."""
    returns = np.sort(np.array(row["returns"]), 1)
    return returns.mean(1), returns[:, : returns.shape[1] // 10].mean(1)


def table(report):
    """What README.md has: all rows, and how far the methods are from domain randomisation."""
    head = "| contexts of | method | seeds | mean of 100 (95 %) | worst decile (95 %) | CPU s |"
    print(head + "\n" + "|---" * 6 + "|")
    for pair, row in report.items():
        task, method = pair.split("/")
        cells = []
        for x in scores(row):
            cells.append(told(x, ".0f", np.mean))
        seeds, seconds = len(row["returns"]), row["cpu_seconds"]["run"]
        print(f"| {TITLES[task]} | {NAMES[method]} | {seeds} | {' | '.join(cells)} | {seconds:.0f} |")
    print(
        "\n| contexts of | method | seeds | mean, less domain randomisation's | worst decile, less |\n"
        + "|---" * 5
        + "|"
    )
    for pair, row in report.items():
        task, method = pair.split("/")
        if method in ("default", "dr") or f"{task}/dr" not in report:
            continue
        cells = [f"{a:+.1f} ± {b:.1f}" for a, b in map(difference, scores(row), scores(report[f"{task}/dr"]))]
        print(f"| {TITLES[task]} | {NAMES[method]} | {len(row['returns'])} | {' | '.join(cells)} |")


def difference(x, y):
    """Of the means of two methods' seeds, and the half width of its 95 % interval (normal, the seeds unpaired)."""
    return x.mean() - y.mean(), 1.96 * np.hypot(*(z.std(ddof=1) / len(z) ** 0.5 for z in (x, y)))


def picture(report, out):
    tasks = [t for t in TITLES if any(p.startswith(f"{t}/") for p in report)]
    size = (3.3 * len(tasks) + 1.2, 3.2)
    figure, grid = plt.subplots(1, len(tasks), figsize=size, layout="constrained", squeeze=False)
    for axes, task in zip(grid[0], tasks, strict=True):
        for i, method in enumerate(reversed(NAMES)):
            if f"{task}/{method}" not in report:
                continue
            for marker, color, label, x in zip(
                "os", COLORS, ("mean", "worst decile"), scores(report[f"{task}/{method}"]), strict=False
            ):
                low, high = bootstrap_interval(x, np.mean)
                error = [[x.mean() - low], [high - x.mean()]]
                axes.errorbar(x.mean(), i, xerr=error, fmt=marker, color=color, label=label)
        axes.set(title=TITLES[task], yticks=range(len(NAMES)), yticklabels=list(reversed(NAMES.values())))
        axes.tick_params(labelleft=axes is grid[0, 0])
        axes.set_xlabel("return on held-out contexts")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
    handles, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles[:2], labels[:2], loc="outside upper center", ncols=2, frameon=False, fontsize=8)
    figure.savefig(out, dpi=110)
