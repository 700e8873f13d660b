"""A learning curve that grows while an agent trains, for notebooks: `fit(..., on_progress=LiveCurve())`."""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxrl.canvas import COLORS, new_figure


class LiveCurve:
    """Draws a metric of each call of `fit` against environment steps: the mean over seeds, single seeds behind it.
    Each point is the mean of what was logged since the point before.

    In a notebook the picture stays in its place and is drawn again with each call, of which `fit` makes about two a
    second; elsewhere nothing is shown. `figure()` is the curve so far, as a matplotlib figure.
    """

    def __init__(self, metric: str = "episode_return"):
        self.metric = metric
        self.steps: list[int] = []
        self.values: list[np.ndarray] = []
        self._handle: Any = None

    def __call__(self, done: int, row: dict[str, Any], state: Any = None) -> None:
        """`done` updates were made; `row` is the mean of what was logged since the last call, or the row of that call.

        Raises ValueError for a metric that the rows do not have.
        """
        if not row or (self.steps and row["step"] <= self.steps[-1]):  # no row since
            return
        if self.metric not in row:
            names = ", ".join(name for name in row if name not in ("update", "step"))
            raise ValueError(f"metric={self.metric!r}: the rows have {names}.")
        value = np.atleast_1d(np.asarray(row[self.metric], float))
        self.steps.append(row["step"])
        self.values.append(value)
        self.draw()

    def figure(self) -> Any:
        figure = new_figure(figsize=(6, 3.2), layout="constrained")
        axes = figure.subplots()
        steps = np.array(self.steps)
        values = np.stack(self.values, 1) if self.values else np.zeros((1, 0))  # (seeds, calls)
        count = (~np.isnan(values)).sum(0)
        mean = np.where(count > 0, np.nansum(values, 0) / np.maximum(count, 1), np.nan)
        for row in values if len(values) > 1 else ():
            self._line(axes, steps, row, alpha=0.25, linewidth=0.8)
        self._line(axes, steps, mean, linewidth=2)
        axes.set(xlabel="environment steps a seed", ylabel=self.metric.replace("_", " "))
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
        return figure

    @staticmethod
    def _line(axes: Any, steps: np.ndarray, values: np.ndarray, **style: Any) -> None:
        known = ~np.isnan(values)  # where no episode ended there is nothing to tell
        axes.plot(steps[known], values[known], color=COLORS[0], **style)

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
            self._handle = display(self.figure(), display_id=True)
        else:
            self._handle.update(self.figure())
