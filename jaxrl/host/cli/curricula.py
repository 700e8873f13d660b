"""`--curriculum NAME`: its flags, and the algorithm as a curriculum's student."""

from __future__ import annotations

import dataclasses
import inspect
from pathlib import Path
from typing import Any, Literal

from jaxrl import registry
from jaxrl.host.cli.flags import flat, numbers


@dataclasses.dataclass
class CurriculumFlags:
    """What `--curriculum NAME` takes beside the curriculum's own settings."""

    ranges: tuple[str, ...] = ()
    """Parameters and their ranges, as in length=0.2:3.0 mass_pole=0.05:1.0. Teachers need them; without them levels are
    the environment's own."""
    score: Literal["max_mc", "positive_value_loss", "l1_value_loss", "learnability"] | None = None
    """Of levels, for those that read one. Default: the curriculum's."""
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
        if self.goals is not None:
            self.goals = registry.lasting(self.goals)


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


def under_curriculum(recipe: dict[str, Any], module: Any, config: Any, env: Any, params: Any) -> Any:
    """The algorithm of `module` as a curriculum's student."""
    import jax.numpy as jnp

    from jaxrl import curriculum
    from jaxrl.curriculum.task import Task
    from jaxrl.curriculum.teaching import ranges
    from jaxrl.host.recipe import hashable

    name, choice = recipe["name"], recipe["choice"]
    method, chooses = registry.get_curriculum(name)
    if env.num_agents > 1 or not hasattr(config, "num_envs"):
        raise ValueError("--curriculum: a student plays one agent in each of config.num_envs environments.")
    box = ranges(params, dict(map(_range, choice["ranges"]))) if choice["ranges"] else None
    if box is not None:
        for corner in (0.0, 1.0):
            env.validate(box(params, jnp.full(box.dimensions, corner)))

    def given(flag):
        if choice.get(flag) is None:
            raise ValueError(f"{name} needs --curriculum.{flag}.")
        return registry.own_function(choice[flag]) if flag == "goals" else _policy(Path(choice[flag]))

    task = Task(env, params, config, module.make, box, choice["success_above"], given)
    settings = [method.Config(**hashable(recipe["config"]))] if "config" in recipe else []
    settings += [method.Hyper(**recipe["hyper"])] if "hyper" in recipe else []
    built = getattr(method, "for_task", method.make)
    score = {"score": getattr(curriculum, choice["score"])} if choice["score"] else {}
    if score and "score" not in inspect.signature(built).parameters:
        raise ValueError(f"--curriculum.score {choice['score']}: {name} reads no score.")
    if built is not method.make:
        return built(task, *settings, **score)
    return task.attach(built(task.points if chooses == "points" else task.level_fn, *settings, **score))


def _policy(folder: Path) -> tuple[Any, Any]:
    """`(algorithm, policy)` of the first seed of a run."""
    import jax

    from jaxrl.host.cli.experiment import load_run, read_recipe

    algo, state, _, _ = load_run(read_recipe(folder), folder)
    return algo, algo.policy(jax.tree.map(lambda x: x[0], state))


def _range(word: str) -> tuple[str, tuple[float, float]]:
    """`name=low:high`."""
    name, _, bounds = word.partition("=")
    try:
        low, high = map(float, bounds.split(":"))
    except ValueError:
        raise ValueError(f"--curriculum.ranges {word}: it is written NAME=LOW:HIGH, as in length=0.2:3.0") from None
    return name, (low, high)
