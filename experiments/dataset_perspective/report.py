"""What the results say: rank correlations of scores with TQ and SACo, their intervals, and the figure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from jaxrl.host.plotting import COLORS
from jaxrl.host.statistics import told

FAMILY = {"BC": "cloning", "BVE": "behaviour's values", "MCE": "behaviour's values"}
FAMILY |= dict.fromkeys(("DQN", "QR-DQN", "REM"), "DQN family") | dict.fromkeys(("BCQ", "CQL", "CRR"), "conservative")


def columns(results: dict[str, Any], agent: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """`(TQ, SACo, mean scores of the seeds)` of each dataset: all tasks and kinds."""
    rows = results["tasks"].values()
    scores = np.concatenate([np.mean(row["scores"][agent], 1) for row in rows])
    return np.concatenate([row["tq"] for row in rows]), np.concatenate([row["saco"] for row in rows]), scores


def ranks(x: np.ndarray) -> np.ndarray:
    """From 0; equals share the mean of theirs."""
    return (x[:, None] > x).sum(1) + ((x[:, None] == x).sum(1) - 1) / 2


def spearman(x: np.ndarray, y: np.ndarray) -> float:
    return float(np.corrcoef(ranks(x), ranks(y))[0, 1])


def correlation(x: np.ndarray, scores: np.ndarray, draws: int = 2000) -> str:
    """Spearman's, and its 95 % interval over datasets drawn anew with replacement."""
    rows = np.random.default_rng(0).integers(0, len(x), (draws, len(x)))
    low, high = np.percentile([spearman(x[i], scores[i]) for i in rows], [2.5, 97.5])
    return f"{spearman(x, scores):.2f} ({low:.2f} to {high:.2f})"


def tables(results: dict[str, Any]) -> str:
    agents = list(next(iter(results["tasks"].values()))["scores"])
    lines = [
        "| agent | | score, IQM | 95 % interval | rank correlation with TQ | with SACo | with TQ + SACo |",
        "|" + "---|" * 7,
    ]
    for agent in agents:
        tq, saco, scores = columns(results, agent)
        by = [correlation(x, scores) for x in (tq, saco, tq + saco)]
        cells = FAMILY[agent], told(scores, cells=True), *by
        lines.append(f"| {agent} | " + " | ".join(cells) + " |")
    lines += ["", "| agent | " + " | ".join(results["kinds"]) + " |", "|---" * (1 + len(results["kinds"])) + "|"]
    for agent in agents:
        each = [np.mean(row["scores"][agent], 1) for row in results["tasks"].values()]
        cells = [f"{np.mean([x[i] for x in each]):.2f}" for i in range(len(results["kinds"]))]
        lines.append(f"| {agent} | " + " | ".join(cells) + " |")
    lines += ["", "| task | random, best return | " + " | ".join(f"{k}: TQ, SACo" for k in results["kinds"]) + " |"]
    lines.append("|---" * (2 + len(results["kinds"])) + "|")
    for name, row in results["tasks"].items():
        cells = [f"{t:.2f}, {s:.2f}" for t, s in zip(row["tq"], row["saco"], strict=True)]
        lines.append(f"| {name} | {row['random']:.2f}, {row['best']:.2f} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def picture(results: dict[str, Any], out: Path) -> None:
    """Scores by TQ above, by SACo below, a column an agent, a colour a kind of data."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    agents, kinds = list(next(iter(results["tasks"].values()))["scores"]), results["kinds"]
    figure, grid = plt.subplots(2, len(agents), figsize=(2 * len(agents), 5), layout="constrained", sharey=True)
    for column, agent in enumerate(agents):
        tq, saco, scores = columns(results, agent)
        for axes, x, name in ((grid[0, column], tq, "TQ"), (grid[1, column], saco, "SACo")):
            for k, kind in enumerate(kinds):
                mean = np.clip(scores, -0.6, 1.3)[k :: len(kinds)]
                axes.plot(x[k :: len(kinds)], mean, "o", color=COLORS[k], alpha=0.8, markersize=5, label=kind)
            axes.set_title(f"{agent}: {spearman(x, scores):.2f}", fontsize=10)
            axes.set_xlabel(name)
            axes.grid(alpha=0.2)
    for row in grid:
        row[0].set_ylabel("score")
    handles, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(kinds), frameon=False)
    figure.savefig(out, dpi=110)
