"""The figure of run.py: bonus against visits, a panel a way of training."""

import matplotlib
import numpy as np

from jaxrl.host.plotting import COLORS

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402


def picture(counts, clouds, path):
    """`clouds`: {way of training: {name: bonus (seeds, states)}}; the line is what a mean of n draws has."""
    figure, panels = plt.subplots(1, len(clouds), figsize=(15, 3.8), layout="constrained", sharey=True)
    for axes, (title, bonuses) in zip(panels, clouds.items(), strict=True):
        for color, (name, bonus) in zip(COLORS, bonuses.items(), strict=False):
            axes.loglog(np.tile(counts, len(bonus)), bonus.ravel(), ".", ms=2, color=color, label=name)
        axes.loglog(counts, 1 / counts, "k--", lw=1, label="1 / n")
        axes.set(title=title, xlabel="visits n")
    panels[0].set_ylabel("bonus")
    panels[0].legend()
    figure.savefig(path, dpi=110)
    plt.close(figure)
