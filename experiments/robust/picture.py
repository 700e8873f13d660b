"""The figure of the experiment, and its tables on the terminal."""

import matplotlib.pyplot as plt
import numpy as np

from jaxrl.host.plotting import COLORS
from jaxrl.host.statistics import bootstrap_interval, iqm


def report(result, folder):
    arms = result["pendulum"]["arms"]
    figure, axes = plt.subplots(1, 2 + len(arms), figsize=(4.2 + 3 * (1 + len(arms)), 3.4), layout="constrained")
    for walk in result["walk"]:
        print({k: v for k, v in walk.items() if not isinstance(v, list) or len(v) < 5})
    walk, alpha = result["walk"][-1], np.linspace(0, 0.5, len(result["walk"][-1]["optimal"]))
    lines = {"optimal": "black", "of the policy for no wind": COLORS[1], "of the robust policy": COLORS[0]}
    for (name, color), style in zip(lines.items(), (":", "-", "-"), strict=True):
        axes[0].plot(alpha, walk[name], style, color=color, label=name.removeprefix("of the "))
    axes[0].set(title="windy walk", xlabel="alpha", ylabel="value of the start")
    axes[0].legend(frameon=False, fontsize=8)
    (m0, m1), (l0, l1) = result["pendulum"]["box"].values()
    grids = {arm: np.array(row["grid"]) for arm, row in arms.items()}
    low = min(g.mean(0).min() for g in grids.values())
    for ax, (arm, grid) in zip(axes[1:], grids.items(), strict=False):
        shown = ax.imshow(
            grid.mean(0), origin="lower", extent=(l0, l1, m0, m1), aspect="auto", vmin=low, vmax=-100, cmap="viridis"
        )
        ax.set(title=arm, xlabel="length [m]", ylabel="mass [kg]")
    figure.colorbar(shown, ax=axes[len(arms)], label="return")
    for i, (arm, row) in enumerate(arms.items()):
        scores = {
            "worst": grids[arm].min((1, 2)),
            "mean": grids[arm].mean((1, 2)),
            "nominal": np.array(row["nominal"]),
            "found": np.array(row["found"]),
        }
        cells = (
            f"{k} {iqm(v):.0f} [{', '.join(f'{b:.0f}' for b in bootstrap_interval(v))}]" for k, v in scores.items()
        )
        print(f"{arm:18}", "  ".join(cells), row["seconds"], "s")
        for j, name in enumerate(("worst", "mean")):
            (low, high), middle = bootstrap_interval(scores[name]), iqm(scores[name])
            error = [[middle - low], [high - middle]]
            axes[-1].errorbar(
                middle, i + 0.2 * j, xerr=error, fmt="os"[j], color=COLORS[j], label=name if i == 0 else None
            )
    axes[-1].set(title="over the grid", xlabel="return", yticks=range(len(arms)), yticklabels=list(arms))
    axes[-1].legend(frameon=False, fontsize=8)
    figure.savefig(folder / "results.png", dpi=110)
