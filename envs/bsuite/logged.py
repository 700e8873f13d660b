"""What an experiment of the suite is scored by: sums over a whole run, written down at round numbers of episodes.

`LoggedVectorEnv` is a vectorised environment that keeps the sums in its own state, which algorithms carry along
untouched: train on it, and read `results(state.env_state)`. Each slot is a run of its own.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxrl.environment import Environment, TimeStep, pytree
from jaxrl.vector_env import VectorEnv, VectorState, vectorize

RATIOS = np.array([1, 1.2, 1.4, 1.7, 2, 2.5, 3, 4, 5, 6, 7, 8, 9, 10])


class Results(NamedTuple):
    """Of R runs at E logged episodes; NaN where a run has not come so far."""

    episode: Any  # (E,) finished episodes, increasing
    total_return: Any  # (R, E) sum of the rewards so far
    raw_return: Any  # (R, E) the same before noise and scale
    regret: Any  # (R, E) sum of info["regret"] so far
    best_episode: Any  # (R, E) largest raw return of an episode so far


def log_points(num_episodes: int) -> np.ndarray:
    """The episodes after which bsuite logs: 1, 2, ..., 10, 12, 14, 17, 20, 25, 30, ..., up to `num_episodes`."""
    points = (RATIOS * 10.0 ** np.arange(10)[:, None]).ravel()
    whole = np.unique(points[points == np.round(points)].astype(np.int64))
    return whole[whole <= num_episodes]


@pytree
class LoggedState(VectorState):
    episodes: Any  # (N,) int32, finished
    totals: Any  # Results without `episode`: (N,) so far
    episode: Any  # (return, raw return, regret) of the current episode, (N,) each: added up apart from the totals, in
    # whose float32 the small rewards of a long run would be rounded away
    table: Any  # Results: (N, E) as logged


@dataclasses.dataclass(frozen=True)
class LoggedVectorEnv(VectorEnv):
    """Made by `logged`."""

    num_episodes: int = 0

    def reset(self, key: Array, params: Any) -> tuple[Any, LoggedState]:
        obs, vstate = super().reset(key, params)
        points = jnp.asarray(log_points(self.num_episodes), jnp.int32)
        zero = jnp.zeros(self.num_envs)
        # The best episode starts at 0, as in bsuite, also where returns are negative.
        totals = Results(None, zero, zero, zero, zero)
        empty = jnp.full((self.num_envs, len(points)), jnp.nan, zero.dtype)
        table = Results(points, empty, empty, empty, empty)
        episodes = jnp.zeros(self.num_envs, jnp.int32)
        return obs, LoggedState(**_fields(vstate), episodes=episodes, totals=totals, episode=(zero,) * 3, table=table)

    def step(self, key: Array, vstate: LoggedState, action: Any, params: Any) -> TimeStep:
        ts = super().step(key, vstate, action, params)
        finished = ts.terminated | ts.truncated
        gains = ts.reward, ts.info.get("raw_reward", ts.reward), ts.info.get("regret", jnp.zeros_like(ts.reward))
        episode = tuple(x + gain for x, gain in zip(vstate.episode, gains, strict=True))
        old = vstate.totals
        earned, raw, regret = (jnp.where(finished, x, 0) for x in episode)
        best = jnp.where(finished, jnp.maximum(old.best_episode, episode[1]), old.best_episode)
        totals = Results(None, old.total_return + earned, old.raw_return + raw, old.regret + regret, best)
        episodes = vstate.episodes + finished
        now = finished[:, None] & (vstate.table.episode == episodes[:, None])
        columns = [jnp.where(now, new[:, None], x) for new, x in zip(totals[1:], vstate.table[1:], strict=True)]
        state = LoggedState(
            **_fields(ts.state),
            episodes=episodes,
            totals=totals,
            episode=tuple(jnp.where(finished, 0, x) for x in episode),
            table=Results(vstate.table.episode, *columns),
        )
        return ts._replace(state=state)


def logged(env: Environment, num_envs: int, num_episodes: int, **settings: Any) -> LoggedVectorEnv:
    """`vectorize(env, num_envs, **settings)` that logs the first `num_episodes` episodes of every slot."""
    venv = vectorize(env, num_envs, **settings)
    return LoggedVectorEnv(**_fields(venv), num_episodes=num_episodes)


def _fields(x: Any) -> dict[str, Any]:
    """The fields of a dataclass, not copied."""
    return {f.name: getattr(x, f.name) for f in dataclasses.fields(x)}


def results(vstate: LoggedState) -> Results:
    """The log on the host: any leading axes (seeds, settings) and the slots become the runs, in order."""
    table = jax.device_get(vstate.table)
    episode = np.asarray(table.episode)
    num = episode.shape[-1]
    return Results(episode.reshape(-1, num)[0], *(np.asarray(x).reshape(-1, num) for x in table[1:]))
