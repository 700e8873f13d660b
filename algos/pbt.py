"""Population-based training: settings that change while many agents train.

Jaderberg et al. (2017), "Population based training of neural networks" (arXiv:1711.09846), section 4.1: every
`interval` updates each of the worst `quantile` of the population copies a member drawn from the best one, weights,
optimiser, statistics and settings (truncation selection); the copied settings are multiplied by `factor` or divided by
it, or, with probability `resample`, drawn anew from their range.

An `Algorithm` around any other; the population is a `vmap` axis of one program. A member's score is the running mean of
its training returns. Deviations: members copy in step with each other, not asynchronously; what they copy does not
include environments or a replay memory, so a copy goes on in its own episodes and learns from its own past; settings
stay within their range. Use:

    algo = pbt.make(ppo.make(env), pbt.Config(population=16, explored=(("learning_rate", 1e-5, 1e-2),)))
    state, metrics = jaxrl.train(algo, key, total_steps, ppo.Hyper())
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, Num

from jaxrl.algorithm import Algorithm
from jaxrl.environment import pytree, strongly_typed


@dataclasses.dataclass(frozen=True)
class Config:
    """Static settings."""

    explored: tuple[tuple[str, float, float], ...]  # (name of a setting of the student, least, largest)
    population: int = 16
    quantile: float = 0.25  # of the population: as many are replaced, and as many are copied from
    interval: int = 10  # updates between exchanges
    factor: float = 1.2  # by which a copied setting moves, up or down
    resample: float = 0.25  # probability that it is drawn anew instead
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


@pytree
class PBTState:
    """The population: leaves of `members` have a leading axis P. `step` counts the steps of all together."""

    key: jax.Array
    members: Any
    score: jax.Array  # (P,) running mean of returns, -inf before the first episode

    @property
    def hyper(self) -> Any:
        return self.members.hyper

    @property
    def env_params(self) -> Any:
        return jax.tree.map(lambda x: x[0], self.members.env_params)

    @property
    def env_state(self) -> Any:
        return self.members.env_state

    @property
    def obs(self) -> Any:
        return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), self.members.obs)

    @property
    def step(self) -> Array:
        return self.members.step.sum(dtype=jnp.int32)

    @property
    def weights(self) -> Any:
        return self.members.weights


def sources(key: Key[Array, ""], score: Float[Array, " P"], replaced: int) -> Int[Array, " P"]:
    """Whom each member copies, itself unless it is among the `replaced` worst and a drawn one of the best is better."""
    order = jnp.argsort(score)
    worst, best = order[:replaced], order[-replaced:]
    drawn = best[jax.random.randint(key, (replaced,), 0, replaced)]
    drawn = jnp.where(score[drawn] > score[worst], drawn, worst)
    return jnp.arange(score.shape[0]).at[worst].set(drawn)


def log_uniform(key: Key[Array, ""], low: float, high: float, count: int) -> Float[Array, " P"]:
    """Draws whose logarithm is uniform."""
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
    """A setting after the exchange: perturbed or drawn anew where it was copied, within [low, high]."""
    up_key, new_key, which_key = jax.random.split(key, 3)
    up = jax.random.bernoulli(up_key, shape=value.shape)
    moved = jnp.where(up, value * factor, value / factor)
    anew = jax.random.bernoulli(which_key, resample, value.shape)
    moved = jnp.where(anew, log_uniform(new_key, low, high, value.shape[0]), moved)
    return jnp.where(copied, _as(jnp.clip(moved, low, high), value.dtype), value)


def _as(x: Array, dtype: Any) -> Array:
    return (jnp.round(x) if jnp.issubdtype(dtype, jnp.integer) else x).astype(dtype)


def field(state: Any, path: str) -> Any:
    """A field of a state, by its dotted path; None where there is no such part."""
    return functools.reduce(lambda part, name: getattr(part, name, None), path.split("."), state)


def with_field(state: Any, path: str, value: Any) -> Any:
    """The state with this field."""
    name, _, rest = path.partition(".")
    return state.replace(**{name: with_field(getattr(state, name), rest, value) if rest else value})


def with_fields(state: Any, fields: dict[str, Any]) -> Any:
    return functools.reduce(lambda state, item: with_field(state, *item), fields.items(), state)


@dataclasses.dataclass(frozen=True)
class _PBT:
    """The static half; its methods are the Algorithm's functions."""

    student: Algorithm
    config: Config

    def init(self, key: Array, hyper: Any = None, env_params: Any = None) -> PBTState:
        config = self.config
        key, member_key, *setting_keys = jax.random.split(key, 2 + len(config.explored))
        hyper = strongly_typed(self.student.hyper() if hyper is None else hyper)
        drawn = {
            name: _as(log_uniform(k, low, high, config.population), getattr(hyper, name).dtype)
            for k, (name, low, high) in zip(setting_keys, config.explored, strict=True)
        }
        hyper = jax.tree.map(lambda x: jnp.broadcast_to(x, (config.population,)), hyper).replace(**drawn)
        keys = jax.random.split(member_key, config.population)
        members = jax.vmap(self.student.init, (0, 0, None))(keys, hyper, env_params)
        return PBTState(key, members, jnp.full(config.population, -jnp.inf, jnp.result_type(float)))

    def collect(self, state: PBTState) -> tuple[PBTState, Any]:
        members, rollout = jax.vmap(self.student.collect)(state.members)
        return state.replace(members=members), rollout

    def learn(self, state: PBTState, rollout: Any) -> tuple[PBTState, dict[str, Array]]:
        config = self.config
        key, exchange_key = jax.random.split(state.key)
        members, metrics = jax.vmap(self.student.learn)(state.members, rollout)
        score = running_score(state.score, metrics["episode_return"], config.smoothing)
        score = jnp.where(jnp.isfinite(metrics["loss"]), score, -jnp.inf)  # who diverged is replaced
        due = members.step[0] // self.student.steps_per_update % config.interval == 0
        # What stays with a member does not go through the branch: it would be copied, and a replay is large.
        own = self.kept(members)
        state = state.replace(key=key, members=with_fields(members, dict.fromkeys(own)), score=score)
        state, copied = jax.lax.cond(due, self.exchange, lambda key, state: (state, jnp.int32(0)), exchange_key, state)
        state = state.replace(members=with_fields(state.members, own))
        episodes = metrics.pop("episodes")
        report = {name: jnp.nanmean(x) for name, x in metrics.items()}
        report |= {f"population/{name}": jnp.mean(getattr(members.hyper, name)) for name, _, _ in config.explored}
        return state, {**report, "episodes": episodes.sum(), "best_score": jnp.max(score), "copied": copied}

    def kept(self, members: Any) -> dict[str, Any]:
        """What a member keeps when it copies another: its key, and what belongs to its environments' slots."""
        own = {path: field(members, path) for path in ("key", *self.student.slots)}
        return {path: value for path, value in own.items() if value is not None}

    def exchange(self, key: Array, state: PBTState) -> tuple[PBTState, Array]:
        """Copy and explore; `(state, how many were replaced)`."""
        config, members = self.config, state.members
        source_key, *setting_keys = jax.random.split(key, 1 + len(config.explored))
        source = sources(source_key, state.score, config.replaced)
        copied = source != jnp.arange(config.population)
        new = jax.tree.map(lambda x: x[source], members)
        explored = {
            name: explore(k, getattr(new.hyper, name), copied, low, high, config.factor, config.resample)
            for k, (name, low, high) in zip(setting_keys, config.explored, strict=True)
        }
        new = new.replace(hyper=new.hyper.replace(**explored))
        return state.replace(members=new, score=state.score[source]), copied.sum(dtype=jnp.int32)

    def policy(self, state: PBTState) -> Any:
        """That of the member with the best score."""
        best = jax.tree.map(lambda x: x[jnp.argmax(state.score)], state.members)
        return self.student.policy(best)


def running_score(
    score: Float[Array, " P"], episode_return: Float[Array, " P"], smoothing: float
) -> Float[Array, " P"]:
    """Exponential mean of returns; a NaN (no episode ended) leaves it, the first return starts it."""
    new = jnp.where(jnp.isfinite(score), smoothing * score + (1 - smoothing) * episode_return, episode_return)
    return jnp.where(jnp.isnan(episode_return), score, new)


@functools.cache
def make(student: Algorithm, config: Config) -> Algorithm:
    """A population of `student`s. Its `Hyper` is the student's: what is not explored is the same for all members.

    Raises ValueError for an explored setting that the student does not have.
    """
    fields = [field.name for field in dataclasses.fields(student.hyper)]
    for name, _, _ in config.explored:
        if name not in fields:
            raise ValueError(f"explored: {student.name} has no setting {name!r}; its Hyper has {', '.join(fields)}.")
    pbt = _PBT(student, config)
    return student._replace(
        name=f"{student.name}+pbt",
        config=(student.config, config),
        steps_per_update=config.population * student.steps_per_update,
        init=pbt.init,
        collect=pbt.collect,
        learn=pbt.learn,
        policy=pbt.policy,
    )
