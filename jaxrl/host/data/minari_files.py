"""Minari's datasets, folders of HDF5 with a group an episode: read of versions 0.4 to 0.5, written as 0.5.4 does."""

from __future__ import annotations

import io
import json
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxrl.data.datasets import Dataset, Episodes
from jaxrl.host.data import hdf5_files, missions, npz_files
from jaxrl.host.data.dataset_parts import (
    SPACES,
    check_spaces,
    checked_reference,
    dataset_of,
    flags_of,
    in_precision,
    kept_names,
    leaves_of,
    named_arrays,
    no_dataset,
    rewards_of,
    shown,
    space_as_json,
)
from jaxrl.host.data.npz_files import dict_of
from jaxrl.spaces import Discrete, Space

MAIN, METADATA = "main_data.hdf5", "metadata.json"
FILES = {"data", f"data/{MAIN}", f"data/{METADATA}"}
MINARI_VERSION = "0.5.4"
"""Whose layout `write_minari` writes."""
EPISODE = ("observations", "actions", "rewards", "terminations", "truncations")


def read_minari(folder: str | Path, drop: Sequence[str] = ()) -> tuple[Dataset, dict[str, Any]]:
    """`(dataset, about)` of a Minari dataset: its folder, the `data` in it, or the HDF5 file.

    An episode ends where its group does, or where it says that it was cut. `about["minari"]` is Minari's metadata.
    Raises ValueError, in a line, for what is no such dataset, or damaged, and for texts among observations that are no
    missions of an environment of ours; `drop` leaves such entries out.
    """
    hdf5_files.h5py()
    path, metadata = _minari_files(Path(folder))
    spaces = {
        key: dict_of(metadata[f"{key}_space"], f"{path}: its {key}_space") if f"{key}_space" in metadata else None
        for key in SPACES
    }
    jpeg = bool(metadata.get("jpeg_encoding", True))  # datasets of before there was a choice say nothing
    if (kind := npz_files.kind_of(path)) != "hdf5":
        raise no_dataset(path, kind)
    try:
        with hdf5_files.opened(path) as (file, budget):
            numbers = sorted(int(found[1]) for key in file if (found := re.fullmatch(r"episode_(\d{1,12})", key)))
            if not numbers:
                has = ", ".join(list(file)[:5]) or "nothing"
                raise ValueError(f"{path} has no groups episode_0, episode_1, ... but {has}: it is no Minari dataset.")
            total = metadata.get("total_episodes", len(numbers))
            if len(numbers) != total or numbers[-1] != len(numbers) - 1:
                raise ValueError(
                    f"{path} has {len(numbers)} episodes where {METADATA} says {total!r:.60}: copy it again."
                )
            reader = EpisodeReader(spaces, jpeg, budget, tuple(drop), set())
            episodes = [reader.episode(file, i, f"{path}: episode_{i}") for i in numbers]
            kept_names([name for name in reader.seen if "." in name], drop, str(path))
    except RecursionError as error:
        raise ValueError(f"{path}: {METADATA} has spaces in spaces without end ({error}).") from error
    kinds = [{name: shown(x) for name, x in episode.items()} for episode in episodes]
    if odd := [i for i, kind in enumerate(kinds) if kind != kinds[0]]:
        raise ValueError(f"{path}: episode_{odd[0]} has {kinds[odd[0]]}, episode_0 {kinds[0]}: they must be alike.")
    arrays = {name: np.concatenate([episode[name] for episode in episodes]) for name in episodes[0]}
    about = _about_minari(metadata)
    arrays = missions.in_numbers(arrays, about.get("env"), str(path))
    dataset = dataset_of(arrays, str(path))
    made = missions.environment(about.get("env"))
    return dataset if made is None else missions.completed(dataset, *made), about


def _minari_files(folder: Path) -> tuple[Path, dict[str, Any]]:
    choices = [folder] if folder.is_file() else [folder / MAIN, folder / "data" / MAIN]
    for path in choices:
        described = path.with_name(METADATA)
        metadata = dict_of(described.read_text(errors="replace"), str(described)) if described.is_file() else {}
        if (kind := metadata.get("data_format", "hdf5")) != "hdf5":
            raise ValueError(f"{path.parent} is of Minari's format {kind!r}: write it again with data_format='hdf5'.")
        if path.is_file():
            return path, metadata
    if not folder.exists():
        raise FileNotFoundError(f"{folder}: there is no such file or folder.")
    raise ValueError(f"{folder} has no {MAIN}, nor data/{MAIN}: a Minari dataset is <root>/<id>/data/{MAIN}.")


class EpisodeReader(NamedTuple):
    """How the groups of a file are read."""

    spaces: dict[str, Any]
    jpeg: bool
    budget: npz_files.Budget
    drop: tuple[str, ...]
    seen: set[str]  # names of the entries of observations that there were

    def episode(self, file: Any, number: int, where: str) -> dict[str, np.ndarray]:
        """Named arrays of one group; texts are arrays of str."""
        group = hdf5_files.child(file, f"episode_{number}", where)
        parts = hdf5_files.children(group, EPISODE, where)
        if missing := [name for name in EPISODE if name not in parts]:
            raise ValueError(f"{where} has no {', '.join(missing)}: it has {', '.join(group) or 'nothing'}.")
        trees = {
            name: dict(self.leaves(parts[f"{key}s"], name, self.spaces[key] if self.jpeg else None, where))
            for key, name in (("observation", "obs"), ("action", "action"))
        }
        if trees["action"].keys() != {"action"}:
            raise ValueError(f"{where}: actions in parts ({', '.join(trees['action'])}) are not supported; join them.")
        observations = trees.pop("obs")
        rest = {name: hdf5_files.array(parts[name], name, where, self.budget) for name in EPISODE[2:]}
        terminated, truncated = (flags_of(rest[name], name, where) for name in ("terminations", "truncations"))
        rewards = rewards_of(rest["rewards"], where)
        n = len(rewards)
        arrays = {"action": trees["action"]["action"], "reward": rewards, "terminated": terminated, "last": truncated}
        lengths = {name: len(x) for name, x in arrays.items()} | {k: len(x) - 1 for k, x in observations.items()}
        if set(lengths.values()) != {n}:
            unequal = ", ".join(f"{name} {length}" for name, length in lengths.items())
            raise ValueError(
                f"{where} has leaves of unequal length ({unequal} steps): obs need one more entry than steps."
            )
        arrays["last"] = truncated | (np.arange(n) == n - 1)
        return {
            **{name: x[:-1] for name, x in observations.items()},
            **arrays,
            **{f"next_{name}": x[1:] for name, x in observations.items()},
        }

    def leaves(self, node: Any, name: str, space: Any, where: str) -> Iterator[tuple[str, np.ndarray]]:
        self.seen.add(name)
        if name in self.drop:
            return
        said: Any = {} if space is None else space
        if not isinstance(said, Mapping):
            raise ValueError(f"{where}: the space of {name} in {METADATA} is {space!r:.60}, which is no object.")
        below = said.get("subspaces")
        if isinstance(node, Mapping):
            for key in node:
                entry = re.fullmatch(r"_index_(\d{1,6})", key)
                parts = below if isinstance(below, list) else []
                inner = parts[int(entry[1])] if entry and int(entry[1]) < len(parts) else None
                if isinstance(below, dict):
                    inner = below.get(key)
                if not entry and ("." in key or key.isdecimal()):
                    raise ValueError(f"{where}: {name} has a key {key!r}: names have no dot and are no numbers.")
                found = hdf5_files.child(node, key, f"{where}: {name}")
                yield from self.leaves(found, f"{name}.{entry[1] if entry else key}", inner, where)
            return
        x = hdf5_files.array(node, name, where, self.budget)
        if _is_jpeg(said):
            self.budget.take(f"{where}: {name} as pictures", (len(x), *said["shape"]), np.uint8)
            yield name, _pictures(x, tuple(said["shape"]), name, where)
        elif (
            x.ndim == 1
            and x.dtype.kind == "O"
            and name.startswith("obs.")
            and all(isinstance(v, bytes | str) for v in x)
        ):
            self.budget.take(f"{where}: {name} as texts", (len(x), max(map(len, x), default=0)), np.dtype("U1"))
            yield name, np.array([v if isinstance(v, str) else v.decode(errors="replace") for v in x], dtype=np.str_)
        elif x.dtype.kind not in "biuf" or not x.ndim:
            raise ValueError(f"{where}: {name} holds no numbers ({x.dtype}); texts must be left out or encoded.")
        else:
            yield name, in_precision(x, name, where)


def _is_jpeg(space: Any) -> bool:
    """What Minari keeps as JPEG (its `is_image_space`), unless told not to."""
    if not space or space.get("type") != "Box" or space.get("dtype") != "uint8":
        return False
    shape = space["shape"]
    large = len(shape) in (2, 3) and min(shape[:2]) >= 32
    return large and bool(np.all(np.equal(space["low"], 0)) and np.all(np.equal(space["high"], 255)))


def _pictures(rows: Any, shape: tuple[int, ...], name: str, where: str) -> np.ndarray:
    from PIL import Image

    def picture(row: Any) -> np.ndarray:
        with Image.open(io.BytesIO(np.asarray(row, np.uint8).tobytes()), formats=("JPEG",)) as image:
            if image.size != (shape[1], shape[0]):  # by its header, before it is unpacked
                raise ValueError(f"one is {image.size[1]} x {image.size[0]}, its space says {list(shape)}")
            return np.asarray(image)

    try:
        return np.stack([picture(row) for row in rows])
    except (OSError, ValueError, TypeError, Image.DecompressionBombError) as error:
        raise ValueError(f"{where}: {name} should hold JPEG pictures ({error}).") from error


def _about_minari(metadata: dict[str, Any]) -> dict[str, Any]:
    own = {f"{key}_space" for key in SPACES} | {"jaxrl"}
    about: dict[str, Any] = {"minari": {k: v for k, v in metadata.items() if k not in own}}
    if spec := metadata.get("env_spec"):
        about["env"] = dict_of(spec, f"{METADATA}: env_spec").get("id")
    spaces = {key: metadata[f"{key}_space"] for key in SPACES if f"{key}_space" in metadata}
    if spaces:
        about["spaces"] = spaces
    scores = metadata.get("ref_min_score"), metadata.get("ref_max_score")
    if None not in scores:
        about["reference"] = {"random": scores[0], "best": scores[1], "exact": False}
    made = metadata.get("jaxrl")
    return about | made if isinstance(made, dict) else about


def write_minari(
    folder: str | Path,
    dataset: Dataset,
    about: dict[str, Any],
    observation_space: Space,
    action_space: Space,
    overwrite: bool = False,
    dataset_id: str | None = None,
) -> Path:
    """Write a dataset that Minari loads: `folder` is `<root>/<dataset_id>`, whose last name ends in -v0, -v1, ...

    Pictures are kept as they are, not as JPEG. An end that is not the task's is a truncation, as is the end of what was
    recorded. Raises FileExistsError where something is, unless `overwrite` and it is a Minari dataset; ValueError for a
    dataset that does not fit the spaces, or whose `next_obs` is not the `obs` of the step after: Minari cannot say so.

    Args:
        dataset_id: where it has a namespace, `mine/cartpole-v0`; else the folder's name.
    """
    h5py, folder = hdf5_files.h5py(), Path(folder)
    dataset_id = folder.name if dataset_id is None else dataset_id
    parts = tuple(dataset_id.split("/"))
    if not all(re.fullmatch(r"[-\w]+", p) for p in parts) or not re.fullmatch(r".+-v\d+", parts[-1]):
        raise ValueError(f"dataset_id={dataset_id!r}: an id is of letters, digits, - and _, and ends in -v0, -v1, ...")
    if folder.absolute().parts[-len(parts) :] != parts:
        raise ValueError(f"{folder}: Minari finds {dataset_id!r} in <root>/{dataset_id} alone.")
    theirs = folder.is_dir() and {p.relative_to(folder).as_posix() for p in folder.rglob("*")} <= FILES
    if folder.exists() and not (overwrite and theirs):
        hint = "say overwrite=True" if theirs else "it is no Minari dataset"
        raise FileExistsError(f"{folder} exists: name another folder ({hint}).")
    arrays = named_arrays(dataset)
    dataset = dataset_of(arrays, "the dataset")
    check_spaces(dataset, observation_space, action_space, "the dataset", "the spaces'")
    checked_reference(about)
    episodes = Episodes(dataset)
    within = np.flatnonzero(~np.asarray(dataset.last)[:-1])
    for name in [n for n in arrays if n.split(".")[0] == "obs"]:
        differ = (arrays[f"next_{name}"][within] != arrays[name][within + 1]).reshape(len(within), -1).any(1)
        if differ.any():
            raise ValueError(
                f"step {within[differ][0]}: next_{name} is not {name} of the step after, {differ.sum()} times in all: "
                "Minari holds each observation once. Write npz."
            )
    spaces = dict(leaves_of("obs", observation_space)) | dict(leaves_of("action", action_space))
    partial = npz_files.beside(folder)
    shutil.rmtree(partial, ignore_errors=True)
    (partial / "data").mkdir(parents=True)
    try:
        with h5py.File(partial / "data" / MAIN, "w", track_order=True) as file:
            for i, (first, length) in enumerate(zip(episodes.first.tolist(), episodes.length.tolist(), strict=True)):
                _write_episode(file.create_group(f"episode_{i}"), i, arrays, spaces, slice(first, first + length))
        size = round((partial / "data" / MAIN).stat().st_size / 1e6, 1)
        metadata = _metadata(about, dataset_id, observation_space, action_space, len(episodes), dataset.size, size)
        (partial / "data" / METADATA).write_text(npz_files.text_of(metadata))
        if folder.exists():
            old = npz_files.beside(folder).with_suffix(".replaced")
            folder.rename(old)
            partial.rename(folder)
            shutil.rmtree(old)
        else:
            partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return folder


def _write_episode(
    group: Any, number: int, arrays: dict[str, np.ndarray], spaces: dict[str, Space], rows: slice
) -> None:
    def put(name: str, x: np.ndarray) -> None:
        # Chunks can grow, as Minari appends to them, and have checksums, without which damage would be read as numbers.
        group.create_dataset(name, data=x, chunks=True, maxshape=(None, *x.shape[1:]), fletcher32=True)

    def path(name: str, whole: str) -> str:
        keys = (f"_index_{key}" if key.isdecimal() else key for key in name.split(".")[1:])
        return "/".join([whole, *keys])

    for name, space in spaces.items():
        x = arrays[name][rows]
        observed = name.split(".")[0] == "obs"
        if observed:
            x = np.concatenate([x, arrays[f"next_{name}"][rows][-1:]])
        if isinstance(space, Discrete):
            x = x.astype(np.int64)  # Gymnasium's only dtype of these
        put(path(name, "observations" if observed else "actions"), x)
    rewards, terminated = arrays["reward"][rows].astype(np.float64), arrays["terminated"][rows]
    put("rewards", rewards)
    put("terminations", terminated)
    put("truncations", (np.arange(len(rewards)) == len(rewards) - 1) & ~terminated)
    group.create_group("infos")
    group.attrs.update({"id": number, "total_steps": len(rewards)})
    of = {"sum": np.sum, "mean": np.mean, "std": np.std, "max": np.max, "min": np.min}
    group.attrs.update({f"rewards_{name}": f(rewards) for name, f in of.items()})


def _metadata(
    about: dict[str, Any],
    dataset_id: str,
    observation: Space,
    action: Space,
    episodes: int,
    steps: int,
    megabytes: float,
) -> dict[str, Any]:
    known = about.get("minari") or {}
    scores = checked_reference(about)
    reference = {"ref_min_score": scores["random"], "ref_max_score": scores["best"]} if scores else {}
    return {
        **known,
        "total_episodes": episodes,
        "total_steps": steps,
        "data_format": "hdf5",
        "jpeg_encoding": False,
        "observation_space": json.dumps(space_as_json(observation)),
        "action_space": json.dumps(space_as_json(action)),
        "dataset_size": megabytes,
        "dataset_id": dataset_id,
        "minari_version": MINARI_VERSION,
        **reference,
        "jaxrl": {k: v for k, v in about.items() if k not in ("minari", "spaces", "digest")},
    }
