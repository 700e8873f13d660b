"""`jaxrl envs`, `jaxrl algos` and `jaxrl zoo`."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import io
import pkgutil
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Annotated, Any

from jaxrl.host.cli.flags import parse, positional

MOST_BUILT = 40
"""Environments that are built to show their spaces; of more, what the tables say is shown."""


def _pattern(args: list[str], prog: str, about: str) -> str:
    """The pattern of one of these commands. Raises UsageError for other words."""

    @dataclasses.dataclass
    class Words:
        pattern: Annotated[str, positional()] = "*"
        """A part of the name, or a shell pattern as 'CartPole*'; upper and lower case alike."""

    return parse(Words, args, prog, about).pattern


def envs(args: list[str]) -> int:
    pattern = _pattern(
        args,
        "jaxrl envs",
        f"Registered environments; the spaces of those that match, where these are at most {MOST_BUILT}.",
    )
    from jaxrl import extras, registry

    found = registry.list_envs(pattern)
    width = max(map(len, found), default=0)
    for id in found:
        entry = registry.environments()[id]
        if not registry.is_available(id):
            told = f"needs {extras.install(entry.extra)}"
        elif len(found) <= MOST_BUILT:
            with _quiet():
                env, params = registry.make(id)
            told = f"{_shortened(env.observation_space(params))}  ->  {_shortened(env.action_space(params))}"
        else:
            settings = ", ".join(f"{name}={value!r}" for name, value in entry.settings.items())
            where = str(entry.target).removeprefix("jaxrl.envs.").replace(":", " ")
            told = f"{where}({_shortened(settings)})"
        print(f"{id:{width}}  {told}")
    if not found:
        print(f"jaxrl: no environment matches {pattern!r}.", file=sys.stderr)
    elif len(found) > MOST_BUILT:
        print(f"{len(found)} environments; `jaxrl envs PART_OF_NAME` shows the spaces of a few.", file=sys.stderr)
    return 0 if found else 1


def _shortened(value: Any, most: int = 70) -> str:
    """Its text, without what is in the middle of a long one."""
    text = " ".join((value if isinstance(value, str) else repr(value)).split())
    return text if len(text) <= most else f"{text[: most - 20]} ... {text[-14:]}"


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without what packages of others print and log while they are imported, as of an absent accelerator."""
    import logging
    import warnings

    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            with contextlib.redirect_stderr(io.StringIO()):
                yield
    finally:
        logging.disable(before)


def algos(args: list[str]) -> int:
    pattern = _pattern(args, "jaxrl algos", "Algorithms and curricula.")
    from jaxrl import registry

    names = registry.matching(registry.list_algos(), pattern)
    curricula = registry.matching(registry.list_curricula(), pattern)
    by_name = {module.__name__.rpartition(".")[2]: module for module in unnamed()}
    others = registry.matching(by_name, pattern)
    parts = [[f"{name:14} {_about(registry.get_algo(name))}" for name in names]]
    if curricula:
        lines = [f"{name:18} {_about(registry.get_curriculum(name)[0])}" for name in curricula]
        parts.append(["--curriculum, around one that learns on batched params:", *lines])
    if others:
        lines = [f"{name:14} {_about(by_name[name])}" for name in others]
        parts.append(["From Python, with `make` or `select` of their files:", *lines])
    print("\n\n".join("\n".join(part) for part in parts if part), end="\n" if any(parts) else "")
    if not any(parts):
        print(f"jaxrl: no algorithm matches {pattern!r}.", file=sys.stderr)
    return 0 if any(parts) else 1


def zoo(args: list[str]) -> int:
    pattern = _pattern(
        args, "jaxrl zoo", "Trained policies that come with jaxrl, by <algorithm>/<environment>, and learned rules."
    )
    from jaxrl import registry, zoo
    from jaxrl.host.cli.train import kind_of
    from jaxrl.meta import stored

    found = registry.matching(zoo.names(), pattern)
    for name in found:
        told = zoo.about(name)
        how = (
            f"{told['steps']:,} steps, the best of {told['of_seeds']}"
            if told["of_seeds"] > 1
            else f"{told['steps']:,} steps"
        )
        print(f"{name:36} return {told['return']:8.2f} ± {told['standard_error']:.2f}   {how}")
    rules = registry.matching(stored.names(), pattern)
    for i, name in enumerate(rules):
        rule = registry.get_algo("jaxrl.algos.rule_learners.gradients").load(name)
        tasks = rule.provenance.get("families") or [rule.provenance.get("recipe", {}).get("env_id", "tasks unknown")]
        word = kind_of(rule)
        gap = "\n" if i == 0 and found else ""
        print(f"{gap}{name:36} jaxrl train {word} ENV --rule {name}: {rule.rule.name}, learned on {', '.join(tasks)}")
    if not found and not rules:
        print(f"jaxrl: no policy or rule matches {pattern!r}.", file=sys.stderr)
    return 0 if found or rules else 1


def unnamed() -> list[ModuleType]:
    """The modules of algorithms and curricula that no command takes."""
    from jaxrl import registry

    named = {registry.get_algo(name) for name in registry.list_algos()}
    named |= {registry.get_curriculum(name)[0] for name in registry.list_curricula()}
    found = []
    for package in map(importlib.import_module, ("jaxrl.algos.population", "jaxrl.algos.curricula")):
        names = [m.name for m in pkgutil.iter_modules(package.__path__, f"{package.__name__}.") if not m.ispkg]
        found += [module for module in map(importlib.import_module, names) if module not in named]
    return found


def _about(module: ModuleType) -> str:
    return (module.__doc__ or "").splitlines()[0]
