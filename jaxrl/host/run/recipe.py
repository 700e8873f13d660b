"""What a run was made of, as JSON, and the algorithm and the trained state that are made of it again.

A recipe has names and numbers: `algo` and `env_id` as the registry takes them, `env_settings`, `config`, and `hyper`
and `params` by the dotted names of their leaves (those left out are the defaults); `run` has what `fit` was given;
`curriculum` what the command line put around it, `dataset` the file that it learns from and the hash of what was in it,
`model` the same of the model that it imagines with. `recipe_inputs` reads these files, `recipe_of` writes the recipe of
what `fit` was given. Before that it may have an `expert`, an `actors.Actor`, which is no JSON.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxrl import registry
from jaxrl.algorithm import Algorithm, names_of
from jaxrl.environment import Environment, check_params, require_int32, strongly_typed
from jaxrl.host.run import recipe_inputs
from jaxrl.host.run.began import began
from jaxrl.host.run.config_file import checked, said_of
from jaxrl.host.run.curricula import held_out, under_curriculum
from jaxrl.host.run.evaluator import of_task
from jaxrl.host.run.made import NotMadeError, read
from jaxrl.host.run.recipe_inputs import hashable, settings_of, without_dropped
from jaxrl.host.run.run_folder import RunFolder, RunFolderError
from jaxrl.host.run.training_program import Program
from jaxrl.host.run.trust import foreign, may_run
from jaxrl.meta.stored import arrays_of
from jaxrl.vector_env import VectorEnv, vectorize
from jaxrl.wrappers import wrapped


class Built(NamedTuple):
    """What a recipe is made of again: the arguments of `fit`, and the task of its evaluations."""

    algo: Algorithm
    hyper: Any  # all settings; those of a curriculum are inside
    task: Environment  # of the recipe's id, also where levels of a curriculum stand in its place in the training
    params: Any  # of the task; of what was put together in Python those of `init`, None for the default ones


def build(recipe: dict[str, Any], trained: bool = False) -> Built:
    """The algorithm, settings, task and params of a recipe. Several agents of a task are slots of one algorithm.

    With `trained` to judge a policy only: for that most algorithms need neither their dataset nor their model, which
    are not read then. Raises ValueError for what this version of jaxrl does not have and for settings that do not fit.
    """
    if "made" in recipe:
        return _made(recipe)
    recipe = without_dropped(recipe)
    module = registry.get_algo(recipe["algo"])
    env, default = registry.make(recipe["env_id"], **settings_of(recipe))
    env = wrapped(env, recipe.get("wrap", ()))
    params = placed(default, recipe["params"])
    check_params(env, params)
    known = [field.name for field in dataclasses.fields(module.Config)]
    if unknown := [name for name in recipe["config"] if name not in known]:
        raise ValueError(
            f"{recipe['algo']} of this version of jaxrl has no config.{', config.'.join(unknown)}; it has "
            f"{', '.join(known)}. The run's config.json says of which version it is."
        )
    config = module.Config(**hashable(recipe["config"]))
    if "curriculum" in recipe:
        hyper, part = placed(module.Hyper(), recipe["hyper"], "hyper."), recipe["curriculum"]
        part = {**part, "config": hashable(part["config"])} if "config" in part else part
        algo = under_curriculum(part, module.make, config, env, params, _policy_of)
        return Built(algo, hyper, env, params)
    fold = env.num_agents > 1 and hasattr(config, "num_envs")  # without it, `make` says that it trains one agent
    env = recipe_inputs.without_entries(env, params, recipe.get("dataset", {}).get("drop", ()))
    given = recipe_inputs.arguments(recipe, module, config, env, params, trained)
    given |= {"expert": recipe["expert"]} if "expert" in recipe else {}
    algo = module.make(_slots(env, config.num_envs) if fold else env, config, **given)
    if fold and jax.tree.leaves(algo.initial_carry()):
        raise ValueError(f"{env.id} has several agents; {algo.name} remembers, and learns from one agent only.")
    return Built(algo, placed(algo.hyper(), recipe["hyper"], "hyper."), algo.venv.env, params)


def _made(recipe: dict[str, Any]) -> Built:
    """What was put together in Python. Raises ValueError for calls and names that cannot be made again."""
    parts = recipe["made"]
    try:
        algo = _part(recipe, "algo")
        hyper = _part(recipe, "hyper") if "hyper" in parts else placed(algo.hyper(), recipe["hyper"], "hyper.")
        env = algo.venv.env
        params = _part(recipe, "params") if "params" in parts else placed(env.default_params, recipe["params"])
        return Built(algo, hyper, _part(recipe, "task") if "task" in parts else env, params)
    except NotMadeError as error:
        raise ValueError(f"the run's recipe: {error}") from error


def _part(recipe: dict[str, Any], name: str) -> Any:
    """A part of what was put together in Python; its arrays are in the recipe, or in the run folder that it is from."""
    folder = RunFolder(recipe.get("folder", "."))
    if "arrays" not in recipe:
        recipe = {**recipe, "arrays": arrays_of(folder.arrays, "recipe") if folder.arrays.exists() else {}}
    return read(recipe["made"][name], recipe["arrays"], folder.path)


def task_params(recipe: dict[str, Any], built: Built) -> Any:
    """The params of the task that evaluations of a recipe are on."""
    if "task_params" in recipe.get("made", {}):
        return _part(recipe, "task_params")
    if "made" not in recipe:
        return built.params
    return built.params if of_task(built.task, built.params) else built.task.default_params


def levels_of(recipe: dict[str, Any], task: Environment, params: Any) -> Any:
    """The held-out levels of a recipe's evaluations; None where there are none."""
    if "levels" in recipe.get("made", {}):
        return _part(recipe, "levels")
    return None if recipe["run"].get("eval_levels") is None else held_out(recipe, task, params)


def placed(tree: Any, values: Mapping[str, Any], within: str = "") -> Any:
    """The tree, strongly typed, with these leaves by their dotted names.

    Raises ValueError for names it lacks, and for integers beyond 32 bits, which are named with `within` before them.
    """
    tree = strongly_typed(tree)
    names = names_of(tree)
    if unknown := [name for name in values if name not in names]:
        raise ValueError(f"{type(tree).__name__} has no {', '.join(unknown)}; it has {', '.join(names)}.")
    leaves, structure = jax.tree.flatten(tree)
    for i, (name, leaf) in enumerate(zip(names, leaves, strict=True)):
        if name in values:
            if jax.numpy.issubdtype(leaf.dtype, jax.numpy.integer):
                require_int32(within + name, values[name])
            leaves[i] = jax.numpy.asarray(np.asarray(values[name], leaf.dtype))
    return jax.tree.unflatten(structure, leaves)


def _slots(env: Environment, num_envs: int) -> VectorEnv:
    """`agents_as_slots` of as many environments as make `num_envs` slots."""
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


class Loaded(NamedTuple):
    """A run as it was saved, and the task of its evaluations."""

    algo: Algorithm
    state: Any  # with a leading axis of seeds, also of one
    task: Environment
    params: Any  # of the task
    updates: int  # done


def load_run(recipe: dict[str, Any], folder: Path, at: int | str | None = None) -> Loaded:
    """The algorithm of a run and its state, of the newest whole checkpoint or of that `at` an update, or the "best".

    Raises CheckpointError without one.
    """
    with said_of(RunFolder(folder).config):
        built = build(recipe, trained=True)
        algo, hyper, task, params = built
        seeds = recipe["run"]["num_seeds"]
        program = Program(algo, jax.random.key(0), seeds, hyper, params)
    updates, (state, _) = RunFolder(folder).restore(program, at, began(program))
    state = jax.tree.map(lambda x: x[None], state) if seeds is None else state
    return Loaded(algo, state, task, task_params(recipe, built), updates)


def _policy_of(folder: Path) -> tuple[Algorithm, Any]:
    """The algorithm of a run and the policy of its first seed."""
    algo, state, *_ = load_run(read_recipe(folder), folder)
    return algo, algo.policy(jax.tree.map(lambda x: x[0], state))


def refuse_foreign(recipe: dict[str, Any], file: Path, loggers: bool = False) -> None:
    """Raise RunFolderError for a recipe that names Python of somebody else (see `trust`): also its loggers, which are
    called where training goes on.
    """
    if not may_run(recipe, loggers):
        raise RunFolderError(
            f"{file} names Python that is not jaxrl's and would be run: {', '.join(foreign(recipe, loggers))}. Say "
            "--trust (in Python: load(..., trust=True)) if you know who wrote it."
        )


def read_recipe(folder: Path, **moved: Path | None) -> dict[str, Any]:
    """What `experiment` made of the words that started a run, or `fit` of its arguments, and `run.seeds`, how many.
    What was `moved`, as `dataset`, is where this says.

    Raises RunFolderError where none is kept, and says why, and for one that names Python of somebody else (see
    `trust`); ValueError for what the run did not learn from.
    """
    file = RunFolder(folder).config
    config = checked(RunFolder(folder).read_config(), file)
    recipe = config.get("recipe")
    if recipe is None:
        why = config.get("no_recipe", "it keeps no recipe.")
        raise RunFolderError(f"{folder} is read by the Python program that made it alone: {why}")
    refuse_foreign(recipe, file)
    if "made" in recipe:
        recipe["folder"] = str(folder.absolute())
        recipe.pop("arrays", None)  # they are beside the config
    name = recipe["algo"]
    if "." not in name and name not in registry.list_algos() and not registry.is_own(name):
        raise RunFolderError(
            f"{file}: recipe.algo is {name!r}, which is no algorithm of this jaxrl and no module here: run the command "
            f"in the folder that has {name}.py."
        )
    run = recipe["run"]
    run.setdefault("num_seeds", run.get("seeds"))  # None: one run without an axis of seeds
    run["seeds"] = run["num_seeds"] or 1
    for part, path in moved.items():
        if path is not None:
            if part not in recipe:
                raise ValueError(f"--{part} {path}: {folder} did not learn from a {part}.")
            if not path.exists():
                raise FileNotFoundError(f"--{part} {path}: nothing is there.")
            recipe[part]["path"] = str(path.absolute())
    return recipe
