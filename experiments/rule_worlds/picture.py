"""Figures: how deep the rulesets of each benchmark of results.json are, how many rules and objects they have; worlds.

python experiments/rule_worlds/picture.py
"""

import json
from pathlib import Path

import jax
import matplotlib
import numpy as np

from jaxrl.envs.grid.rule_world.rule_world import RuleWorld
from jaxrl.host import render
from jaxrl.host.plotting import COLORS

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

HERE = Path(__file__).parent


def main() -> None:
    results = json.loads((HERE / "results.json").read_text())
    figure, panels = plt.subplots(1, 3, figsize=(12, 3.4), layout="constrained")
    for axes, (field, label) in zip(
        panels, (("depth", "longest chain of needed rules"), ("rules", "rules"), ("objects", "objects")), strict=True
    ):
        for i, (name, row) in enumerate(results.items()):
            share = np.trim_zeros(np.array(row[field]), "b") / row["rulesets"]
            at = np.arange(share.size) + (i - 1.5) * 0.2
            axes.bar(at, 100 * share, 0.2, color=COLORS[i], label=name)
        axes.set(xlabel=label, ylabel="% of the rulesets")
    panels[2].legend(fontsize=8)
    figure.savefig(HERE / "results.png", dpi=110)

    pictures = []
    for i, (layout, config) in enumerate((("R1", "trivial"), ("R2", "small"), ("R4", "medium"), ("R6", "high"))):
        env = RuleWorld(layout, 13, config)
        picture = env.render(env.reset(jax.random.key(i), env.default_params)[1], env.default_params)
        pictures.append(np.pad(picture, ((8, 8), (8, 8), (0, 0)), constant_values=255))
    render.save(HERE / "worlds.png", pictures)


if __name__ == "__main__":
    main()
