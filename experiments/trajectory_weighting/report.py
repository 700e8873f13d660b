"""The tables and the figure of results.json."""

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import spearmanr

from jaxrl.host.statistics import iqm, told


def report(results, here):
    rows = {(r["task"], r["share"], r["learner"], r["sampling"]): r for r in results["rows"]}
    samplings = list(dict.fromkeys(r["sampling"] for r in results["rows"]))
    cases = list(dict.fromkeys(key[:3] for key in rows))
    print("| task | expert's steps | variance | learner | " + " | ".join(samplings) + " |")
    print("|" + "---|" * (4 + len(samplings)))
    for task, share, learner in cases:
        cells = []
        for sampling in samplings:
            scores = rows[task, share, learner, sampling]["scores"]
            cells.append(told(scores, ".1f"))
        variance = rows[task, share, learner, samplings[0]]["variance"]
        print(f"| {task} | {share:.0%} | {variance:.4f} | {learner} | " + " | ".join(cells) + " |")
    learners = list(dict.fromkeys(case[2] for case in cases))
    figure, panels = plt.subplots(
        1, len(learners), figsize=(4.5 * len(learners), 3.6), layout="constrained", sharex=True
    )
    for axes, learner in zip(np.atleast_1d(panels), learners, strict=True):
        mine = [case for case in cases if case[2] == learner]
        x = [rows[*case, "uniform"]["variance"] for case in mine]
        for sampling, mark in zip(samplings[1:], "o^s", strict=True):
            gain = [iqm(rows[*case, sampling]["scores"]) - iqm(rows[*case, "uniform"]["scores"]) for case in mine]
            rank = spearmanr(x, gain).statistic
            at_least = sum(
                iqm(rows[*case, sampling]["scores"]) >= 2 * max(iqm(rows[*case, "uniform"]["scores"]), 0)
                for case in mine
            )
            print(
                f"{learner}, {sampling}: rank correlation {rank:.2f}; at least 2x uniform's in {at_least} of {len(x)}"
            )
            axes.plot(x, gain, mark, alpha=0.7, label=f"{sampling} (rank correlation {rank:.2f})")
        axes.axhline(0, color="grey", linewidth=0.8)
        axes.set(title=learner, xlabel="positive-sided variance", ylabel="score less uniform sampling's", xscale="log")
        axes.legend(frameon=False, fontsize=8)
    figure.savefig(here / "results.png", dpi=120)
