"""An adaptive replay ratio: few gradient steps per environment step early in training, many once the critic is stable.

Ma et al. (2024), "Revisiting plasticity in visual reinforcement learning: data, modules and training stages" (ICLR):
the share of active units of the critic is averaged over windows of episodes. Early in training a critic that loses
plasticity does not recover it. Once two successive windows differ by no more than `gap`, that stage is taken to be
over, and the replay ratio is raised from `low` to `high`, and stays there.

    algo = replay_ratio.adapt(td3.make(env, td3.Config(num_updates=2)))

is an Algorithm again: train, fit, sweep and resume work unchanged. The paper's base learner is DrQ-v2 on images, with
`low` 0.5, `high` 2, a window of 50 episodes and a gap of 1e-3, which are the defaults.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxrl.algorithm import Algorithm, names_of, shared
from jaxrl.environment import is_concrete, pytree, strongly_typed
from jaxrl.nesting import OuterState, around, split_hyper, with_settings


@pytree
class Ratio:
    """Dynamic settings: leaves."""

    low: jax.Array = 0.5  # initial gradient steps per environment step
    high: jax.Array = 2.0  # and after the switch; Config.num_updates must allow it
    gap: jax.Array = 1e-3  # largest difference of two windows at which it switches
    window: jax.Array = 50  # length of a window in episodes or steps


@pytree
class Monitor:
    """The running window."""

    total: jax.Array  # sum of the shares of active units in this window
    count: jax.Array  # updates in the sum: those with a gradient step
    elapsed: jax.Array  # episodes or steps in this window
    previous: jax.Array  # mean of the window before; infinite before there was one
    switched: jax.Array  # whether the ratio is high


@pytree
class AdaptiveState(OuterState):
    """The adapted algorithm's state and the monitor."""

    inner: Any
    ratio: Ratio  # also read and set as `hyper.ratio`
    monitor: Monitor
    SETTINGS = ("ratio", "ratio")


def should_switch(mean: Float[Array, ""], previous: Float[Array, ""], gap: Float[Array, ""] | float) -> Bool[Array, ""]:
    """Whether two successive windows agree: |mean - previous| <= gap (Ma et al. 2024, section 5)."""
    return jnp.abs(mean - previous) <= gap


def observe(monitor: Monitor, ratio: Ratio, active_units: Array, learnt: Array, elapsed: Array) -> Monitor:
    """The monitor after an update that took `elapsed` episodes or steps, and gradient steps where `learnt`."""
    total = monitor.total + jnp.where(learnt, active_units, 0)
    count = monitor.count + learnt
    elapsed = monitor.elapsed + elapsed
    # A window without a gradient step, before learning starts, is extended.
    check = (elapsed >= ratio.window) & (count > 0)
    mean = total / jnp.maximum(count, 1)
    return Monitor(
        total=jnp.where(check, 0, total),
        count=jnp.where(check, 0, count),
        elapsed=jnp.where(count > 0, jnp.where(check, 0, elapsed), 0),
        previous=jnp.where(check, mean, monitor.previous),
        switched=monitor.switched | (check & should_switch(mean, monitor.previous, ratio.gap)),
    )


@shared
def adapt(algo: Algorithm, unit: str = "episodes") -> Algorithm:
    """`algo` with a replay ratio that adapts. Equal arguments give the same functions.

    Its `hyper` has one more field, `ratio`, a `Ratio`. The metrics gain `replay_ratio`. `init` raises ValueError when
    `algo.config.num_updates` gradient steps an update do not allow the `high` ratio.

    `unit`, "episodes" or "steps" of the environments, is what a window counts.

    Raises ValueError for another unit, or an algorithm without `Hyper.replay_ratio` or the metric `active_units`.
    """
    if unit not in ("episodes", "steps"):
        raise ValueError(f"unit={unit!r}: a window counts 'episodes' or 'steps'.")
    names = names_of(algo.hyper())
    if "replay_ratio" not in names:
        raise ValueError(f"{algo.name} has no Hyper.replay_ratio to adapt; its settings are {', '.join(names)}.")
    metrics = jax.eval_shape(lambda key: algo.update(algo.init(key))[1], jax.random.key(0))
    if "active_units" not in metrics:
        raise ValueError(f"{algo.name} does not report active_units, which the replay ratio follows.")

    def with_ratio(state):
        hyper, ratio = state.inner.hyper, state.ratio
        value = jnp.where(state.monitor.switched, ratio.high, ratio.low).astype(hyper.replay_ratio.dtype)
        return state.replace(inner=state.inner.replace(hyper=hyper.replace(replay_ratio=value)))

    defaults = strongly_typed(Ratio())

    def init(key, hyper=None, env_params=None):
        hyper, ratio = split_hyper(hyper, "ratio", defaults)
        needed = ratio.high * algo.steps_per_update
        if is_concrete(needed) and np.any(algo.config.num_updates < np.asarray(needed)):
            raise ValueError(
                f"num_updates={algo.config.num_updates}: a replay ratio of {ratio.high} with "
                f"{algo.steps_per_update} environment steps an update needs at least {needed}."
            )
        zero = jnp.zeros((), jnp.result_type(float))
        monitor = Monitor(zero, jnp.int32(0), jnp.int32(0), zero + jnp.inf, jnp.bool_(False))
        return with_ratio(AdaptiveState(algo.init(key, hyper, env_params), ratio, monitor))

    def collect(state):
        inner, rollout = algo.collect(state.inner)
        return state.replace(inner=inner), rollout

    def learn(state, rollout):
        inner, metrics = algo.learn(state.inner, rollout)
        active = metrics["active_units"]
        elapsed = metrics["episodes"] if unit == "episodes" else jnp.int32(algo.steps_per_update)
        # It is 0 or NaN where no gradient step was due.
        learnt = jnp.isfinite(active) & (active > 0)
        monitor = observe(state.monitor, state.ratio, active, learnt, elapsed)
        metrics = {**metrics, "replay_ratio": inner.hyper.replay_ratio}
        return with_ratio(state.replace(inner=inner, monitor=monitor)), metrics

    functions = dict(init=init, collect=collect, learn=learn)
    hyper = with_settings(algo.hyper, "ratio", defaults)
    return around(algo, "adaptive_replay_ratio", (unit,), hyper=hyper, **functions)
