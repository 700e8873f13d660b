"""Do values explode at the edge of what k-step rollouts reach, with the true dynamics as the model?

    python experiments/edge_of_reach/run.py [--seeds 10] [--steps 4000] [--picture]

Writes results.json and results.png beside this file and prints the table of README.md; `--picture` makes only the
picture and the table again.
"""

import argparse
import json
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from study import ARMS, HORIZON, HYPER, IMAGINED, SIZES, UPDATE, measure

from jaxrl.host.plotting import COLORS
from jaxrl.host.run.run_folder import environment_of_run
from jaxrl.host.statistics import bootstrap_interval, iqm

HERE = Path(__file__).parent
LENGTHS = (10, 5, 1, HORIZON)  # the first ones tell most


def report(results):
    rows = {(row["arm"], row["k"]): row for row in results["rows"]}
    lengths = sorted({k for _, k in rows})
    figure, axes = plt.subplots(1, 3, figsize=(13, 3.6), layout="constrained")
    axes[1].sharey(axes[0])
    print("| learner | k | seeds above | critics' value, last | at step 0 | at step k | return |\n" + "|---" * 7 + "|")
    for arm, ax in zip(ARMS, axes, strict=False):
        for i, k in enumerate(lengths):
            if (arm, k) not in rows:
                continue
            row = rows[arm, k]
            q, values = np.array(row["q"]), np.array(row["by_step"])
            steps = results["settings"]["update"] * np.arange(1, q.shape[1] + 1)
            ax.plot(steps, np.median(q, 0), color=COLORS[i], label=f"k = {k}")
            ax.fill_between(steps, q.min(0), q.max(0), color=COLORS[i], alpha=0.2, linewidth=0)
            cells = [f"{np.sum(q[:, -1] > results['settings']['bound'])}"]
            for x in (q[:, -1], values[:, 0], values[:, k], np.array(row["returns"])):
                low, high = bootstrap_interval(x)
                cells.append(f"{iqm(x):.3g} [{low:.3g}, {high:.3g}]")
            print(f"| {arm} | {k} | " + " | ".join(cells) + " |")
        ax.axhline(results["settings"]["bound"], color="black", linestyle=":", label="highest there is")
        ax.set(title=f"{arm}, true dynamics", xlabel="gradient steps", ylabel="critics' value", yscale="log")
        ax.legend(frameon=False, fontsize=8)
    for j, arm in enumerate(ARMS):
        for i, k in enumerate(lengths):
            if (arm, k) in rows:
                x = np.array(rows[arm, k]["returns"])
                (low, high), middle = bootstrap_interval(x), iqm(x)
                label = arm if i == 0 else None
                axes[2].bar(i + 0.4 * j, middle, 0.38, color=COLORS[j], label=label)
                axes[2].errorbar(i + 0.4 * j, middle, [[middle - low], [high - middle]], fmt="none", color="black")
    axes[2].set(title="plane, 30 steps", ylabel="return", xlabel="k", xticks=np.arange(len(lengths)) + 0.2)
    axes[2].set_xticklabels(lengths)
    axes[2].legend(frameon=False, fontsize=8)
    figure.savefig(HERE / "results.png", dpi=110)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--picture", action="store_true")
    args = parser.parse_args()
    if not args.picture:
        where = environment_of_run()
        arms = {arm: {**config, **hyper} for arm, (_, config, hyper) in ARMS.items()}
        settings = dict(update=UPDATE, imagined=IMAGINED, steps=args.steps, bound=1 / (1 - HYPER["gamma"]))
        settings |= dict(sizes=SIZES, hyper=HYPER, arms=arms)
        results = {"settings": settings, "rows": []} | {x: where[x] for x in ("started", "device", "versions")}
        for k in LENGTHS:
            for arm in ARMS:
                row = measure(arm, k, args.seeds, args.steps)
                results["rows"].append({"arm": arm, "k": k, **row})
                (HERE / "results.json").write_text(json.dumps(results) + "\n")
                print(arm, k, row["compile_s"], row["run_s"], flush=True)
    report(json.loads((HERE / "results.json").read_text()))


if __name__ == "__main__":
    main()
