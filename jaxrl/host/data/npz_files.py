"""Named arrays on disk, as npz with a hash and what is known of them: what files of datasets and of models share.

`about` is a dict of JSON values; its `digest` is of the arrays. Nothing is unpickled; what is damaged, cut short or not
what was written is one clear line.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

ABOUT = "about"
STARTS = {b"PK\x03\x04": "npz", b"\x89HDF\r\n\x1a\n": "hdf5", b"\x80": "pickle"}
BEGINS = {
    "pickle": "is a pickle: unpickling runs what the file says, so it is not read. Save npz.",
    "": "is neither npz nor HDF5",
    "empty": "is empty",
    "npz": "is npz",
    "hdf5": "is HDF5",
}
"""What is said of a file, by its `kind_of`."""


# ---- arrays by names


def named(name: str, tree: Any, what: str) -> Iterator[tuple[str, np.ndarray]]:
    """Dotted names of the leaves. Entries of tuples are numbered, so no key of a dict may be a number."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            if not isinstance(key, str) or not key or "." in key or key.isdecimal():
                raise ValueError(f"{what}'s {name} has a key {key!r}: names have no dot and are no numbers.")
            yield from named(f"{name}.{key}", value, what)
    elif isinstance(tree, tuple | list):
        for i, value in enumerate(tree):
            yield from named(f"{name}.{i}", value, what)
    else:
        yield name, np.asarray(tree)


def tree_of(arrays: Mapping[str, Any], field: str) -> Any:
    """The opposite of `named`."""
    if field in arrays:
        return arrays[field]
    keys = dict.fromkeys(n[len(field) + 1 :].split(".")[0] for n in arrays if n.startswith(f"{field}."))
    nested = {key: tree_of(arrays, f"{field}.{key}") for key in keys}
    if all(key.isdecimal() for key in nested):
        return tuple(nested[key] for key in sorted(nested, key=int))
    return nested


def digest(arrays: Mapping[str, np.ndarray]) -> str:
    """SHA-256 over the names, dtypes, shapes and bytes of the arrays, in whatever order."""
    sha = hashlib.sha256()
    for name in sorted(arrays):
        x = np.ascontiguousarray(arrays[name]).reshape(arrays[name].shape)
        x = x.astype(x.dtype.newbyteorder("<"), copy=False)
        sha.update(f"{json.dumps(name)} {x.dtype.str} {x.shape}\n".encode())
        sha.update(x.data if x.size else b"")
    return sha.hexdigest()


# ---- files


def write(path: str | Path, arrays: Mapping[str, np.ndarray], about: dict[str, Any], overwrite: bool = False) -> Path:
    """Write them, whole or not at all, and `about` with their `digest`.

    Raises FileExistsError where something is, unless `overwrite`.
    """
    path = Path(path)
    refuse(path, overwrite)
    members: dict[str, Any] = {ABOUT: np.asarray(text_of({**about, "digest": digest(arrays)})), **arrays}
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = beside(path)
    try:
        with partial.open("wb") as file:
            np.savez_compressed(file, **members)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
    return path


def refuse(path: Path, overwrite: bool, word: str = "overwrite=True") -> None:
    """Raise FileExistsError where something is, unless `overwrite`, which is said by `word`."""
    if path.exists() and not overwrite:
        raise FileExistsError(f"{path} exists: name another file, or say {word}.")


def check_digest(path: str | Path, arrays: Mapping[str, np.ndarray], about: dict[str, Any]) -> None:
    """Raise ValueError unless `about` has the arrays' digest."""
    if (found := digest(arrays)) != (claimed := about.get("digest")):
        raise ValueError(f"{path} is not what was written: the arrays' digest is {found}, {ABOUT} says {claimed}.")


def kind_of(path: str | Path) -> str:
    """What a file begins like: npz, hdf5, pickle, empty, or nothing known. Raises ValueError for a pipe or a device."""
    if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):
        raise ValueError(f"{path} is a pipe or a device, not a file.")
    with open(path, "rb") as file:
        start = file.read(8)
    return next((kind for magic, kind in STARTS.items() if start.startswith(magic)), "" if start else "empty")


FREE = 2**28
"""Bytes that a file may declare without being asked."""

FOLD = 500
"""How many times its own size a file may declare beyond that: recorded numbers do not compress so far."""


class Budget:
    """What is read of one file, so that its declared sizes are judged before memory is taken for them."""

    def __init__(self, path: str | Path) -> None:
        self.path, self.size, self.total = path, os.path.getsize(path), 0

    def take(self, what: str, shape: tuple[int, ...], dtype: Any) -> None:
        """Raises ValueError, with the declared and the real size, where an array of this shape is too large."""
        from jaxrl.host.run.ram import free_memory

        declared = math.prod(shape) * np.dtype(dtype).itemsize
        self.total += declared
        if self.total <= FREE:
            return
        said = f"{what} declares {declared:,} bytes, {list(shape)} of {np.dtype(dtype)}"
        if self.total > FOLD * self.size:
            raise ValueError(f"{said}; {self.path} has {self.size:,}: no data compress so far, it is not read.")
        if self.total > (free := free_memory()):
            raise ValueError(f"{said}, {self.total:,} with what was read before; {free:,} bytes of memory are free.")


def declared(file: Any, name: str, path: str | Path) -> tuple[tuple[int, ...], np.dtype]:
    """Shape and dtype by the header of an array of what is `opened`. Raises ValueError where its bytes are others."""
    info = file.zip.getinfo(f"{name}.npy")
    with file.zip.open(info) as stream:
        version = np.lib.format.read_magic(stream)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(stream)
        size, rest = math.prod(shape) * dtype.itemsize, info.file_size - stream.tell()
    if size != rest and not dtype.hasobject:
        raise ValueError(f"it declares {size:,} bytes, {list(shape)} of {dtype}, and holds {rest:,}")
    return shape, dtype


@contextlib.contextmanager
def opened(path: str | Path) -> Iterator[Any]:
    """numpy's view of an npz. Raises ValueError, in a line, for one that is damaged."""
    with open(path, "rb") as stream:  # numpy leaves open what it opens and cannot read
        try:
            file = np.load(stream, allow_pickle=False)
        except (zipfile.BadZipFile, ValueError, EOFError) as error:
            raise ValueError(f"{path} is damaged or cut short ({error}): copy it again.") from error
        with file:
            if not hasattr(file, "zip"):
                raise ValueError(f"{path} is one array, not npz.")
            file.budget = Budget(path)
            yield file


def member(file: Any, name: str, path: str | Path) -> np.ndarray:
    """An array of what is `opened`. Raises ValueError, in a line, for one that is damaged, pickled or too large."""
    if f"{name}.npy" not in file.zip.namelist():
        raise ValueError(f"{path}: {name} is no array.")
    try:
        shape, dtype = declared(file, name, path)
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, RuntimeError, KeyError) as error:
        raise ValueError(f"{path}: {name} is damaged or cut short ({error}): copy the file again.") from error
    file.budget.take(f"{path}: {name}", shape, dtype)
    try:
        x = file[name]
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, RuntimeError) as error:
        if "allow_pickle" in str(error):
            raise ValueError(f"{path}: {name} holds pickled objects, which are not read: save numbers.") from error
        raise ValueError(f"{path}: {name} is damaged or cut short ({error}): copy the file again.") from error
    return x


def beside(path: Path) -> Path:
    """Where a file is written until it is whole."""
    return path.with_name(f".{path.name}.{os.getpid()}.partial")


# ---- JSON


def text_of(about: dict[str, Any]) -> str:
    try:
        return json.dumps(about, default=lambda x: np.asarray(x).tolist() if isinstance(x, np.generic) else x.tolist())
    except (TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"about must hold JSON values: {error}.") from error


def dict_of(text: Any, what: str) -> dict[str, Any]:
    """Raises ValueError, naming `what` it is, for what is no dict."""
    try:
        value = json.loads(text)
        if isinstance(value, dict):
            return value
        raise ValueError(f"it is {value!r}")
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"{what} is no JSON dict ({error}).") from error
