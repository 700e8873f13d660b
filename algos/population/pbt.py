"""Population-based training (PBT): hyper-parameters are selected and perturbed while a population trains.

Jaderberg et al. (2017), "Population based training of neural networks" (arXiv:1711.09846), section 4.1: every
`interval` updates each member of the worst `quantile` of the population copies a random member of the best `quantile`:
weights, optimiser, statistics and settings (truncation selection). Copied settings are multiplied or divided by
`factor` or, with probability `resample`, drawn again from their range.

PBT is an `Algorithm` around any other; the population is a `vmap` axis of one program. A member's score is the running
mean of its training returns; a member whose weights are not finite copies another one at once. Deviations: members copy
synchronously; a copy keeps the fields that the student's `slots` name (environments, recurrent carries, replay buffer),
so it continues its episodes and learns from its earlier steps (under a curriculum it copies the curriculum's state but
finishes the levels that it is on); settings stay within their range. Usage:

    algo = pbt.make(ppo.make(env), pbt.Config(population=16, explored=(("learning_rate", 1e-5, 1e-2),)))
    state, metrics = jaxrl.train(algo, key, total_steps, ppo.Hyper())
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, Num

from jaxrl.algorithm import Algorithm, field, names_of, shared, with_fields
from jaxrl.environment import pytree, strongly_typed
from jaxrl.nesting import OuterState, around, complete_hyper
from jaxrl.rollout import Ends, in_all


@dataclasses.dataclass(frozen=True)
class Config:
    """Static settings."""

    explored: tuple[tuple[str, float, float], ...]  # (name of a setting of the student, lowest, highest value)
    population: int = 16  # members, a `vmap` axis
    quantile: float = 0.25  # share of the population that is replaced, and that is copied from
    interval: int = 10  # updates between exchanges
    factor: float = 1.2  # by which a copied setting is multiplied or divided
    resample: float = 0.25  # probability that it is drawn from its range instead
    smoothing: float = 0.7  # weight of the past in a member's score

    def __post_init__(self) -> None:
        if self.interval < 1:
            raise ValueError(f"interval={self.interval}: it must be at least 1.")
        if not 1 <= self.replaced <= self.population // 2:
            raise ValueError(
                f"quantile={self.quantile} of population={self.population} is {self.replaced} members; it must be at "
                "least 1 and at most half of them."
            )
        for name, low, high in self.explored:
            if not 0 < low < high:
                raise ValueError(f"explored {name}: the range {low} to {high} must be positive and not empty.")

    @property
    def replaced(self) -> int:
        return round(self.quantile * self.population)


@pytree(static=("batched_params",))
class PBTState(OuterState):
    """The state of a population of P members with N slots each.

    `obs`, `env_state` and `env_params` are those of all P * N slots; other public fields of the members have a leading
    axis P. `step` counts the steps of all members together.
    """

    key: jax.Array
    inner: Any  # states of the members, leading axis P
    score: jax.Array  # (P,) running mean of returns, -inf before the first episode
    updates: jax.Array  # int32
    batched_params: bool  # True: each slot has separate params; False: each member

    @property
    def obs(self) -> Any:
        return self._slots(self.inner.obs)

    @property
    def env_state(self) -> Any:
        return self._slots(self.inner.env_state)

    @property
    def env_params(self) -> Any:
        return self._slots(self.inner.env_params) if self.batched_params else self.inner.env_params

    @property
    def step(self) -> Array:
        return in_all(self.inner.step)

    def _slots(self, tree: Any) -> Any:
        """Leaves (P, N, ...) as (P * N, ...); axes of a batch of populations may come before."""
        axis = self.inner.step.ndim - 1
        return jax.tree.map(lambda x: x.reshape(*x.shape[:axis], -1, *x.shape[axis + 2 :]), tree)

    def replace(self, **changes: Any) -> PBTState:
        """A copy with fields changed; they have the shapes with which they are read."""
        P = len(self.score)
        for name in ("obs", "env_state", *["env_params"] * self.batched_params):
            if name in changes:
                changes[name] = parted(changes[name], P)
        if "step" in changes:
            changes["step"] = jnp.full(P, changes["step"] // P)
        return super().replace(**changes)


def parted(tree: Any, P: int) -> Any:
    """Leaves (P * N, ...) of all slots as (P, N, ...)."""
    return jax.tree.map(lambda x: x.reshape(P, -1, *x.shape[1:]), tree)


def sources(
    key: Key[Array, ""], score: Float[Array, " P"], replaced: int, due: Bool[Array, ""] | bool = True
) -> Int[Array, " P"]:
    """The index of the member that each member copies.

    It is its own index unless it is among the `replaced` worst and the member drawn from the best is better. Where no
    exchange is due only diverged members (score NaN) copy.
    """
    P = score.shape[0]
    # A diverged member ranks below one without a return yet.
    value = jnp.where(jnp.isnan(score), -jnp.inf, jnp.maximum(score, jnp.finfo(score.dtype).min))
    order = jnp.argsort(value, stable=True)
    rank = jnp.zeros(P, int).at[order].set(jnp.arange(P))
    best = order[P - replaced :]
    drawn = best[jax.random.randint(key, (P,), 0, replaced)]
    drawn = jnp.where(jnp.isnan(score[drawn]), order[-1], drawn)
    wanting = ((rank < replaced) & due) | jnp.isnan(score)
    return jnp.where(wanting & (value[drawn] > value), drawn, jnp.arange(P))


def log_uniform(key: Key[Array, ""], low: float, high: float, count: int) -> Float[Array, " P"]:
    """Log-uniform draws in [low, high]."""
    return jnp.exp(jax.random.uniform(key, (count,), minval=np.log(low), maxval=np.log(high)))


def explore(
    key: Key[Array, ""],
    value: Num[Array, " P"],
    copied: Bool[Array, " P"],
    low: float,
    high: float,
    factor: float,
    resample: float,
) -> Num[Array, " P"]:
    """A setting after the exchange: where it was copied, perturbed or drawn again, within [low, high]."""
    up_key, new_key, which_key = jax.random.split(key, 3)
    up = jax.random.bernoulli(up_key, shape=value.shape)
    moved = jnp.where(up, value * factor, value / factor)
    anew = jax.random.bernoulli(which_key, resample, value.shape)
    moved = jnp.where(anew, log_uniform(new_key, low, high, value.shape[0]), moved)
    return jnp.where(copied, _as(jnp.clip(moved, low, high), value.dtype), value)


def _as(x: Array, dtype: Any) -> Array:
    return (jnp.round(x) if jnp.issubdtype(dtype, jnp.integer) else x).astype(dtype)


def with_keys(state: Any, of: Any) -> Any:
    """`state` with all its random keys replaced by those of the state `of`."""

    def own(x, y):
        return y if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x

    return jax.tree.map(own, state, of)


def finite(weights: Any) -> Bool[Array, " P"]:
    """Which members have finite weights."""
    each = [jnp.isfinite(x).reshape(x.shape[0], -1).all(1) for x in jax.tree.leaves(weights)]
    return functools.reduce(jnp.logical_and, each)


class Rollout(NamedTuple):
    members: Any  # rollouts, leading axis P
    ends: Ends  # (T, P * N)


@dataclasses.dataclass(frozen=True)
class _PBT:
    """The static settings of the learner; its methods are the Algorithm's functions."""

    student: Algorithm
    config: Config

    def init(self, key: Array, hyper: Any = None, env_params: Any = None) -> PBTState:
        config = self.config
        key, member_key, *setting_keys = jax.random.split(key, 2 + len(config.explored))
        hyper = strongly_typed(complete_hyper(self.student, hyper))
        drawn = {
            name: _as(log_uniform(k, low, high, config.population), field(hyper, name).dtype)
            for k, (name, low, high) in zip(setting_keys, config.explored, strict=True)
        }
        each = jax.tree.map(lambda x: jnp.broadcast_to(x, (config.population, *x.shape)), hyper)
        hyper = with_fields(each, drawn)
        keys = jax.random.split(member_key, config.population)
        members = jax.vmap(self.student.init, (0, 0, None))(keys, hyper, env_params)
        score = jnp.full(config.population, -jnp.inf, jnp.result_type(float))
        return PBTState(key, members, score, jnp.int32(0), self.student.venv.batched_params)

    def collect(self, state: PBTState) -> tuple[PBTState, Rollout]:
        members, rollout = jax.vmap(self.student.collect)(state.inner)
        # (P, T, N) as (T, P * N)
        ends = jax.tree.map(lambda x: jnp.moveaxis(x, 0, 1).reshape(x.shape[1], -1), rollout.ends)
        return state.replace(inner=members), Rollout(rollout, ends)

    def learn(self, state: PBTState, rollout: Rollout) -> tuple[PBTState, dict[str, Array]]:
        config = self.config
        key, exchange_key = jax.random.split(state.key)
        members, metrics = jax.vmap(self.student.learn)(state.inner, rollout.members)
        fine = finite(members.weights)
        score = running_score(state.score, metrics["episode_return"], config.smoothing)
        score = jnp.where(fine, score, jnp.nan)
        updates = state.updates + 1
        due = updates % config.interval == 0
        # Fields that stay with a member are kept out of the branch, which would copy them: a replay buffer is large.
        own = {path: field(members, path) for path in self.student.slots}
        own = {path: value for path, value in own.items() if value is not None}
        state = state.replace(key=key, inner=with_fields(members, dict.fromkeys(own)), score=score, updates=updates)
        state, copied = jax.lax.cond(
            due | ~fine.all(),
            self.exchange,
            lambda key, state, due: (state, jnp.int32(0)),
            *(exchange_key, state, due),
        )
        state = state.replace(inner=with_fields(state.inner, own))
        report = {name: jnp.nanmean(jnp.where(fine, x, jnp.nan)) for name, x in metrics.items()}
        report |= {f"population/{name}": jnp.mean(field(members.hyper, name)) for name, _, _ in config.explored}
        best_score = jnp.max(jnp.where(fine, score, -jnp.inf))
        counts = {"copied": copied, "diverged": jnp.sum(~fine, dtype=jnp.int32)}
        return state, {**report, **rollout.ends.metrics(), "best_score": best_score, **counts}

    def exchange(self, key: Array, state: PBTState, due: Array) -> tuple[PBTState, Array]:
        """`(state, number of replaced members)` after copying and perturbing."""
        config, members = self.config, state.inner
        source_key, *setting_keys = jax.random.split(key, 1 + len(config.explored))
        source = sources(source_key, state.score, config.replaced, due)
        copied = source != jnp.arange(config.population)
        new = with_keys(jax.tree.map(lambda x: x[source], members), members)
        explored = {
            name: explore(k, field(new.hyper, name), copied, low, high, config.factor, config.resample)
            for k, (name, low, high) in zip(setting_keys, config.explored, strict=True)
        }
        new = new.replace(hyper=with_fields(new.hyper, explored))
        return state.replace(inner=new, score=state.score[source]), copied.sum(dtype=jnp.int32)

    def restart(self, state: PBTState, key: Array, env_params: Any, mask: Bool[Array, " slots"]) -> PBTState:
        P = self.config.population
        if state.batched_params:
            params = parted(env_params, P)
        else:  # params for all members, or one for each
            params = jax.tree.map(lambda new, old: jnp.broadcast_to(new, old.shape), env_params, state.inner.env_params)
        keys, mask = jax.random.split(key, P), mask.reshape(P, -1)
        return state.replace(inner=jax.vmap(self.student.restart)(state.inner, keys, params, mask))

    def policy(self, state: PBTState) -> Any:
        """The policy of the member with the best score."""
        best = jnp.argmax(jnp.where(jnp.isnan(state.score), -jnp.inf, state.score))
        return self.student.policy(jax.tree.map(lambda x: x[best], state.inner))


def running_score(
    score: Float[Array, " P"], episode_return: Float[Array, " P"], smoothing: float
) -> Float[Array, " P"]:
    """The exponential mean of returns; a NaN (no episode ended) does not change it, the first return initialises it."""
    new = jnp.where(jnp.isfinite(score), smoothing * score + (1 - smoothing) * episode_return, episode_return)
    return jnp.where(jnp.isnan(episode_return), score, new)


@shared
def make(student: Algorithm, config: Config) -> Algorithm:
    """A population of `student`s. Its `Hyper` is the student's; settings that are not explored are shared.

    Raises ValueError for an explored setting that the student does not have.
    """
    names = names_of(student.hyper())
    for name, _, _ in config.explored:
        if name not in names:
            raise ValueError(f"explored: {student.name} has no setting {name!r}; its Hyper has {', '.join(names)}.")
    pbt = _PBT(student, config)
    return around(
        student,
        "pbt",
        (config,),
        steps_per_update=config.population * student.steps_per_update,
        init=pbt.init,
        collect=pbt.collect,
        learn=pbt.learn,
        policy=pbt.policy,
        restart=pbt.restart,
    )
