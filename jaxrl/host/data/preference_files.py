"""Preferences on disk (`data.preferences.Preferences`): npz with a hash, a dataset's arrays and those of its pairs.

Beside the dataset's arrays there are `pair.first` (n, 2), the rows at which segments begin, `pair.length` (n, 2) and
`pair.label` (n,). `about` is the dataset's, with `preferences`: {"labels", "noise", "query", ...}, how they came about.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from jaxrl.data import preferences
from jaxrl.data.preferences import Preferences
from jaxrl.environment import Environment
from jaxrl.host.data import dataset_parts, npz_files
from jaxrl.host.data.dataset_parts import FIELDS, dataset_of, named_arrays, opened_npz
from jaxrl.host.data.npz_files import ABOUT, dict_of

PAIRS = ("pair.first", "pair.length", "pair.label")
WANTED = "preferences are npz, as `jaxrl dataset preferences` writes them."


def digest(found: Preferences) -> str:
    """SHA-256 over the names, dtypes, shapes and bytes of the arrays."""
    return npz_files.digest(_arrays(found))


def _arrays(found: Preferences) -> dict[str, np.ndarray]:
    first = np.asarray(found.first)
    pairs = (first, np.full(first.shape, found.length, np.int32), np.asarray(found.label))
    return {**named_arrays(found.steps), **dict(zip(PAIRS, pairs, strict=True))}


def write(path: str | Path, found: Preferences, about: dict[str, Any], overwrite: bool = False) -> Path:
    """Write them, whole or not at all; `read` gives the same ones, and `about` with their `digest`.

    Raises FileExistsError where something is, unless `overwrite`, and ValueError for what no learner could use.
    """
    npz_files.refuse(Path(path), overwrite)
    preferences.check(found)
    return npz_files.write(path, _arrays(found), about, overwrite)


def is_one(path: str | Path) -> bool:
    """Whether the file has pairs of segments, whatever else is wrong with it."""
    if not Path(path).is_file() or npz_files.kind_of(path) != "npz":
        return False
    with npz_files.opened(path) as file:
        return bool({*PAIRS} & {*file.files})


def read(path: str | Path) -> tuple[Preferences, dict[str, Any]]:
    """`(preferences, about)` of a file that `write` wrote. Raises ValueError, in a line, for any other or a bad one."""
    kind = npz_files.kind_of(path)
    if kind != "npz":
        raise ValueError(f"{path} {npz_files.BEGINS[kind]}" + ("" if kind == "pickle" else f": {WANTED}"))
    with opened_npz(path) as file:
        names = {*file.files}
        if missing := sorted({*PAIRS, ABOUT} - names):
            raise ValueError(f"{path} has no {', '.join(missing)}: {WANTED}")
        if odd := sorted(n for n in names - {*PAIRS, ABOUT} if n.split(".")[0] not in FIELDS):
            raise ValueError(f"{path} has arrays {', '.join(odd)}, which no preferences have: {WANTED}")
        about = dict_of(str(npz_files.member(file, ABOUT, path)), f"{path}: {ABOUT}")
        arrays = {name: npz_files.member(file, name, path) for name in names - {ABOUT}}
    first, length, label = (arrays.pop(name) for name in PAIRS)
    steps = dataset_of(arrays, str(path))
    try:
        if label.dtype.kind != "f":
            raise ValueError(f"{PAIRS[2]} is {label.dtype}: labels are floats.")
        if length.shape != first.shape:
            raise ValueError(f"{PAIRS[1]} is {list(length.shape)}, {PAIRS[0]} {list(first.shape)}: they must be alike.")
        found = Preferences(steps, first, label, preferences.same_length(length) if length.size else 0)
        preferences.check(found)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    npz_files.check_digest(path, {**arrays, **dict(zip(PAIRS, (first, length, label), strict=True))}, about)
    return found, about


def check_fits(found: Preferences, about: dict[str, Any], env: Environment, params: Any) -> None:
    """Raise ValueError, naming the first difference, for preferences of another environment than `env`."""
    dataset_parts.check_fits(found.steps, about, env, params)


def summary(found: Preferences) -> dict[str, Any]:
    """How many pairs, how long, how often the second segment is preferred, and how many ties."""
    label = np.asarray(found.label)
    return {
        "pairs": found.size,
        "segment_length": found.length,
        "second_preferred": float(label.mean()),
        "ties": int((label == 0.5).sum()),
    }
