"""Draws docs/media/sequence.png: what each step of a sequence with two episodes sees, and where a gradient passes.

python experiments/memory/picture.py
"""

from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib
import matplotlib.pyplot as plt
import numpy as np

from jaxrl.nn.cells import CELLS, layer

BURN_IN, STEPS, RESET, WINDOW = 3, 12, 8, 3
SHOWN = ("gru", "attention", "frames")
OUT = Path(__file__).parents[2] / "docs" / "media" / "sequence.png"


def seen(cell: str) -> np.ndarray:
    """Whether the output at each step (rows) changes with the input at each step (columns), from the cell itself."""
    net = layer(cell, 16, window=WINDOW)
    inputs = jax.random.normal(jax.random.key(0), (STEPS, 4))
    start = jnp.zeros(STEPS, bool).at[RESET].set(True)
    carry = net.initial_carry(())
    weights = net.init(jax.random.key(1), carry, inputs, start)
    jacobian = jax.jacrev(lambda x: net.apply(weights, carry, x, start)[1].sum(-1))(inputs)
    return np.abs(np.asarray(jacobian)).sum(-1) > 1e-9


def main() -> None:
    assert set(SHOWN) <= set(CELLS)
    matplotlib.use("Agg")
    figure, axes = plt.subplots(1, len(SHOWN), figsize=(10, 3.9), sharey=True, layout="constrained")
    for axis, cell in zip(axes, SHOWN, strict=True):
        for t, row in enumerate(seen(cell)):
            for s in np.flatnonzero(row):
                own = "tab:blue" if s < RESET else "tab:orange"
                through = t < BURN_IN or s < BURN_IN  # no gradient: the burn-in only refreshes the carry
                axis.add_patch(plt.Rectangle((s - 0.42, t - 0.42), 0.84, 0.84, color=own, alpha=0.35 if through else 1))
        axis.axvline(BURN_IN - 0.5, color="grey", linestyle=":")
        axis.axhline(BURN_IN - 0.5, color="grey", linestyle=":")
        axis.axvline(RESET - 0.5, color="black")
        axis.axhline(RESET - 0.5, color="black")
        axis.set(xlim=(-0.5, STEPS - 0.5), ylim=(STEPS - 0.5, -0.5), aspect="equal")
        axis.set(title=cell if cell == "gru" else f"{cell}, window {WINDOW}", xlabel="input of step")
        axis.set_xticks(range(0, STEPS, 2))
        axis.set_yticks(range(0, STEPS, 2))
    axes[0].set_ylabel("output of step")
    figure.savefig(OUT, dpi=110)


if __name__ == "__main__":
    main()
