"""The flags of `--curriculum NAME`. What they describe is built by `jaxrl.host.run.curricula`."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from jaxrl import registry
from jaxrl.host.cli.flags import flat, numbers


@dataclasses.dataclass
class CurriculumFlags:
    """What `--curriculum NAME` takes beside the curriculum's own settings."""

    ranges: tuple[str, ...] = ()
    """Parameters and their ranges, as in length=0.2:3.0 mass_pole=0.05:1.0. Teachers need them; without them levels are
    the environment's own."""
    levels: str | None = None
    """module:function, (key, params) -> level; default: as the environment, or --curriculum.ranges, draw them."""
    score: str | None = None
    """Of levels, for those that read one: max_mc, positive_value_loss, l1_value_loss, learnability or module:function,
    (rollout, batch, outcomes, hyper) -> a score a slot. Default: the curriculum's."""
    success_above: float = 0.0
    """An episode of higher return succeeds."""
    goals: str | None = None
    """module:function, (env, params) -> states at the goal, leading axis G; for curricula of starts that grow from it.
    """
    teacher: str | None = None
    """Run folder of a trained policy, for curricula of starts on its way."""

    def __post_init__(self) -> None:
        if self.teacher is not None:
            self.teacher = str(Path(self.teacher).resolve())
        for flag in ("goals", "levels", "score"):
            word = getattr(self, flag)
            if word is not None and ":" in word:
                setattr(self, flag, registry.lasting(word))


def curriculum_flags(name: str, several: bool = False) -> tuple[str, type, Any]:
    """A dataclass field with `CurriculumFlags` and the curriculum's Config and Hyper."""
    module, _ = registry.get_curriculum(name)
    fields = [("choice", flat(CurriculumFlags), dataclasses.field(default_factory=CurriculumFlags))]
    if hasattr(module, "Config"):
        fields.append(("config", module.Config, dataclasses.field(default_factory=module.Config)))
    if hasattr(module, "Hyper"):
        needed = [f.name for f in dataclasses.fields(module.Hyper) if f.default is dataclasses.MISSING]
        fields.append(numbers("hyper", module.Hyper(**dict.fromkeys(needed, 0.0)), several, needed))
    return "curriculum", dataclasses.make_dataclass("Curriculum", fields, kw_only=True), dataclasses.field()
