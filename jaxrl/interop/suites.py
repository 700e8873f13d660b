"""Environments of other libraries by name: `make("craftax:Craftax-Classic-Symbolic-v1")`. Nothing of a library is
imported before such a name is asked for.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import importlib
import importlib.metadata
import re
import sys
from typing import Any, NamedTuple

from jaxrl import registry


class Suite(NamedTuple):
    """A library, what is needed of it, and the module that adapts it, which has `names()` and `by_name(name)`."""

    package: str  # as pip knows it
    version: str  # the least that the adapter was tested with
    adapter: str  # a module of jaxrl.interop
    python: tuple[int, int] = (3, 11)  # the least that this version runs on


SUITES = {
    "craftax": Suite("craftax", "1.6", "craftax"),
    "envelope": Suite("jax-envelope", "0.6", "envelope", (3, 12)),
    "gymnax": Suite("gymnax", "1.0", "gymnax"),
    "jumanji": Suite("jumanji", "1.1", "jumanji"),
    "navix": Suite("navix", "4.0", "navix", (3, 12)),
    "pgx": Suite("pgx", "2.6", "pgx"),
    "xminigrid": Suite("xminigrid", "0.9", "xminigrid"),
}
"""Libraries by the prefix of their ids."""

STOA = Suite("stoa-env", "0.1.2", "stoa")
"""It has no ids."""


def suite_of(word: str) -> str | None:
    """The prefix of an id of another library, as `craftax:...`; None for all other words."""
    prefix, colon, _ = word.partition(":")
    return prefix if colon and prefix in SUITES else None


@functools.cache
def make(word: str) -> tuple[Any, Any]:
    """`(env, params)` of `prefix:name`; the same objects for the same word.

    Raises ValueError where the library is not installed, or too old (with the line that installs it), and for a name
    that it does not have (with the nearest that it has).
    """
    prefix, _, name = word.partition(":")
    suite = SUITES[prefix]
    require(prefix, word)
    adapter = importlib.import_module(f"jaxrl.interop.{suite.adapter}")
    try:
        known = adapter.names()
    except ImportError as error:
        raise ValueError(f"{word}: {suite.package} is installed and cannot be imported: {error}") from error
    if name not in known:
        if reason := getattr(adapter, "lacking", lambda name: None)(name):
            raise ValueError(f"Unknown environment {word!r}. {reason}")
        near = f" Did you mean '{prefix}:{nearest(name, known)}'?" if known else ""
        raise ValueError(f"Unknown environment {word!r}.{near} {suite.package} has {len(known)}.")
    env, params = adapter.by_name(name)
    return dataclasses.replace(env, id=word), params


def require(prefix: str, word: str) -> None:
    """Raise ValueError unless the library of a prefix is installed, in a version that its adapter knows."""
    require_suite(SUITES[prefix], word)


def require_suite(suite: Suite, word: str) -> None:
    """Raise ValueError, which begins with `word`, unless a library is installed in a version that its adapter knows."""
    line = f'pip install "{suite.package}>={suite.version}"'
    if sys.version_info < suite.python:
        least, here = (".".join(map(str, v)) for v in (suite.python, sys.version_info[:2]))
        line = f"{line} in Python {least} or newer (this is {here})"
    try:
        found = importlib.metadata.version(suite.package)
    except importlib.metadata.PackageNotFoundError:
        raise ValueError(f"{word} needs {suite.package} {suite.version} or newer: {line}") from None
    if _numbers(found) < _numbers(suite.version):
        raise ValueError(f"{word} needs {suite.package} {suite.version} or newer, and there is {found}: {line}")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)[:3]))


def nearest(name: str, known: list[str]) -> str:
    """The name most like `name`, however unlike it is."""

    def alike(word: str) -> float:
        return difflib.SequenceMatcher(None, name.lower(), word.lower()).ratio()

    return registry.nearest(name, known) or max(known, key=alike)
