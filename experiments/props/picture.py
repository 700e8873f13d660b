"""The figure of run.py: sampling error of the buffer after each batch, a column a task."""

import matplotlib
import numpy as np

from jaxrl.host.plotting import COLORS

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402


def picture(results, settings, path):
    """Interquartile means with their 95 % intervals; `settings` as in run.py."""
    figure, panels = plt.subplots(2, 3, figsize=(11, 6), layout="constrained")
    for row, (setting, tasks) in zip(panels, results.items(), strict=True):
        for axes, (task, methods) in zip(row, tasks.items(), strict=True):
            for color, (name, r) in zip(COLORS, methods.items(), strict=False):
                x = np.arange(1, len(r["curve"]) + 1) * settings[setting][name]["num_steps"]
                axes.plot(x, r["curve"], color=color, label=name)
                axes.fill_between(x, *np.array(r["curve_95"]).T, color=color, alpha=0.2, lw=0)
            axes.set(title=f"{task}, {setting} policy", yscale="log", xlabel="steps", ylabel="sampling error [nats]")
            axes.legend(fontsize=8)
    figure.savefig(path, dpi=110)
    plt.close(figure)
