"""A learning curve that grows while an agent trains, for notebooks: `fit(..., on_progress=LiveCurve())`."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from jaxrl.canvas import COLORS


class LiveCurve:
    """Draws a metric of each call of `fit` against environment steps: the mean over seeds, single seeds behind it.

    In a notebook the picture stays in its place and is drawn again, at most every `seconds`; elsewhere nothing is
    shown. `figure()` is the curve so far, as a matplotlib figure.
    """

    def __init__(self, metric: str = "episode_return", seconds: float = 1.0):
        self.metric, self.seconds = metric, seconds
        self.steps: list[int] = []
        self.values: list[np.ndarray] = []
        self._handle: Any = None
        self._drawn_at = -np.inf

    def __call__(self, done: int, row: dict[str, Any]) -> None:
        """`done` updates were made, `row` is the last one that was logged.

        Raises ValueError for a metric that the rows do not have.
        """
        if self.metric not in row:
            names = ", ".join(name for name in row if name not in ("update", "step"))
            raise ValueError(f"metric={self.metric!r}: the rows have {names}.")
        value = np.atleast_1d(np.asarray(row[self.metric], float))
        self.steps.append(row["step"])
        self.values.append(value)
        now = time.monotonic()
        if now - self._drawn_at >= self.seconds:
            self.draw()
            self._drawn_at = now

    def figure(self) -> Any:
        from matplotlib.figure import Figure

        figure = Figure(figsize=(6, 3.2), layout="constrained")
        axes = figure.subplots()
        if self.steps:
            values = np.stack(self.values)
            known = ~np.isnan(values)
            mean = np.where(known.any(1), np.nansum(values, 1) / np.maximum(known.sum(1), 1), np.nan)
            if values.shape[1] > 1:
                axes.plot(self.steps, values, color=COLORS[0], alpha=0.25, linewidth=0.8)
            axes.plot(self.steps, mean, color=COLORS[0], linewidth=2)
        axes.set(xlabel="environment steps a seed", ylabel=self.metric.replace("_", " "))
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
        return figure

    def draw(self) -> None:
        """Show the curve so far in the notebook that this runs in; elsewhere do nothing."""
        try:
            from IPython import get_ipython
            from IPython.display import display
        except ImportError:
            return
        if get_ipython() is None:
            return
        if self._handle is None:
            self._handle = display(_Picture(self), display_id=True)
        else:
            self._handle.update(_Picture(self))


class _Picture:
    """The PNG of a curve, which a notebook shows whatever its matplotlib is set to."""

    def __init__(self, curve: LiveCurve):
        self.curve = curve

    def _repr_png_(self) -> bytes:
        import io

        held = io.BytesIO()
        self.curve.figure().savefig(held, format="png", dpi=90)
        return held.getvalue()
