"""The figure of README.md: performance against the number of policies, a panel a task."""

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from jaxrl.host.plotting import COLORS

TITLES = {
    "cartpole_masscart": "CartPole, mass of the cart",
    "cartpole_lenpole": "CartPole, length of the pole",
    "cartpole_masspole": "CartPole, mass of the pole",
    "pendulum_dt": "Pendulum, time step",
    "pendulum_l": "Pendulum, length",
    "pendulum_m": "Pendulum, mass",
    "acrobot_length": "Acrobot, length of the first link",
    "motor_inductance": "DC motor, inductance",
}
WAYS = {
    "mbtl": "MBTL",
    "mbtl, slope estimated": "MBTL, slope estimated",
    "equidistant": "equidistant",
    "random": "random",
    "greedy oracle": "greedy oracle",
}
SHOWN = 20


def picture(results, out):
    columns = min(len(results), 3)
    rows = -(-len(results) // columns)
    figure, grid = plt.subplots(
        rows, columns, figsize=(3.4 * columns, 2.7 * rows + 0.5), layout="constrained", squeeze=False
    )
    for axes, (name, r) in zip(grid.flat, results.items(), strict=False):
        number = np.arange(1, SHOWN + 1)
        for (way, label), color in zip(WAYS.items(), COLORS, strict=False):
            axes.plot(number, r[way]["curve"][:SHOWN], color=color, label=label, linewidth=1.8)
            band = np.array(r[way]["interval"])[:, :SHOWN]
            axes.fill_between(number, *band, color=color, alpha=0.2, linewidth=0)
        axes.axhline(r["independent"], color="black", linestyle="--", linewidth=1, label="independent (100 policies)")
        axes.axhline(r["multi-task"], color="black", linestyle=":", linewidth=1, label="multi-task")
        axes.set(title=TITLES[name], xlim=(1, SHOWN))
        axes.title.set_fontsize(10)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
    for axes in grid.flat[len(results) :]:
        axes.set_visible(False)
    figure.legend(
        *grid[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=4, frameon=False, fontsize=9
    )
    figure.supxlabel("policies trained", fontsize=10)
    figure.supylabel("performance", fontsize=10)
    figure.savefig(out, dpi=130)
