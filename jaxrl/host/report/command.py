"""The words that made a run: its recipe as `jaxrl train ...`, without what these words would say anyway."""

from __future__ import annotations

import contextlib
import dataclasses
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jaxrl.host.cli.train import RULES, TAUGHT, kind_of
from jaxrl.host.report.runs import swept
from jaxrl.host.run.run_folder import tree_values
from jaxrl.host.run.trust import may_run


def command_of(folder: Path, config: Mapping[str, Any]) -> str | None:
    """The command that makes such a run, or None for one that a program in Python made."""
    kept = swept(folder)
    if kept is not None:
        points = kept["points"]
        names = [name for name in points[0] if name != "returns"]
        values = {name: list(dict.fromkeys(point[name] for point in points)) for name in names}
        seeds, total = len(points[0]["returns"]), kept["recipe"]["total_steps"]
        run = {"out": str(folder.parent), "seeds": seeds, "total_steps": total}  # its --seed is not kept
        return _words("sweep", kept["recipe"], run, values)
    recipe = config.get("recipe")
    if recipe is None or "seed" not in recipe.get("run", {}):
        return None
    return _words("train", recipe, _run_words(recipe["run"]), {})


def _run_words(run: Mapping[str, Any]) -> dict[str, Any]:
    from jaxrl.host.cli.train import TrainFlags

    usual = {field.name: field.default for field in dataclasses.fields(TrainFlags)}
    skipped = ("overwrite", "progress", "num_seeds", "log_every")
    words = {name: value for name, value in run.items() if name not in skipped and name in usual}
    return {name: value for name, value in words.items() if _plain(value) != _plain(usual[name])}


def _words(command: str, recipe: Mapping[str, Any], run: Mapping[str, Any], varied: Mapping[str, Any]) -> str:
    words, config = ["jaxrl", command, *_called(recipe)], dict(recipe["config"])
    if recipe["algo"] == TAUGHT:
        for name, flag in OF_RULE.items():
            words += _flag(flag, value) if (value := config.pop(name, "")) else []
    curriculum = recipe.get("curriculum", {})
    usual = _usual(recipe)
    hyper = {**recipe.get("hyper", {}), **{name: value for name, value in varied.items() if "." not in name}}
    if curriculum:
        words += ["--curriculum", curriculum["name"]]
    if recipe.get("wrap"):
        words += ["--wrap", *recipe["wrap"]]
    data = recipe.get("dataset", {})
    files = {part: recipe[part]["path"] for part in ("dataset", "model") if part in recipe}
    which = {name: data[name] for name in ("episodes", "goals") if data.get(name, "all") != "all"}
    for name, value in {**files, **which, **run}.items():
        words += _flag(name, value)
    parts = (("config", config), ("hyper", hyper), ("params", recipe["params"]))
    for prefix, values in (*parts, ("env", recipe["env_settings"])):
        for name, value in values.items():
            if name not in usual[prefix] or not _same(value, usual[prefix][name]):
                words += _flag(f"{prefix}.{name}", value)
    for name, value in curriculum.get("choice", {}).items():
        if value not in (None, [], (), 0.0):
            words += _flag(f"curriculum.{name}", value)
    for part in ("config", "hyper"):
        known = _usual_curriculum(curriculum["name"], part) if curriculum else {}
        for name, value in curriculum.get(part, {}).items():
            if name not in known or not _same(value, known[name]):
                words += _flag(f"curriculum.{part}.{name}", value)
    return " ".join(shlex.quote(word) for word in words)


OF_RULE = {"rule": "rule", "rule_function": "rule-function"}
"""Settings of an agent that is taught by a rule, and what `jaxrl train` calls them."""


def _called(recipe: Mapping[str, Any]) -> list[str]:
    """The algorithm and the environment, as words; the algorithm is that in whose place a rule stands."""
    from jaxrl import registry

    algo = recipe["algo"]
    if algo == TAUGHT and may_run(recipe):
        with contextlib.suppress(OSError, ValueError, KeyError):
            config = recipe["config"]
            algo = kind_of(registry.get_algo(RULES).load(config["rule"], config["rule_function"] or None))
    return [algo, recipe["env_id"]]


def _usual(recipe: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """What each part is when nothing is said of it; nothing of what cannot be imported here."""
    from jaxrl import registry

    none: dict[str, dict[str, Any]] = {"config": {}, "hyper": {}, "params": {}, "env": {}}
    try:
        if not may_run(recipe):
            return none
        module = registry.get_algo(recipe["algo"])
        # As cli.experiment: what is tuned is tuned for acting.
        tuned = "dataset" not in recipe and recipe.get("run", {}).get("tuned", True)
        known = registry.settings(recipe["algo"], recipe["env_id"]) if tuned else None
        env, params = registry.make(recipe["env_id"], **(known.env if known else {}))
        of_rule = {name: recipe["config"][name] for name in OF_RULE} if recipe["algo"] == TAUGHT else {}
        config = module.Config(**(known.config if known else {}), **of_rule)
        if of_rule:
            stored = registry.get_algo(RULES).load(config.rule, config.rule_function or None)
            config = config.in_passes(stored.rule.passes)
        hyper = module.Hyper(**(known.hyper if known else {}))
    except (ImportError, OSError, ValueError, TypeError, AttributeError):
        return none
    return {
        "config": dataclasses.asdict(config),
        "hyper": tree_values(hyper),
        "params": tree_values(params),
        "env": {f.name: getattr(env, f.name) for f in dataclasses.fields(env)},
    }


def _usual_curriculum(name: str, part: str) -> dict[str, Any]:
    """Defaults of a curriculum's own `config` or `hyper`, of the fields that have one."""
    from jaxrl import registry

    try:
        cls = getattr(registry.get_curriculum(name)[0], part.capitalize())
    except (ImportError, ValueError, AttributeError):
        return {}
    found = {f.name: f.default for f in dataclasses.fields(cls) if f.default is not dataclasses.MISSING}
    return {name: np.asarray(x).tolist() if hasattr(x, "dtype") else x for name, x in found.items()}


def _same(value: Any, usual: Any) -> bool:
    """As JSON and float32 keep them."""
    value, usual = _plain(value), _plain(usual)
    if isinstance(value, float) or isinstance(usual, float):
        numbers = isinstance(value, float | int) and isinstance(usual, float | int)
        return numbers and bool(np.float32(value) == np.float32(usual))
    return value == usual


def _plain(value: Any) -> Any:
    return list(map(_plain, value)) if isinstance(value, list | tuple) else value


def _flag(name: str, value: Any) -> list[str]:
    flag = "--" + name.replace("_", "-")
    if isinstance(value, bool):
        head, _, last = flag[2:].rpartition(".")
        return [flag] if value else [f"--{head}.no-{last}" if head else f"--no-{last}"]
    if isinstance(value, list | tuple):
        return [flag, *map(str, value)]
    return [flag, str(value)]
