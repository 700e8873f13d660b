"""What a run was made of, as JSON, and the algorithm and the trained state that are made of it again.

A recipe has names and numbers: `algo` and `env_id` as the registry takes them, `env_settings`, `config`, and `hyper`
and `params` by the dotted names of their leaves (those left out are the defaults); `run` has what `fit` was given;
`curriculum` what the command line put around it, `dataset` the file that it learns from and the hash of what was in it,
`model` the same of the model that it imagines with.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import Array

from jaxrl import registry
from jaxrl.algorithm import Algorithm, names_of
from jaxrl.data import datasets, dynamics
from jaxrl.data.datasets import Dataset
from jaxrl.data.dynamics import Ends
from jaxrl.environment import Environment, check_params, require_int32, strongly_typed
from jaxrl.host.data import dataset_files, model_files
from jaxrl.host.run import checkpoint
from jaxrl.host.run.curricula import under_curriculum
from jaxrl.host.run.run_folder import RunFolder, RunFolderError, tree_values
from jaxrl.host.run.training_program import Program
from jaxrl.nn import normalize
from jaxrl.off_policy.imagination import Model
from jaxrl.replay.ring import Replay
from jaxrl.spaces import Space
from jaxrl.vectorize import VectorEnv, vectorize

# ---- from a recipe to functions


def build(recipe: dict[str, Any], trained: bool = False) -> tuple[Any, Any, Any, Any]:
    """`(algo, hyper, task, params)`; fields that are arrays come back as what they were, several agents as slots of
    one. The task is the environment of the evaluations: under a curriculum that of the id, not the one of its levels.
    What is `trained` needs its dataset and its model no more.
    """
    module = registry.get_algo(recipe["algo"])
    env, default = registry.make(recipe["env_id"], **hashable(recipe["env_settings"]))
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
        return under_curriculum(part, module.make, config, env, params, _policy), hyper, env, params
    fold = env.num_agents > 1 and hasattr(config, "num_envs")  # without it, `make` says that it trains one agent
    given = _learns_from(recipe, module, config, env, params, trained)
    algo = module.make(_slots(env, config.num_envs) if fold else env, config, **given)
    if fold and jax.tree.leaves(algo.initial_carry()):
        raise ValueError(f"{env.id} has several agents; {algo.name} remembers, and learns from one agent only.")
    return algo, placed(algo.hyper(), recipe["hyper"], "hyper."), algo.venv.env, params


def _learns_from(
    recipe: dict[str, Any], module: Any, config: Any, env: Environment, params: Any, trained: bool
) -> dict[str, Any]:
    """The arguments of `make` that are read from files: `replay`, and `model` where the algorithm imagines.

    Raises ValueError for an algorithm that learns otherwise, and for files that do not fit.
    """
    name, imagines = recipe["algo"], "model" in inspect.signature(module.make).parameters
    if "dataset" not in recipe:
        return {}
    if not _from_data(module):
        raise ValueError(f"--dataset: {name} does not learn from a dataset alone; {_those(_from_data)} do.")
    if env.num_agents > 1:
        raise ValueError(f"--dataset: {env.id} has several agents; a dataset is of one.")
    if imagines and "model" not in recipe:
        raise ValueError(
            f"{name} learns from a dataset and a model of it: fit one by `jaxrl dataset model "
            f"{Path(recipe['dataset']['path']).name} --out model.npz`, then say --model model.npz."
        )
    if "model" in recipe and not imagines:
        able = _those(lambda module: _from_data(module) and "model" in inspect.signature(module.make).parameters)
        raise ValueError(f"--model: {name} learns from a dataset without one; {able} take one.")
    by_goal, told = getattr(config, "outcome", None) == "goal", "goals" in recipe["dataset"]
    if told and not hasattr(config, "outcome"):
        raise ValueError(f"--goals: {name} takes no goals from a dataset here; rvs and others do.")
    if by_goal != told:
        raise ValueError("--config.outcome goal and --goals ENTRY, where goals are reached, go together.")
    # What fb deploys is of the data's rewards, and priorities are part of the state that is read.
    prioritised = getattr(config, "prioritised", False)
    if trained and not hasattr(module, "task_vector") and not prioritised:
        unread = Replay(lambda item: (), None, _gone, normalizer=normalize.init)  # what it was is in the state
        return {"replay": unread, **({"model": _gone} if imagines else {})}
    gamma = recipe["hyper"].get("gamma", getattr(module.Hyper(), "gamma", 0.99))
    length = module.window(config) if hasattr(module, "window") else None
    said = recipe["dataset"]
    dataset = dataset_of(env, params, said["path"], said["digest"], said.get("goals"))
    memory = memory_of(
        dataset, env.action_space(params), gamma, length, prioritised, said["episodes"], said.get("goals")
    )
    if not imagines:
        return {"replay": memory}
    return {"replay": memory, "model": model_of(module, dataset, env, params, **recipe["model"])}


def _from_data(module: Any) -> bool:
    """Without demonstrations beside it."""
    return "replay" in inspect.signature(module.make).parameters and not hasattr(module, "demonstrated")


def _those(able: Callable[[Any], bool]) -> str:
    return ", ".join(sorted(name for name in registry.list_algos() if able(registry.get_algo(name))))


def _gone(*args: Any) -> Any:
    raise AssertionError("a trained algorithm reads no dataset and asks no model")


def _require_there(part: str, path: str) -> None:
    if not Path(path).exists():
        flag = f"`--{part} FILE` of resume, eval and others says where it is."
        raise FileNotFoundError(f"{path}, which the run learned from, is not there: {flag}")


def dataset_of(env: Environment, params: Any, path: str, digest: str, goals: str | None = None) -> Dataset:
    """A dataset of `env`. Raises ValueError for a file that is not what it was, and for one of another environment."""
    _require_there("dataset", path)
    dataset, about = dataset_files.read_any(path)
    if dataset_files.digest(dataset) != digest:
        raise ValueError(f"{path} has changed since the run began: its hash was {digest}.")
    if goals is not None and not isinstance(dataset.obs, dict):
        dataset = datasets.with_goal(dataset, goals)
    dataset_files.check_fits(dataset, about, env, params)
    return dataset


def memory_of(
    dataset: Dataset, space: Space, gamma: float, length: int | None, priorities: bool, episodes: str, goals: str | None
) -> Replay:
    """A dataset as a memory of `make`: `datasets.stored` or `prioritised`, with a length `windows`. `episodes` and
    `goals` are the flags' words; goals are any later ones of the episode, alike.

    Raises ValueError for a word of another kind.
    """
    weights = weights_of(dataset, episodes)
    if priorities:
        if weights is not None:
            raise ValueError(f"--episodes {episodes}: with config.prioritised steps are drawn by their priorities.")
        return datasets.prioritised(dataset, space, gamma)
    if length is None:
        return datasets.stored(dataset, space, weights, gamma)
    if goals is None:
        return datasets.windows(dataset, space, length, weights)
    names = sorted(dataset.obs) if isinstance(dataset.obs, dict) else []
    if goals not in names or "goal" not in names or goals == "goal":
        raise ValueError(
            f"--goals {goals}: observations have {', '.join(names) or 'no entries'}; it is one beside goal."
        )
    return datasets.windows(dataset, space, length, weights, datasets.Hindsight(lambda obs: obs[goals]))


def model_of(module: Any, dataset: Dataset, env: Environment, params: Any, path: str, digest: str) -> Model:
    """A model of a file, uncertain as the algorithm's `model_of` says, with the task's own ends.

    Raises ValueError for a file that is not what it was, a model of another size, and ends that are not known.
    """
    _require_there("model", path)
    ensemble, about = model_files.read(path)
    if model_files.digest(ensemble) != digest:
        raise ValueError(f"{path} has changed since the run began: its hash was {digest}.")
    model_files.check_fits(ensemble, about, env, params)
    terminated = ends_of(env, params, dataset)
    if hasattr(module, "model_of"):
        return module.model_of(ensemble, dataset, terminated)
    return dynamics.predictor(ensemble, terminated=terminated)


def ends_of(env: Environment, params: Any, dataset: Dataset) -> Ends | None:
    """The task's own ends for a model; None where neither the task nor the data knows any.

    Raises ValueError for a dataset with ends that the environment does not tell by observations, or not with `params`.
    """

    def terminated(obs: Array, action: Array, next_obs: Array) -> Array:
        return jax.vmap(lambda obs: env.terminal(obs, params))(next_obs)

    known = datasets.with_successors(dataset)
    there = np.asarray(known.terminated)
    try:
        here = np.asarray(jax.jit(terminated)(known.obs, known.action, known.next_obs))
    except NotImplementedError as error:
        if ends := int(np.sum(dataset.terminated)):
            raise ValueError(
                f"--model: the task ends in {ends} of the dataset's {dataset.size} steps, which no model learns, "
                f"and {env.id} does not say which observations end it (it has no `terminal`)."
            ) from error
        return None
    if (wrong := int((here != there).sum())) > 0.01 * max(here.sum(), there.sum()):
        raise ValueError(
            f"--model: the dataset and {env.id} disagree about {wrong} ends, of {there.sum()} in the dataset and "
            f"{here.sum()} by its observations: was it made with other --params?"
        )
    return terminated


def weights_of(dataset: Any, episodes: str) -> Any:
    """Weights of its episodes by the word of `--episodes`. Raises ValueError for another word."""
    kind, _, share = episodes.partition(":")
    if episodes == "all":
        return None
    if episodes in ("return", "advantage"):
        return getattr(datasets, f"{episodes}_weights")(dataset)
    try:
        if kind == "best":
            return datasets.best_weights(dataset, float(share))
    except ValueError as error:
        raise ValueError(f"--episodes {episodes}: the share must be above 0 and at most 1.") from error
    raise ValueError(f"--episodes {episodes}: it is all, return, advantage or best:SHARE, as in best:0.1.")


def hashable(values: dict[str, Any]) -> dict[str, Any]:
    """Static settings as they were before JSON made lists of their tuples."""

    def whole(value: Any) -> Any:
        return tuple(map(whole, value)) if isinstance(value, list) else value

    return {name: whole(value) for name, value in values.items()}


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


def load_run(recipe: dict[str, Any], folder: Path) -> tuple[Any, Any, Any, Any]:
    """`(algo, state, task, params)` of a run's newest whole checkpoint; the state has an axis of seeds, also of one.

    Raises CheckpointError without one.
    """
    algo, hyper, task, params = build(recipe, trained=True)
    seeds = recipe["run"]["num_seeds"]
    program = Program(algo, jax.random.key(0), seeds, hyper, params)
    _, (state, _) = checkpoint.restore(RunFolder(folder).checkpoints, program.shapes(), program.identity())
    return algo, jax.tree.map(lambda x: x[None], state) if seeds is None else state, task, params


def read_recipe(folder: Path, **moved: Path | None) -> dict[str, Any]:
    """What `experiment` made of the words that started a run, or `fit` of its arguments, and `run.seeds`, how many.
    What was `moved`, as `dataset`, is where this says.

    Raises RunFolderError where none is kept, and says why; ValueError for what the run did not learn from.
    """
    config = RunFolder(folder).read_config()
    recipe = config.get("recipe")
    if recipe is None:
        why = config.get("no_recipe", "it keeps no recipe.")
        raise RunFolderError(f"{folder} is read by the Python program that made it alone: {why}")
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


def _policy(folder: Path) -> tuple[Any, Any]:
    """`(algorithm, policy)` of the first seed of a run."""
    algo, state, _, _ = load_run(read_recipe(folder), folder)
    return algo, algo.policy(jax.tree.map(lambda x: x[0], state))


# ---- from functions to a recipe


class NoRecipeError(Exception):
    """Names and numbers do not say all that this run is made of; the message says what they leave out."""


def recipe_of(algo: Algorithm, hyper: Any, env_params: Any, run: dict[str, Any]) -> dict[str, Any]:
    """The recipe of what `fit` was given; `hyper` are all settings, `env_params` may be None, for the default ones.

    Nothing is guessed: what is built of it is `algo` itself, with these numbers. Raises NoRecipeError otherwise.
    """
    if algo.around:
        raise NoRecipeError(f"something stands around its algorithm or inside it that has no name ({algo.name}).")
    venv, config = algo.venv, algo.config
    if not isinstance(venv, VectorEnv) or venv != vectorize(venv.env, venv.num_envs):
        raise NoRecipeError("its environments are vectorised in a way of its own (reset, level_fn or batched_params).")
    env_id, settings = _environment(venv.env)
    module_name, module = _algorithm(algo)
    try:
        alone = module.make(venv.env, config), module.make(venv, config)
    except (TypeError, ValueError):  # it needs another argument, as a memory
        alone = ()
    if algo not in alone:
        raise NoRecipeError(
            f"{module_name}.make(env, config) is not its algorithm: it has a network of its own or another argument, "
            "or `make` is not @shared."
        )
    recipe = {
        "algo": module_name,
        "env_id": env_id,
        "env_settings": settings,
        "config": dataclasses.asdict(config),
        "hyper": _changed(hyper, algo.hyper(), "hyper"),
        "params": {} if env_params is None else _changed(env_params, venv.env.default_params, "env_params"),
        "run": run,
    }
    try:
        read = json.loads(json.dumps(recipe))
        again = build(read)[0]
    except (TypeError, ValueError) as error:
        raise NoRecipeError(f"its settings cannot be kept as JSON ({error}).") from error
    if (again.config, again.venv) != (config, venv):
        raise NoRecipeError("its settings do not come back from JSON as they were.")
    return read


def _environment(env: Environment) -> tuple[str, dict[str, Any]]:
    """`(id, static settings)` of which `registry.make` makes it."""
    cls, entry = type(env), registry.environments().get(env.id)
    ours = entry is not None and isinstance(entry.target, str) and entry.target.startswith("jaxrl.")
    id = env.id if ours else f"{_importable(cls)}:{cls.__qualname__}"
    other = NoRecipeError(
        f"its environment, a {cls.__name__}, is not what make({id!r}) makes: wrapped, or another one."
    )
    try:
        default = registry.make(id)[0]
        if type(default) is not cls:
            raise other
        fields = [f.name for f in dataclasses.fields(env) if f.init and not (ours and f.name == "id")]
        settings = {f: getattr(env, f) for f in fields if getattr(env, f) != getattr(default, f)}
        if registry.make(id, **settings)[0] != env:
            raise other
    except (TypeError, ValueError) as error:
        raise NoRecipeError(f"its environment cannot be made by name ({error})") from error
    return id, settings


def _algorithm(algo: Algorithm) -> tuple[str, Any]:
    """`(name, module)` of the file whose Config it has."""
    cls = type(algo.config)
    if algo.name in registry.list_algos() and registry.get_algo(algo.name).Config is cls:
        return algo.name, registry.get_algo(algo.name)
    name = _importable(cls)
    module = sys.modules[name]
    if not (hasattr(module, "make") and hasattr(module, "Hyper") and getattr(module, "Config", None) is cls):
        raise NoRecipeError(f"{name} is no algorithm's file: it has not all of Config, Hyper and make.")
    return name, module


def _importable(cls: type) -> str:
    """The module of a class. Raises NoRecipeError for one that cannot be imported by its name."""
    if cls.__module__ == "__main__":
        raise NoRecipeError(f"{cls.__name__} is defined in the script that was run: move it into a module.")
    if "<" in cls.__qualname__ or "." in cls.__qualname__:
        raise NoRecipeError(f"{cls.__qualname__} is defined inside something else: move it to the top of its module.")
    return cls.__module__


def _changed(tree: Any, default: Any, which: str) -> dict[str, Any]:
    """The leaves that are not the default's."""
    tree, default = strongly_typed(tree), strongly_typed(default)
    if jax.tree.structure(tree) != jax.tree.structure(default):
        raise NoRecipeError(f"its {which} are built otherwise than the default ones.")
    values, usual = tree_values(tree), tree_values(default)
    return {name: value for name, value in values.items() if value != usual[name]}
