"""From words to a recipe (JSON, kept in the run folder), from a recipe to functions, and back to a trained state."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

from jaxrl.host.cli.curricula import curriculum_flags, under_curriculum
from jaxrl.host.cli.flags import USAGE, UsageError, config_of, flat, named, numbers, parse, settings_of


def experiment(command: str, args: list[str], flags: type, several: bool = False) -> tuple[Any, dict[str, Any]]:
    """`(parsed flags, recipe)` of `jaxrl <command> ALGO ENV ...`: tuned settings, changed by what the words say.

    With `several`, each number of `Hyper` takes any number of values, and the recipe has tuples of them.
    """
    from jaxrl import registry

    args, curriculum = named(args, "--curriculum")
    words = [a for a in args[:2] if not a.startswith("-")]
    if len(words) < 2:
        if {"-h", "--help"} & set(args):
            print(USAGE)
            raise SystemExit(0)
        raise UsageError(f"{command} needs an algorithm and an environment.")
    algo_name, env_id = words
    if algo_name in registry.list_curricula():
        raise ValueError(
            f"{algo_name} chooses a student's levels: jaxrl {command} ppo {env_id} --curriculum {algo_name}"
        )
    module = registry.get_algo(algo_name)
    env, params = registry.make(env_id)
    known = None if "--no-tuned" in args else registry.tuned(algo_name, env_id)
    config = module.Config(**(known.config if known else {}))
    hyper = module.Hyper(**(known.hyper if known else {}))
    cls = dataclasses.make_dataclass(
        command.capitalize(),
        [
            ("run", flat(flags), dataclasses.field(default_factory=flags)),
            ("config", module.Config, dataclasses.field(default=config)),
            numbers("hyper", hyper, several),
            numbers("params", params),
            settings_of("env", env),
            *([] if curriculum is None else [curriculum_flags(curriculum)]),
        ],
        kw_only=True,
    )
    title = f"{command.capitalize()} {algo_name} on {env_id}."
    parsed = parse(cls, args[2:], f"jaxrl {command} {algo_name} {env_id}", title)
    total = (known.total_steps if known else 500_000) if parsed.run.total_steps is None else parsed.run.total_steps
    recipe = {
        "algo": algo_name,
        "env_id": env_id,
        "env_settings": dataclasses.asdict(parsed.env),
        "config": dataclasses.asdict(parsed.config),
        "hyper": dataclasses.asdict(parsed.hyper),
        "params": dataclasses.asdict(parsed.params),
        "total_steps": total,
    }
    if curriculum is not None:
        recipe["curriculum"] = {"name": curriculum, **dataclasses.asdict(parsed.curriculum)}
    return parsed, recipe


def build(recipe: dict[str, Any]) -> tuple[Any, Any, Any, Any]:
    """`(algo, hyper, task, params)`; fields that are arrays come back as what they were, several agents as slots of
    one. The task is the environment of the evaluations: under a curriculum that of the id, not the one of its levels.
    """
    import jax

    from jaxrl import registry
    from jaxrl.environment import check_params, strongly_typed

    module = registry.get_algo(recipe["algo"])
    env, default = registry.make(recipe["env_id"], **recipe["env_settings"])
    params = strongly_typed(default.replace(**recipe["params"]))
    check_params(env, params)
    config = config_of(module, recipe["config"])
    hyper = module.Hyper(**recipe["hyper"])
    if "curriculum" in recipe:
        return under_curriculum(recipe["curriculum"], module, config, env, params), hyper, env, params
    fold = env.num_agents > 1 and hasattr(config, "num_envs")  # without it, `make` says that it trains one agent
    algo = module.make(_slots(env, config.num_envs) if fold else env, config)
    if fold and jax.tree.leaves(algo.initial_carry()):
        raise ValueError(f"{env.id} has several agents; {algo.name} remembers, and learns from one agent only.")
    return algo, hyper, algo.venv.env, params


def _slots(env: Any, num_envs: int) -> Any:
    """`agents_as_slots` of as many environments as make `num_envs` slots."""
    from jaxrl.vectorize import vectorize
    from jaxrl.wrappers import agents_as_slots

    agents = env.num_agents
    count, rest = divmod(num_envs, agents)
    if rest:
        near = agents * max(1, round(num_envs / agents))
        raise ValueError(f"num_envs={num_envs}: each of the {agents} agents of {env.id} is a slot; {near} would do.")
    print(
        f"{env.id}: one policy for its {agents} agents, each of them a slot (num_envs={num_envs}: {count} x {agents}); "
        "a return is their mean",
        file=sys.stderr,
    )
    return agents_as_slots(vectorize(env, count))


ENDLESS = 1000
"""Steps of an evaluation's episode where neither the task nor the user limits it."""


def episode_cap(params: Any, given: int | None) -> int | None:
    """`--eval-max-steps`, or for a task without a time limit `ENDLESS`, which is said."""
    import numpy as np

    from jaxrl.environment import NO_LIMIT

    if given is None and np.max(np.asarray(params.max_steps)) == NO_LIMIT:
        print(
            f"the task has no time limit: episodes of evaluations are cut after {ENDLESS} steps (--eval-max-steps, or "
            "--params.max-steps for training, too)",
            file=sys.stderr,
        )
        return ENDLESS
    return given


def load_run(recipe: dict[str, Any], folder: Path) -> tuple[Any, Any, Any, Any]:
    """`(algo, state, task, params)` of a run's newest whole checkpoint. Raises CheckpointError without one."""
    from jaxrl.host.fit import load

    algo, hyper, task, params = build(recipe)
    _, state = load(algo, folder, hyper=hyper, env_params=params, num_seeds=recipe["run"]["seeds"])
    return algo, state, task, params


def read_recipe(folder: Path) -> dict[str, Any]:
    """What `experiment` made of the words that started a run. Raises RunFolderError where none are kept."""
    from jaxrl.host.run_folder import RunFolder, RunFolderError

    recipe = RunFolder(folder).read_config().get("recipe")
    if recipe is None:
        raise RunFolderError(f"{folder} was not made by `jaxrl train`: use the Python program that made it.")
    return recipe
