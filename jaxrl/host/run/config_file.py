"""What stands in a run's config.json, checked where it is read: it may have been edited, cut or written by anybody.

`checked` looks at names and types; `said_of` adds the file's name to what goes wrong where a run is built of it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from jaxrl.host.run.run_folder import RunFolderError

WORD, COUNT, FLAG, GROUP, WORDS, NUMBERS = (
    "a text",
    "a whole number from 0 on",
    "true or false",
    "an object",
    "texts",
    "numbers",
)
"""Kinds of values."""

INTEGER, WORD_OR_NONE = "a whole number", "a text or null"
COUNT_OR_NONE = "a whole number from 0 on, or null"
SOME, SOME_OR_NONE = "a whole number from 1 on", "a whole number from 1 on, or null"

TOP = {
    "algorithm": WORD,
    "env": WORD,
    "config": GROUP,
    "hyper": NUMBERS,
    "total_steps": COUNT,
    "num_seeds": COUNT_OR_NONE,
    "eval_every": COUNT_OR_NONE,
    "eval_episodes": COUNT,
    "eval_policy": WORD_OR_NONE,
    "reset": WORD_OR_NONE,
    "environment": WORD_OR_NONE,
    "versions": GROUP,
    "no_recipe": WORD_OR_NONE,
}
RECIPE = {
    "algo": WORD,
    "env_id": WORD,
    "env_settings": GROUP,
    "config": GROUP,
    "hyper": NUMBERS,
    "params": NUMBERS,
    "run": GROUP,
}
"""A recipe has all of these, and of wrappers the words, `wrap`."""

RUN = {
    "seeds": SOME_OR_NONE,
    "num_seeds": SOME_OR_NONE,
    "seed": INTEGER,
    "key": GROUP,
    "total_steps": SOME,
    "eval_every": COUNT_OR_NONE,
    "eval_episodes": SOME,
    "eval_max_steps": SOME_OR_NONE,
    "checkpoint_every": SOME_OR_NONE,
    "log_every": SOME_OR_NONE,
    "keep": SOME,
    "act": WORD_OR_NONE,
    "memory": WORD_OR_NONE,
    "log": WORDS,
    "progress": FLAG,
    "video": FLAG,
    "out": WORD,
}
FILES = {"path": WORD, "digest": WORD, "episodes": WORD, "goals": WORD, "reference": GROUP, "drop": WORDS}
FILES |= {"max_episode_steps": SOME}
CURRICULUM = {"name": WORD, "choice": GROUP, "config": GROUP, "hyper": NUMBERS}


class Fields(dict[str, Any]):
    """A part of the file, `within` which a field that is missing is said by its name."""

    file: Path
    within: str

    def __missing__(self, name: str) -> Any:
        raise RunFolderError(f"{self.file}: {self.within}{name} is missing; the file was edited, or cut.")


def checked(config: dict[str, Any], file: Path, whole: bool = True) -> dict[str, Any]:
    """A config whose fields are of the kinds that jaxrl writes; its recipe, if that is to be `whole`, of `Fields`.

    Raises RunFolderError, which names the file and the field, for one that is not.
    """
    _check(config, TOP, file, "")
    recipe = config.get("recipe")
    if recipe is None or not whole:
        return config
    if not isinstance(recipe, dict):
        raise _wrong(file, "recipe", recipe, GROUP)
    return {**config, "recipe": checked_recipe(recipe, file)}


def checked_recipe(recipe: dict[str, Any], file: Path, needed: tuple[str, ...] = tuple(RECIPE)) -> Fields:
    """A recipe with all parts that are `needed`, each of its kind. Raises RunFolderError as `checked` does."""
    found = _fields(recipe, file, "recipe.")
    for name in needed:
        found[name]
    _check(found, {**RECIPE, "wrap": WORDS}, file, "recipe.")
    for part, kinds in (("run", RUN), ("dataset", FILES), ("model", FILES), ("curriculum", CURRICULUM)):
        if part in found:
            if not isinstance(found[part], dict):
                raise _wrong(file, f"recipe.{part}", found[part], GROUP)
            found[part] = _fields(found[part], file, f"recipe.{part}.")
            _check(found[part], kinds, file, f"recipe.{part}.")
    if isinstance(choice := found.get("curriculum", {}).get("choice"), dict):
        found["curriculum"]["choice"] = _fields(choice, file, "recipe.curriculum.choice.")
    if isinstance(key := found.get("run", {}).get("key"), dict):
        found["run"]["key"] = _fields(key, file, "recipe.run.key.")
    return found


def _fields(values: Mapping[str, Any], file: Path, within: str) -> Fields:
    found = Fields(values)
    found.file, found.within = file, within
    return found


def _check(values: Mapping[str, Any], kinds: Mapping[str, str], file: Path, within: str) -> None:
    for name, kind in kinds.items():
        if name in values and not _is(values[name], kind):
            raise _wrong(file, f"{within}{name}", values[name], kind)
        if kind is NUMBERS and name in values:
            for leaf, x in values[name].items():
                if not _is_numeric(x):
                    raise _wrong(file, f"{within}{name}.{leaf}", x, "a number, or lists of them")


def _is(x: Any, kind: str) -> bool:
    if x is None:
        return kind in (COUNT_OR_NONE, WORD_OR_NONE, SOME_OR_NONE)
    if kind == INTEGER:
        return type(x) is int
    if kind in (COUNT, COUNT_OR_NONE, SOME, SOME_OR_NONE):
        return type(x) is int and x >= (1 if kind in (SOME, SOME_OR_NONE) else 0)
    if kind in (WORD, WORD_OR_NONE):
        return isinstance(x, str)
    if kind == WORDS:
        return isinstance(x, list | tuple) and all(isinstance(word, str) for word in x)
    return isinstance(x, bool if kind == FLAG else dict)


def _is_numeric(x: Any) -> bool:
    stack = [x]
    while stack:
        x = stack.pop()
        if isinstance(x, list):
            stack.extend(x)
        elif not isinstance(x, int | float):
            return False
    return True


def _wrong(file: Path, name: str, value: Any, kind: str) -> RunFolderError:
    return RunFolderError(f"{file}: {name} is {_short(value)}, and must be {kind}.")


def _short(value: Any) -> str:
    try:
        text = repr(value)
    except RecursionError:
        return "nested too deeply"
    return text if len(text) <= 60 else f"{text[:57]}..."


@contextlib.contextmanager
def said_of(file: Path) -> Iterator[None]:
    """Where something is built of what stands in a file: what goes wrong is a RunFolderError that names the file."""
    try:
        yield
    except RunFolderError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, IndexError, ArithmeticError, RecursionError) as error:
        what = f"there is no {error}" if isinstance(error, KeyError) else " ".join(str(error).split())
        raise RunFolderError(f"{file}: {what}") from error
