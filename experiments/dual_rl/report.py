"""The tables and the figure of results.json."""

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from jaxrl.host.statistics import iqm, told


def cell(scores):
    return told(scores, ".1f")


def report(results, here):
    for name, rows in results["imitation"].items():
        print(f"\n| {name} | " + " | ".join(dict.fromkeys(r["data"] for r in rows)) + " |\n|---|---|---|---|")
        for learner in dict.fromkeys(r["learner"] for r in rows):
            mine = {r["data"]: cell(r["scores"]) for r in rows if r["learner"] == learner}
            print(f"| {learner} | " + " | ".join(mine.get(r["data"], "-") for r in rows[:3]) + " |")
    figure, panels = plt.subplots(1, 2, figsize=(10, 4), layout="constrained", gridspec_kw={"width_ratios": [3, 2]})
    for name, rows in results["temperatures"].items():
        print(f"\n| {name} | setting: score | best | diverged | largest value of the possible |\n|---|---|---|---|---|")
        for learner in dict.fromkeys(r["learner"] for r in rows):
            mine = [r for r in rows if r["learner"] == learner]
            at = [r["setting"] for r in mine]
            each = ", ".join(f"{x:g}: {iqm(r['scores']):.0f}" for x, r in zip(at, mine, strict=True))
            best = max(mine, key=lambda r: iqm(r["scores"]))
            runs, bad = sum(len(r["scores"]) for r in mine), sum(r["diverged"] for r in mine)
            largest = max(max(r["largest"]) for r in mine)
            print(f"| {learner} | {each} | {cell(best['scores'])} | {bad} of {runs} | {largest:.2g} |")
            panels[0].plot(range(len(at)), [iqm(r["scores"]) for r in mine], "o-", label=learner)
        panels[0].set(
            title=name, xticks=range(len(at)), xlabel="setting, from the first to the last of its grid", ylabel="score"
        )
        panels[0].legend(frameon=False, fontsize=8)
    bars, labels = panels[1], []
    for name, rows in results["imitation"].items():
        for r in rows:
            bars.plot(r["scores"], [len(labels)] * len(r["scores"]), "o", alpha=0.4, color="tab:blue")
            bars.plot(iqm(r["scores"]), len(labels), "|", color="black", markersize=14)
            labels.append(f"{r['learner']}, {r['data']}, {name}")
    bars.set_yticks(range(len(labels)), labels, fontsize=7)
    bars.invert_yaxis()
    bars.set(xlabel="score")
    figure.savefig(here / "results.png", dpi=120)
