"""The figure of the experiment, and its table on the terminal."""

import matplotlib.pyplot as plt
import numpy as np

from jaxrl.host.plotting import COLORS
from jaxrl.host.statistics import bootstrap_interval, iqm

STYLES = {"scratch": COLORS[5], "S3RL": COLORS[0], "no limit": COLORS[1], "no clusters": COLORS[2]}


def report(result, folder):
    studies = result.get("snapshot", {})
    figure, axes = plt.subplots(
        1, len(studies) + 1, figsize=(4 * (len(studies) + 1), 3.6), layout="constrained", squeeze=False
    )
    axes = axes[0]
    for ax, (id, study) in zip(axes, studies.items(), strict=False):
        for arm, color in STYLES.items():
            draw(ax, study["steps"], np.array(study["arms"][arm]["values"]), color, arm)
        ax.axhline(study["teacher"], color="black", lw=0.8, ls=":", label="teacher")
        ax.axvspan(0, study["snapshot_steps"], color="black", alpha=0.06, lw=0)
        ax.set_title(f"{id}, {study['student'].upper()}", fontsize=10)
        ax.set_xlabel("environment steps")
        ax.locator_params(axis="x", nbins=4)
        line(id, study["arms"], lambda v: v[:, : v.shape[1] // 2].mean(1), "mean of the first half")
        line(id, study["arms"], lambda v: v[:, -1], "end")
    axes[0].set_ylabel("return, greedy")
    axes[0].legend(frameon=False, fontsize=8)
    if "reverse" in result:
        arms = result["reverse"]["arms"]
        for (arm, row), color in zip(arms.items(), (COLORS[5], COLORS[2], COLORS[1], COLORS[0]), strict=True):
            draw(axes[-1], result["reverse"]["steps"], np.array(row["values"])[..., 0], color, arm)
        axes[-1].set_title("spiral maze, PPO", fontsize=10)
        axes[-1].set_xlabel("environment steps")
        axes[-1].set_ylabel("success from the far end")
        axes[-1].legend(frameon=False, fontsize=8)
        line("maze", arms, lambda v: v[:, -1, 0], "from the far end")
        line("maze", arms, lambda v: v[:, -1, 1], "from anywhere")
    figure.savefig(folder / "results.png", dpi=110)


def draw(ax, steps, values, color, label):
    low, high = zip(*(bootstrap_interval(v) for v in values.T), strict=True)
    ax.plot(steps, [iqm(v) for v in values.T], color=color, label=label)
    ax.fill_between(steps, low, high, color=color, alpha=0.15, lw=0)


def line(name, arms, score, what):
    for arm, row in arms.items():
        values = score(np.array(row["values"]))
        low, high = bootstrap_interval(values)
        print(f"{name:26} {what:24} {arm:20} {iqm(values):9.2f} [{low:.2f}, {high:.2f}]  {row['seconds']} s")
