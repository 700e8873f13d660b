"""Goals in hindsight: what later states of a dataset reached, in the place of the goals that it was recorded for."""

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
    """Goals that were reached later in the same episode, in the place of those that it was recorded for.

    The goal of step t is what the state after step t + k achieved, k from 0 to the end of the episode: alike for each
    (gamma = 1), or with probabilities proportional to gamma^k. With `clusters` of the states after each step, a `share`
    of goals goes on along another episode: one of the dataset's states in the cluster of that first goal, and the goal
    is what it or a later one of its own episode achieved (temporal data augmentation, Ghugare et al. 2024, "Closing the
    gap between TD learning and supervised learning"). If all are one cluster, such goals are any of the dataset's.
    """

    achieved: Callable[[Any], Array]  # observations (n, ...) -> what each achieves, as their entry "goal"
    gamma: float = 1.0
    clusters: np.ndarray | None = None  # (n,) integers from 0
    share: float = 0.5
    reached: Callable[[Array, Array], Array] = _equal  # (achieved, goal) -> (n,) bool, for what learns from rewards


def goals_of(
    obs: Any, next_obs: Any, end: Int[Array, " n"], hindsight: Hindsight
) -> Callable[[Key[Array, ""], Int[Array, " rows"]], Array]:
    """Draws goals of a dataset's rows, of which `end` is the last row of each one's episode.

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
