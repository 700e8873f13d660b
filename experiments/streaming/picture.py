"""The figures and the page of results.json: `python experiments/streaming/picture.py`."""

import json
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from run import ABLATIONS, LEARNING

HERE = Path(__file__).parent
TEXT = """# Do streaming algorithms learn from single transitions?

`python experiments/streaming/run.py` trains {seeds} streams of each row, one transition at a time, every row one jitted
program; `python experiments/streaming/picture.py` makes the figures and this page. Return of the final greedy policy
({episodes} episodes a stream): interquartile mean over streams and its 95 % bootstrap interval.

The settings are the paper's, with the authors' widths: 32 where actions are discrete, 128 where they are not. At 32 two
of ten StreamAC streams of CartPole-v1 stay at a return of 9; at its default of 128, which the command
`jaxrl train stream_ac CartPole-v1` has, all ten reached 500. **StreamQ on Pendulum-v1 is an exception**, a task outside
the paper: torques are cut into 3, the network is 64 wide, and epsilon goes to 0.05 over 200,000 steps, since with the
paper's schedule (0.01 after 25,000) some streams did not find the top.

{learning}

![learning](learning.png)

## What does each ingredient do?

CartPole-v1 after {ablation_steps:,} steps.

{ablations}

![ablations](ablations.png)

Machine: {where[device]}, {where[processors]} cores, jax {where[versions][jax]};
{seconds:.0f} s in all, with compilation.
"""


def table(rows: dict, names: list[str]) -> str:
    lines = ["| | steps | return |", "|---|---|---|"]
    for name in names:
        low, high = rows[name]["interval"]
        lines.append(f"| {name} | {rows[name]['steps']:,} | {rows[name]['iqm']:.1f} [{low:.1f}, {high:.1f}] |")
    return "\n".join(lines)


def picture(rows: dict, path: Path, panels: dict[str, list[str]]) -> None:
    """Mean return of the training episodes of every row; `panels` maps a title to names."""
    figure, axes = plt.subplots(1, len(panels), figsize=(4 * len(panels), 3.8), squeeze=False, layout="constrained")
    for axis, (title, names) in zip(axes[0], panels.items(), strict=True):
        for name in names:
            curve = np.nanmean(np.array(rows[name]["curve"], float), 0)
            axis.plot(np.linspace(0, rows[name]["steps"] / 1000, len(curve)), curve, label=name.split(", ", 1)[1])
        axis.set(title=title, xlabel="thousand steps", ylabel="return of training episodes")
    if len(names) > 1:
        figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=8)
    figure.savefig(path, dpi=120)


def main() -> None:
    data = json.loads((HERE / "results.json").read_text())
    rows = data["rows"]
    picture(rows, HERE / "learning.png", {name: [name] for name in LEARNING})
    picture(
        rows, HERE / "ablations.png", {a: [n for n in ABLATIONS if n.startswith(a)] for a in ("StreamQ", "StreamAC")}
    )
    page = TEXT.format(
        **data,
        where=data["machine"],
        learning=table(rows, list(LEARNING)),
        ablations=table(rows, list(ABLATIONS)),
        ablation_steps=rows[next(iter(ABLATIONS))]["steps"],
        seconds=sum(r["seconds"] for r in rows.values()),
    )
    (HERE / "README.md").write_text(page)


if __name__ == "__main__":
    main()
