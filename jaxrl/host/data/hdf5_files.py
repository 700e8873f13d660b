"""HDF5 files of others: what is in the file itself is read, and nothing that it points to elsewhere on the disk.

An HDF5 file may name other files as parts of its own (external links, external storage, virtual datasets): those are
refused. Sizes that it declares are checked before memory is taken (`npz_files.Budget`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxrl import extras
from jaxrl.host.data.npz_files import Budget

ROWS = 256
"""Entries of any length that are read at once."""

SOFT_LINKS = 8
"""How many soft links may lead from one to the next."""


def h5py() -> Any:
    try:
        import h5py
    except ImportError as error:
        raise ImportError(f"HDF5 files need a package that is not installed: {extras.install('minari')}") from error
    return h5py


@contextlib.contextmanager
def opened(path: str | Path) -> Iterator[tuple[Any, Budget]]:
    """The file's root and the memory that may be taken. Raises ValueError, in a line, for a file that is damaged."""
    try:
        with h5py().File(path, "r") as file:
            yield file, Budget(path)
    except (OSError, RuntimeError, KeyError) as error:
        raise ValueError(f"{path} is damaged or cut short ({error}): copy it again.") from error


def child(group: Any, name: str, where: str, links: int = SOFT_LINKS) -> Any:
    """The group or dataset of this name, None where there is none. Raises ValueError for one in another file."""
    lib = h5py()
    if not group.id.links.exists(name.encode()):
        return None
    link = group.id.links.get_info(name.encode())
    if link.type == lib.h5l.TYPE_EXTERNAL:
        file, at = group.id.links.get_val(name.encode())
        raise ValueError(f"{where}: {name} is a link to {at.decode()} of {file.decode()}: other files are not read.")
    if link.type == lib.h5l.TYPE_SOFT:
        target = group.id.links.get_val(name.encode()).decode()
        if not links:
            raise ValueError(f"{where}: {name} is a link to a link, {SOFT_LINKS} times: it leads nowhere.")
        node = group.file if target.startswith("/") else group
        for part in filter(None, target.split("/")):
            node = None if node is None else child(node, part, where, links - 1)
        return node
    node = group[name]
    if isinstance(node, lib.Dataset):
        _refuse_elsewhere(node, name, where, links)
    return node


def _refuse_elsewhere(node: Any, name: str, where: str, links: int) -> None:
    """Raise ValueError for a dataset with numbers in another file, its own or those of the parts it is put together
    from.
    """
    sources = node.virtual_sources() if node.is_virtual else []
    other = [file for file, *_ in node.external or []] + [x.file_name for x in sources if x.file_name != "."]
    if other:
        raise ValueError(f"{where}: {name} keeps its numbers in {other[0]}: other files are not read.")
    for part in dict.fromkeys(source.dset_name for source in sources):
        if "%" in part:
            raise ValueError(f"{where}: {name} is put together from {part}, whatever that names: it is not read.")
        if not links:
            raise ValueError(f"{where}: {name} is put together of parts of parts, {SOFT_LINKS} times: it is not read.")
        found = node.file
        for step in filter(None, part.split("/")):
            found = child(found, step, where, links - 1) if hasattr(found, "keys") else None


def names(group: Any, where: str) -> list[str]:
    """What is in a group. Raises ValueError for what is none."""
    if not isinstance(group, h5py().Group):
        raise ValueError(f"{where} is {_kind(group)}; it must be a group.")
    return list(group)


def children(group: Any, wanted: Sequence[str], where: str) -> dict[str, Any]:
    """Those of these names that are there. Raises ValueError for what is no group."""
    names(group, where)
    found = {name: child(group, name, where) for name in wanted}
    return {name: node for name, node in found.items() if node is not None}


def array(node: Any, name: str, where: str, budget: Budget) -> np.ndarray:
    """All of a dataset. Raises ValueError for a group, and for a size that is not to be believed."""
    if not isinstance(node, h5py().Dataset):
        raise ValueError(f"{where}: {name} is {_kind(node)}; it must be an array.")
    budget.take(f"{where}: {name}", node.shape or (), node.dtype)
    if node.dtype.kind == "S" and node.shape:  # texts of a fixed length are texts, and those others are objects
        budget.take(f"{where}: {name} as texts", (*node.shape, 64 + node.dtype.itemsize), np.uint8)
        return np.asarray(node[()]).astype(object)
    if node.dtype.kind != "O" or not node.shape:
        return np.asarray(node[()])
    # Entries of any length: what they take is known once they are read, a few at a time.
    parts = []
    for first in range(0, len(node), ROWS):
        parts.append(np.asarray(node[first : first + ROWS]))
        lengths = [len(x) for x in parts[-1].reshape(-1) if hasattr(x, "__len__")]
        budget.take(f"{where}: {name}", (sum(lengths),), np.uint8)
    return np.concatenate(parts) if parts else np.empty(node.shape, object)


def _kind(node: Any) -> str:
    lib = h5py()
    if isinstance(node, lib.Group):
        return f"a group with {', '.join(list(node)[:5]) or 'nothing'}"
    return "an array" if isinstance(node, lib.Dataset) else "missing" if node is None else "a type"
