"""Moving threshold: the task's bar is lowered until the student passes it, and raised as it does.

Ostaszewski, Trenkwalder, Masarczyk, Scerri and Dunjko (2021), "Reinforcement learning for optimization of variational
quantum circuit architectures" (arXiv:2103.16089), section 3.2; also the curriculum of Patel et al. (2024, CRLQAS,
arXiv:2402.03500). A level is made of a number x in [0, 1], the bar: 1 is the easiest, 0 the task itself.

    sample   every level is at the present x
    update   after `num_successes` successes at x: x <- shrink x, and both counts start anew
             after `patience` episodes without that: x <- min(start, x / shrink), likewise

An episode counts if its bar was as hard as the present one. Success is a return above `attach(success_above=...)`.

Deviations: the authors' bar is an energy, and every 500 episodes it jumps to what the best circuit so far has reached,
plus a margin that shrinks by a tenth of it after 25 successes each. Outcomes do not tell energies, and other tasks have
none: so the bar moves by successes alone, by a factor, and back only where the student fails. Usage:

    level_at = jaxrl.curriculum.teaching.ranges(env_params, {"threshold": (1.6e-3, 1.0)})
    student = dqn.make(vectorize(env, 32, batched_params=True), dqn.Config(num_envs=32))
    algo = jaxrl.curriculum.attach(student, moving_threshold.make(level_at))
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
    """Static settings: there are none."""


@pytree
class Hyper:
    """Dynamic settings."""

    start: jax.Array = 1.0  # x at the start, and the most that it becomes again
    shrink: jax.Array = 0.5  # factor of x after enough successes
    num_successes: jax.Array = 25.0  # at the present bar, after which it is lowered
    patience: jax.Array = 500.0  # episodes at it without so many, after which it is raised


@pytree
class ThresholdState:
    x: jax.Array  # the present bar
    successes: jax.Array  # at it
    episodes: jax.Array  # since it moved
    params: Any  # of the level distribution
    hyper: Hyper


def moved(state: ThresholdState) -> ThresholdState:
    """The state after the bar has moved, or stayed."""
    hyper = state.hyper
    harder = state.successes >= hyper.num_successes
    easier = ~harder & (state.episodes >= hyper.patience)
    wider = jnp.minimum(state.x / hyper.shrink, hyper.start)
    return state.replace(
        x=jnp.where(harder, state.x * hyper.shrink, jnp.where(easier, wider, state.x)),
        successes=jnp.where(harder | easier, 0, state.successes),
        episodes=jnp.where(harder | easier, 0, state.episodes),
    )


@recorded
def make(level_at: Callable[[Any, Array], Any], config: Config = Config(), hyper: Hyper | None = None) -> Curriculum:
    """The moving threshold over the levels `level_at(params, x)`, x (1,) in [0, 1], 1 the easiest.

    Raises ValueError for settings out of range, and for a `level_at` of more than one coordinate.
    """
    defaults = strongly_typed(Hyper() if hyper is None else hyper)
    _check(defaults)
    if (D := dimensions_of(level_at, getattr(level_at, "dimensions", 1))) != 1:
        raise ValueError(f"moving_threshold: level_at varies {D} parameters; it must be 1, the threshold.")

    def init(key: Array, hyper: Hyper, params: Any) -> ThresholdState:
        _check(hyper)
        none = jnp.zeros_like(hyper.start)
        return ThresholdState(hyper.start, none, none, strongly_typed(params), hyper)

    def sample(key: Array, state: ThresholdState, wanted: Bool[Array, " n"]) -> tuple[LevelBatch, ThresholdState]:
        return new_levels_at(level_at, state.params, jnp.broadcast_to(state.x, (len(wanted), 1))), state

    def update(key: Array, state: ThresholdState, batch: LevelBatch, outcomes: Outcomes) -> ThresholdState:
        episodes = jnp.where(batch.note[:, 0] <= state.x, outcomes.episodes, 0)
        more = jnp.sum(episodes * outcomes.success)
        return moved(state.replace(successes=state.successes + more, episodes=state.episodes + jnp.sum(episodes)))

    return Curriculum(
        init, sample, update, "moving_threshold", (level_at, config), defaults, metrics=lambda s: {"threshold_x": s.x}
    )


def _check(hyper: Hyper) -> None:
    if not is_concrete(hyper):
        return
    start, shrink = np.asarray(hyper.start), np.asarray(hyper.shrink)
    if np.any((start <= 0) | (start > 1)) or np.any((shrink <= 0) | (shrink >= 1)):
        raise ValueError(f"start={start} must be in (0, 1], shrink={shrink} in (0, 1).")
    if np.any(np.asarray(hyper.num_successes) < 1) or np.any(np.asarray(hyper.patience) < 1):
        raise ValueError(f"num_successes={hyper.num_successes} and patience={hyper.patience} must be at least 1.")
