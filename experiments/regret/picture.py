"""The figure and the page of results.json: `python experiments/regret/picture.py`."""

import json
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from run import SETTINGS, STATIONARY

HERE = Path(__file__).parent
TEXT = """# How much do bandit algorithms lose?

`python experiments/regret/run.py` plays {runs:,} runs of each algorithm on each problem, every row one jitted program;
`python experiments/regret/picture.py` makes the figure and this page. Mean regret with its 95 % interval.

![regret](regret.png)

| problem | rounds | means |
|---|---|---|
{problems}

Lower bound: Lai and Robbins (1985), sum of gap / kl(mean, best) times log T; it is asymptotic, so a policy may be below
it at these horizons. Upper bound: UCB1's, Auer, Cesa-Bianchi and Fischer (2002), theorem 1. D-UCB and SW-UCB have
Garivier and Moulines' (2011) discount 1 - sqrt(C / T) / 4 and window 2 sqrt(T log T / C) for C = 2 changes, xi = 1/2.
epsilon-greedy, c / t: c = 0.1, d = 0.1, far below the c that theorem 3 asks for. Thompson, normal: noise 0.5, prior
N(0.5, 0.5^2). MOSS, EXP3 and EXP3-IX know T.

Published: SMPyBandits 0.9.4 (L. Besson), the printed output of its notebooks `Do_we_even_need_UCB` (100 runs) and
`Example_of_a_small_Single-Player_Simulation` (10 runs); the number of runs is in brackets. Those are single numbers
without intervals, and its UCB(alpha) is `exploration` alpha / 2 here.

{table}

Machine: {where[device]}, {where[processors]} cores, jax {where[versions][jax]}; {seconds:.0f} s of CPU time in all,
with compilation.
"""


def lai_robbins(mean, t):
    """The least regret for large t: sum of gap / kl(mean, best), times log t."""
    best, p = max(mean), np.array([m for m in mean if m < max(mean)])
    return np.sum((best - p) / (p * np.log(p / best) + (1 - p) * np.log((1 - p) / (1 - best)))) * np.log(t)


def ucb1_bound(mean, t):
    """Auer, Cesa-Bianchi and Fischer (2002), theorem 1."""
    gap = np.array([max(mean) - m for m in mean if m < max(mean)])
    return np.sum(8 * np.log(t) / gap + (1 + np.pi**2 / 3) * gap)


def page(data: dict) -> str:
    results = data["results"]
    problems = [
        f"| {name} | {rounds:,} | {'as `PiecewiseBandit-v0`' if mean is None else ', '.join(f'{m:g}' for m in mean)} |"
        for name, (_, mean, rounds, *_) in SETTINGS.items()
    ]
    lines = ["| problem | algorithm | final regret | published |", "|---|---|---|---|"]
    for name, (_, mean, rounds, *_) in SETTINGS.items():
        for algo, row in results[name].items():
            lines.append(f"| {name} | {algo} | {row['final']:.1f} ± {row['interval']:.1f} | {row['published']} |")
        if mean is not None:
            bounds = lai_robbins(mean, rounds), ucb1_bound(mean, rounds)
            lines.append(f"| {name} | *lower bound; UCB1's upper bound* | {bounds[0]:.1f}; {bounds[1]:.0f} | |")
    seconds = sum(row["cpu_seconds"] for rows in results.values() for row in rows.values())
    return TEXT.format(
        runs=data["runs"], problems="\n".join(problems), table="\n".join(lines), where=data["where"], seconds=seconds
    )


def main() -> None:
    data = json.loads((HERE / "results.json").read_text())
    names = list(dict.fromkeys(name for rows in data["results"].values() for name in rows))
    color = {name: plt.get_cmap("tab20")(i) for i, name in enumerate(names)}
    figure, grid = plt.subplots(2, 3, figsize=(15, 8.4), layout="constrained")
    for axes, (setting, rows) in zip(grid.flat, data["results"].items(), strict=False):
        _, mean, rounds, *_ = SETTINGS[setting]
        for name, row in rows.items():
            t = np.linspace(0, rounds, len(row["curve"]) + 1)[1:]
            axes.plot(t, row["curve"], color=color[name], label=name, linewidth=1.8)
        if mean is not None:
            t = np.linspace(rounds / 100, rounds, 100)
            axes.plot(t, lai_robbins(mean, t), "k:", label="Lai and Robbins' lower bound")
            axes.plot(t, [ucb1_bound(mean, x) for x in t], "k--", label="UCB1's upper bound")
            axes.set(xscale="log", yscale="log", ylim=(2, None))
        axes.set(title=setting, xlabel="round", ylabel="cumulative regret")
        axes.grid(alpha=0.25)
    grid.flat[4].legend(frameon=False, fontsize=8)
    handles, labels = grid.flat[0].get_legend_handles_labels()
    assert set(STATIONARY) < set(labels)
    grid.flat[5].legend(handles, labels, frameon=False, loc="center left")
    grid.flat[5].axis("off")
    figure.savefig(HERE / "regret.png", dpi=110)
    (HERE / "README.md").write_text(page(data))


if __name__ == "__main__":
    main()
