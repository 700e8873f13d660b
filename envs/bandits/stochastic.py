"""Stochastic bandits: each arm pays independent rewards of a fixed distribution with the arm's mean.

| id | reward of an arm of mean m |
|---|---|
| `BernoulliBandit-v0` | 1 with probability m, else 0 |
| `GaussianBandit-v0` | normal, mean m, standard deviation `scale` |
| `BetaBandit-v0` | Beta(c m, c (1 - m)), c = `concentration` |
| `HeavyTailedBandit-v0` | m + `scale` times Student's t, `df` degrees of freedom: infinite variance at the default 2 |

Robbins (1952), "Some aspects of the sequential design of experiments"; heavy tails: Bubeck, Cesa-Bianchi and Lugosi
(2013), "Bandits with heavy tail". The observation says nothing (`Discrete(1)`), the action is an arm, an episode is one
problem of `max_steps` rounds, and `info["regret"]` is the expected loss of the round. `generate(key, params)` draws a
problem: means uniform in [`low`, `high`].
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Integer

from jaxrl.environment import Transition, pytree, strongly_typed
from jaxrl.math import sincos

from .bandit import Bandit, State, pick, regret


@pytree
class Params:
    mean: jax.Array = (1 / 3, 2 / 3)  # (K,) of each arm
    low: jax.Array = 0.0  # of the means that `generate` draws
    high: jax.Array = 1.0
    scale: jax.Array = 1.0  # standard deviation (Gaussian) or scale (heavy-tailed) of the noise
    concentration: jax.Array = 4.0  # Beta: the higher, the less noise
    df: jax.Array = 2.0  # heavy-tailed: degrees of freedom, above 1 for the mean to exist
    max_steps: jax.Array = 1000


@dataclasses.dataclass(frozen=True)
class StochasticBandit(Bandit):
    """Base of the four; a subclass draws a reward."""

    Params = Params

    @property
    def default_params(self) -> Params:
        """Means 1 / (K + 1) ... K / (K + 1): the last arm is best, and no gap is small."""
        return strongly_typed(Params(mean=jnp.arange(1, self.arms + 1) / (self.arms + 1)))

    def generate(self, key: Array, params: Params) -> Params:
        """A problem: means uniform in [low, high]. For `vectorize(level_fn=env.generate)` or a `vmap`."""
        return params.replace(mean=jax.random.uniform(key, (self.arms,), minval=params.low, maxval=params.high))

    def draw(self, key: Array, mean: Float[Array, ""], params: Params) -> Float[Array, ""]:
        """A reward of an arm of this mean."""
        raise NotImplementedError

    def transition(self, key: Array, state: State, action: Integer[Array, ""], params: Params) -> Transition:
        reward = self.draw(key, pick(params.mean, action), params)
        info = {"regret": regret(params.mean, action)}
        return Transition(state, reward, jnp.bool_(False), jnp.bool_(False), info)

    def validate(self, params: Params) -> None:
        name = self.id or type(self).__name__
        if np.shape(params.mean)[-1] != self.arms:
            raise ValueError(f"{name}: {np.shape(params.mean)[-1]} means for arms={self.arms}.")
        for field, least in (("scale", 0), ("concentration", 0), ("df", 1)):
            if not np.all(np.asarray(getattr(params, field)) > least):
                raise ValueError(f"{name}: {field}={getattr(params, field)} must be above {least}.")
        if not np.all(np.asarray(params.low) <= np.asarray(params.high)):
            raise ValueError(f"{name}: low={params.low} must not be above high={params.high}.")


@dataclasses.dataclass(frozen=True)
class UnitBandit(StochasticBandit):
    """A base of those whose rewards are in [0, 1]."""

    def validate(self, params: Params) -> None:
        super().validate(params)
        for field in ("mean", "low", "high"):
            x = np.asarray(getattr(params, field))
            if not np.all((x >= 0) & (x <= 1)):
                raise ValueError(f"{self.id}: {field}={x} must be in [0, 1].")


@dataclasses.dataclass(frozen=True)
class BernoulliBandit(UnitBandit):
    id: str = dataclasses.field(default="BernoulliBandit-v0", kw_only=True)

    def draw(self, key: Array, mean: Float[Array, ""], params: Params) -> Float[Array, ""]:
        return (jax.random.uniform(key, dtype=mean.dtype) < mean).astype(mean.dtype)


@dataclasses.dataclass(frozen=True)
class GaussianBandit(StochasticBandit):
    id: str = dataclasses.field(default="GaussianBandit-v0", kw_only=True)

    def draw(self, key: Array, mean: Float[Array, ""], params: Params) -> Float[Array, ""]:
        return mean + params.scale * jax.random.normal(key, dtype=mean.dtype)


@dataclasses.dataclass(frozen=True)
class BetaBandit(UnitBandit):
    id: str = dataclasses.field(default="BetaBandit-v0", kw_only=True)

    def draw(self, key: Array, mean: Float[Array, ""], params: Params) -> Float[Array, ""]:
        a, b = params.concentration * mean, params.concentration * (1 - mean)
        return jax.random.beta(key, a, b, dtype=mean.dtype)


@dataclasses.dataclass(frozen=True)
class HeavyTailedBandit(StochasticBandit):
    id: str = dataclasses.field(default="HeavyTailedBandit-v0", kw_only=True)

    def draw(self, key: Array, mean: Float[Array, ""], params: Params) -> Float[Array, ""]:
        return mean + params.scale * student_t(jax.random.uniform(key, (2,), dtype=mean.dtype), params.df)


def student_t(uniform: Float[Array, "2"], df: Any) -> Float[Array, ""]:
    """A draw of Student's t from two uniforms in [0, 1): the polar method without rejection (Bailey 1994)."""
    _, cos = sincos(2 * math.pi * uniform[1])
    return jnp.sqrt(df * ((1 - uniform[0]) ** (-2 / df) - 1)) * cos
