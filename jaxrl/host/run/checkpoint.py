"""Exact checkpoints of any state: orbax holds the arrays, a manifest says what they are and proves that they are whole.

`<folder>/<step>/` holds `arrays/` (orbax) and `manifest.json`: the caller's description of the run, the path, shape and
dtype of every leaf, and a SHA-256 of every file and of itself. The folder appears under its name only when complete. No
pickle.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import warnings
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from jaxrl.host.run.files import read_json
from jaxrl.host.run.processes import on_primary

MANIFEST = "manifest.json"


class CheckpointError(Exception):
    """A checkpoint that does not exist, is damaged, or belongs to something else; the message says what to do."""


def save(folder: str | Path, step: int, state: PyTree, description: dict[str, Any], keep: int = 3) -> Path:
    """Write `state` as `<folder>/<step>`, atomically. Then drop later ones, replaced by a run that went on from an
    earlier one, and all but the newest `keep`. Of several processes all must call it: each writes its own part.

    Args:
        description: JSON values that name the run (algorithm, config, environment); `restore` compares them.
    """
    folder = Path(folder)
    final, partial = path_of(folder, step), folder / f".{step:012d}.partial"

    def begin() -> None:
        folder.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()

    def finish() -> None:
        manifest = {
            "step": step,
            "description": description,
            "leaves": _leaves(state),
            "generators": [str(jax.random.key_impl(x)) if _is_key(x) else None for x in jax.tree.leaves(state)],
            "files": {name: _digest(partial / name) for name in _files(partial)},
        }
        (partial / MANIFEST).write_text(json.dumps({**manifest, "sha256": _digest_of(manifest)}, indent=1))
        _flush(partial)
        shutil.rmtree(final, ignore_errors=True)
        partial.rename(final)
        _flush_folder(folder)
        kept = [s for s in steps(folder) if s <= step][-keep:]
        for other in set(steps(folder)) - set(kept):
            shutil.rmtree(path_of(folder, other), ignore_errors=True)

    on_primary(begin)
    _checkpointer().save((partial / "arrays").absolute(), _as_list(state))
    on_primary(finish)
    return final


def steps(folder: str | Path) -> list[int]:
    """The steps of which there is a checkpoint, ascending."""
    folder = Path(folder)
    return sorted(int(p.name) for p in folder.glob("[0-9]" * 12) if p.is_dir())


def path_of(folder: str | Path, step: int) -> Path:
    """Where the checkpoint of a step is."""
    return Path(folder) / f"{step:012d}"


def drop_after(folder: str | Path, step: int) -> None:
    """Remove the checkpoints of later steps."""
    for later in steps(folder):
        if later > step:
            shutil.rmtree(path_of(folder, later), ignore_errors=True)


def restore(
    folder: str | Path, target: PyTree, description: dict[str, Any], step: int | None = None
) -> tuple[int, PyTree]:
    """`(step, state)` of the newest whole checkpoint, or of that of one `step`.

    A damaged one is passed over with a warning. Raises CheckpointError when none is left, or for one of another run:
    different description, leaves, shapes or dtypes.

    Args:
        target: the state's structure, as `jax.eval_shape` gives it; shapes with a sharding are restored to it, on
            whatever mesh they were saved.
    """
    if step is not None:
        path = path_of(folder, step)
        manifest = read_manifest(path)
        _compare(path, manifest, target, description)
        return step, _from_list(_restore(path, target), manifest["generators"], target)
    for step in reversed(steps(folder)):
        path = path_of(folder, step)
        try:
            manifest = read_manifest(path)
        except CheckpointError as error:
            warnings.warn(f"{error} Trying the one before.", stacklevel=2)
            continue
        _compare(path, manifest, target, description)
        return step, _from_list(_restore(path, target), manifest["generators"], target)
    raise CheckpointError(f"No usable checkpoint in {folder}. Train first, or name another run folder.")


def read_manifest(path: Path) -> dict[str, Any]:
    """The manifest of one checkpoint, after checking every file against it. Raises CheckpointError for any damage."""
    try:
        manifest = read_json(path / MANIFEST)
        claimed, expected = manifest.pop("sha256"), manifest["files"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointError(f"Checkpoint {path} has no readable manifest ({type(error).__name__}).") from error
    if claimed != _digest_of(manifest):
        raise CheckpointError(f"Checkpoint {path} is damaged: {MANIFEST} is not what was written.")
    for name, digest in expected.items():
        if not (path / name).is_file() or _digest(path / name) != digest:
            raise CheckpointError(f"Checkpoint {path} is damaged: {name} is not what was written.")
    return manifest


def told_by(folder: str | Path, step: int) -> dict[str, Any]:
    """The description of a checkpoint that was read already; files beside its manifest are not looked at again."""
    return read_json(path_of(folder, step) / MANIFEST)["description"]


BEGAN = "began"
"""The part of a description that `began` makes. What is in it is compared where both sides tell it: who only reads a
policy has no key, and older checkpoints do not tell it."""


def _compare(path: Path, manifest: dict[str, Any], target: PyTree, description: dict[str, Any]) -> None:
    there, here = (dict(told) for told in (manifest["description"], description))
    before, now = there.pop(BEGAN, {}), here.pop(BEGAN, {})
    told = [name for name in before if name in now]
    there |= {BEGAN: {name: before[name] for name in told}}
    here |= {BEGAN: {name: now[name] for name in told}}
    if differs := difference(there, here):
        raise CheckpointError(
            f"Checkpoint {path} is of another run: {differs}. Use the settings it was made with, or another run folder."
        )
    leaves, wanted = manifest["leaves"], _leaves(target)
    for name in [*leaves, *(n for n in wanted if n not in leaves)]:
        if leaves.get(name) != wanted.get(name):
            raise CheckpointError(
                f"Checkpoint {path} does not fit: leaf {name} is {leaves.get(name)} there, {wanted.get(name)} here. "
                "Use the settings it was made with, or another run folder."
            )


def difference(there: dict[str, Any], here: dict[str, Any]) -> str | None:
    """Where two descriptions differ first, in words."""
    return next(iter(differences(there, here)), None)


def differences(there: dict[str, Any], here: dict[str, Any]) -> list[str]:
    """Where two descriptions differ, in words."""
    there, here = _flat(json.loads(json.dumps(there))), _flat(json.loads(json.dumps(here)))
    return [
        f"{name} is {there.get(name)!r} there, {here.get(name)!r} here"
        for name in sorted({*there, *here})
        if json.dumps(there.get(name)) != json.dumps(here.get(name))  # as text, where NaN equals NaN
    ]


def _flat(tree: Any, prefix: str = "") -> dict[str, Any]:
    """Nested dicts as {"a.b": value}."""
    if not isinstance(tree, dict):
        return {prefix: tree}
    return {k: v for name, x in tree.items() for k, v in _flat(x, f"{prefix}.{name}" if prefix else name).items()}


def _leaves(tree: PyTree) -> dict[str, str]:
    """{path: "dtype[shape]"}; a key's dtype names its generator."""
    return {
        jax.tree_util.keystr(path): f"{x.dtype}[{','.join(map(str, x.shape))}]"
        for path, x in jax.tree_util.tree_leaves_with_path(tree)
    }


def _is_key(x: Any) -> bool:
    return bool(jax.numpy.issubdtype(x.dtype, jax.dtypes.prng_key))


def _as_list(state: PyTree) -> dict[str, Any]:
    """Leaves by number: independent of how orbax names the nodes of our pytrees, and of its handling of keys.

    Empty arrays, which orbax refuses, are left out: their shape says all. Of several processes none has a whole array.
    """
    several = jax.process_count() > 1
    data = ((i, jax.random.key_data(x) if _is_key(x) else x) for i, x in enumerate(jax.tree.leaves(state)))
    return {f"{i:05d}": x if several else np.asarray(x) for i, x in data if np.size(x)}


def _from_list(arrays: dict[str, Any], generators: list[str | None], target: PyTree) -> PyTree:
    shapes = jax.tree.leaves(target)
    leaves = [
        jax.numpy.asarray(arrays[f"{i:05d}"]) if x.size else jax.numpy.zeros(x.shape, x.dtype, device=x.sharding)
        for i, x in enumerate(shapes)
    ]
    keyed = [x if g is None else jax.random.wrap_key_data(x, impl=g) for x, g in zip(leaves, generators, strict=True)]
    return jax.tree.structure(target).unflatten(keyed)


def _restore(path: Path, target: PyTree) -> dict[str, Any]:
    import orbax.checkpoint as ocp

    def how(x: Any) -> Any:
        if getattr(x, "sharding", None) is None:
            return ocp.RestoreArgs(restore_type=np.ndarray)
        return ocp.ArrayRestoreArgs(sharding=x.sharding)

    args = {f"{i:05d}": how(x) for i, x in enumerate(jax.tree.leaves(target)) if x.size}
    try:
        return _checkpointer().restore((path / "arrays").absolute(), ocp.args.PyTreeRestore(restore_args=args))
    except Exception as error:  # orbax raises bare exceptions of many kinds on files it cannot read
        raise CheckpointError(f"Checkpoint {path} cannot be read: {error}") from error


def _checkpointer() -> Any:
    import orbax.checkpoint as ocp  # slow to import: only when a checkpoint is made or read

    return ocp.Checkpointer(ocp.PyTreeCheckpointHandler())


def _files(path: Path) -> list[str]:
    return sorted(str(p.relative_to(path)) for p in path.rglob("*") if p.is_file())


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digest_of(manifest: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def _flush(path: Path) -> None:
    for name in _files(path):
        with (path / name).open("rb") as file:
            os.fsync(file.fileno())
    _flush_folder(path)


def _flush_folder(path: Path) -> None:
    with contextlib.suppress(OSError):  # not every file system can
        handle = os.open(path, os.O_RDONLY)
        os.fsync(handle)
        os.close(handle)
