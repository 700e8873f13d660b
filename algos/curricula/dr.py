"""Domain randomisation as a curriculum: new levels in each rollout, all learned from. The baseline of curricula.

Tobin et al. (2017), "Domain randomization for transferring deep neural networks from simulation to the real world"
(arXiv:1703.06907).

    sample   new levels of `level_fn`; the student learns from all
    update   nothing

A level is kept for a rollout, as by `plr` and `accel`, so that only the choice of levels differs from theirs. For a new
level in each episode, as in minimax and JaxUED, no curriculum is needed: `vectorize(env, n, level_fn=level_fn)`. Usage:

    student = ppo.make(vectorize(env, 32, batched_params=True), ppo.Config(num_envs=32))
    algo = jaxrl.curriculum.attach(student, dr.make(level_fn))
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from jaxtyping import Array, Bool

from jaxrl.calls import recorded
from jaxrl.curriculum.protocol import Curriculum, LevelBatch, Outcomes, new_levels
from jaxrl.curriculum.teaching import drawing
from jaxrl.environment import strongly_typed


@recorded
def make(level_fn: Callable[[Array, Any], Any], score: Callable[..., Array] | None = None) -> Curriculum:
    """Domain randomisation over the levels that `level_fn(key, params)` draws.

    The curriculum's state is `params` of the level distribution. A `score` is only reported in the log.
    """
    level_fn = drawing(level_fn)

    def init(key: Array, hyper: None, params: Any) -> Any:
        return strongly_typed(params)

    def sample(key: Array, state: Any, wanted: Bool[Array, " n"]) -> tuple[LevelBatch, Any]:
        n = len(wanted)
        return new_levels(jax.vmap(level_fn, (0, None))(jax.random.split(key, n), state)), state

    def update(key: Array, state: Any, batch: LevelBatch, outcomes: Outcomes) -> Any:
        return state

    return Curriculum(init, sample, update, "dr", (level_fn,), score=score)
