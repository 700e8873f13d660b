"""What a run was made of, as JSON, and the algorithm and the trained state that are made of it again.

A recipe has names and numbers: `algo` and `env_id` as the registry takes them, `env_settings`, `config`, and `hyper`
and `params` by the dotted names of their leaves (those left out are the defaults); `run` has what `fit` was given;
`curriculum` what the command line put around it, `dataset` the file that it learns from and the hash of what was in it.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxrl import registry
from jaxrl.algorithm import Algorithm, names_of
from jaxrl.environment import Environment, check_params, require_int32, strongly_typed
from jaxrl.host import checkpoint
from jaxrl.host.run_folder import RunFolder, RunFolderError, tree_values
from jaxrl.host.training_program import Program
from jaxrl.nn import normalize
from jaxrl.replay.ring import Replay
from jaxrl.vectorize import VectorEnv, vectorize

# ---- from a recipe to functions


def build(recipe: dict[str, Any], trained: bool = False) -> tuple[Any, Any, Any, Any]:
    """`(algo, hyper, task, params)`; fields that are arrays come back as what they were, several agents as slots of
    one. The task is the environment of the evaluations: under a curriculum that of the id, not the one of its levels.
    What is `trained` needs its dataset no more.
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
        hyper = placed(module.Hyper(), recipe["hyper"], "hyper.")
        return _under_curriculum(recipe["curriculum"], module, config, env, params), hyper, env, params
    fold = env.num_agents > 1 and hasattr(config, "num_envs")  # without it, `make` says that it trains one agent
    memory = {}
    if "dataset" in recipe:
        if not _from_data(module):
            able = ", ".join(sorted(n for n in registry.list_algos() if _from_data(registry.get_algo(n))))
            raise ValueError(f"--dataset: {recipe['algo']} does not learn from a dataset alone; {able} do.")
        if env.num_agents > 1:
            raise ValueError(f"--dataset: {env.id} has several agents; a dataset is of one.")
        gamma = recipe["hyper"].get("gamma", getattr(module.Hyper(), "gamma", 0.99))
        by_goal, told = getattr(config, "outcome", None) == "goal", "goals" in recipe["dataset"]
        if told and not hasattr(config, "outcome"):
            raise ValueError(f"--goals: {recipe['algo']} takes no goals from a dataset here; rvs and others do.")
        if by_goal != told:
            raise ValueError("--config.outcome goal and --goals ENTRY, where goals are reached, go together.")
        length = module.window(config) if hasattr(module, "window") else None
        how = {"length": length, "priorities": getattr(config, "prioritised", False)}
        # What fb deploys is of the data's rewards, and priorities are part of the state that is read.
        needless = trained and not hasattr(module, "task_vector") and not how["priorities"]
        unread = Replay(lambda item: (), None, _gone, normalizer=normalize.init)  # what it was is in the state
        memory = {"memory": unread if needless else memory_of(env, params, gamma, **how, **recipe["dataset"])}
    algo = module.make(_slots(env, config.num_envs) if fold else env, config, **memory)
    if fold and jax.tree.leaves(algo.initial_carry()):
        raise ValueError(f"{env.id} has several agents; {algo.name} remembers, and learns from one agent only.")
    return algo, placed(algo.hyper(), recipe["hyper"], "hyper."), algo.venv.env, params


def _from_data(module: Any) -> bool:
    """Without a model or demonstrations beside it."""
    wanted = inspect.signature(module.make).parameters
    return "memory" in wanted and "model" not in wanted and not hasattr(module, "demonstrated")


def _gone(*args: Any) -> Any:
    raise AssertionError("a trained algorithm reads no dataset")


def memory_of(
    env: Environment,
    params: Any,
    gamma: float,
    length: int | None,
    priorities: bool,
    path: str,
    episodes: str,
    digest: str,
    goals: str | None = None,
) -> Replay:
    """A dataset as a memory of `make`: `datasets.stored` or `prioritised`, with a length `windows`. `episodes` and
    `goals` are the flags' words; goals are any later ones of the episode, alike.

    Raises ValueError for a word of another kind, a file that is not what it was, and one of another environment.
    """
    from jaxrl.host import dataset_files
    from jaxrl.replay import datasets

    dataset, about = dataset_files.read_any(path)
    if dataset_files.digest(dataset) != digest:
        raise ValueError(f"{path} has changed since the run began: its hash was {digest}.")
    if goals is not None and not isinstance(dataset.obs, dict):
        dataset = datasets.with_goal(dataset, goals)
    dataset_files.check_fits(dataset, about, env, params)
    space, weights = env.action_space(params), weights_of(dataset, episodes)
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


def weights_of(dataset: Any, episodes: str) -> Any:
    """Weights of its episodes by the word of `--episodes`. Raises ValueError for another word."""
    from jaxrl.replay import datasets

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


def read_recipe(folder: Path) -> dict[str, Any]:
    """What `experiment` made of the words that started a run, or `fit` of its arguments, and `run.seeds`, how many.

    Raises RunFolderError where none is kept, and says why.
    """
    config = RunFolder(folder).read_config()
    recipe = config.get("recipe")
    if recipe is None:
        why = config.get("no_recipe", "it keeps no recipe.")
        raise RunFolderError(f"{folder} is read by the Python program that made it alone: {why}")
    run = recipe["run"]
    run.setdefault("num_seeds", run.get("seeds"))  # None: one run without an axis of seeds
    run["seeds"] = run["num_seeds"] or 1
    return recipe


def _under_curriculum(recipe: dict[str, Any], module: Any, config: Any, env: Any, params: Any) -> Any:
    """The algorithm of `module` as a curriculum's student."""
    import jax.numpy as jnp

    from jaxrl import curriculum
    from jaxrl.curriculum.task import Task
    from jaxrl.curriculum.teaching import ranges

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
    if algo not in (module.make(venv.env, config), module.make(venv, config)):
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
