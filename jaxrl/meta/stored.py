"""Learned rules as files: npz of arrays without pickles, with where they come from."""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import io
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl import registry
from jaxrl.algorithm import Algorithm
from jaxrl.environment import Environment
from jaxrl.meta.agent import TABULAR, AgentConfig, agent
from jaxrl.meta.rule import UpdateRule
from jaxrl.vectorize import VectorEnv

FOLDER = Path(__file__).parent / "rules"
"""Those that come with the library."""


class RuleFileError(ValueError):
    """A file that holds no rule of the wanted kind; the message says why."""


class Stored(NamedTuple):
    """A rule that has been learned. `rule.init` gives its weights, whatever the key."""

    rule: UpdateRule
    config: Any  # static settings of its network
    weights: Any
    provenance: dict[str, Any]  # command, seed, versions and cost of learning it

    def agent(self, env: Environment | VectorEnv, config: AgentConfig = TABULAR) -> Algorithm:
        """An agent on `env` that learns by it."""
        return agent(self.rule, env, config)


def names() -> list[str]:
    """The names of the rules that come with the library."""
    return sorted(path.stem for path in FOLDER.glob("*.npz"))


def save(path: str | Path, kind: str, config: Any, weights: Any, provenance: dict[str, Any]) -> None:
    """Write a rule of a kind, as "lpg", with the dataclass `config` of its network."""
    leaves = {jax.tree_util.keystr(p): np.asarray(x) for p, x in jax.tree_util.tree_leaves_with_path(weights)}
    about = json.dumps({"kind": kind, "config": dataclasses.asdict(config), "provenance": provenance})
    np.savez_compressed(path, allow_pickle=False, about=np.array(about), **leaves)


def arrays_of(path: Path, what: str = "rule") -> dict[str, np.ndarray]:
    """All arrays of an npz file, by name.

    Raises RuleFileError for a file that is missing, damaged, pickled or of another format.
    """
    if not path.exists():
        raise RuleFileError(f"{path}: there is no such file.")
    try:
        # Of bytes: numpy leaves a file open that it cannot read.
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    # Damage shows as whatever zipfile, zlib or numpy stumble over: a dozen kinds of error, from no common class.
    except Exception as error:
        raise RuleFileError(f"{path}: it is no stored {what} ({type(error).__name__}: {error}).") from None


def load(name: str | Path, kinds: Mapping[str, tuple[type, Callable[[Any], UpdateRule]]]) -> Stored:
    """A rule by its name in the library, or by the path of its file.

    Args:
        kinds: what it may be: of each kind the dataclass of its network's settings, and the rule of these.

    Raises RuleFileError for an unknown name, a file that is none (damaged, pickled), and one of another kind or shape.
    """
    path = Path(name)
    if not path.suffix and not path.exists():
        path = FOLDER / f"{name}.npz"
        if not path.exists():
            near = difflib.get_close_matches(str(name), names(), n=1, cutoff=0)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise RuleFileError(
                f"{name}: no rule of this name comes with jaxrl ({', '.join(names()) or 'none'}).{hint}"
            )
    arrays = arrays_of(path)
    try:
        about = dict(json.loads(str(arrays.pop("about"))))
    except (KeyError, TypeError, ValueError) as error:
        raise RuleFileError(f"{path}: it is no stored rule ({type(error).__name__}: {error}).") from None
    if about.get("kind") not in kinds:
        raise RuleFileError(
            f"{path}: it holds a rule of kind {about.get('kind')!r}, not {' or '.join(map(repr, kinds))}. The code "
            "of a rule of yours is named beside its file, as --rule FILE.py:FUNCTION."
        )
    if missing := {"config", "provenance"} - set(about):
        raise RuleFileError(f"{path}: it is no stored rule, as it does not say its {' and '.join(sorted(missing))}.")
    config_class, rule_of = kinds[about["kind"]]
    fields = {f.name for f in dataclasses.fields(config_class)}
    unknown = set(about["config"]) - fields
    if unknown:
        raise RuleFileError(f"{path}: its network has settings that this version does not know: {sorted(unknown)}.")
    config = settings_of(config_class, about["config"])
    rule = rule_of(config)
    wanted = jax.eval_shape(rule.init, jax.random.key(0))
    leaves = []
    for place, x in jax.tree_util.tree_leaves_with_path(wanted):
        at = jax.tree_util.keystr(place)
        shape = arrays[at].shape if at in arrays else None
        if shape != x.shape:
            raise RuleFileError(f"{path}: {at} is {shape or 'missing'}, and the network of its settings has {x.shape}.")
        leaves.append(jnp.asarray(arrays[at]))
    weights = jax.tree.unflatten(jax.tree.structure(wanted), leaves)
    return Stored(rule._replace(init=lambda key: weights), config, weights, about["provenance"])


@dataclasses.dataclass(frozen=True)
class NoSettings:
    """The settings of a user's own rule that takes none."""


def own_rule(word: str) -> tuple[Callable[[Any], UpdateRule], type]:
    """The function `module:name` or `file.py:name`, which returns a rule, as a function of its settings, and the class
    of these: the dataclass `RuleConfig` of its module.

    Raises ValueError where there is no such function, and for one whose settings have no class.
    """
    make = registry.own_function(word)
    if not inspect.signature(make).parameters:
        return lambda config: make(), NoSettings
    settings = getattr(sys.modules[make.__module__], "RuleConfig", None)
    if not isinstance(settings, type) or not dataclasses.is_dataclass(settings):
        raise ValueError(f"{word} takes settings, and its module has no dataclass RuleConfig of them.")
    return make, settings


def settings_of(config_class: type, kept: Mapping[str, Any]) -> Any:
    """Static settings as they were before JSON made lists of their tuples."""
    return config_class(**{name: tuple(x) if isinstance(x, list) else x for name, x in kept.items()})
