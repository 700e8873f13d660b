"""ALP-GMM: a teacher that samples tasks where its student's competence changes most.

Portelas, Colas, Hofmann and Oudeyer (2019), "Teacher algorithms for curriculum learning of deep RL in continuously
parameterized environments" (arXiv:1910.07224), algorithm 1, and its code. A task is a point x of the unit box, and its
reward r is the return mapped to [0, 1].

    sample   for the first `fit_rate` episodes, and later with probability `random_share`: x is uniform
             else: x is drawn from component k of the mixture and clipped to the box; k in proportion to the ALP
             coordinate of its mean, or uniform if all of these are 0
    score    absolute learning progress ALP = |r - r'|, r' the reward of the nearest task x' before; 0 for the first 5
    update   x, r and ALP are stored; every `fit_rate` episodes Gaussian mixtures of 2 to 10 components are fitted by
             EM to the last `fit_rate` points (x, ALP), and the one with the lowest AIC is kept

Deviations: tasks are handed out and come back in batches, as many as there are environments. Those of a batch are taken
one after another, so one may be the nearest task of the next. A fit that falls due within a batch is done at its end
(where the batch divides `fit_rate` this makes no difference). Tasks whose episode did not finish do not count. The
nearest task is looked for among the last `history` tasks and not among all. Distances are those of the unit box, those
of the authors' code are of the task space. Results: experiments/teachers. Usage:

    level_at = jaxrl.curriculum.teaching.ranges(env_params, {"length": (0.2, 3.0), "mass_pole": (0.05, 1.0)})
    student = ppo.make(vectorize(env, 32, batched_params=True), ppo.Config(num_envs=32))
    teacher = alp_gmm.make(level_at, alp_gmm.Config(), alp_gmm.Hyper(return_low=0.0, return_high=500.0))
    algo = jaxrl.curriculum.attach(student, teacher)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

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
    history: int = 20_000  # last tasks among which the nearest one is looked for

    def __post_init__(self) -> None:
        if not 1 <= self.smallest <= self.largest <= self.fit_rate:
            raise ValueError(
                f"smallest={self.smallest}, largest={self.largest}, fit_rate={self.fit_rate}: at least one component, "
                "and no more of them than points."
            )
        if self.history < self.fit_rate:
            raise ValueError(f"history={self.history}: a fit takes the last fit_rate={self.fit_rate} tasks from it.")


@pytree
class Hyper:
    """Dynamic settings; the returns of the paper's walkers are from -150 to 350."""

    return_low: jax.Array  # return that maps to reward 0
    return_high: jax.Array  # return that maps to reward 1
    random_share: jax.Array = 0.2  # probability of a uniform task


@pytree
class State:
    history: History  # rows (x, reward, ALP)
    mixture: mixtures.Mixture  # over (x, ALP); all weights 0 before the first fit
    params: Any  # of the level distribution
    hyper: Hyper


def learning_progress(
    x: Float[Array, "n D"],
    reward: Float[Array, " n"],
    finished: Bool[Array, " n"],
    past_x: Float[Array, "H D"],
    past_reward: Float[Array, " H"],
    known: Bool[Array, " H"],
    count: Array,
) -> Float[Array, " n"]:
    """|r - r'| of n consecutive tasks, r' being the reward of the nearest earlier task.

    That is one of the past tasks that are `known`, or an earlier one of these n. `count` is the number of tasks before
    these n.
    """
    before = finished & (jnp.arange(len(x)) < jnp.arange(len(x))[:, None])
    nearest, distance = _nearest(x, past_x, known)
    in_batch, distance_in_batch = _nearest(x, x, before)
    other = jnp.where(distance_in_batch < distance, reward[in_batch], past_reward[nearest])
    return jnp.where(count + before.sum(1) > 5, jnp.abs(reward - other), 0)


def _nearest(
    x: Float[Array, "n D"], others: Float[Array, "m D"], eligible: Bool[Array, "*n m"]
) -> tuple[Int[Array, " n"], Float[Array, " n"]]:
    """The index of the nearest eligible point to each x, and the square of its distance."""
    square = sum((jnp.square(x[:, d, None] - others[:, d]) for d in range(x.shape[1])), jnp.zeros(()))
    square = jnp.where(eligible, square, jnp.inf)
    index = jnp.argmin(square, axis=1)
    return index, square[jnp.arange(len(x)), index]


@recorded
def make(level_at: Callable[[Any, Array], Any], config: Config, hyper: Hyper) -> Curriculum:
    """ALP-GMM over the levels `level_at(params, x)`, x (D,) in the unit box.

    Raises ValueError for settings out of range.
    """
    defaults = strongly_typed(hyper)
    check_returns(defaults)
    D = dimensions_of(level_at, config.dimensions)

    def init(key: Array, hyper: Hyper, params: Any) -> State:
        check_returns(hyper)
        K, d = config.largest, D + 1
        none = mixtures.Mixture(jnp.zeros(K), jnp.zeros((K, d)), jnp.broadcast_to(jnp.eye(d), (K, d, d)))
        return State(no_history(config.history, D + 2), none, strongly_typed(params), hyper)

    def sample(key: Array, state: State, wanted: Bool[Array, " n"]) -> tuple[LevelBatch, State]:
        n = len(wanted)
        random_key, uniform_key, mixture_key = jax.random.split(key, 3)
        random = jax.random.bernoulli(random_key, state.hyper.random_share, (n,))
        random = random | (state.history.count < config.fit_rate)
        alp = state.mixture.mean[:, -1]
        chosen = jnp.clip(mixtures.sample(mixture_key, state.mixture, n, alp)[:, :D], 0, 1)
        x = jnp.where(random[:, None], jax.random.uniform(uniform_key, (n, D)), chosen)
        return new_levels_at(level_at, state.params, x), state

    def update(key: Array, state: State, batch: LevelBatch, outcomes: Outcomes) -> State:
        hyper, past, finished = state.hyper, state.history, outcomes.episodes > 0
        x, reward = batch.note, unit(outcomes.episode_return, hyper.return_low, hyper.return_high)
        alp = learning_progress(x, reward, finished, past.rows[:, :D], past.rows[:, D], past.filled, past.count)
        after = remember(past, jnp.concatenate([x, reward[:, None], alp[:, None]], 1), finished)

        def fitted():
            rows = latest(after, config.fit_rate)
            points = jnp.concatenate([rows[:, :D], rows[:, -1:]], 1)
            return mixtures.fit_best(key, points, config.smallest, config.largest)

        due = after.count // config.fit_rate > past.count // config.fit_rate
        return state.replace(history=after, mixture=rarely(due, fitted, state.mixture))

    return Curriculum(init, sample, update, "alp_gmm", (level_at, config), defaults)
