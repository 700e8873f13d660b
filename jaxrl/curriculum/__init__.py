"""Curricula: what decides on which levels a student trains (`docs/curricula.md`).

`protocol` is the interface, `attachment` puts a curriculum around a student, `level_buffer` and `scores` are what level
replay is made of, `teaching` what teachers of continuous parameters share.
"""

from jaxrl.curriculum.attachment import AttachedRollout, AttachedState, attach, outcomes
from jaxrl.curriculum.level_buffer import (
    LevelBuffer,
    buffer_draw,
    buffer_find,
    buffer_holds,
    buffer_init,
    buffer_insert,
    buffer_update,
    buffer_weights,
)
from jaxrl.curriculum.protocol import Curriculum, LevelBatch, Outcomes, check_levels, new_levels
from jaxrl.curriculum.scores import (
    algorithmic_regret,
    episodic_mean,
    l1_value_loss,
    learnability,
    max_mc,
    oracle_regret,
    positive_value_loss,
)

__all__ = [
    "AttachedRollout",
    "AttachedState",
    "Curriculum",
    "LevelBatch",
    "LevelBuffer",
    "Outcomes",
    "algorithmic_regret",
    "attach",
    "buffer_draw",
    "buffer_find",
    "buffer_holds",
    "buffer_init",
    "buffer_insert",
    "buffer_update",
    "buffer_weights",
    "check_levels",
    "episodic_mean",
    "l1_value_loss",
    "learnability",
    "max_mc",
    "new_levels",
    "oracle_regret",
    "outcomes",
    "positive_value_loss",
]
