"""From functions to a recipe: the names and numbers of what `fit` was given, where these say all of it, else how it was
made, by calls, dataclasses and arrays (`made`)."""

from __future__ import annotations

import dataclasses
import json
import sys
from typing import Any

import jax
import numpy as np

from jaxrl import registry
from jaxrl.algorithm import Algorithm
from jaxrl.calls import call_of
from jaxrl.environment import Environment, strongly_typed
from jaxrl.host.run.made import NotMadeError, written
from jaxrl.host.run.options import EvalOptions
from jaxrl.host.run.recipe import build
from jaxrl.host.run.run_folder import description, tree_values
from jaxrl.vector_env import VectorEnv, vectorize


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
        again = build(read).algo
    except (TypeError, ValueError) as error:
        raise NoRecipeError(f"its settings cannot be kept as JSON ({error}).") from error
    if (again.config, again.venv) != (config, venv):
        raise NoRecipeError("its settings do not come back from JSON as they were.")
    return read


def made_recipe_of(
    algo: Algorithm, hyper: Any, env_params: Any, run: dict[str, Any], evaluation: EvalOptions
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """`(recipe, arrays)` of what names and numbers alone do not say: wrappers, levels, curricula, params of another
    structure, and an evaluation on another task. What is built of it has the identity of `algo` and these numbers.

    Raises NoRecipeError for what is not made by marked calls of dataclasses, functions and arrays that have names.
    """
    if call_of(algo) is None:
        raise NoRecipeError(
            f"nobody knows which call made its algorithm ({algo.name}): the `make` of its file is not @shared, or a "
            "field of it was replaced."
        )
    env, arrays = algo.venv.env, {}
    try:
        made = {"algo": written(algo, arrays, "its algorithm")}
        recipe: dict[str, Any] = {
            "algo": _name_of(algo),
            "env_id": env.id,
            "env_settings": {},
            "config": description(algo, None)["config"],
            "hyper": {},
            "params": {},
        }
        for part, tree, usual in (("hyper", hyper, algo.hyper()), ("params", env_params, env.default_params)):
            try:
                recipe[part] = _changed(usual if tree is None else tree, usual, part)
            except NoRecipeError:
                made[part] = written(strongly_typed(tree), arrays, f"its {part}")
        if "params" not in made and env_params is None:
            made["params"] = None
        for part, x in (
            ("task", evaluation.env),
            ("task_params", evaluation.env_params),
            ("levels", evaluation.levels),
        ):
            if x is not None and x is not env_params and x != env:
                made[part] = written(x if part == "task" else strongly_typed(x), arrays, f"its {part}")
        recipe |= {"run": run, "made": made}
        recipe = json.loads(json.dumps(recipe))
        again = build({**recipe, "arrays": arrays})
    except (NotMadeError, TypeError, ValueError) as error:
        raise NoRecipeError(f"it cannot be made again: {error}") from error
    if description(again.algo, None) != description(algo, None) or not _equal(again.hyper, hyper):
        raise NoRecipeError("what its calls make again is not what it was.")
    if not _equal(again.params, env_params):
        raise NoRecipeError("its env_params do not come back as they were.")
    return recipe, arrays


def _name_of(algo: Algorithm) -> str:
    """The name of the algorithm inside of all others, or the module of its Config."""
    name, cls = algo.name.split("+")[0], type(algo.config)
    known = name in registry.list_algos() and registry.get_algo(name).Config is cls
    return name if known else cls.__module__


def _equal(one: Any, other: Any) -> bool:
    if jax.tree.structure(one) != jax.tree.structure(other):
        return False
    pairs = zip(*(jax.tree.leaves(strongly_typed(tree)) for tree in (one, other)), strict=True)
    return all(x.shape == y.shape and x.dtype == y.dtype and np.asarray(x).tobytes() == np.asarray(y).tobytes()
               for x, y in pairs)  # fmt: skip


def _environment(env: Environment) -> tuple[str, dict[str, Any]]:
    """`(id, static settings)` of which `registry.make` makes it."""
    cls, entry = type(env), registry.environments().get(env.id)
    ours = entry is not None and isinstance(entry.target, str) and entry.target.startswith("jaxrl.")
    ours = ours or registry.is_of_suite(env.id)
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
