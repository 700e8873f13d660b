"""What goes into a table: interquartile means and bootstrap intervals (Agarwal et al. 2021, arXiv:2108.13264)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def iqm(scores: Any) -> float:
    """The mean of the middle half (interquartile mean; Agarwal et al. 2021). Raises ValueError for no scores."""
    scores = np.asarray(scores, float).ravel()
    if not scores.size:
        raise ValueError("iqm of no scores.")
    return float(_middle_mean(scores))


def _middle_mean(scores: np.ndarray) -> Any:
    """Along the last axis, a quarter of the scores, rounded down, left out on either side."""
    cut = scores.shape[-1] // 4
    return np.sort(scores, -1)[..., cut : scores.shape[-1] - cut].mean(-1)


def bootstrap_interval(
    scores: Any,
    statistic: Callable[[np.ndarray], float] = iqm,
    confidence: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> tuple[float, float]:
    """Percentile interval of `statistic` under a stratified bootstrap: runs are redrawn within each task.

    Args:
        scores: (runs,) or (runs, tasks).
    """
    scores = np.asarray(scores, float)
    scores = scores[:, None] if scores.ndim == 1 else scores
    runs, tasks = scores.shape
    rng = np.random.default_rng(seed)
    draws = rng.integers(0, runs, (resamples, runs, tasks))
    redrawn = scores[draws, np.arange(tasks)]
    if statistic is iqm:  # thousands of intervals to a figure of curves: all resamples at once
        values = _middle_mean(redrawn.reshape(resamples, -1))
    else:
        values = [statistic(x) for x in redrawn]
    low, high = np.quantile(values, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)


def probability_of_improvement(
    x: Any, y: Any, confidence: float = 0.95, resamples: int = 2000, seed: int = 0
) -> tuple[float, tuple[float, float]]:
    """How probable it is that a run of X scores higher than one of Y, ties counting half, and its percentile interval
    under a bootstrap of both (Agarwal et al. 2021, section 4.3). Raises ValueError for no scores.
    """
    x, y = (np.asarray(scores, float).ravel() for scores in (x, y))
    if not (x.size and y.size):
        raise ValueError("probability_of_improvement of no scores.")
    rng = np.random.default_rng(seed)
    better = np.sign(x[:, None] - y) / 2 + 0.5
    rows, columns = (rng.integers(0, n, (resamples, n)) for n in (x.size, y.size))
    values = better[rows[:, :, None], columns[:, None, :]].mean((1, 2))
    low, high = np.quantile(values, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(better.mean()), (float(low), float(high))
