"""The table, the rank correlations and the scatter plot of results.json."""

import matplotlib
import numpy as np
from scipy.stats import spearmanr

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

PREDICTORS = {
    "horizon": "effective horizon H (bound)",
    "min_k": "least k",
    "log10_gorp_steps": "T^2 A^H",
    "planning_window": "planning window",
    "log10_covering_steps": "covering length",
}


def correlation(x, y, rng, resamples=2000):
    """Spearman's rank correlation and its 95 % interval over resampled MDPs."""
    draws = []
    for _ in range(resamples):
        i = rng.integers(0, len(x), len(x))
        if np.ptp(x[i]) > 0 and np.ptp(y[i]) > 0:
            draws.append(spearmanr(x[i], y[i])[0])
    return spearmanr(x, y)[0], *np.quantile(draws, [0.025, 0.975])


def report(result, folder):
    rows, cap = result["rows"], result["steps"]
    # None, never reached, becomes infinity.
    reached = {name: np.nan_to_num(np.array([r[name] for r in rows], float), nan=np.inf) for name in ("ppo", "dqn")}
    medians = {name: np.median(steps, -1) for name, steps in reached.items()}
    kinds = {
        "all": np.ones(len(rows), bool),
        "deterministic": np.array([row["deterministic"] for row in rows]),
        "stochastic": np.array([not row["deterministic"] for row in rows]),
    }
    lines = ["| predictor | MDPs | PPO | DQN |", "|---|---|---|---|"]
    for key, label in PREDICTORS.items():
        x = np.array([row[key] for row in rows], float)
        for kind, mask in kinds.items():
            cells = []
            for y in medians.values():
                # A run that never got there took longer than all that did: as ranks go, that is all one needs.
                r = correlation(x[mask], np.minimum(y, 2 * cap)[mask], np.random.default_rng(0))
                cells.append("{:.2f} [{:.2f}, {:.2f}]".format(*r))
            lines.append(f"| {label} | {kind} ({mask.sum()}) | {' | '.join(cells)} |")
    lines += ["", "| MDP | T | least k | H (at k) | window | log10 covering | PPO | DQN | GORP |", "|" + "---|" * 9]

    def steps(x):
        return f"{x:,.0f}" if np.isfinite(x) else f"> {cap:,}"

    for row, p, d in zip(rows, medians["ppo"], medians["dqn"], strict=True):
        plan = f"{min(row['gorp']):,}" if "gorp" in row else "none" if row["deterministic"] else ""
        lines.append(
            f"| {row['name']} | {row['T']} | {row['min_k']} | {row['horizon']:.1f} ({row['horizon_k']}) | "
            f"{row['planning_window']} | {row['log10_covering_steps']:.1f} | {steps(p)} | {steps(d)} | {plan} |"
        )
    (folder / "table.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
    x = np.array([row["log10_gorp_steps"] for row in rows])
    figure, axes = plt.subplots(1, 2, figsize=(9, 4), sharey=True, layout="constrained")
    for axis, (name, y) in zip(axes, medians.items(), strict=True):
        for kind, marker, color in (("deterministic", "o", "C0"), ("stochastic", "^", "C1")):
            mask, never = kinds[kind], ~np.isfinite(y)
            axis.scatter(x[mask & ~never], y[mask & ~never], marker=marker, color=color, label=kind, alpha=0.8)
            axis.scatter(x[mask & never], np.full((mask & never).sum(), 1.5 * cap), marker=marker, ec=color, fc="none")
        axis.axhline(cap, color="0.7", lw=1, ls="--")
        axis.set(yscale="log", title=name.upper(), xlabel="log10 of T² A^H, the bound for GORP's steps")
    axes[0].set_ylabel("steps to the optimum (hollow: not reached)")
    axes[0].legend(frameon=False, loc="lower right")
    figure.savefig(folder / "results.png", dpi=130)
