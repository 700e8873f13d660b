"""The figure of `run.py`: gold return against KL from the reference, and against the learned reward."""

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

GRID = np.linspace(0, 7.6, 60)


def draw(curves, file):
    """Means over the seeds and their 95 % intervals, at equal KL; on the right the same curves, gold against proxy."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for i, who in enumerate(curves[0]):
        rows = [np.array(curve[who]) for curve in curves]
        longest = min(row[0].max() for row in rows)
        grid = GRID[longest >= GRID]
        proxy, true = (np.array([np.interp(grid, row[0], row[k]) for row in rows]) for k in (1, 2))
        mean, half = true.mean(0), 1.96 * true.std(0, ddof=1) / len(true) ** 0.5
        style = {"color": "black", "linestyle": "--"} if who == "gold itself" else {"color": f"C{i}"}
        left.plot(grid, mean, label=who, **style)
        left.fill_between(grid, mean - half, mean + half, color=style["color"], alpha=0.15, linewidth=0)
        if who != "gold itself":
            right.plot(proxy.mean(0), mean, label=who, **style)
    left.set(xlabel="KL from the reference [nats]", ylabel="gold return [deviations of the reference]")
    right.set(xlabel="learned reward [its deviations]", ylabel="gold return [deviations of the reference]")
    right.axline((0, 0), slope=1, color="grey", linewidth=0.8, linestyle=":")
    left.legend(frameon=False)
    figure.savefig(file, dpi=110)
