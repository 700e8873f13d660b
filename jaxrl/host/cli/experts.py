"""`--expert`: who acts beside a learner, as dagger, hg_dagger and rlif have somebody do."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

from jaxrl.host.cli.flags import UsageError


def expert_of(word: str, recipe: dict[str, Any]) -> Any:
    """The `actors.Actor` of `--expert WORD` in the task of a recipe.

    Raises UsageError for an algorithm without an expert, a curriculum, and a word that says nobody; ZooError,
    RunFolderError, CheckpointError and ValueError as those who read it do.
    """
    from jaxrl import actors, registry, zoo
    from jaxrl.host.run.recipe_inputs import settings_of
    from jaxrl.wrappers import wrapped

    name = recipe["algo"]
    if not registry.algo_learns(name).expert:
        having = ", ".join(x for x in registry.list_algos() if registry.algo_learns(x).expert)
        raise UsageError(f"--expert {word}: nobody acts beside {name}; it is for {having}.")
    if "curriculum" in recipe:
        raise UsageError(f"--expert {word}: an expert acts in one task, not on the levels of a --curriculum.")
    if word == "scripted":
        env, _ = registry.make(recipe["env_id"], **settings_of(recipe))
        return actors.scripted(wrapped(env, recipe.get("wrap", ())))
    if word.startswith(zoo.PREFIX) or Path(word).is_dir():
        algo, policy, *_ = zoo.policy_of(Path(word), 0)
        return actors.of_policy(algo, policy)
    if ":" in word:
        return actors.of_function(registry.own_function(registry.lasting(word)))
    near = difflib.get_close_matches(word, ["scripted", *zoo.names()], 1, 0.5)
    near = f"; did you mean {near[0] if near[0] == 'scripted' else zoo.PREFIX + near[0]}?" if near else "."
    raise UsageError(
        f"--expert {word}: it is zoo:NAME, a run folder, scripted, or FILE.py:FUNCTION from observation to action{near}"
    )
