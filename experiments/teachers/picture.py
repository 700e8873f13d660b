"""The figure of README.md: mastered share of the cells against episodes, a panel a space, a curve a teacher."""

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from jaxrl.host.plotting import COLORS
from jaxrl.host.statistics import bootstrap_interval, iqm

TITLES = {"plain": "2 coordinates", "useless": "2 coordinates and 10 of no use"}
NAMES = {"alp_gmm": "ALP-GMM", "covar_gmm": "Covar-GMM", "riac": "RIAC", "oracle": "window oracle", "random": "random"}


def picture(report, episodes, out):
    spaces = [space for space in TITLES if any(pair.endswith(f"/{space}") for pair in report)]
    figure, grid = plt.subplots(
        1, len(spaces), figsize=(4.6 * len(spaces), 3.6), layout="constrained", sharey=True, squeeze=False
    )
    for axes, space in zip(grid[0], spaces, strict=True):
        for (name, label), color in zip(NAMES.items(), COLORS, strict=False):
            if f"{name}/{space}" not in report:
                continue
            curves = np.array(report[f"{name}/{space}"]["curves"])
            steps = np.linspace(0, episodes, curves.shape[1] + 1)[1:]
            band = np.array([bootstrap_interval(c, resamples=500) for c in curves.T]).T
            axes.plot(steps, [iqm(c) for c in curves.T], color=color, label=label, linewidth=1.8)
            axes.fill_between(steps, *band, color=color, alpha=0.25, linewidth=0)
        # Every cell takes 76 visits, so no teacher can do better.
        axes.plot([0, 7600, episodes], [0, 1, 1], color="black", linestyle=":", linewidth=1, label="best possible")
        axes.set(title=TITLES[space], xlim=(0, episodes), ylim=(0, 1.03))
        axes.xaxis.set_major_formatter(lambda x, _: f"{x / 1000:g}k")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
    handles, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), frameon=False, fontsize=8)
    figure.supxlabel("episodes")
    figure.supylabel("mastered share of the cells")
    figure.savefig(out, dpi=150)
