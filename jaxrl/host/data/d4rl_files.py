"""Files of rows of all episodes: D4RL's HDF5, or npz of the same names, and OGBench's npz."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jaxrl.data.datasets import Dataset
from jaxrl.host.data import hdf5_files, npz_files
from jaxrl.host.data.dataset_parts import (
    dataset_of,
    flags_of,
    in_precision,
    length_of,
    no_dataset,
    opened_npz,
    rewards_of,
)

# ---- OGBench


def read_ogbench(path: str | Path) -> tuple[Dataset, dict[str, Any]]:
    """`(dataset, about)` of an OGBench file; facts are those of `load_dataset` in ogbench/utils.py.

    As published it has `observations`, `actions` and `terminals`, which mark the last row of each trajectory: its
    observation is the successor of the row before, and it is no transition. With `next_observations` each row is a
    transition; with `valids` (its compact form in memory) those are where it is 1. Without `rewards` they are 0; the
    task ended where `masks` are 0, nowhere without them. Such an end need not be one of a trajectory. Pictures (uint8)
    and integer actions stay integers; all other numbers become floats, as its loader makes them.
    """
    with opened_npz(path) as file:
        if missing := [name for name in ("observations", "actions", "terminals") if name not in file]:
            raise ValueError(f"{path} has no {', '.join(missing)}, only {', '.join(file.files)}: it is not OGBench's.")
        names = ("observations", "actions", "terminals", "next_observations", "rewards", "masks", "valids")
        data = {name: npz_files.member(file, name, path) for name in names if name in file}
    where = str(path)
    rows = length_of(data, where)
    flags = {n: flags_of(data[n], n, where) for n in ("terminals", "masks", "valids") if n in data}
    last = flags["terminals"]
    transition = np.ones(rows, bool)
    if "next_observations" not in data:
        transition = flags.get("valids", ~last)
        if rows and transition[-1]:
            mark = "valids is 1" if "valids" in data else "terminals is 0"
            raise ValueError(f"{where}: its last row is marked as a step ({mark}), and has no successor.")
        data["next_observations"] = np.roll(data["observations"], -1, 0)
        last = last if "valids" in data else np.roll(last, -1)
    for name in ("observations", "next_observations", "actions"):
        kept = np.issubdtype(data[name].dtype, np.integer) if name == "actions" else data[name].dtype == np.uint8
        as_kind = np.int32 if name == "actions" else np.uint8
        ends = np.iinfo(as_kind)
        if kept and np.any((data[name] < ends.min) | (data[name] > ends.max)):
            raise ValueError(f"{where}: {name} has numbers beyond {np.dtype(as_kind)}.")
        data[name] = data[name].astype(as_kind if kept else np.promote_types(data[name].dtype, np.float32), copy=False)
    arrays = {
        "obs": in_precision(data["observations"][transition], "observations", where),
        "action": in_precision(data["actions"][transition], "actions", where),
        "reward": rewards_of(data.get("rewards", np.zeros(rows, np.float32))[transition], where),
        "terminated": ~flags.get("masks", np.ones(rows, bool))[transition],
        "last": last[transition],
        "next_obs": in_precision(data["next_observations"][transition], "next_observations", where),
    }
    about = {"format": "OGBench", "name": Path(path).stem, "rewards": "of the file" if "rewards" in data else "none: 0"}
    return dataset_of(arrays, where), about


OF_OGBENCH = frozenset(("valids", "masks", "qpos", "qvel", "button_states", "oracle_reps"))
"""Names that files of OGBench's or of its loader have, and D4RL's have not: its states are in `infos/`."""

# ---- D4RL


D4RL = ("observations", "actions", "rewards", "terminals", "timeouts", "next_observations")
"""Arrays that are read."""


def of_d4rl(
    data: Mapping[str, np.ndarray], where: str = "the dataset", max_episode_steps: int | None = None
) -> Dataset:
    """A dataset of D4RL's arrays, as `env.get_dataset()` of it gives them.

    They are `observations`, `actions`, `rewards` and `terminals`, where the task ended; an episode ended there or where
    `timeouts` are. Without `next_observations` the next row's is the successor, so that the last row and, as in D4RL's
    `qlearning_dataset`, rows at `timeouts` are left out. The successor at `terminals`, which no target reads, is not
    known then: it is the row's own observation, and `datasets.with_successors` leaves it out.

    The first files of D4RL have no `timeouts`. Of these its `qlearning_dataset` cuts an episode after the task's time
    limit, which is `max_episode_steps` here; without it episodes end at `terminals` alone, which is warned of, as one
    that the clock ended is then followed by the first row of the next. Raises ValueError as the readers of files do.
    """
    needed = ("observations", "actions", "rewards", "terminals")
    if missing := [name for name in needed if name not in data]:
        raise ValueError(f"{where} has no {', '.join(missing)}: D4RL's datasets have {', '.join(needed)}.")
    named = {n: np.asarray(data[n]) for n in (*needed, "timeouts", "next_observations") if n in data}
    # Columns of one number a step are taken for it, as D4RL's `get_dataset` takes them.
    columns = {n for n in ("rewards", "terminals", "timeouts") if n in named and named[n].shape[1:] == (1,)}
    named = {n: x[:, 0] if n in columns else x for n, x in named.items()}
    rows = length_of(named, where)
    ended = flags_of(named["terminals"], "terminals", where)
    if "timeouts" in named:
        if max_episode_steps is not None:
            raise ValueError(f"max_episode_steps={max_episode_steps}: {where} has `timeouts`, which say it.")
        cut = flags_of(named["timeouts"], "timeouts", where) & ~ended
    else:
        cut = _cut_after(max_episode_steps, ended, where)
    obs = named["observations"]
    if "next_observations" in named:
        known, after = np.ones(rows, bool), named["next_observations"]
    else:
        known = ended | ~(cut | (np.arange(rows) == rows - 1))
        after = np.where(ended.reshape(-1, *[1] * (obs.ndim - 1)), obs, np.roll(obs, -1, 0))
    # An episode's last row may be left out: then the one before it is the last.
    number = (np.cumsum(ended | cut) - (ended | cut))[known]
    arrays = {
        "obs": in_precision(obs[known], "observations", where),
        "action": in_precision(named["actions"][known], "actions", where),
        "reward": rewards_of(named["rewards"][known], where),
        "terminated": ended[known],
        "last": np.append(number[1:] != number[:-1], True)[: len(number)],
        "next_obs": in_precision(after[known], "next_observations", where),
    }
    return dataset_of(arrays, where)


def _cut_after(steps: int | None, ended: np.ndarray, where: str) -> np.ndarray:
    """Rows at which the clock ended an episode, by its limit."""
    if steps is None:
        warnings.warn(
            f"{where} has no `timeouts`: its episodes end at terminals alone, so that rows of two may seem to follow "
            "each other; max_episode_steps, on the command line --max-episode-steps, says where the clock ended them.",
            stacklevel=4,
        )
        return np.zeros(len(ended), bool)
    if steps < 1:
        raise ValueError(f"max_episode_steps={steps}: it must be at least 1.")
    rows = np.arange(len(ended))
    begun = np.concatenate([[0], np.flatnonzero(ended)[:-1] + 1 if ended[-1:].any() else np.flatnonzero(ended) + 1])
    first = begun[np.searchsorted(begun, rows, side="right") - 1]
    return ((rows - first) % steps == steps - 1) & ~ended


def read_d4rl(path: str | Path, max_episode_steps: int | None = None) -> tuple[Dataset, dict[str, Any]]:
    """`(dataset, about)` of D4RL's HDF5, whole or in chunks (`virtual/0` and so on), or of npz with the same names.
    `max_episode_steps` is of files without `timeouts`, see `of_d4rl`.
    """
    path, kind = Path(path), npz_files.kind_of(path)
    if kind == "npz":
        with opened_npz(path) as file:
            data = {name: npz_files.member(file, name, path) for name in D4RL if name in file}
    elif kind == "hdf5":
        with hdf5_files.opened(path) as (file, budget):
            found = hdf5_files.children(file, D4RL, str(path))
            if found or "virtual" not in file:
                data = {name: hdf5_files.array(node, name, str(path), budget) for name, node in found.items()}
            else:
                data = _joined_chunks(hdf5_files.child(file, "virtual", str(path)), str(path), budget)
    else:
        raise no_dataset(path, kind)
    return of_d4rl(data, str(path), max_episode_steps), {"format": "D4RL", "name": path.stem}


def _joined_chunks(virtual: Any, where: str, budget: npz_files.Budget) -> dict[str, np.ndarray]:
    """The arrays of a file that D4RL reads by `get_dataset_chunk`, one after the other."""
    numbers = sorted(int(name) for name in hdf5_files.names(virtual, f"{where}: virtual") if name.isdecimal())
    if not numbers:
        raise ValueError(f"{where}: virtual has no chunks 0, 1, ...: it is not D4RL's.")
    chunks = []
    for number in numbers:
        at = f"{where}: virtual/{number}"
        found = hdf5_files.children(hdf5_files.child(virtual, str(number), where), D4RL, at)
        chunks.append({name: hdf5_files.array(node, name, at, budget) for name, node in found.items()})
        if chunks[-1]:
            length_of(chunks[-1], at)
        if {n: x.shape[1:] for n, x in chunks[-1].items()} != {n: x.shape[1:] for n, x in chunks[0].items()}:
            raise ValueError(f"{at} has other arrays than virtual/{numbers[0]}: they must be alike.")
    return {name: np.concatenate([chunk[name] for chunk in chunks]) for name in chunks[0]}
