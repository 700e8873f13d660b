"""The final returns of agents that learn by a rule, with the settings that were the best on other levels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxrl.algorithm import Algorithm
from jaxrl.meta.agent import AgentHyper
from jaxrl.meta.lives import lived

USUAL_LIFE = 250
"""Updates of a life, where neither the caller nor the level says."""


class Judged(NamedTuple):
    returns: Float[np.ndarray, " J"]  # final return on each level
    best: int  # the settings that were chosen, a row of `settings`
    tried: Float[np.ndarray, " S"]  # mean final return with each row of `settings` on the tuning levels


def judged(
    algo: Algorithm,
    level_fn: Callable[[Array, Any], Any],
    params: Any,
    settings: AgentHyper,
    tune_keys: Array,
    judge_keys: Array,
    updates: int | None = None,
    at_once: int | None = None,
) -> Judged:
    """An agent on each of J levels, with the settings whose mean over T other levels was the best.

    Args:
        level_fn: `(key, params)` to a level.
        settings: `AgentHyper` with a leading axis S on each leaf, the rule's weights included. Its `lifetime` is not
            used. Of equal means the first one is chosen; one that is NaN only where all are. One row is not tuned.
        tune_keys, judge_keys: (T,) and (J,) keys, each for a level and an agent's life on it.
        updates: of a life; None: the level's `lifetime`, and 250 for levels without one.
        at_once: rows of `settings` in one batch; None: one on a CPU, where as many levels to tune on as to judge on are
            one program, 21 elsewhere.
    """

    def one(hyper: AgentHyper, key: Array) -> Array:
        level_key, *keys = jax.random.split(key, 3)
        level = level_fn(level_key, params)
        lifetime = jnp.int32(getattr(level, "lifetime", USUAL_LIFE) if updates is None else updates)
        return lived(algo, keys, hyper.replace(lifetime=lifetime), level)

    @jax.jit
    def returns(settings: AgentHyper, keys: Array) -> Array:  # (rows, number of keys)
        return jax.vmap(jax.vmap(one, (None, 0)), (0, None))(settings, keys)

    rows = settings.learning_rate.shape[0]
    size = min(rows, at_once or (1 if jax.default_backend() == "cpu" else 21))
    tried = np.full(rows, np.nan)
    if rows > 1:
        parts = [jax.tree.map(lambda x, i=i: x[i : i + size], settings) for i in range(0, rows, size)]
        tried = np.concatenate([np.asarray(returns(part, tune_keys), float).mean(1) for part in parts])
    best = int(np.argmax(np.nan_to_num(tried, nan=-np.inf)))
    chosen = jax.tree.map(lambda x: x[best : best + 1], settings)
    return Judged(np.asarray(returns(chosen, judge_keys), float)[0], best, tried)
