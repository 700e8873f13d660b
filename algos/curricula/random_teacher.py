"""The random teacher: tasks uniform in the box, whatever the student returns on them.

The baseline of Portelas et al. (2019, arXiv:1910.07224): domain randomisation, made like a teacher. Usage: as
`alp_gmm`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
from jaxtyping import Array, Bool

from jaxrl.calls import recorded
from jaxrl.curriculum.protocol import Curriculum, LevelBatch, Outcomes
from jaxrl.curriculum.teaching import dimensions_of, new_levels_at
from jaxrl.environment import pytree, strongly_typed


@dataclasses.dataclass(frozen=True)
class Config:
    """Static settings."""

    dimensions: int | None = None  # D of the box; None: `level_at.dimensions`, which `Ranges` have


@pytree
class State:
    params: Any  # of the level distribution


@recorded
def make(level_at: Callable[[Any, Array], Any], config: Config = Config()) -> Curriculum:
    """The random teacher over the levels `level_at(params, x)`, x (D,) in the unit box."""
    D = dimensions_of(level_at, config.dimensions)

    def init(key: Array, hyper: None, params: Any) -> State:
        return State(strongly_typed(params))

    def sample(key: Array, state: State, wanted: Bool[Array, " n"]) -> tuple[LevelBatch, State]:
        n = len(wanted)
        return new_levels_at(level_at, state.params, jax.random.uniform(key, (n, D))), state

    def update(key: Array, state: State, batch: LevelBatch, outcomes: Outcomes) -> State:
        return state

    return Curriculum(init, sample, update, "random_teacher", (level_at, config))
