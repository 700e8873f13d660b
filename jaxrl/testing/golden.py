"""Where the reference simulators' trajectories lie."""

from __future__ import annotations

from pathlib import Path

import numpy as np

GOLDEN = Path(__file__).resolve().parents[2] / "tests" / "golden"


def golden(name: str) -> dict[str, np.ndarray]:
    """The arrays of `tests/golden/<name>.npz`. Raises FileNotFoundError, naming what there is."""
    path = GOLDEN / f"{name}.npz"
    if not path.exists():
        found = ", ".join(sorted(p.stem for p in GOLDEN.glob("*.npz"))) or "none (they are in the repository only)"
        raise FileNotFoundError(f"No golden data {name!r}; there are: {found}.")
    with np.load(path, allow_pickle=False) as data:
        return dict(data)
