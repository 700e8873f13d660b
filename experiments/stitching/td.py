"""Temporal-difference learning of every goal on a table: what stitching by dynamic programming makes of the dataset."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.data.datasets import Dataset

GAMMA, SWEEPS = 0.95, 100


def greedy(dataset: Dataset) -> Callable[[Any], jax.Array]:
    """`act(obs) -> action` of Q(s, a, g) = 1 if s' = g else gamma max_a' Q(s', a', g), the maximum over what was done.

    Deterministic tasks with one-hot cells; what the data never did is worth -1, whatever the goal.
    """
    cells, actions = dataset.obs["obs"].shape[1], int(dataset.action.max()) + 1
    after = np.full((cells, actions), -1)
    after[dataset.obs["obs"].argmax(-1), dataset.action] = dataset.next_obs["obs"].argmax(-1)
    done = after >= 0
    q = np.where(done, 0.0, -1.0)[..., None].repeat(cells, -1)
    for _ in range(SWEEPS):
        value = np.maximum(q.max(1), 0)  # (cells, goals)
        q = np.where(done[..., None], np.where(after[..., None] == np.arange(cells), 1, GAMMA * value[after]), -1)
    table = jnp.asarray(q)
    return lambda obs: jnp.argmax(table[jnp.argmax(obs["obs"], -1), :, jnp.argmax(obs["goal"], -1)], -1)
