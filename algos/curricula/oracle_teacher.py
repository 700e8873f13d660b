"""The oracle teacher: a window of tasks that an expert moves from easy to hard ones.

The expert baseline of Portelas et al. (2019, arXiv:1910.07224) and its code. Tasks are uniform in a window of the unit
box, `window` wide in every coordinate, that begins at the end of the box from which `step` leads away. Whenever
`num_returns` episodes have finished, the window moves by `step` if their mean return is above `threshold`, no farther
than the end of the box. The paper's walkers: returns above 230 over 50 episodes; stumps higher by 0.1 of 3 and closer
by 0.2 of 6, which is a step of (1/30, -1/30).

Deviation: tasks come back by the batch, so that there may be somewhat more than `num_returns` of them when the window
moves. Use: as alp_gmm.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from jaxrl.curriculum.protocol import Curriculum, LevelBatch, Outcomes
from jaxrl.curriculum.teaching import dimensions_of, levels_at
from jaxrl.environment import is_concrete, pytree, strongly_typed


@dataclasses.dataclass(frozen=True)
class Config:
    """Static settings."""

    dimensions: int | None = None  # D, of the box; None: what the level function says


@pytree
class Hyper:
    """Dynamic settings: what the expert knows."""

    threshold: jax.Array  # mean return above which the window moves
    step: jax.Array = 1 / 30  # of the unit box, a number or (D,); negative where low values are hard, 0: it stays low
    window: jax.Array = 1 / 6  # its width, of the unit box
    num_returns: jax.Array = 50.0  # returns before it may move


@pytree
class State:
    low: jax.Array  # (D,) where the window begins
    total: jax.Array  # of returns since it was last looked at
    count: jax.Array
    params: Any  # of the level distribution
    hyper: Hyper


def make(level_fn: Callable[[Any, Array], Any], config: Config, hyper: Hyper) -> Curriculum:
    """A moving window over the levels `level_fn(params, x)`, x (D,) in the unit box.

    Raises ValueError for settings that cannot be.
    """
    defaults = strongly_typed(hyper.replace(step=jnp.asarray(hyper.step)))
    D = dimensions_of(level_fn, config.dimensions)
    _check(defaults, D)

    def init(key: Array, hyper: Hyper, params: Any) -> State:
        _check(hyper, D)
        low = jnp.where(jnp.broadcast_to(hyper.step, (D,)) >= 0, 0, 1 - hyper.window)
        return State(low, jnp.zeros(()), jnp.zeros(()), strongly_typed(params), hyper)

    def sample(key: Array, state: State, wanted: Bool[Array, " n"]) -> tuple[LevelBatch, State]:
        n = len(wanted)
        x = state.low + state.hyper.window * jax.random.uniform(key, (n, D))
        return levels_at(level_fn, state.params, x), state

    def update(key: Array, state: State, batch: LevelBatch, outcomes: Outcomes) -> State:
        hyper, finished = state.hyper, outcomes.episodes > 0
        total = state.total + jnp.where(finished, outcomes.episode_return, 0).sum()
        count = state.count + finished.sum()
        full = count >= hyper.num_returns
        moves = full & (total > hyper.threshold * count)
        low = jnp.where(moves, jnp.clip(state.low + hyper.step, 0, 1 - hyper.window), state.low)
        return state.replace(low=low, total=jnp.where(full, 0, total), count=jnp.where(full, 0, count))

    return Curriculum(
        init,
        sample,
        update,
        "oracle_teacher",
        (level_fn, config),
        defaults,
        metrics=lambda state: {"window": state.low.mean()},
    )


def _check(hyper: Hyper, D: int) -> None:
    if not is_concrete(hyper):
        return
    if np.shape(hyper.step) not in ((), (D,)):
        raise ValueError(f"step has shape {np.shape(hyper.step)}: a number or {D} of them.")
    if np.any((np.asarray(hyper.window) <= 0) | (np.asarray(hyper.window) > 1)):
        raise ValueError(f"window={hyper.window} must be in (0, 1].")
    if not np.all(np.asarray(hyper.num_returns) >= 1):
        raise ValueError(f"num_returns={hyper.num_returns} must be at least 1.")
