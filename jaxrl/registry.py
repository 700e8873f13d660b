"""Ids and where they live. Nothing is imported before it is asked for.

Each family of environments keeps its ids in its own folder, `jaxrl/envs/<family>/ids.py`; algorithms and curricula keep
theirs in `jaxrl/algos/ids.py`. All of them are tables of names: the first look-up reads them, and only `make`,
`get_algo` and `get_curriculum` import what they name.

Ids of other libraries have a prefix, as `make("craftax:Craftax-Classic-Symbolic-v1")`: `jaxrl/interop/suites.py`.

What is yours needs no table: `make("my.module:Tank")` and `get_algo("my.module")` import it by its name, also from the
current folder; `my/tank.py:Tank` and `my/learner.py` by its file.
"""

from __future__ import annotations

import dataclasses
import difflib
import fnmatch
import functools
import importlib
import importlib.util
import inspect
import os
import pkgutil
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from jaxrl.data.learns import DATA, MODELS, AlgorithmEntry, Learns
from jaxrl.environment import NO_LIMIT

EXTRAS = {"playground": "mujoco_playground"}
"""Modules without which ids of an extra are listed but cannot be made."""


class Entry(NamedTuple):
    """An environment class as "module:Class" (or the class itself) and the static settings an id stands for."""

    target: str | Callable[..., Any]
    settings: dict[str, Any]
    extra: str = ""  # of `EXTRAS`, where it needs one


def entries(package: str | None, table: dict[str, tuple[str, dict[str, Any]]], extra: str = "") -> dict[str, Entry]:
    """A family's table, whose targets are "module:Class" below its `package`, with whole targets."""
    return {id: Entry(f"{package}.{target}", settings, extra) for id, (target, settings) in table.items()}


@functools.cache
def environments() -> dict[str, Entry]:
    """The table of every id: the families' and what `register` adds."""
    package = _linked("envs")
    table: dict[str, Entry] = {}
    for family in pkgutil.iter_modules(package.__path__):
        ids = importlib.import_module(f"jaxrl.envs.{family.name}.ids").ENVIRONMENTS
        if twice := table.keys() & ids.keys():
            raise ValueError(f"Ids of two families: {sorted(twice)}.")
        table.update(ids)
    return table


def _linked(folder: str) -> ModuleType:
    """The package `jaxrl.envs` or `jaxrl.algos`, links in the repository. Raises ImportError where git wrote texts."""
    try:
        return importlib.import_module(f"jaxrl.{folder}")
    except ModuleNotFoundError as error:
        link = Path(__file__).parent / folder
        if not link.is_file():
            raise
        raise ImportError(
            f"{link} is a text in the place of a link, as git writes on Windows: switch Windows' Developer Mode on, "
            "`git config --global core.symlinks true`, and clone or install again."
        ) from error


def is_available(id: str) -> bool:
    """Whether what a registered id needs beside the core is installed."""
    extra = environments()[id].extra
    return not extra or importlib.util.find_spec(EXTRAS[extra]) is not None


def first_of_each_class() -> dict[str, str]:
    """The first id in the tables of every environment class that can be made here, by "module:Class"."""
    return {str(entry.target): id for id, entry in reversed(environments().items()) if is_available(id)}


def _algorithms() -> dict[str, AlgorithmEntry]:
    _linked("algos")
    return importlib.import_module("jaxrl.algos.ids").ALGORITHMS


def _curricula() -> dict[str, tuple[str, str]]:
    return importlib.import_module("jaxrl.algos.ids").CURRICULA


def make(id: Any, /, **settings: Any) -> tuple[Any, Any]:
    """`(env, params)` of an id: the static environment and its default, strongly typed parameters.

    The id is a registered one; one of another library, as `jumanji:Snake-v1` (`jaxrl.interop.suites`); or `module:name`
    or `file.py:name`, where the name is a class or a function that makes an environment, or an id that the module
    registers. `settings` are the environment's static settings, of a class
    of yours `id`, too. Raises ValueError for an unknown id (naming a near one), module or setting, and for what is no
    environment of jaxrl's, such as Gymnasium's; TypeError for an `id` that is no string.
    """
    if not isinstance(id, str):
        raise TypeError(_not_an_id(id))
    if is_of_suite(id):
        if settings:
            raise ValueError(f"{id} has no static setting {next(iter(settings))!r}; it has none.")
        return importlib.import_module("jaxrl.interop.suites").make(id)
    own = _own_environment(id) if ":" in id and id not in environments() else None
    if isinstance(own, str):
        return make(own, **settings)
    if own is not None:
        entry, id = Entry(own, {}), settings.pop("id", getattr(own, "id", "") or id)
    else:
        entry = _lookup(id, environments(), "environment")
    cls: Any = _load(entry.target) if isinstance(entry.target, str) else entry.target
    is_class = dataclasses.is_dataclass(cls)  # a factory function takes what it takes
    allowed = [f.name for f in dataclasses.fields(cls) if f.init and f.name != "id"] if is_class else list(settings)
    for name, value in settings.items():
        if name not in allowed:
            raise ValueError(f"{id} has no static setting {name!r}; it has {', '.join(allowed) or 'none'}.")
        if isinstance(value, int) and abs(value) > NO_LIMIT:  # a product of such sizes ends the program, in C++
            raise ValueError(f"{id}: {name}={value} is beyond 32 bits; it must be at most {NO_LIMIT}.")
    env = cls(**{**entry.settings, **settings, "id": id})
    if said := foreign(env):
        raise ValueError(f"{id} makes what {said}")
    return env, env.default_params


def is_of_suite(id: str) -> bool:
    """Whether an id names an environment of another library by its prefix, as `jumanji:Snake-v1` does."""
    if ":" not in id or id in environments():
        return False
    return importlib.import_module("jaxrl.interop.suites").suite_of(id) is not None


def register(id: str, target: str | Callable[..., Any], **settings: Any) -> None:
    """Add an environment: `target` is a class or "module:Class". Raises ValueError for an id in other use."""
    entry = Entry(target, settings)
    table = environments()
    if table.get(id, entry) != entry:
        raise ValueError(f"{id!r} is registered already, as {table[id].target}; choose another id.")
    table[id] = entry


def list_envs(pattern: str = "*") -> list[str]:
    """Registered ids, sorted, that match as `matching` says."""
    return sorted(matching(environments(), pattern))


def matching(names: Iterable[str], pattern: str) -> list[str]:
    """The names that a pattern is about: a shell pattern, or a part of the name; case-insensitive."""
    wanted = pattern.lower() if any(c in pattern for c in "*?[") else f"*{pattern.lower()}*"
    return [name for name in names if fnmatch.fnmatch(name.lower(), wanted)]


def list_algos() -> list[str]:
    """Names of the algorithms, sorted."""
    return sorted(_algorithms())


def list_curricula() -> list[str]:
    """Names of the curricula that the command line puts around a student, sorted."""
    return sorted(_curricula())


MOVED = {
    "jaxrl.algos.meta.training": "jaxrl.algos.rule_learners.gradients",
    "jaxrl.algos.meta.evolving": "jaxrl.algos.rule_learners.strategies",
}
"""Modules by the names that run folders and files of rules may know them by, and where they are now."""

MOVED_SETTINGS = {"levels": "params_are_level"}
"""Static settings of environments by the names that run folders and the zoo may know them by, and as they are now."""

DROPPED_SETTINGS = {"td3": {"config": {"baseline": False}, "hyper": {"optimism": 0.0}}}
"""Settings that an algorithm had once, with the value at which they did nothing. MEX has them now."""


def get_algo(name: str) -> ModuleType:
    """The module of an algorithm by its name; or yours as `module`, `module:name` or `file.py`, which has `Config`,
    `Hyper` and `make` as ours have. Raises ValueError for an unknown name (naming the nearest).
    """
    name = MOVED.get(name, name)
    if name not in _algorithms() and is_own(name):
        return _own_algorithm(name)
    return importlib.import_module(f"jaxrl.algos.{_lookup(name, _algorithms(), 'algorithm').module}")


def get_curriculum(name: str) -> tuple[ModuleType, str]:
    """The module of a curriculum, and whether it chooses "levels", "points" or "starts". Raises ValueError as above.

    Yours is a function `module:name` or `file.py:name`, or the `make` of a module or file. It takes levels and, as far
    as it names them, `config`, `hyper` and `score`; the first two are of its module's `Config` and `Hyper`. It chooses
    points of a box where its module says CHOOSES = "points".
    """
    if name not in _curricula() and is_own(name):
        return _own_curriculum(name)
    module, chooses = _lookup(name, _curricula(), "curriculum")
    return importlib.import_module(f"jaxrl.algos.{module}"), chooses


def algo_actions(name: str) -> tuple[str, ...]:
    """The kinds of action space in which a general algorithm acts; none for one that is for tables or arms."""
    return _lookup(name, _algorithms(), "algorithm").actions


def algo_learns(name: str) -> Learns:
    """What an algorithm learns from: as declared beside its name, or by `LEARNS` of a module of yours (without it: from
    its own steps). Raises ValueError for an unknown name, and for a declaration of another kind.
    """
    name = MOVED.get(name, name)
    if name in _algorithms() or not is_own(name):
        return _lookup(name, _algorithms(), "algorithm").learns
    learns = getattr(_own_algorithm(name), "LEARNS", Learns())
    if not isinstance(learns, Learns):
        raise ValueError(f"{name}: LEARNS={learns!r}; it is a jaxrl.data.learns.Learns, as Learns(data='transitions').")
    for field, allowed in (("data", DATA), ("model", MODELS)):
        if (value := getattr(learns, field)) not in allowed:
            raise ValueError(f"{name}: LEARNS has {field}={value!r}; it is one of {', '.join(map(repr, allowed))}.")
    return learns


def algos_for(action_space: Any) -> list[str]:
    """Names of the general algorithms that act in spaces of this kind, sorted."""
    kinds = {cls.__name__ for cls in type(action_space).__mro__}
    return sorted(name for name, entry in _algorithms().items() if kinds & set(entry.actions))


# ---- what is yours


def is_own(word: str) -> bool:
    """Whether this names a module or a file, and nothing of a table."""
    in_folder = word.isidentifier() and (Path(f"{word}.py").exists() or Path(word, "__init__.py").exists())
    return any(c in word for c in ":./") or in_folder


def lasting(word: str) -> str:
    """The word as it holds in any folder: files by their whole path."""
    file, colon, name = word.rpartition(":") if ":" in word else (word, "", "")
    return f"{Path(file).resolve()}{colon}{name}" if file.endswith(".py") else word


def own_function(word: str) -> Callable[..., Any]:
    """The function `module:name` or `file.py:name`. Raises ValueError where there is none."""
    source, _, name = word.rpartition(":")
    found = getattr(own_module(source), name, None) if source else None
    if not callable(found):
        raise ValueError(f"{word!r} is no function: it is named MODULE:NAME or FILE.py:NAME.")
    return found


def _own_algorithm(word: str) -> Any:
    source, _, name = word.partition(":")
    found: Any = own_module(source)
    if name:
        found = getattr(found, name, None) or own_module(f"{source}.{name}")
    lacking = [part for part in ("Config", "Hyper", "make") if not hasattr(found, part)]
    if lacking:
        raise ValueError(
            f"{word} has no {' and no '.join(lacking)}: an algorithm is written as jaxrl/algos/on_policy/ppo.py is."
        )
    return found


def _own_curriculum(word: str) -> tuple[ModuleType, str]:
    source, name = word.rsplit(":", 1) if ":" in word else (word, "make")
    module = own_module(source)
    make = getattr(module, name, None)
    if not callable(make):
        raise ValueError(
            f"{source} has no function {name!r} that makes a curriculum: it takes levels, as dr.make does."
        )
    takes = inspect.signature(make).parameters
    parts = {part: getattr(module, part, None) for part in ("Config", "Hyper") if part.lower() in takes}
    if lacking := [part for part, cls in parts.items() if cls is None]:
        raise ValueError(f"{word} takes {lacking[0].lower()}, and {source} has no {lacking[0]}.")
    chooses = getattr(module, "CHOOSES", "levels")
    if chooses not in ("levels", "points"):
        raise ValueError(f"{source}: CHOOSES={chooses!r}; a curriculum of yours chooses 'levels' or 'points'.")
    found = ModuleType(module.__name__)
    found.__dict__.update(make=make, **parts)
    return found, chooses


def _own_environment(word: str) -> str | Callable[..., Any]:
    """What makes the environment, or its id where that is registered now."""
    source, _, name = word.rpartition(":")
    try:
        found = getattr(own_module(source), name, None)
    except ImportError as error:  # of what that library needs
        if (said := FOREIGN.get(source.partition(".")[0])) is not None:
            raise ValueError(f"{word} {said}") from error
        raise
    if said := foreign(found) or ("" if callable(found) else _of_gymnasium(name)):
        raise ValueError(f"{word} {said}")
    if callable(found):
        return found
    if name in environments():
        return name
    raise ValueError(f"{source} has no class or function {name!r} and registers no such id.")


def own_module(word: str) -> ModuleType:
    """`module_of` a word of who runs this program: `own_modules` remembers that its Python may run."""
    module = module_of(word)
    own_modules()[Path(word).stem if word.endswith(".py") else word] = str(Path(module.__file__ or "").resolve())
    return module


def module_of(word: str) -> ModuleType:
    """The module of this name or file, imported as `python -m` or `python file.py` would find it."""
    file = Path(word)
    if word.endswith(".py"):
        if not file.exists():
            raise ValueError(f"{word!r}: there is no such file.")
        folder, name = str(file.resolve().parent), file.stem
    else:
        folder, name = os.getcwd(), word
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # it is there, and imports what is not
        near = nearest(word, importlib.import_module("jaxrl.interop.suites").SUITES)
        hint = f" Did you mean '{near}:', a library of environments?" if near else ""
        raise ValueError(f"{word!r}: there is no module {error.name!r}, installed or in {folder}.{hint}") from None
    if word.endswith(".py") and Path(module.__file__ or "").resolve() != file.resolve():
        raise ValueError(f"{word!r}: another module is named {name!r} already ({module.__file__}); rename the file.")
    return module


@functools.cache
def own_modules() -> dict[str, str]:
    """The files of the modules that words of yours have named so far, by the names of the modules."""
    return {}


def _load(target: str) -> Any:
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)


def _lookup(name: str, table: dict[str, Any], kind: str) -> Any:
    if name in table:
        return table[name]
    near = nearest(name, table)
    if kind == "environment" and NOT_OF_MUJOCO.fullmatch(name):
        there = ", ".join(id for id in table if id.endswith("-v5"))
        model = f"; of the same model there is {near}" if near else ""
        raise ValueError(
            f"{name!r} is of the four of Gymnasium's eleven MuJoCo tasks that jaxrl lacks; it has {there}{model}."
        )
    hint = f" Did you mean {near!r}?" if near else ""
    if kind == "environment" and not near and (said := _of_gymnasium(name)):
        raise ValueError(f"{name!r} {said}")
    listing = "jaxrl envs" if kind == "environment" else "jaxrl algos"
    raise ValueError(f"Unknown {kind} {name!r}.{hint} `{listing}` lists all {len(table)}.")


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The name of a table that differs from `name` by little, or has it as a part; None where none is close."""
    folded = {word.lower(): word for word in known}
    name, stem = name.lower(), re.sub(r"-v\d+$", "", name.lower())

    def likeness(word: str) -> float:
        alike = difflib.SequenceMatcher(None, name, word).ratio()
        # Equal versions make short names alike: what stands before them must be, too.
        return min(alike, difflib.SequenceMatcher(None, stem, re.sub(r"-v\d+$", "", word)).ratio())

    close = {word: likeness(word) for word in folded}
    best = max(close, key=close.__getitem__, default="")
    if close.get(best, 0) >= CLOSE:
        return folded[best]
    holding = [word for word in folded if stem in word] if len(stem) >= 4 else []
    return folded[max(holding, key=close.__getitem__)] if holding else None


NOT_OF_MUJOCO = re.compile(r"(humanoid|humanoidstandup|pusher|swimmer)-v\d+", re.IGNORECASE)
"""Ids of Gymnasium's tasks in MuJoCo that are not here, of whatever version."""

CLOSE = 0.75
"""How alike two names are, from 0 to 1, for one to be taken for the other misspelt."""


# ---- what is somebody else's

WRITE_ONE = "jaxrl steps environments written in JAX: docs/core.md, 'Write one', shows how."

FOREIGN = {
    "gymnasium": f"is a gymnasium environment; {WRITE_ONE}",
    "gym": f"is a gym environment; {WRITE_ONE}",
    "dm_env": f"is a dm_env environment; {WRITE_ONE}",
    "pettingzoo": f"is a pettingzoo environment; {WRITE_ONE}",
    "gymnax": "is a gymnax environment: jaxrl.interop.gymnax.from_gymnax takes it.",
    "brax": "is a Brax environment: jaxrl.interop.brax.from_brax takes it.",
    "mujoco_playground": "is a MuJoCo Playground environment: jaxrl.interop.brax.from_brax takes it.",
    "craftax": "is a Craftax environment: jaxrl.interop.craftax.from_craftax takes it.",
    "envelope": "is an environment of Envelope: jaxrl.interop.envelope.from_envelope takes it.",
    "jumanji": "is a Jumanji environment: jaxrl.interop.jumanji.from_jumanji takes it.",
    "navix": "is a Navix environment: jaxrl.interop.navix.from_navix takes it.",
    "pgx": "is a game of Pgx: jaxrl.interop.pgx.from_pgx takes it.",
    "stoa": "is an environment of Stoa: jaxrl.interop.stoa.from_stoa takes it.",
    "xminigrid": "is an XLand-MiniGrid environment: jaxrl.interop.xminigrid.from_xminigrid takes it.",
}
"""What is said of environments, and classes of them, by the package that their base is of."""


def foreign(thing: Any) -> str:
    """What is to be said of another library's environment or class of environments; empty for all else."""
    classes = thing.__mro__ if isinstance(thing, type) else type(thing).__mro__
    if any(cls.__module__ == "jaxrl.environment" for cls in classes):
        return ""
    bases = [cls for cls in classes if "Env" in cls.__name__ or "Wrapper" in cls.__name__]
    packages = (cls.__module__.partition(".")[0] for cls in bases)
    return next((FOREIGN[package] for package in packages if package in FOREIGN), "")


def _of_gymnasium(id: str) -> str:
    """What is to be said of an id that is registered with Gymnasium; empty where it is not installed or knows none."""
    if importlib.util.find_spec("gymnasium") is None:
        return ""
    known = importlib.import_module("gymnasium").registry
    return f"is an id of Gymnasium's; {WRITE_ONE}" if id in known else ""


def _not_an_id(thing: Any) -> str:
    shown = thing.__name__ if isinstance(thing, type) else f"{thing!r:.60}"
    if said := foreign(thing):
        return f"{shown} {said}"
    base = importlib.import_module("jaxrl.environment").Environment
    if isinstance(thing, base):
        return f"{shown} is an environment already: its params are its default_params."
    if isinstance(thing, type) and issubclass(thing, base):
        return f"{shown} is a class: call it, env = {shown}(), params = env.default_params, or register it by an id."
    return f"id={shown}: it is a string; `jaxrl envs` lists them."


class Tuned(NamedTuple):
    """Settings known to work, as far as they differ from an algorithm's defaults."""

    total_steps: int
    config: dict[str, Any]
    hyper: dict[str, Any]
    of_family: bool = False  # tried on one or two ids for many
    wrap: tuple[str, ...] = ()  # words of `wrappers.wrapped`
    env: dict[str, Any] = {}  # static settings of the environment, as `make` takes them


def tuned(algo: str, env_id: str) -> Tuned | None:
    """What `jaxrl/tuned.toml` says of a pair, or None."""
    row = _toml("tuned").get(algo, {}).get(env_id)
    return None if row is None else _tuned(row)


def settings(algo: str, env_id: str) -> Tuned | None:
    """Those to start from: the tuned ones of the pair, else those of the algorithm's first recipe for the id's family
    (`jaxrl/recipes.toml`); None where there is neither, and for a module or file of your own.
    """
    if env_id not in environments():
        return None
    of_family = (_tuned(row)._replace(of_family=True) for row in _recipes(env_id) if row["algo"] == algo)
    return tuned(algo, env_id) or next(of_family, None)


def family_algo(env_id: str) -> str:
    """The algorithm of the first recipe for an id's family."""
    return next(_recipes(env_id))["algo"]


def _recipes(env_id: str) -> Iterator[dict[str, Any]]:
    rows = _toml("recipes")["recipe"]
    return (row for row in rows if any(fnmatch.fnmatchcase(env_id, pattern) for pattern in row["ids"]))


@functools.cache
def _toml(name: str) -> dict[str, Any]:
    import tomllib

    return tomllib.loads(Path(__file__).with_name(f"{name}.toml").read_text())


def _tuned(row: dict[str, Any]) -> Tuned:
    # TOML has arrays where our configs, being hashable, have tuples.
    config, env = (
        {k: tuple(v) if isinstance(v, list) else v for k, v in row.get(part, {}).items()} for part in ("config", "env")
    )
    return Tuned(row["total_steps"], config, row.get("hyper", {}), wrap=tuple(row.get("wrap", ())), env=env)
