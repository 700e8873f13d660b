"""`--curriculum NAME`: its flags, and the algorithm as a curriculum's student."""

from __future__ import annotations

import dataclasses
import inspect
import sys
from typing import Any, Literal

from jaxrl.host.cli.flags import flat, numbers


@dataclasses.dataclass
class CurriculumFlags:
    """What `--curriculum NAME` takes beside the curriculum's own settings."""

    ranges: tuple[str, ...] = ()
    """Parameters and their ranges, as in length=0.2:3.0 mass_pole=0.05:1.0. Teachers need them; without them levels are
    the environment's own."""
    score: Literal["max_mc", "positive_value_loss", "l1_value_loss", "learnability"] | None = None
    """Of levels, for plr (default: max_mc) and accel."""
    success_above: float = 0.0
    """An episode of higher return succeeds."""


def curriculum_flags(name: str) -> tuple[str, type, Any]:
    """A dataclass field with `CurriculumFlags` and the curriculum's Config and Hyper."""
    from jaxrl import registry

    module, _ = registry.get_curriculum(name)
    fields = [("choice", flat(CurriculumFlags), dataclasses.field(default_factory=CurriculumFlags))]
    if hasattr(module, "Config"):
        fields.append(("config", module.Config, dataclasses.field(default_factory=module.Config)))
    if hasattr(module, "Hyper"):
        needed = [f.name for f in dataclasses.fields(module.Hyper) if f.default is dataclasses.MISSING]
        fields.append(numbers("hyper", module.Hyper(**dict.fromkeys(needed, 0.0)), needed=needed))
    return "curriculum", dataclasses.make_dataclass("Curriculum", fields, kw_only=True), dataclasses.field()


def under_curriculum(recipe: dict[str, Any], module: Any, config: Any, env: Any, params: Any) -> Any:
    """The algorithm of `module` as a curriculum's student."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    from jaxrl import curriculum, registry
    from jaxrl.curriculum.teaching import ranges
    from jaxrl.host.recipe import hashable
    from jaxrl.vectorize import vectorize

    name, choice = recipe["name"], recipe["choice"]
    method, chooses = registry.get_curriculum(name)
    if env.num_agents > 1 or not hasattr(config, "num_envs"):
        raise ValueError("--curriculum: a student plays one agent in each of config.num_envs environments.")
    box = ranges(params, dict(map(_range, choice["ranges"]))) if choice["ranges"] or chooses == "points" else None
    if box is None and not hasattr(env, "generate"):
        raise ValueError(f"{env.id} has no `generate`: say what {name} may vary, --curriculum.ranges NAME=LOW:HIGH")
    if box is not None:
        for corner in (0.0, 1.0):
            env.validate(box(params, jnp.full(box.dimensions, corner)))
    task = env.as_levels() if box is None and hasattr(env, "as_levels") else env
    student = module.make(vectorize(task, config.num_envs, batched_params=True), config)
    steps, longest = student.steps_per_update // config.num_envs, int(np.max(params.max_steps))
    if longest > steps:
        print(
            f"{env.id}: episodes may last {longest} steps and a rollout has {steps}; {name} sees only those that end "
            "within one (config.num_steps)",
            file=sys.stderr,
        )

    def drawn(key, params):
        assert box is not None
        return box(params, jax.random.uniform(key, (box.dimensions,)))

    level_fn = env.generate if box is None else drawn
    settings = [method.Config(**hashable(recipe["config"]))] if "config" in recipe else []
    settings += [method.Hyper(**recipe["hyper"])] if "hyper" in recipe else []
    if name == "accel":
        settings.insert(0, getattr(task, "mutate", None))
    score = {"score": getattr(curriculum, choice["score"])} if choice["score"] else {}
    if score and "score" not in inspect.signature(method.make).parameters:
        raise ValueError(f"--curriculum.score {choice['score']}: {name} reads no score; plr and accel do.")
    chosen = method.make(box if chooses == "points" else level_fn, *settings, **score)
    return curriculum.attach(student, chosen, choice["success_above"])


def _range(word: str) -> tuple[str, tuple[float, float]]:
    """`name=low:high`."""
    name, _, bounds = word.partition("=")
    try:
        low, high = map(float, bounds.split(":"))
    except ValueError:
        raise ValueError(f"--curriculum.ranges {word}: it is written NAME=LOW:HIGH, as in length=0.2:3.0") from None
    return name, (low, high)
