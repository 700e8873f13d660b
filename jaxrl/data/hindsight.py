"""Hindsight relabelling: goals that later states of an episode achieved replace those of a dataset."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key


def _equal(achieved: Array, goal: Array) -> Bool[Array, " n"]:
    return jnp.all((achieved == goal).reshape(len(goal), -1), -1)


class Hindsight(NamedTuple):
    """Hindsight relabelling: goals that were achieved later in the same episode replace the recorded ones.

    The goal of step t is what the state after step t + k achieved, with k drawn up to the end of the episode: uniformly
    (gamma = 1), or in proportion to gamma^k. With `clusters`, which number the state after each step, a `share` of
    goals comes from other episodes (temporal data augmentation, Ghugare et al. 2024, "Closing the gap between TD
    learning and supervised learning"): a state is drawn from the cluster of that first goal, and the goal is what this
    state or a later one of its episode achieved. If all states are one cluster, it may come from any episode.
    """

    achieved: Callable[[Any], Array]  # observations (n, ...) -> achieved goals, shaped as their entry "goal"
    gamma: float = 1.0
    clusters: np.ndarray | None = None  # (n,) integers from 0
    share: float = 0.5
    reached: Callable[[Array, Array], Array] = _equal  # (achieved, goal) -> (n,) bool, which gives the reward


def goals_of(
    obs: Any, next_obs: Any, end: Int[Array, " n"], hindsight: Hindsight
) -> Callable[[Key[Array, ""], Int[Array, " rows"]], Array]:
    """A function `(key, rows) -> goals` that draws hindsight goals; `end[i]` is the last row of row i's episode.

    Raises ValueError where observations have no place for goals, and for settings and clusters that do not fit.
    """
    if not (isinstance(obs, dict) and "goal" in obs):
        raise ValueError("hindsight: the dataset's observations have no entry 'goal' for it to be in.")
    if not (0 < hindsight.gamma <= 1 and 0 <= hindsight.share <= 1):
        raise ValueError(
            f"hindsight: gamma={hindsight.gamma} must be above 0, share={hindsight.share} at least 0, and neither "
            "above 1."
        )
    gamma, achieved = hindsight.gamma, jnp.asarray(hindsight.achieved(next_obs))
    like = np.shape(obs["goal"])
    if achieved.shape != like:
        raise ValueError(f"hindsight: what is achieved has shape {achieved.shape}, the goals have {like}.")

    def later(u: Float[Array, " n"], rows: Int[Array, " n"]) -> Int[Array, " n"]:
        left = end[rows] - rows
        k = u * (left + 1) if gamma == 1 else jnp.log1p(-u * (1 - gamma ** (left + 1.0))) / np.log(gamma)
        return rows + jnp.clip(k.astype(jnp.int32), 0, left)

    if hindsight.clusters is None:
        return lambda key, rows: achieved[later(jax.random.uniform(key, rows.shape), rows)]
    clusters = np.asarray(hindsight.clusters)
    if clusters.shape != end.shape or not np.issubdtype(clusters.dtype, np.integer) or clusters.min() < 0:
        raise ValueError(
            f"hindsight: clusters are {clusters.dtype}{clusters.shape}; they must be an integer from 0 for each of "
            f"{len(end)} steps."
        )
    count = np.bincount(clusters)
    members = jnp.asarray(np.argsort(clusters, kind="stable"))
    first, count, clusters = (jnp.asarray(x) for x in (np.cumsum(count) - count, count, clusters))

    def goals(key: Key[Array, ""], rows: Int[Array, " n"]) -> Array:
        u = jax.random.uniform(key, (4, *rows.shape))
        near = later(u[0], rows)
        cluster = clusters[near]
        n = count[cluster]
        other = members[first[cluster] + jnp.minimum((u[1] * n).astype(jnp.int32), n - 1)]
        return achieved[jnp.where(u[2] < hindsight.share, later(u[3], other), near)]

    return goals
