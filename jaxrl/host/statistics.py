"""What goes into a table: interquartile means and bootstrap intervals (Agarwal et al. 2021, arXiv:2108.13264), and
what is left of an offline score once tuning is counted.
"""

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


def told(
    scores: Any,
    digits: str = ".2f",
    statistic: Callable[[np.ndarray], float] = iqm,
    cells: bool = False,
    confidence: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> str:
    """The statistic of scores and its `bootstrap_interval` in words: "1.25 (1.00 to 1.50)".

    Args:
        scores: (runs,) or (runs, tasks).
        digits: how each number is written, as after the colon of an f-string.
        cells: as two cells of a markdown table: "1.25 | 1.00 to 1.50".
    """
    scores = np.asarray(scores, float)
    low, high = bootstrap_interval(scores, statistic, confidence, resamples, seed)
    x, interval = f"{statistic(scores):{digits}}", f"{low:{digits}} to {high:{digits}}"
    return f"{x} | {interval}" if cells else f"{x} ({interval})"


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


def tuned_online(
    scores: Any, episodes: int = 200, policies: int = 8, repeats: int = 1000, alpha: float = 2.0, seed: int = 0
) -> np.ndarray:
    """What offline learning is worth once its settings are chosen by trying them: `(repeats, episodes)`, the mean score
    of the policy that looks best after each episode (Jackson et al. 2025, "A clean slate for offline reinforcement
    learning").

    The protocol: of all trained policies (settings times seeds) a few are drawn, without replacement; a bandit (UCB of
    bonus sqrt(alpha ln(t) / n), each first once in random order) spends one episode after another on them. The mean
    over `repeats` against the episodes is the curve to report; after one episode it is the mean over all policies.

    Args:
        scores: (K, E) of K policies, the scores of E episodes each, of which the bandit sees random ones. Those of the
            protocol are between a random policy's (0) and the best known one's (100), for which its alpha is meant.

    Raises ValueError for scores of another shape, or not finite, or counts below 1.

    Deviation from the authors' code: what was not tried yet is not compared, where they give it a mean of 0.
    """
    scores = np.asarray(scores, float)
    if scores.ndim != 2 or not scores.size or not np.isfinite(scores).all():
        raise ValueError(f"tuned_online: scores of shape {scores.shape}; finite ones (policies, episodes) are needed.")
    if min(episodes, policies, repeats) < 1:
        raise ValueError(f"tuned_online: {episodes=}, {policies=}, {repeats=}: each must be at least 1.")
    rng, count = np.random.default_rng(seed), min(policies, len(scores))
    means, rows = scores.mean(1), np.arange(repeats)
    drawn = rng.permuted(np.tile(np.arange(len(scores)), (repeats, 1)), axis=1)[:, :count]  # their order is random
    tries, total = np.zeros((repeats, count)), np.zeros((repeats, count))
    curve = np.empty((repeats, episodes))
    for t in range(episodes):
        if t < count:
            arm = np.full(repeats, t)
        else:
            arm = np.argmax(total / tries + np.sqrt(alpha * np.log(t + 1) / tries), 1)
        seen = scores[drawn[rows, arm], rng.integers(0, scores.shape[1], repeats)]
        tries[rows, arm] += 1
        total[rows, arm] += seen
        looks = np.where(tries > 0, total / np.maximum(tries, 1), -np.inf)
        curve[:, t] = means[drawn[rows, np.argmax(looks, 1)]]
    return curve
