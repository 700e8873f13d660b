"""Measures of a dataset: the quality of its returns, and the state-action pairs that it covers."""

from __future__ import annotations

import jax
import numpy as np

from jaxrl.data.datasets import Dataset, Episodes


def positive_sided_variance(dataset: Dataset) -> float:
    """E[max(G - E[G], 0)^2] of episodes' returns G scaled to [0, 1]: what weighting may gain (Hong et al. 2023)."""
    total = Episodes(dataset).total
    scaled = (total - total.min()) / max(np.ptp(total), 1e-12)
    return float(np.mean(np.maximum(scaled - scaled.mean(), 0.0) ** 2))


def trajectory_quality(dataset: Dataset, random: float, best: float) -> float:
    """Trajectory quality (TQ): the mean return on a scale from a random policy (0) to the best known one (1).

    Schweighofer et al. (2022), "A dataset perspective on offline reinforcement learning", equation 4.
    """
    if not best > random:
        raise ValueError(f"the best return, {best}, must be above a random policy's, {random}.")
    return float((Episodes(dataset).total.mean() - random) / (best - random))


def state_action_coverage(dataset: Dataset, reference: Dataset, bins: int = 100) -> float:
    """State-action coverage (SACo): the number of distinct state-action pairs divided by a reference dataset's.

    Schweighofer et al. (2022), equation 5. Continuous numbers are binned into `bins` equal intervals between the
    reference's lowest and highest.
    """
    edges = _ranges(reference)
    return _distinct(dataset, edges, bins) / _distinct(reference, edges, bins)


def _columns(dataset: Dataset) -> list[np.ndarray]:
    return [np.asarray(x).reshape(dataset.size, -1) for x in (*jax.tree.leaves(dataset.obs), dataset.action)]


def _ranges(dataset: Dataset) -> list[tuple[np.ndarray, np.ndarray]]:
    return [(x.min(0), x.max(0)) for x in _columns(dataset)]


def _distinct(dataset: Dataset, ranges: list[tuple[np.ndarray, np.ndarray]], bins: int) -> int:
    cells = []
    for x, (low, high) in zip(_columns(dataset), ranges, strict=True):
        if np.issubdtype(x.dtype, np.floating):
            share = (x - low) / np.maximum(high - low, 1e-12)
            x = np.clip(np.floor(share * bins), 0, bins - 1)
        cells.append(x.astype(np.int32))
    return len(np.unique(np.concatenate(cells, 1), axis=0))
