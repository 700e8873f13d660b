"""The task that a file of steps was recorded in: what its `about` says of it, and the environment made of that again.

Beside `env` and `params` a file says `env_settings`, the static settings, and `wrap`, the wrappers' words, where these
are not the usual ones; `dropped` are entries of observations that it is without.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from jaxrl import registry
from jaxrl.environment import Environment
from jaxrl.host.data import npz_files
from jaxrl.host.data.npz_files import ABOUT, dict_of
from jaxrl.host.run.recipe import placed
from jaxrl.host.run.recipe_inputs import settings_of, without_entries
from jaxrl.wrappers import wrapped


def said_of(recipe: dict[str, Any], env: Environment) -> dict[str, Any]:
    """What a file says of the task of a run's recipe, which is `env`.

    Raises ValueError for a task that was put together in Python and that these words do not make again.
    """
    usual = registry.make(recipe["env_id"])[0] if recipe["env_id"] in registry.environments() else None
    known = {f.name: getattr(usual, f.name) for f in dataclasses.fields(usual)} if usual is not None else {}
    settings = {name: x for name, x in recipe.get("env_settings", {}).items() if known.get(name) != x}
    dropped = recipe.get("dataset", {}).get("drop", ())
    about = {"env": env.id, "env_settings": settings, "wrap": list(recipe.get("wrap", ())), "dropped": list(dropped)}
    about = {name: x for name, x in about.items() if x}
    if usual is None or task_of(about, "the run")[0] != env:
        raise ValueError(
            f"{env.id} of the run was wrapped or changed in Python, which a file of steps does not say: train it by "
            "`jaxrl train`, with --env.* and --wrap."
        )
    return about


def task_of(about: dict[str, Any], where: str) -> tuple[Environment, Any]:
    """The environment that a file is of, with the numbers it was recorded with. Raises ValueError for none of ours."""
    id = about.get("env")
    if id not in registry.environments():
        raise ValueError(f"{where} does not say of which environment of jaxrl it is (env: {id!r}).")
    settings, wrap = words_of(about)
    env, params = registry.make(id, **settings)
    params = placed(params, about.get("params") or {}, "params.")
    return without_entries(wrapped(env, wrap), params, about.get("dropped", ())), params


def words_of(about: dict[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """`(static settings, wrappers)` of the task."""
    return settings_of({"env_settings": about.get("env_settings") or {}}), tuple(about.get("wrap") or ())


def about_of_file(path: Path) -> dict[str, Any]:
    """What a file of jaxrl's says of itself, without reading its arrays; {} where it is none, which its reader says."""
    if not path.is_file() or npz_files.kind_of(path) != "npz":
        return {}
    try:
        with npz_files.opened(path) as file:
            return dict_of(str(npz_files.member(file, ABOUT, path)), str(path)) if ABOUT in file.files else {}
    except ValueError:
        return {}
