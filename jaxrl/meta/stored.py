"""Files of learned rules: npz archives of arrays, without pickles, with their provenance."""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import io
import json
import sys
import zipfile
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
from jaxrl.vector_env import VectorEnv

FOLDER = Path(__file__).parent / "rules"
"""The folder of the rules that come with the library."""


class RuleFileError(ValueError):
    """Raised for a file that does not hold a rule of the wanted kind; the message says why."""


class Stored(NamedTuple):
    """A learned rule. `rule.init` returns the learned weights for every key."""

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
    """Writes a rule of `kind`, such as "lpg", with the dataclass `config` of its network."""
    leaves = {jax.tree_util.keystr(p): np.asarray(x) for p, x in jax.tree_util.tree_leaves_with_path(weights)}
    about = json.dumps({"kind": kind, "config": dataclasses.asdict(config), "provenance": provenance})
    np.savez_compressed(path, allow_pickle=False, about=np.array(about), **leaves)


MOST_BYTES = 2**32
"""Of a file of arrays that is read whole, and of what it unpacks to."""


def arrays_of(path: Path, what: str = "rule") -> dict[str, np.ndarray]:
    """All arrays of an npz file, by name.

    Raises RuleFileError for a file that is missing, damaged, pickled or of another format.
    """
    if not path.exists():
        raise RuleFileError(f"{path}: there is no such file.")
    try:
        if (size := path.stat().st_size) > MOST_BYTES:
            raise ValueError(f"it has {size} bytes")
        with zipfile.ZipFile(path) as file:  # what it declares, before memory is taken
            if (size := sum(part.file_size for part in file.infolist())) > MOST_BYTES:
                raise ValueError(f"it unpacks to {size} bytes")
        # From bytes, as numpy leaves a file open that it cannot read.
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    # zipfile, zlib and numpy raise a dozen kinds of errors for damaged files, without a common base class.
    except Exception as error:
        raise RuleFileError(f"{path}: it is no stored {what} ({type(error).__name__}: {error}).") from None


def load(name: str | Path, kinds: Mapping[str, tuple[type, Callable[[Any], UpdateRule]]]) -> Stored:
    """A rule by its name in the library, or by the path of its file.

    Args:
        kinds: allowed kinds of rules, each with the dataclass of its network's settings and the function that makes the
            rule of these.

    Raises RuleFileError for an unknown name, a file that is no rule (damaged, pickled), or another kind or shape.
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
            "of a rule of yours is named beside its file, as --rule-function FILE.py:FUNCTION."
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
    """The settings of a user's rule whose function takes no settings."""


def own_rule(word: str) -> tuple[Callable[[Any], UpdateRule], type]:
    """`(make, settings class)` of a user's rule, which `word` names as `module:function` or `file.py:function`.

    `make(settings)` returns the rule; the class of its settings is the dataclass `RuleConfig` of the same module.
    Raises ValueError if there is no such function, or if it takes settings and the module has no `RuleConfig`.
    """
    make = registry.own_function(word)
    if not inspect.signature(make).parameters:
        return lambda config: make(), NoSettings
    settings = getattr(sys.modules[make.__module__], "RuleConfig", None)
    if not isinstance(settings, type) or not dataclasses.is_dataclass(settings):
        raise ValueError(f"{word} takes settings, and its module has no dataclass RuleConfig of them.")
    return make, settings


def settings_of(config_class: type, kept: Mapping[str, Any]) -> Any:
    """Static settings read from JSON, with its lists turned back into tuples."""
    return config_class(**{name: tuple(x) if isinstance(x, list) else x for name, x in kept.items()})
