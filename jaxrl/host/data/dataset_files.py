"""Datasets on disk: the project's own npz, Minari's folders (HDF5), OGBench's npz, D4RL's and robomimic's HDF5.

| format | read | written | holds |
|---|---|---|---|
| own npz | `read` | `write` | the leaves by dotted names (`obs.image`), `about` as JSON, a hash of the arrays |
| Minari 0.4 to 0.5 | `read_minari` | `write_minari` | a group an episode; what is in `infos` is not read |
| OGBench npz | `read_ogbench` | | rows of trajectories; `qpos`, `qvel` and the like are not read |
| D4RL HDF5, or npz of the same names | `read_d4rl` | | rows of all episodes; `infos` and `metadata` are not read |
| robomimic HDF5 | `read_robomimic` | | a group a demonstration; `states` and `mask` are not read |

`read_any` tells them apart. Nothing is unpickled, nothing is downloaded, and no other file is read that a file names.
Sizes that it declares are checked before memory is taken.

The readers of observations with parts take `drop`, names of entries that are left out, as `("obs.mission",)`. Texts are
numbers where `about["env"]` is an id of ours that knows its missions (`mission_of`).

`about` is a dict of JSON values: `env` (id), `params`, `spaces` ({"observation", "action"}, as Minari writes them),
`made` (versions, commit), `reference` ({"random", "best", "exact"}: returns, and whether they are exact), `digest`;
more keys are kept. `about_of` makes one.

The others keep numbers in 64 bits; they are read in the precision that jax computes in, and numbers that it
does not hold are an error.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.data.datasets import Dataset, Episodes, trajectory_quality
from jaxrl.environment import Environment
from jaxrl.host.data import hdf5_files, missions, npz_files
from jaxrl.host.data.npz_files import ABOUT, dict_of
from jaxrl.host.run.run_folder import environment_of_run, tree_values
from jaxrl.spaces import Box, Dict, Discrete, MultiDiscrete, Space, Tuple

FIELDS = ("obs", "action", "reward", "terminated", "last", "next_obs")
MAIN, METADATA = "main_data.hdf5", "metadata.json"
SPACES = ("observation", "action")
FILES = {"data", f"data/{MAIN}", f"data/{METADATA}"}
MINARI_VERSION = "0.5.4"
"""Whose layout `write_minari` writes."""
EPISODE = ("observations", "actions", "rewards", "terminations", "truncations")


# ---- what a dataset is made of


def digest(dataset: Dataset) -> str:
    """SHA-256 over the names, dtypes, shapes and bytes of the arrays, whatever order a dict has them in."""
    return npz_files.digest(_arrays(dataset))


def _arrays(dataset: Dataset) -> dict[str, np.ndarray]:
    return dict(item for field in FIELDS for item in npz_files.named(field, getattr(dataset, field), "the dataset"))


def _dataset(arrays: Mapping[str, np.ndarray], where: str) -> Dataset:
    """Of named arrays. Raises ValueError for what no learner could use, which names `where` it is."""

    def of(field: str) -> dict[str, np.ndarray]:
        return {n[len(field) :]: x for n, x in arrays.items() if n == field or n.startswith(f"{field}.")}

    if missing := [field for field in FIELDS if not of(field)]:
        raise ValueError(f"{where} has no {', '.join(missing)}: a dataset has {', '.join(FIELDS)}.")
    if odd := [n for n in arrays if n.split(".")[0] not in FIELDS]:
        raise ValueError(f"{where} has arrays {', '.join(odd)}, which no dataset has: {', '.join(FIELDS)}.")
    for name, x in arrays.items():
        if x.dtype.kind not in "biuf" or x.dtype.itemsize > 8:
            raise ValueError(f"{where}: {name} is {x.dtype}: it must hold numbers of at most 64 bits, or booleans.")
    if (steps := _length(arrays, where)) < 2:
        raise ValueError(f"{where} holds {steps} transition(s): learning needs at least 2.")
    for name, kind in (("reward", "f"), ("terminated", "b"), ("last", "b")):
        if arrays[name].ndim != 1 or arrays[name].dtype.kind != kind:
            wanted = "booleans" if kind == "b" else "floats"
            raise ValueError(f"{where}: {name} is {_shown(arrays[name])}: it must be {wanted}, one a step.")
    before, after = ({n: _shown(x) for n, x in of(field).items()} for field in ("obs", "next_obs"))
    if before != after:
        raise ValueError(f"{where}: obs {before} and next_obs {after} must be alike.")
    for name, x in arrays.items():
        for kind, is_so in (("NaN", np.isnan), ("infinite", np.isinf)):
            if x.dtype.kind == "f" and (wrong := int(is_so(x).sum())):
                said = f"{wrong} of the {x.size} numbers of {name} are {kind}"
                raise ValueError(f"{where}: {said}. Mend or drop these steps.")
    return Dataset(*(npz_files.tree_of(arrays, field) for field in FIELDS))


def _length(arrays: Mapping[str, np.ndarray], where: str) -> int:
    """Of all of them. Raises ValueError where they differ."""
    lengths = {name: len(x) if x.ndim else 0 for name, x in arrays.items()}
    if len(set(lengths.values())) > 1:
        unequal = ", ".join(f"{name} {n}" for name, n in lengths.items())
        raise ValueError(f"{where} has leaves of unequal length ({unequal}): each needs one entry a step.")
    return next(iter(lengths.values()))


def _shown(x: np.ndarray) -> str:
    return f"{'text' if x.dtype.kind == 'U' else x.dtype}{list(x.shape[1:])} a step"


def _flags(x: np.ndarray, name: str, where: str) -> np.ndarray:
    """Booleans of zeros and ones of any dtype."""
    if x.ndim != 1 or x.dtype.kind not in "biuf" or not np.all((x == 0) | (x == 1)):
        raise ValueError(f"{where}: {name} must be a 0 or 1 a step; it is {_shown(x)}.")
    return x != 0


def _in_precision(x: np.ndarray, name: str, where: str) -> np.ndarray:
    """In the dtype that jax keeps it in: 32 bits, unless 64 are enabled."""
    if x.dtype.kind not in "biuf" or x.dtype.itemsize > 8:
        raise ValueError(f"{where}: {name} is {x.dtype}: only numbers of at most 64 bits and booleans can be read.")
    with np.errstate(over="ignore", under="ignore"):
        out = x.astype(jax.dtypes.canonicalize_dtype(x.dtype))
    changed = out != x if x.dtype.kind in "iu" else np.isinf(out) != np.isinf(x)
    if changed.any():
        raise ValueError(f"{where}: {name} has numbers beyond {out.dtype}; enable jax_enable_x64 to read them.")
    return out


def _rewards(x: np.ndarray, where: str) -> np.ndarray:
    if x.ndim != 1:
        raise ValueError(f"{where}: rewards must be a number a step; their shape is {list(x.shape)}.")
    return _in_precision(x.astype(np.float64) if x.dtype.kind in "biu" else x, "rewards", where)


# ---- what is known of it


def about_of(env: Environment, params: Any, reference: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """What a reader asks for: environment, params, spaces, versions and commit.

    Args:
        reference: {"random", "best", "exact"}: returns of a random and of the best known policy, and whether exact.
        more: what else is to be kept, as JSON values: the recipe, the seeds.
    """
    spaces = {"observation": env.observation_space(params), "action": env.action_space(params)}
    return {
        "env": env.id,
        "params": tree_values(params),
        "spaces": {name: json.dumps(_space(space)) for name, space in spaces.items()},
        "made": environment_of_run(),
        **({"reference": _reference({"reference": reference})} if reference else {}),
        **more,
    }


def _reference(about: dict[str, Any]) -> dict[str, Any] | None:
    """The reference scores, if known. Raises ValueError for scores that are none."""
    scores = about.get("reference")
    if not scores:
        return None
    known = isinstance(scores, dict) and scores.keys() >= {"random", "best", "exact"}
    numbers = [scores[n] for n in ("random", "best")] if known else []
    finite = bool(numbers) and all(isinstance(x, int | float) and math.isfinite(x) for x in numbers)
    if not finite or numbers[0] >= numbers[1]:
        raise ValueError(f"reference={scores!r}: it needs `random`, a higher `best`, and `exact` (true or false).")
    return scores


def summary(dataset: Dataset, about: dict[str, Any]) -> dict[str, Any]:
    """Steps, episodes, returns, lengths, the share of ends that are the task's, and TQ where reference scores are."""
    episodes = Episodes(dataset)
    ends = episodes.first + episodes.length - 1
    out = {
        "steps": dataset.size,
        "episodes": len(episodes),
        "return_mean": float(episodes.total.mean()),
        "return_min": float(episodes.total.min()),
        "return_max": float(episodes.total.max()),
        "length_mean": float(episodes.length.mean()),
        "terminated_share": float(np.asarray(dataset.terminated)[ends].mean()),
    }
    if scores := _reference(about):
        out["tq"] = trajectory_quality(dataset, scores["random"], scores["best"])
    return out


def check_fits(dataset: Dataset, about: dict[str, Any], env: Environment, params: Any) -> None:
    """Raise ValueError, naming the first difference, for a dataset of another environment than `env` with `params`.

    Observations and actions are compared by name, shape and kind of dtype; actions by their bounds too: those that
    `about` says they were made under, and those that they keep.
    """
    made = f"the dataset, of {about['env']}," if about.get("env") else "the dataset"
    action = env.action_space(params)
    dataset = missions.completed(dataset, env, params)
    _check_spaces(dataset, env.observation_space(params), action, made, f"{env.id or type(env).__name__}'s")
    there = dict_of((about.get("spaces") or {}).get("action", "{}"), f"{made}: its action space")
    here = _space(action)
    for key in ("low", "high", "n", "start", "nvec"):
        a, b = there.get(key), here.get(key)
        if a is not None and b is not None and (np.shape(a) != np.shape(b) or not np.allclose(a, b, 1e-5, 1e-6)):
            raise ValueError(f"{made} was made with actions whose {key} is {a}; here it is {b}.")


def fits(dataset: Dataset, about: dict[str, Any], env: Environment, params: Any) -> bool:
    """Whether `check_fits` lets it pass."""
    try:
        check_fits(dataset, about, env, params)
    except ValueError:
        return False
    return True


def _check_spaces(dataset: Dataset, observation: Space, action: Space, made: str, here: str) -> None:
    arrays = _arrays(dataset)
    for field, space in (("obs", observation), ("action", action)):
        there = {n: x for n, x in arrays.items() if n.split(".")[0] == field}
        wanted = dict(_leaves(field, space))
        if there.keys() != wanted.keys():
            raise ValueError(f"{made} has {', '.join(there)} where {here} are {', '.join(wanted)}.")
        for name, leaf in wanted.items():
            x = there[name]
            if x.shape[1:] != tuple(leaf.shape) or _kind(x.dtype) != _kind(leaf.dtype):
                wants = f"{jnp.dtype(leaf.dtype).name}{list(leaf.shape)}"
                raise ValueError(f"{made} has {name} of {_shown(x)}; {here} is {wants}.")
    for name, leaf in _leaves("obs", observation):
        if isinstance(leaf, Discrete | MultiDiscrete):
            low, high = _bounds(leaf)
            if outside := int(((arrays[name] < low) | (arrays[name] > high)).sum()):
                raise ValueError(f"{made} has {outside} of {arrays[name].size} numbers of {name} outside {leaf}.")
    for name, leaf in _leaves("action", action):
        low, high = _bounds(leaf)
        # Rounding may leave an action a little outside.
        slack = 1e-4 * np.where(np.isfinite(high) & np.isfinite(low), high - low, 1) if isinstance(leaf, Box) else 0
        x = arrays[name]
        if outside := int(((x < low - slack) | (x > high + slack)).sum()):
            raise ValueError(
                f"{made} has {outside} of {x.size} numbers of {name} outside {leaf}; theirs are {x.min()} to {x.max()}."
            )


def _kind(dtype: Any) -> str:
    kind = np.dtype(jnp.dtype(dtype).name).kind
    return {"i": "integer", "u": "integer", "b": "boolean", "f": "float"}.get(kind, kind)


def _leaves(name: str, space: Space) -> Iterator[tuple[str, Space]]:
    """As `npz_files.named` names the arrays of its members."""
    if isinstance(space, Dict):
        for key, child in space.spaces.items():
            yield from _leaves(f"{name}.{key}", child)
    elif isinstance(space, Tuple):
        for i, child in enumerate(space.spaces):
            yield from _leaves(f"{name}.{i}", child)
    else:
        yield name, space


def _bounds(space: Space) -> tuple[np.ndarray, np.ndarray]:
    if isinstance(space, Box):
        return np.asarray(space.low), np.asarray(space.high)
    if isinstance(space, MultiDiscrete):
        return np.zeros(len(space.nvec), int), np.asarray(space.nvec) - 1
    if isinstance(space, Discrete):
        return np.asarray(0), np.asarray(space.n - 1)
    raise ValueError(f"{space}: its bounds are not known.")


def _space(space: Space) -> dict[str, Any]:
    """As Minari writes spaces; infinite bounds are the JSON dialect's Infinity."""
    if isinstance(space, Dict):
        return {"type": "Dict", "subspaces": {key: _space(child) for key, child in space.spaces.items()}}
    if isinstance(space, Tuple):
        return {"type": "Tuple", "subspaces": [_space(child) for child in space.spaces]}
    dtype = np.dtype(jnp.dtype(space.dtype).name)
    if isinstance(space, Discrete):
        return {"type": "Discrete", "dtype": "int64", "start": 0, "n": space.n}
    if isinstance(space, MultiDiscrete):
        start = [0] * len(space.nvec)
        return {"type": "MultiDiscrete", "dtype": str(dtype), "nvec": list(space.nvec), "start": start}
    if isinstance(space, Box):
        low, high = (np.broadcast_to(np.asarray(x, dtype), space.shape).tolist() for x in (space.low, space.high))
        return {"type": "Box", "dtype": str(dtype), "shape": list(space.shape), "low": low, "high": high}
    raise ValueError(f"{space}: only Box, Discrete, MultiDiscrete, Dict and Tuple can be written.")


# ---- the project's own files


def write(path: str | Path, dataset: Dataset, about: dict[str, Any], overwrite: bool = False) -> Path:
    """Write the dataset as npz, whole or not at all; `read` gives the same arrays and `about` with their `digest`.

    Raises FileExistsError where something is, unless `overwrite`, and ValueError for what no learner could use.
    """
    npz_files.refuse(Path(path), overwrite)
    arrays = _arrays(dataset)
    _dataset(arrays, "the dataset")
    _reference(about)
    return npz_files.write(path, arrays, about, overwrite)


def read(path: str | Path, drop: Sequence[str] = ()) -> tuple[Dataset, dict[str, Any]]:
    """`(dataset, about)` of a file that `write` wrote, without the entries `drop`, whose hash is then not checked.

    Raises ValueError, in a line, for any other or a damaged one.
    """
    with _npz(path) as file:
        names = [name for name in file.files if name != ABOUT]
        if len(names) == len(file.files):
            raise ValueError(f"{path} has no `{ABOUT}`, only {', '.join(names)}: jaxrl did not write it; try read_any.")
        if odd := [n for n in names if n.split(".")[0] not in FIELDS]:
            raise ValueError(f"{path} has arrays {', '.join(odd)}, which no dataset has: {', '.join(FIELDS)}.")
        about = dict_of(str(npz_files.member(file, ABOUT, path)), f"{path}: {ABOUT}")
        kept = _kept(names, drop, str(path))
        arrays = {name: npz_files.member(file, name, path) for name in kept}
    dataset = _dataset(arrays, str(path))
    if len(kept) == len(names):
        npz_files.check_digest(path, arrays, about)
    return dataset, {k: v for k, v in about.items() if k != "digest" or len(kept) == len(names)}


def _kept(names: Sequence[str], drop: Sequence[str], where: str) -> list[str]:
    """The names without those of `drop`, as `obs.mission`, and what is below them; of `next_obs`, too."""
    entries = dict.fromkeys(name.removeprefix("next_") for name in names if name.startswith(("obs.", "next_obs.")))

    def is_below(name: str, entry: str) -> bool:
        return name.removeprefix("next_") == entry or name.removeprefix("next_").startswith(f"{entry}.")

    if unknown := [entry for entry in drop if not any(is_below(name, entry) for name in entries)]:
        has = f"its entries are {', '.join(entries)}" if entries else "its observations have no entries"
        raise ValueError(f"{where}: there is no {', '.join(unknown)} to be left out; {has}.")
    return [name for name in names if not any(is_below(name, entry) for entry in drop)]


def _no_dataset(path: str | Path, kind: str) -> ValueError:
    end = "" if kind == "pickle" else ": a dataset is npz (jaxrl's, OGBench's) or HDF5 (Minari's, D4RL's)."
    return ValueError(f"{path} {npz_files.BEGINS[kind]}{end}")


@contextlib.contextmanager
def _npz(path: str | Path) -> Iterator[Any]:
    if (kind := npz_files.kind_of(path)) != "npz":
        raise _no_dataset(path, kind)
    with npz_files.opened(path) as file:
        yield file


# ---- Minari


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
        raise _no_dataset(path, kind)
    try:
        with hdf5_files.opened(path) as (file, budget):
            numbers = sorted(int(found[1]) for key in file if (found := re.fullmatch(r"episode_(\d{1,12})", key)))
            if not numbers:
                has = ", ".join(list(file)[:5]) or "nothing"
                raise ValueError(f"{path} has no groups episode_0, episode_1, ... but {has}: it is no Minari dataset.")
            total = metadata.get("total_episodes", len(numbers))
            if len(numbers) != total or numbers[-1] != len(numbers) - 1:
                raise ValueError(f"{path} has {len(numbers)} episodes where {METADATA} says {total}: copy it again.")
            reader = _Episodes(spaces, jpeg, budget, tuple(drop), set())
            episodes = [reader.episode(file, i, f"{path}: episode_{i}") for i in numbers]
            _kept([name for name in reader.seen if "." in name], drop, str(path))
    except RecursionError as error:
        raise ValueError(f"{path}: {METADATA} has spaces in spaces without end ({error}).") from error
    kinds = [{name: _shown(x) for name, x in episode.items()} for episode in episodes]
    if odd := [i for i, kind in enumerate(kinds) if kind != kinds[0]]:
        raise ValueError(f"{path}: episode_{odd[0]} has {kinds[odd[0]]}, episode_0 {kinds[0]}: they must be alike.")
    arrays = {name: np.concatenate([episode[name] for episode in episodes]) for name in episodes[0]}
    about = _about_minari(metadata)
    arrays = missions.in_numbers(arrays, about.get("env"), str(path))
    dataset = _dataset(arrays, str(path))
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


class _Episodes(NamedTuple):
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
        terminated, truncated = (_flags(rest[name], name, where) for name in ("terminations", "truncations"))
        rewards = _rewards(rest["rewards"], where)
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
        below = (space or {}).get("subspaces")
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
        if _is_jpeg(space):
            self.budget.take(f"{where}: {name} as pictures", (len(x), *space["shape"]), np.uint8)
            yield name, _pictures(x, tuple(space["shape"]), name, where)
        elif (
            x.ndim == 1
            and x.dtype.kind == "O"
            and name.startswith("obs.")
            and all(isinstance(v, bytes | str) for v in x)
        ):
            yield name, np.array([v if isinstance(v, str) else v.decode(errors="replace") for v in x], dtype=np.str_)
        elif x.dtype.kind not in "biuf" or not x.ndim:
            raise ValueError(f"{where}: {name} holds no numbers ({x.dtype}); texts must be left out or encoded.")
        else:
            yield name, _in_precision(x, name, where)


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
    arrays = _arrays(dataset)
    dataset = _dataset(arrays, "the dataset")
    _check_spaces(dataset, observation_space, action_space, "the dataset", "the spaces'")
    _reference(about)
    episodes = Episodes(dataset)
    within = np.flatnonzero(~np.asarray(dataset.last)[:-1])
    for name in [n for n in arrays if n.split(".")[0] == "obs"]:
        differ = (arrays[f"next_{name}"][within] != arrays[name][within + 1]).reshape(len(within), -1).any(1)
        if differ.any():
            raise ValueError(
                f"step {within[differ][0]}: next_{name} is not {name} of the step after, {differ.sum()} times in all: "
                "Minari holds each observation once. Write npz."
            )
    spaces = dict(_leaves("obs", observation_space)) | dict(_leaves("action", action_space))
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
    scores = _reference(about)
    reference = {"ref_min_score": scores["random"], "ref_max_score": scores["best"]} if scores else {}
    return {
        **known,
        "total_episodes": episodes,
        "total_steps": steps,
        "data_format": "hdf5",
        "jpeg_encoding": False,
        "observation_space": json.dumps(_space(observation)),
        "action_space": json.dumps(_space(action)),
        "dataset_size": megabytes,
        "dataset_id": dataset_id,
        "minari_version": MINARI_VERSION,
        **reference,
        "jaxrl": {k: v for k, v in about.items() if k not in ("minari", "spaces", "digest")},
    }


# ---- OGBench


def read_ogbench(path: str | Path) -> tuple[Dataset, dict[str, Any]]:
    """`(dataset, about)` of an OGBench file; facts are those of `load_dataset` in ogbench/utils.py.

    As published it has `observations`, `actions` and `terminals`, which mark the last row of each trajectory: its
    observation is the successor of the row before, and it is no transition. With `next_observations` each row is a
    transition; with `valids` (its compact form in memory) those are where it is 1. Without `rewards` they are 0; the
    task ended where `masks` are 0, nowhere without them. Such an end need not be one of a trajectory.
    """
    with _npz(path) as file:
        if missing := [name for name in ("observations", "actions", "terminals") if name not in file]:
            raise ValueError(f"{path} has no {', '.join(missing)}, only {', '.join(file.files)}: it is not OGBench's.")
        names = ("observations", "actions", "terminals", "next_observations", "rewards", "masks", "valids")
        data = {name: npz_files.member(file, name, path) for name in names if name in file}
    where = str(path)
    rows = _length(data, where)
    flags = {n: _flags(data[n], n, where) for n in ("terminals", "masks", "valids") if n in data}
    last = flags["terminals"]
    transition = np.ones(rows, bool)
    if "next_observations" not in data:
        transition = flags.get("valids", ~last)
        if rows and transition[-1]:
            mark = "valids is 1" if "valids" in data else "terminals is 0"
            raise ValueError(f"{where}: its last row is marked as a step ({mark}), and has no successor.")
        data["next_observations"] = np.roll(data["observations"], -1, 0)
        last = last if "valids" in data else np.roll(last, -1)
    arrays = {
        "obs": _in_precision(data["observations"][transition], "observations", where),
        "action": _in_precision(data["actions"][transition], "actions", where),
        "reward": _rewards(data.get("rewards", np.zeros(rows, np.float32))[transition], where),
        "terminated": ~flags.get("masks", np.ones(rows, bool))[transition],
        "last": last[transition],
        "next_obs": _in_precision(data["next_observations"][transition], "next_observations", where),
    }
    about = {"format": "OGBench", "name": Path(path).stem, "rewards": "of the file" if "rewards" in data else "none: 0"}
    return _dataset(arrays, where), about


# ---- D4RL


def of_d4rl(data: Mapping[str, np.ndarray], where: str = "the dataset") -> Dataset:
    """A dataset of D4RL's arrays, as `env.get_dataset()` of it gives them.

    They are `observations`, `actions`, `rewards` and `terminals`, where the task ended; an episode ended there or where
    `timeouts` are. Without `next_observations` the next row's is the successor, so that the last row and, as in D4RL's
    `qlearning_dataset`, rows at `timeouts` are left out. The successor at `terminals`, which no target reads, is not
    known then: it is the row's own observation, and `datasets.with_successors` leaves it out. Raises ValueError as the
    readers of files do.
    """
    needed = ("observations", "actions", "rewards", "terminals")
    if missing := [name for name in needed if name not in data]:
        raise ValueError(f"{where} has no {', '.join(missing)}: D4RL's datasets have {', '.join(needed)}.")
    named = {n: np.asarray(data[n]) for n in (*needed, "timeouts", "next_observations") if n in data}
    # Columns of one number a step are taken for it, as D4RL's `get_dataset` takes them.
    columns = {n for n in ("rewards", "terminals", "timeouts") if n in named and named[n].shape[1:] == (1,)}
    named = {n: x[:, 0] if n in columns else x for n, x in named.items()}
    rows = _length(named, where)
    ended = _flags(named["terminals"], "terminals", where)
    cut = _flags(named.get("timeouts", np.zeros(rows)), "timeouts", where) & ~ended
    obs = named["observations"]
    if "next_observations" in named:
        known, after = np.ones(rows, bool), named["next_observations"]
    else:
        known = ended | ~(cut | (np.arange(rows) == rows - 1))
        after = np.where(ended.reshape(-1, *[1] * (obs.ndim - 1)), obs, np.roll(obs, -1, 0))
    # An episode's last row may be left out: then the one before it is the last.
    number = (np.cumsum(ended | cut) - (ended | cut))[known]
    arrays = {
        "obs": _in_precision(obs[known], "observations", where),
        "action": _in_precision(named["actions"][known], "actions", where),
        "reward": _rewards(named["rewards"][known], where),
        "terminated": ended[known],
        "last": np.append(number[1:] != number[:-1], True)[: len(number)],
        "next_obs": _in_precision(after[known], "next_observations", where),
    }
    return _dataset(arrays, where)


def read_d4rl(path: str | Path) -> tuple[Dataset, dict[str, Any]]:
    """`(dataset, about)` of D4RL's HDF5, or of npz with the same names."""
    path, kind = Path(path), npz_files.kind_of(path)
    names = ("observations", "actions", "rewards", "terminals", "timeouts", "next_observations")
    if kind == "npz":
        with _npz(path) as file:
            data = {name: npz_files.member(file, name, path) for name in names if name in file}
    elif kind == "hdf5":
        with hdf5_files.opened(path) as (file, budget):
            found = hdf5_files.children(file, names, str(path))
            if not found and "virtual" in file:
                raise ValueError(f"{path} is one of D4RL's in chunks (virtual/0, virtual/1, ...): join them.")
            data = {name: hdf5_files.array(node, name, str(path), budget) for name, node in found.items()}
    else:
        raise _no_dataset(path, kind)
    return of_d4rl(data, str(path)), {"format": "D4RL", "name": path.stem}


# ---- robomimic


def read_robomimic(path: str | Path, drop: Sequence[str] = ()) -> tuple[Dataset, dict[str, Any]]:
    """`(dataset, about)` of robomimic's HDF5: `data/demo_0` and others, with `obs`, `actions`, `rewards` and `dones`.

    The task ended where `dones` are 1, and an episode where its group does. Without `next_obs` the next row's is the
    successor, so that a demonstration's last row is left out, unless it is `done`: then its own, as in D4RL's files.
    Without `rewards` or `dones`, which imitation does not need, they are 0.
    """
    path = Path(path)
    with hdf5_files.opened(path) as (file, budget):
        data = hdf5_files.child(file, "data", str(path))
        numbers = sorted(int(found[1]) for key in data if (found := re.fullmatch(r"demo_(\d{1,12})", key)))
        if not numbers:
            raise ValueError(f"{path}: data has no groups demo_0, demo_1, ...: it is not robomimic's.")
        reader = _Episodes({"observation": None, "action": None}, False, budget, tuple(drop), set())
        demos = [_demo(reader, hdf5_files.child(data, f"demo_{i}", str(path)), f"{path}: demo_{i}") for i in numbers]
        _kept([name for name in reader.seen if "." in name], drop, str(path))
        said = data.attrs.get("env_args")
    kinds = [{name: _shown(x) for name, x in demo.items()} for demo in demos]
    if odd := [i for i, kind in zip(numbers, kinds, strict=True) if kind != kinds[0]]:
        raise ValueError(f"{path}: demo_{odd[0]} has other arrays than demo_{numbers[0]}: they must be alike.")
    arrays = {name: np.concatenate([demo[name] for demo in demos]) for name in demos[0]}
    about = {"format": "robomimic", "name": path.stem}
    if isinstance(said, str) and (name := dict_of(said, f"{path}: env_args").get("env_name")):
        about["task"] = str(name)
    return _dataset(arrays, str(path)), about


def _demo(reader: _Episodes, group: Any, where: str) -> dict[str, np.ndarray]:
    parts = hdf5_files.children(group, ("obs", "next_obs", "actions", "rewards", "dones"), where)
    if missing := [name for name in ("obs", "actions") if name not in parts]:
        raise ValueError(f"{where} has no {', '.join(missing)}: it has {', '.join(group) or 'nothing'}.")
    obs = dict(reader.leaves(parts["obs"], "obs", None, where))
    action = dict(reader.leaves(parts["actions"], "action", None, where))
    read = {n: hdf5_files.array(parts[n], n, where, reader.budget) for n in ("rewards", "dones") if n in parts}
    rows = _length({**obs, **action, **read}, where)
    done = _flags(read.get("dones", np.zeros(rows)), "dones", where)
    rewards = _rewards(read.get("rewards", np.zeros(rows)), where)
    if "next_obs" in parts:
        after = {f"next_{n}": x for n, x in reader.leaves(parts["next_obs"], "obs", None, where)}
        _length({**after, "actions": action["action"]}, where)
        known = np.ones(rows, bool)
    else:
        after = {f"next_{n}": np.concatenate([x[1:], x[-1:]]) for n, x in obs.items()}
        known = (np.arange(rows) < rows - 1) | done
    if not known.any():
        raise ValueError(f"{where} has one row, and no successor of it.")
    ends = np.arange(rows) == np.flatnonzero(known)[-1]
    columns = {**obs, **action, "reward": rewards, "terminated": done, "last": ends, **after}
    return {name: x[known] for name, x in columns.items()}


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


# ---- any of them


def read_any(path: str | Path, drop: Sequence[str] = ()) -> tuple[Dataset, dict[str, Any]]:
    """`(dataset, about)` of whichever format is there, without the entries `drop` of its observations.

    Raises ValueError, in a line, for none of them, and for entries that are not there.
    """
    path = Path(path)
    kind = "hdf5" if path.is_dir() else npz_files.kind_of(path)
    if kind == "hdf5":
        whose = _kind_of_hdf5(path) if path.is_file() else "minari"
        if whose == "d4rl":
            _kept([], drop, str(path))
            return read_d4rl(path)
        return (read_robomimic if whose == "robomimic" else read_minari)(path, drop)
    if kind != "npz":
        raise _no_dataset(path, kind)
    with _npz(path) as file:
        names = set(file.files)
    if ABOUT in names:
        return read(path, drop)
    _kept([], drop, str(path))
    if {"observations", "actions"} & names:
        # Both have `terminals`: the task's ends in D4RL's, the ends of trajectories in OGBench's. OGBench's files have
        # rewards and masks, or neither.
        return (read_d4rl if "timeouts" in names or ("rewards" in names and "masks" not in names) else read_ogbench)(
            path
        )
    raise ValueError(
        f"{path} is npz with {', '.join(sorted(names)) or 'nothing'}: jaxrl's has {ABOUT} and {', '.join(FIELDS)}, "
        "OGBench's and D4RL's observations, actions and terminals."
    )
