"""robomimic's HDF5: a group a demonstration."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxrl.data.datasets import Dataset
from jaxrl.host.data import hdf5_files
from jaxrl.host.data.dataset_parts import dataset_of, flags_of, kept_names, length_of, rewards_of, shown
from jaxrl.host.data.minari_files import EpisodeReader
from jaxrl.host.data.npz_files import dict_of


def read_robomimic(path: str | Path, drop: Sequence[str] = ()) -> tuple[Dataset, dict[str, Any]]:
    """`(dataset, about)` of robomimic's HDF5: `data/demo_0` and others, with `obs`, `actions`, `rewards` and `dones`.

    The task ended where `dones` are 1, and an episode where its group does. Without `next_obs` the next row's is the
    successor, so that a demonstration's last row is left out, unless it is `done`: then its own, as in D4RL's files.
    Without `rewards` or `dones`, which imitation does not need, they are 0.
    """
    path = Path(path)
    with hdf5_files.opened(path) as (file, budget):
        data = hdf5_files.child(file, "data", str(path))
        groups = hdf5_files.names(data, f"{path}: data")
        numbered = {key: int(found[1]) for key in groups if (found := re.fullmatch(r"demo_(\d{1,12})", key))}
        numbers = sorted(numbered.values())
        if len(set(numbers)) < len(numbers):
            raise ValueError(f"{path}: data has two demonstrations of one number, as demo_1 and demo_01.")
        if not numbers:
            raise ValueError(f"{path}: data has no groups demo_0, demo_1, ...: it is not robomimic's.")
        reader = EpisodeReader({"observation": None, "action": None}, False, budget, tuple(drop), set())
        keys = sorted(numbered, key=numbered.__getitem__)
        demos = [_demo(reader, hdf5_files.child(data, key, str(path)), f"{path}: {key}") for key in keys]
        kept_names([name for name in reader.seen if "." in name], drop, str(path))
        said = data.attrs.get("env_args")
    kinds = [{name: shown(x) for name, x in demo.items()} for demo in demos]
    if odd := [i for i, kind in zip(numbers, kinds, strict=True) if kind != kinds[0]]:
        raise ValueError(f"{path}: demo_{odd[0]} has other arrays than demo_{numbers[0]}: they must be alike.")
    arrays = {name: np.concatenate([demo[name] for demo in demos]) for name in demos[0]}
    about = {"format": "robomimic", "name": path.stem}
    if isinstance(said, str) and (name := dict_of(said, f"{path}: env_args").get("env_name")):
        about["task"] = str(name)
    return dataset_of(arrays, str(path)), about


def _demo(reader: EpisodeReader, group: Any, where: str) -> dict[str, np.ndarray]:
    parts = hdf5_files.children(group, ("obs", "next_obs", "actions", "rewards", "dones"), where)
    if missing := [name for name in ("obs", "actions") if name not in parts]:
        raise ValueError(f"{where} has no {', '.join(missing)}: it has {', '.join(group) or 'nothing'}.")
    obs = dict(reader.leaves(parts["obs"], "obs", None, where))
    action = dict(reader.leaves(parts["actions"], "action", None, where))
    columns = {n: hdf5_files.array(parts[n], n, where, reader.budget) for n in ("rewards", "dones") if n in parts}
    # Columns of one number a step are taken for it, as D4RL's are.
    read = {n: x[:, 0] if x.shape[1:] == (1,) else x for n, x in columns.items()}
    rows = length_of({**obs, **action, **read}, where)
    done = flags_of(read.get("dones", np.zeros(rows)), "dones", where)
    rewards = rewards_of(read.get("rewards", np.zeros(rows)), where)
    if "next_obs" in parts:
        after = {f"next_{n}": x for n, x in reader.leaves(parts["next_obs"], "obs", None, where)}
        length_of({**after, "actions": action["action"]}, where)
        known = np.ones(rows, bool)
    else:
        after = {f"next_{n}": np.concatenate([x[1:], x[-1:]]) for n, x in obs.items()}
        known = (np.arange(rows) < rows - 1) | done
    if not known.any():
        raise ValueError(f"{where} has one row, and no successor of it.")
    ends = np.arange(rows) == np.flatnonzero(known)[-1]
    columns = {**obs, **action, "reward": rewards, "terminated": done, "last": ends, **after}
    return {name: x[known] for name, x in columns.items()}
