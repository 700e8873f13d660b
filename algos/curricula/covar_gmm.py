"""Covar-GMM: a teacher that samples tasks on which its student's reward grows over time.

Moulin-Frier, Nguyen and Oudeyer (2014), "Self-organization of early vocal development in infants and machines: the role
of intrinsic motivation", Frontiers in Psychology 4:1006, as adapted by Portelas et al. (2019, arXiv:1910.07224) and its
code. A task is a point x of the unit box, and its reward r is the return mapped to [0, 1].

    sample   for the first `fit_rate` episodes, and later with probability `random_share`: x is uniform
             else: x is drawn from component k of the mixture and clipped to the box; k in proportion to
             max(0, covariance of t and r) in it, or uniform if all of these are 0
    update   x and r are stored; every `fit_rate` episodes Gaussian mixtures of 2 to 10 components are fitted by EM to
             the last `fit_rate` points (x, t, r), t in [0, 1) the time within these episodes, and the one with the
             lowest AIC is kept

Deviations: tasks are handed out and come back in batches. A fit that falls due within a batch is done at its end (where
the batch divides `fit_rate` this makes no difference). Tasks whose episode did not finish do not count. Results:
experiments/teachers. Usage: as `alp_gmm`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

from jaxrl.calls import recorded
from jaxrl.curriculum.protocol import Curriculum, LevelBatch, Outcomes
from jaxrl.curriculum.teaching import (
    History,
    check_returns,
    dimensions_of,
    latest,
    new_levels_at,
    no_history,
    remember,
    unit,
)
from jaxrl.environment import pytree, strongly_typed
from jaxrl.exact import mixtures
from jaxrl.math import rarely


@dataclasses.dataclass(frozen=True)
class Config:
    """Static settings, those of the paper."""

    dimensions: int | None = None  # D of the box; None: `level_at.dimensions`, which `Ranges` have
    fit_rate: int = 250  # episodes from one fit to the next, and points in each
    smallest: int = 2  # fewest components of a mixture that is tried
    largest: int = 10  # and most

    def __post_init__(self) -> None:
        if not 1 <= self.smallest <= self.largest <= self.fit_rate:
            raise ValueError(
                f"smallest={self.smallest}, largest={self.largest}, fit_rate={self.fit_rate}: at least one component, "
                "and no more of them than points."
            )


@pytree
class Hyper:
    """Dynamic settings; the returns of the paper's walkers are from -150 to 350."""

    return_low: jax.Array  # return that maps to reward 0
    return_high: jax.Array  # return that maps to reward 1
    random_share: jax.Array = 0.2  # probability of a uniform task


@pytree
class State:
    history: History  # rows (x, reward)
    mixture: mixtures.Mixture  # over (x, t, r); all weights 0 before the first fit
    params: Any  # of the level distribution
    hyper: Hyper


@recorded
def make(level_at: Callable[[Any, Array], Any], config: Config, hyper: Hyper) -> Curriculum:
    """Covar-GMM over the levels `level_at(params, x)`, x (D,) in the unit box.

    Raises ValueError for settings out of range.
    """
    defaults = strongly_typed(hyper)
    check_returns(defaults)
    D = dimensions_of(level_at, config.dimensions)
    time = jnp.arange(config.fit_rate)[:, None] / config.fit_rate

    def init(key: Array, hyper: Hyper, params: Any) -> State:
        check_returns(hyper)
        K, d = config.largest, D + 2
        none = mixtures.Mixture(jnp.zeros(K), jnp.zeros((K, d)), jnp.broadcast_to(jnp.eye(d), (K, d, d)))
        return State(no_history(config.fit_rate, D + 1), none, strongly_typed(params), hyper)

    def sample(key: Array, state: State, wanted: Bool[Array, " n"]) -> tuple[LevelBatch, State]:
        n = len(wanted)
        random_key, uniform_key, mixture_key = jax.random.split(key, 3)
        random = jax.random.bernoulli(random_key, state.hyper.random_share, (n,))
        random = random | (state.history.count < config.fit_rate)
        progress = jnp.maximum(state.mixture.covariance[:, -2, -1], 0)
        chosen = jnp.clip(mixtures.sample(mixture_key, state.mixture, n, progress)[:, :D], 0, 1)
        x = jnp.where(random[:, None], jax.random.uniform(uniform_key, (n, D)), chosen)
        return new_levels_at(level_at, state.params, x), state

    def update(key: Array, state: State, batch: LevelBatch, outcomes: Outcomes) -> State:
        hyper, past = state.hyper, state.history
        reward = unit(outcomes.episode_return, hyper.return_low, hyper.return_high)
        after = remember(past, jnp.concatenate([batch.note, reward[:, None]], 1), outcomes.episodes > 0)

        def fitted():
            rows = latest(after, config.fit_rate)
            points = jnp.concatenate([rows[:, :D], time, rows[:, D:]], 1)
            return mixtures.fit_best(key, points, config.smallest, config.largest)

        due = after.count // config.fit_rate > past.count // config.fit_rate
        return state.replace(history=after, mixture=rarely(due, fitted, state.mixture))

    return Curriculum(init, sample, update, "covar_gmm", (level_at, config), defaults)
