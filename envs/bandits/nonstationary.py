"""Bandits whose arms change: the best arm of a round may not be the best of the next.

| id | means | reward |
|---|---|---|
| `DriftingBandit-v0` | normal random walks of step `drift`, reflected in [`low`, `high`] | normal, deviation `scale` |
| `SwitchingBandit-v0` | after a round, with probability `hazard`, all drawn anew in [`low`, `high`] | Bernoulli |
| `PiecewiseBandit-v0` | a table: row i from round `start[i]` on | Bernoulli |

Reflected walks: Besbes, Gur and Zeevi (2014) and Slivkins and Upfal (2008), "Adapting to a changing environment: the
Brownian restless bandits"; abrupt switches: Garivier and Moulines (2011), "On upper-confidence bound policies for
switching bandit problems", whose first experiment is the default of `PiecewiseBandit-v0`.

The observation says nothing (`Discrete(1)`), the action is an arm, an episode is one problem of `max_steps` rounds.
`info["regret"]` is **dynamic**: the expected loss of the round against the arm that is best in this round. `generate`
draws the means of the first round (piecewise: the whole table), uniform in [`low`, `high`].
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Integer, Key

from jaxrl.environment import Transition, pytree, strongly_typed

from . import bandit
from .bandit import Bandit, pick, regret


@pytree
class DriftingParams:
    mean: jax.Array  # (K,) in the first round
    drift: jax.Array = 0.01  # standard deviation of a mean's step
    scale: jax.Array = 0.1  # standard deviation of a reward
    low: jax.Array = 0.0
    high: jax.Array = 1.0
    max_steps: jax.Array = 1000


@pytree
class SwitchingParams:
    mean: jax.Array  # (K,) in the first round
    hazard: jax.Array = 0.005  # probability of a switch after a round
    low: jax.Array = 0.0
    high: jax.Array = 1.0
    max_steps: jax.Array = 1000


@pytree
class PiecewiseParams:
    mean: jax.Array  # (phases, K)
    start: jax.Array  # (phases,) int32: the round in which each phase begins, the first 0, ascending
    low: jax.Array = 0.0  # of the means that `generate` draws
    high: jax.Array = 1.0
    max_steps: jax.Array = 10_000


@pytree
class State:
    time: jax.Array  # rounds played
    mean: jax.Array  # (K,) in this round


def reflect(x: Float[Array, "..."], low: Any, high: Any) -> Float[Array, "..."]:
    """`x` folded back into [low, high], however far outside."""
    width = high - low
    y = x - low
    y = y - 2 * width * jnp.floor(y / (2 * width))  # in [0, 2 width)
    return low + width - jnp.abs(y - width)


@dataclasses.dataclass(frozen=True)
class NonstationaryBandit(Bandit):
    """Base of the first two: the state holds the means."""

    @property
    def default_params(self) -> Any:
        """First means 1 / (K + 1) ... K / (K + 1)."""
        return strongly_typed(self.Params(jnp.arange(1, self.arms + 1) / (self.arms + 1)))

    def generate(self, key: Key[Array, ""], params: Any) -> Any:
        """A problem: first means uniform in [low, high]."""
        return params.replace(mean=jax.random.uniform(key, (self.arms,), minval=params.low, maxval=params.high))

    def initial(self, key: Array, params: Any) -> State:
        return State(jnp.int32(0), params.mean)

    def validate(self, params: Any) -> None:
        check_means(self.id, params, self.arms)


@dataclasses.dataclass(frozen=True)
class DriftingBandit(NonstationaryBandit):
    id: str = dataclasses.field(default="DriftingBandit-v0", kw_only=True)

    Params = DriftingParams

    def transition(self, key: Array, state: State, action: Integer[Array, ""], params: DriftingParams) -> Transition:
        normal = jax.random.normal(key, (self.arms + 1,), state.mean.dtype)
        reward = pick(state.mean, action) + params.scale * normal[-1]
        info = {"regret": regret(state.mean, action)}
        mean = reflect(state.mean + params.drift * normal[:-1], params.low, params.high)
        return Transition(state.replace(mean=mean), reward, jnp.bool_(False), jnp.bool_(False), info)

    def validate(self, params: DriftingParams) -> None:
        super().validate(params)
        for name in ("drift", "scale"):
            if not np.all(np.asarray(getattr(params, name)) >= 0):
                raise ValueError(f"{self.id}: {name}={getattr(params, name)} must not be negative.")


@dataclasses.dataclass(frozen=True)
class SwitchingBandit(NonstationaryBandit):
    id: str = dataclasses.field(default="SwitchingBandit-v0", kw_only=True)

    Params = SwitchingParams

    def transition(self, key: Array, state: State, action: Integer[Array, ""], params: SwitchingParams) -> Transition:
        uniform = jax.random.uniform(key, (self.arms + 2,), state.mean.dtype)
        reward = (uniform[-1] < pick(state.mean, action)).astype(state.mean.dtype)
        info = {"regret": regret(state.mean, action)}
        fresh = params.low + (params.high - params.low) * uniform[:-2]
        state = state.replace(mean=jnp.where(uniform[-2] < params.hazard, fresh, state.mean))
        return Transition(state, reward, jnp.bool_(False), jnp.bool_(False), info)

    def validate(self, params: SwitchingParams) -> None:
        super().validate(params)
        check_probabilities(self.id, "hazard", params.hazard)
        for name in ("low", "high", "mean"):
            check_probabilities(self.id, name, getattr(params, name))


@dataclasses.dataclass(frozen=True)
class PiecewiseBandit(Bandit):
    """`phases` rows of means for `arms` arms."""

    arms: int = 3
    phases: int = 3
    id: str = dataclasses.field(default="PiecewiseBandit-v0", kw_only=True)

    Params = PiecewiseParams
    static_ranges = {"phases": (1, 1000)}

    @property
    def default_params(self) -> PiecewiseParams:
        """Garivier and Moulines (2011), section 5: the last arm is best from round 3,000 to 5,000, the first else.

        For other sizes: the first arm has 0.5, those between 0.3, the last alternates between 0.4 and 0.9 in phases of
        equal length.
        """
        phase, arm = np.arange(self.phases)[:, None], np.arange(self.arms)
        mean = np.where(arm == 0, 0.5, np.where(arm < self.arms - 1, 0.3, np.where(phase % 2, 0.9, 0.4)))
        published = (self.arms, self.phases) == (3, 3)
        start = np.array([0, 3000, 5000]) if published else np.arange(self.phases) * 10_000 // self.phases
        return strongly_typed(PiecewiseParams(jnp.asarray(mean, float), jnp.asarray(start, jnp.int32)))

    def generate(self, key: Key[Array, ""], params: PiecewiseParams) -> PiecewiseParams:
        """A problem: all means uniform in [low, high], all changes uniform in the episode."""
        mean_key, start_key = jax.random.split(key)
        shape = (self.phases, self.arms)
        mean = jax.random.uniform(mean_key, shape, minval=params.low, maxval=params.high)
        change = jax.random.randint(start_key, (self.phases - 1,), 0, params.max_steps, jnp.int32)
        start = jnp.concatenate([jnp.zeros(1, jnp.int32), jnp.sort(change)])
        return params.replace(mean=mean, start=start)

    def transition(
        self, key: Array, state: bandit.State, action: Integer[Array, ""], params: PiecewiseParams
    ) -> Transition:
        phase = jnp.sum(state.time >= params.start) - 1
        mean = jnp.sum(jnp.where(jnp.arange(self.phases)[:, None] == phase, params.mean, 0), 0)
        reward = (jax.random.uniform(key, dtype=mean.dtype) < pick(mean, action)).astype(mean.dtype)
        return Transition(state, reward, jnp.bool_(False), jnp.bool_(False), {"regret": regret(mean, action)})

    def validate(self, params: PiecewiseParams) -> None:
        shape = np.shape(params.mean)
        if shape[-2:] != (self.phases, self.arms) or np.shape(params.start)[-1:] != (self.phases,):
            raise ValueError(
                f"{self.id}: mean {shape}, start {np.shape(params.start)}; phases={self.phases}, arms={self.arms} need "
                f"{self.phases, self.arms} and {(self.phases,)}."
            )
        for name in ("low", "high", "mean"):
            check_probabilities(self.id, name, getattr(params, name))
        start = np.asarray(params.start)
        if np.any(start[..., 0] != 0) or np.any(np.diff(start, axis=-1) < 0):
            raise ValueError(f"{self.id}: start={start.tolist()} must ascend from 0.")


def check_means(id: str, params: Any, arms: int) -> None:
    """Raise ValueError unless there is a mean an arm, in [low, high]."""
    mean, low, high = (np.asarray(x) for x in (params.mean, params.low, params.high))
    if np.shape(mean)[-1:] != (arms,):
        raise ValueError(f"{id}: mean has shape {np.shape(mean)} for arms={arms}.")
    if not np.all(low < high):
        raise ValueError(f"{id}: low={low} must be below high={high}.")
    if not np.all((mean >= low[..., None]) & (mean <= high[..., None])):
        raise ValueError(f"{id}: mean={mean.tolist()} must be in [low, high] = [{low}, {high}].")


def check_probabilities(id: str, name: str, x: Any) -> None:
    """Raise ValueError unless all are in [0, 1]."""
    x = np.asarray(x)
    if not np.all((x >= 0) & (x <= 1)):
        raise ValueError(f"{id}: {name}={x.tolist()} must be in [0, 1].")
