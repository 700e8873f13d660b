"""The oracle teacher: a window of tasks that an expert moves from easy to hard ones.

The expert baseline of Portelas et al. (2019, arXiv:1910.07224) and its code. The window is a part of the unit box,
`window` wide in every coordinate. It begins at the end of the box that `step` points away from.

    sample   x is uniform in the window
    update   whenever `num_returns` episodes have finished, the window moves by `step` if their mean return is above
             `threshold`, no farther than the end of the box; their returns are forgotten

The paper's walkers: a mean return above 230 over 50 episodes; stumps higher by 0.1 of 3 and closer by 0.2 of 6, which
is a step of (1/30, -1/30).

Deviation: tasks come back in batches, so there may be somewhat more than `num_returns` of them when the window moves.
Usage: as `alp_gmm`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from jaxrl.calls import recorded
from jaxrl.curriculum.protocol import Curriculum, LevelBatch, Outcomes
from jaxrl.curriculum.teaching import dimensions_of, new_levels_at
from jaxrl.environment import is_concrete, pytree, strongly_typed


@dataclasses.dataclass(frozen=True)
class Config:
    """Static settings."""

    dimensions: int | None = None  # D of the box; None: `level_at.dimensions`, which `Ranges` have


@pytree
class Hyper:
    """Dynamic settings: what the expert knows."""

    threshold: jax.Array  # the window moves if the mean return is above this
    step: jax.Array = 1 / 30  # how far, in the unit box; a number or (D,), negative where low values are hard
    window: jax.Array = 1 / 6  # width of the window, in the unit box
    num_returns: jax.Array = 50.0  # returns that are needed before the window may move


@pytree
class State:
    low: jax.Array  # (D,) where the window begins
    total: jax.Array  # sum of the returns since the last time that there were enough of them
    count: jax.Array  # how many returns these are
    params: Any  # of the level distribution
    hyper: Hyper


@recorded
def make(level_at: Callable[[Any, Array], Any], config: Config, hyper: Hyper) -> Curriculum:
    """A moving window over the levels `level_at(params, x)`, x (D,) in the unit box.

    Raises ValueError for settings out of range.
    """
    defaults = strongly_typed(hyper.replace(step=jnp.asarray(hyper.step)))
    D = dimensions_of(level_at, config.dimensions)
    _check(defaults, D)

    def init(key: Array, hyper: Hyper, params: Any) -> State:
        _check(hyper, D)
        low = jnp.where(jnp.broadcast_to(hyper.step, (D,)) >= 0, 0, 1 - hyper.window)
        return State(low, jnp.zeros(()), jnp.zeros(()), strongly_typed(params), hyper)

    def sample(key: Array, state: State, wanted: Bool[Array, " n"]) -> tuple[LevelBatch, State]:
        n = len(wanted)
        x = state.low + state.hyper.window * jax.random.uniform(key, (n, D))
        return new_levels_at(level_at, state.params, x), state

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
        (level_at, config),
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
