"""Whose Python a recipe names: a run folder may come from somebody else, and what it names is run only when told.

What is jaxrl's, and what this program has imported itself, is not the folder's. `trusting()` says that all of it may
run, as `--trust` does on the command line.
"""

from __future__ import annotations

import contextlib
import contextvars
import importlib
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from jaxrl import registry
from jaxrl.environment import Environment

_TRUSTED = contextvars.ContextVar("trusted", default=False)

CODE = re.compile(r"[^=]+\.py(:[A-Za-z_][\w.-]*)?|[A-Za-z_][\w.]*:[A-Za-z_][\w.-]*")
"""FILE.py, FILE.py:NAME and MODULE:NAME."""

PARTS = ("env_settings", "config", "hyper", "params", "curriculum", "made")
"""Parts of a recipe whose words may name functions, beside its algorithm and its environment."""


@contextlib.contextmanager
def trusting(told: bool = True) -> Iterator[None]:
    """Inside, Python that a recipe names is run, whoever wrote it."""
    token = _TRUSTED.set(told)
    try:
        yield
    finally:
        _TRUSTED.reset(token)


def trusted() -> bool:
    """Whether `trusting` says so here."""
    return _TRUSTED.get()


def may_run(recipe: Mapping[str, Any], loggers: bool = False) -> bool:
    """Whether all Python that a recipe names may run, with that of its loggers where training goes on."""
    return _TRUSTED.get() or not foreign(recipe, loggers)


def foreign(recipe: Mapping[str, Any], loggers: bool = False) -> list[str]:
    """The words of a recipe that name Python which is neither jaxrl's nor imported by this program already."""
    algo, env_id = recipe.get("algo"), recipe.get("env_id")
    found = []
    if isinstance(algo, str) and not _known_algorithm(algo):
        found.append(algo)
    if isinstance(env_id, str) and not _known_environment(env_id):
        found.append(env_id)
    run = recipe.get("run")
    words = [recipe.get(part) for part in PARTS]
    if isinstance(run, dict):
        words += [run.get("eval_levels"), *([run.get("log")] if loggers else [])]
    found += [word for word in _strings(words) if CODE.fullmatch(word) and not _known_module(word.partition(":")[0])]
    return list(dict.fromkeys(found))


def _strings(tree: Any) -> Iterator[str]:
    stack = [tree]
    while stack:
        x = stack.pop()
        if isinstance(x, str):
            yield x
        elif isinstance(x, list | tuple):
            stack.extend(x)
        elif isinstance(x, dict):
            stack.extend(x.values())


def _known_module(source: str) -> bool:
    """Whether a module is jaxrl's, or was imported by the words of who runs this program."""
    if source.endswith(".py"):
        return str(Path(source).resolve()) in registry.own_modules().values()
    return source.partition(".")[0] == "jaxrl" or source in registry.own_modules()


def _known_algorithm(name: str) -> bool:
    if name in registry.list_algos() or name in registry.MOVED or not registry.is_own(name):
        return True  # or unknown, which is said when it is looked up
    return _known_module(name.partition(":")[0]) or _imported_algorithm(name)


def _imported_algorithm(name: str) -> bool:
    module = sys.modules.get(name)
    return all(hasattr(module, part) for part in ("Config", "Hyper", "make"))


def _known_environment(id: str) -> bool:
    """Of what no table has, only a class of environments is taken: any other function would be called."""
    if id in registry.environments() or ":" not in id or registry.is_of_suite(id):
        return True  # of a suite jaxrl's own adapter makes it, and of a library that is installed here
    source, _, name = id.rpartition(":")
    if source.endswith(".py") or source.partition(".")[0] != "jaxrl":
        module = sys.modules.get(source)
        if _known_module(source):
            return True
    else:
        try:
            module = importlib.import_module(source)
        except ImportError:
            return True  # which is said when it is looked up
    cls = getattr(module, name, None)
    return isinstance(cls, type) and issubclass(cls, Environment)
