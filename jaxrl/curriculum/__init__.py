"""Curricula choose the levels on which a student trains (`docs/curricula.md`).

`protocol` is the interface and `attachment` puts a curriculum around a student. `level_buffer` and `scores` are for
level replay, `teaching` is for teachers of continuous parameters. The curricula themselves are in
`jaxrl/algos/curricula`, one file each.
"""

from jaxrl.curriculum import level_buffer
from jaxrl.curriculum.attachment import AttachedRollout, AttachedState, attach, outcomes_of
from jaxrl.curriculum.level_buffer import LevelBuffer
from jaxrl.curriculum.protocol import Curriculum, LevelBatch, Outcomes, check_levels, new_levels
from jaxrl.curriculum.scores import (
    algorithmic_regret,
    balanced,
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
    "balanced",
    "check_levels",
    "episodic_mean",
    "l1_value_loss",
    "learnability",
    "level_buffer",
    "max_mc",
    "new_levels",
    "oracle_regret",
    "outcomes_of",
    "positive_value_loss",
]
