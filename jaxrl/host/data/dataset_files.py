"""Datasets on disk: the project's own npz, Minari's folders (HDF5), OGBench's npz, D4RL's and robomimic's HDF5.

| format | read | written | holds |
|---|---|---|---|
| own npz | `read` | `write` | the leaves by dotted names (`obs.image`), `about` as JSON, a hash of the arrays |
| Minari 0.4 to 0.5 | `minari_files.read_minari` | `write_minari` there | a group an episode; `infos` are not read |
| OGBench npz | `d4rl_files.read_ogbench` | | rows of trajectories; `qpos`, `qvel` and the like are not read |
| D4RL HDF5, or npz of its names | `d4rl_files.read_d4rl` | | rows of all episodes, also in chunks; no `infos` |
| robomimic HDF5 | `robomimic_files.read_robomimic` | | a group a demonstration; `states` and `mask` are not read |

`read_any` tells them apart. Nothing is unpickled, nothing is downloaded, and no other file is read that a file names.
Sizes that it declares are checked before memory is taken.

The readers of observations with parts take `drop`, names of entries that are left out, as `("obs.mission",)`. Texts are
numbers where `about["env"]` is an id of ours that knows its missions (`mission_of`).

`about` is a dict of JSON values: `env` (id), `params`, `spaces` ({"observation", "action"}, as Minari writes them),
`made` (versions, commit), `reference` ({"random", "best", "exact"}: returns, and whether they are exact), `digest`;
more keys are kept. `dataset_parts.about_of` makes one.

The others keep numbers in 64 bits; they are read in the precision that jax computes in, and numbers that it
does not hold are an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxrl.data.datasets import Dataset
from jaxrl.host.data import hdf5_files, npz_files
from jaxrl.host.data.d4rl_files import OF_OGBENCH, read_d4rl, read_ogbench
from jaxrl.host.data.dataset_parts import (
    FIELDS,
    checked_reference,
    dataset_of,
    kept_names,
    named_arrays,
    no_dataset,
    opened_npz,
)
from jaxrl.host.data.minari_files import read_minari
from jaxrl.host.data.npz_files import ABOUT, dict_of
from jaxrl.host.data.robomimic_files import read_robomimic

# ---- the project's own files


def write(path: str | Path, dataset: Dataset, about: dict[str, Any], overwrite: bool = False) -> Path:
    """Write the dataset as npz, whole or not at all; `read` gives the same arrays and `about` with their `digest`.

    Raises FileExistsError where something is, unless `overwrite`, and ValueError for what no learner could use.
    """
    npz_files.refuse(Path(path), overwrite)
    arrays = named_arrays(dataset)
    dataset_of(arrays, "the dataset")
    checked_reference(about)
    return npz_files.write(path, arrays, about, overwrite)


def read(path: str | Path, drop: Sequence[str] = ()) -> tuple[Dataset, dict[str, Any]]:
    """`(dataset, about)` of a file that `write` wrote, without the entries `drop`, whose hash is then not checked.

    Raises ValueError, in a line, for any other or a damaged one.
    """
    with opened_npz(path) as file:
        names = [name for name in file.files if name != ABOUT]
        if len(names) == len(file.files):
            raise ValueError(f"{path} has no `{ABOUT}`, only {', '.join(names)}: jaxrl did not write it; try read_any.")
        odd = [n for n in names if n.split(".")[0] not in FIELDS]
        if any(n.startswith("pair.") for n in odd):
            raise ValueError(
                f"{path} is a dataset of preferences: cpl, oppo and p_iql learn from it, and `jaxrl dataset "
                "relabel` makes one of steps with learned rewards."
            )
        if odd:
            raise ValueError(f"{path} has arrays {', '.join(odd)}, which no dataset has: {', '.join(FIELDS)}.")
        about = dict_of(str(npz_files.member(file, ABOUT, path)), f"{path}: {ABOUT}")
        kept = kept_names(names, drop, str(path))
        arrays = {name: npz_files.member(file, name, path) for name in kept}
    dataset = dataset_of(arrays, str(path))
    if len(kept) == len(names):
        npz_files.check_digest(path, arrays, about)
    return dataset, {k: v for k, v in about.items() if k != "digest" or len(kept) == len(names)}


# ---- any of them


def read_any(
    path: str | Path, drop: Sequence[str] = (), max_episode_steps: int | None = None
) -> tuple[Dataset, dict[str, Any]]:
    """`(dataset, about)` of whichever format is there, without the entries `drop` of its observations.

    `max_episode_steps` is the time limit of a task whose file, one of D4RL's, has no `timeouts`. Raises ValueError, in
    a line, for none of the formats, for entries that are not there, and for a limit where the file says it.
    """
    path = Path(path)
    if not (max_episode_steps is None or isinstance(max_episode_steps, int)) or isinstance(drop, str):
        raise TypeError(f"max_episode_steps={max_episode_steps!r}, drop={drop!r}: an integer, and a sequence of names.")
    drop = tuple(drop)
    try:
        return _read_any(path, drop, max_episode_steps)
    except ValueError as error:
        if str(path) in str(error):
            raise
        raise ValueError(f"{path}: {error}") from error
    except (TypeError, AttributeError, KeyError, IndexError, ArithmeticError) as error:
        raise ValueError(f"{path} is damaged, or says what it should not: {' '.join(str(error).split())}") from error


def _read_any(path: Path, drop: Sequence[str], max_episode_steps: int | None) -> tuple[Dataset, dict[str, Any]]:
    reader, entries = _reader_of(path)
    if reader is read_d4rl:
        kept_names([], drop, str(path))
        return read_d4rl(path, max_episode_steps)
    if max_episode_steps is not None:
        raise ValueError(
            f"max_episode_steps={max_episode_steps}: it is of D4RL's files without `timeouts`; {path} says where "
            "episodes end."
        )
    if entries:
        return reader(path, drop)
    kept_names([], drop, str(path))
    return reader(path)


def _reader_of(path: Path) -> tuple[Callable[..., tuple[Dataset, dict[str, Any]]], bool]:
    """What reads the file or folder, and whether its observations may have entries."""
    kind = "hdf5" if path.is_dir() else npz_files.kind_of(path)
    if kind == "hdf5":
        whose = _kind_of_hdf5(path) if path.is_file() else "minari"
        return {"d4rl": (read_d4rl, False), "robomimic": (read_robomimic, True), "minari": (read_minari, True)}[whose]
    if kind != "npz":
        raise no_dataset(path, kind)
    with opened_npz(path) as file:
        names = set(file.files)
    if ABOUT in names:
        return read, True
    if {"observations", "actions"} & names:
        # Both have `terminals`: the task's ends in D4RL's, the ends of trajectories in OGBench's.
        d4rl = "timeouts" in names or ("rewards" in names and not names & OF_OGBENCH)
        return (read_d4rl if d4rl else read_ogbench), False
    raise ValueError(
        f"{path} is npz with {', '.join(sorted(names)) or 'nothing'}: jaxrl's has {ABOUT} and {', '.join(FIELDS)}, "
        "OGBench's and D4RL's observations, actions and terminals."
    )


def _kind_of_hdf5(path: Path) -> str:
    """Whose HDF5 it is, by its root: D4RL has arrays where Minari has groups, robomimic has `data/demo_0`."""
    with hdf5_files.opened(path) as (file, _):
        names = set(file)
        if "data" in names and not any(name.startswith("episode_") for name in names):
            data = hdf5_files.child(file, "data", str(path))
            if isinstance(data, Mapping) and any(name.startswith("demo_") for name in data):
                return "robomimic"
        d4rl = "virtual" in names or isinstance(
            hdf5_files.child(file, "observations", str(path)), hdf5_files.h5py().Dataset
        )
    return "d4rl" if d4rl else "minari"
