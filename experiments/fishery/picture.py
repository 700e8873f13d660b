"""The figure and the table of results.json."""

import matplotlib
import numpy as np

from jaxrl.host.plotting import COLORS

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402


def picture(results, path):
    """Return against losses of a population, a panel a fishery."""
    figure, panels = plt.subplots(1, 3, figsize=(12, 3.9), layout="constrained")
    for axes, (model, rows) in zip(panels, results.items(), strict=True):
        parts = sorted(name for name in rows if name.startswith(("constant mortality", "5", "6", "7", "8", "9", "1")))
        line = sorted((rows[name][0]["lost"], rows[name][0]["return"]) for name in parts)
        axes.plot(*zip(*line, strict=True), ".-", color="0.7", label="50 to 110 % of that mortality")
        marks = {"constant mortality": "s", "80% of it": "D", "constant escapement": "^", "PPO": "o"}
        for color, (name, mark) in zip(COLORS, marks.items(), strict=False):
            for i, r in enumerate(rows[name]):
                error = np.abs(np.array([r["lost_95"], r["return_95"]]).T - [r["lost"], r["return"]])
                label = None if i else name.replace("80% of it", "80 % of that mortality")
                axes.errorbar(r["lost"], r["return"], *error[:, ::-1].T[:, :, None], fmt=mark, color=color, label=label)
        axes.set(title=model, xlabel="episodes in which a population is lost", ylabel="mean return")
        axes.set_xlim(-0.01, max(0.1, axes.get_xlim()[1]))
    panels[0].legend(fontsize=8)
    figure.savefig(path, dpi=120)


def table(results):
    """The same as Markdown."""
    lines = ["| fishery | rule | mean return (95 %) | sd | population lost (95 %) |", "|---|---|---|---|---|"]
    for model, rows in results.items():
        for name in ("constant mortality", "80% of it", "constant escapement", "PPO"):
            for r in rows[name]:
                knobs = ", ".join(map(str, r.get("knobs", ())))
                cells = [
                    model,
                    f"{name} {knobs}".strip(),
                    "{:.2f} ({:.2f} to {:.2f})".format(r["return"], *r["return_95"]),
                ]
                cells += [f"{r['sd']:.2f}", "{:.1%} ({:.1%} to {:.1%})".format(r["lost"], *r["lost_95"])]
                lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)
