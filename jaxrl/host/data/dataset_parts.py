"""What a dataset file holds and says, whatever its format: arrays, their checks, `about`, and whether a task fits.

`about` is a dict of JSON values; `dataset_files` lists its keys. Readers of all formats end in `dataset_of`.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.data.datasets import Dataset, Episodes
from jaxrl.data.quality import trajectory_quality
from jaxrl.environment import Environment
from jaxrl.host.data import missions, npz_files
from jaxrl.host.data.npz_files import dict_of
from jaxrl.host.run.run_folder import environment_of_run, tree_values
from jaxrl.spaces import Box, Dict, Discrete, MultiDiscrete, Space, Tuple

FIELDS = ("obs", "action", "reward", "terminated", "last", "next_obs")
SPACES = ("observation", "action")


# ---- what a dataset is made of


def digest(dataset: Dataset) -> str:
    """SHA-256 over the names, dtypes, shapes and bytes of the arrays, whatever order a dict has them in."""
    return npz_files.digest(named_arrays(dataset))


def named_arrays(dataset: Dataset) -> dict[str, np.ndarray]:
    return dict(item for field in FIELDS for item in npz_files.named(field, getattr(dataset, field), "the dataset"))


def dataset_of(arrays: Mapping[str, np.ndarray], where: str) -> Dataset:
    """The dataset of named arrays. Raises ValueError for what no learner could use, which names `where` it is."""

    def of(field: str) -> dict[str, np.ndarray]:
        return {n[len(field) :]: x for n, x in arrays.items() if n == field or n.startswith(f"{field}.")}

    if missing := [field for field in FIELDS if not of(field)]:
        raise ValueError(f"{where} has no {', '.join(missing)}: a dataset has {', '.join(FIELDS)}.")
    if odd := [n for n in arrays if n.split(".")[0] not in FIELDS]:
        raise ValueError(f"{where} has arrays {', '.join(odd)}, which no dataset has: {', '.join(FIELDS)}.")
    for name, x in arrays.items():
        if x.dtype.kind not in "biuf" or x.dtype.itemsize > 8:
            raise ValueError(f"{where}: {name} is {x.dtype}: it must hold numbers of at most 64 bits, or booleans.")
    arrays = {name: x.astype(x.dtype.newbyteorder("="), copy=False) for name, x in arrays.items()}
    if (steps := length_of(arrays, where)) < 2:
        raise ValueError(f"{where} holds {steps} transition(s): learning needs at least 2.")
    for name, kind in (("reward", "f"), ("terminated", "b"), ("last", "b")):
        if arrays[name].ndim != 1 or arrays[name].dtype.kind != kind:
            wanted = "booleans" if kind == "b" else "floats"
            raise ValueError(f"{where}: {name} is {shown(arrays[name])}: it must be {wanted}, one a step.")
    before, after = ({n: shown(x) for n, x in of(field).items()} for field in ("obs", "next_obs"))
    if before != after:
        raise ValueError(f"{where}: obs {before} and next_obs {after} must be alike.")
    for name, x in arrays.items():
        for kind, is_so in (("NaN", np.isnan), ("infinite", np.isinf)):
            if x.dtype.kind == "f" and (wrong := int(is_so(x).sum())):
                said = f"{wrong} of the {x.size} numbers of {name} are {kind}"
                raise ValueError(f"{where}: {said}. Mend or drop these steps.")
    return Dataset(*(npz_files.tree_of(arrays, field) for field in FIELDS))


def length_of(arrays: Mapping[str, np.ndarray], where: str) -> int:
    """The length that all arrays have. Raises ValueError where lengths differ."""
    lengths = {name: len(x) if x.ndim else 0 for name, x in arrays.items()}
    if len(set(lengths.values())) > 1:
        unequal = ", ".join(f"{name} {n}" for name, n in lengths.items())
        raise ValueError(f"{where} has leaves of unequal length ({unequal}): each needs one entry a step.")
    return next(iter(lengths.values()))


def shown(x: np.ndarray) -> str:
    return f"{'text' if x.dtype.kind == 'U' else x.dtype}{list(x.shape[1:])} a step"


def flags_of(x: np.ndarray, name: str, where: str) -> np.ndarray:
    """Booleans of zeros and ones of any dtype."""
    if x.ndim != 1 or x.dtype.kind not in "biuf" or not np.all((x == 0) | (x == 1)):
        raise ValueError(f"{where}: {name} must be a 0 or 1 a step; it is {shown(x)}.")
    return x != 0


def in_precision(x: np.ndarray, name: str, where: str) -> np.ndarray:
    """In the dtype that jax keeps it in: 32 bits, unless 64 are enabled."""
    if x.dtype.kind not in "biuf" or x.dtype.itemsize > 8:
        raise ValueError(f"{where}: {name} is {x.dtype}: only numbers of at most 64 bits and booleans can be read.")
    with np.errstate(over="ignore", under="ignore"):
        out = x.astype(jax.dtypes.canonicalize_dtype(x.dtype.newbyteorder("=")))
    changed = out != x if x.dtype.kind in "iu" else np.isinf(out) != np.isinf(x)
    if changed.any():
        raise ValueError(f"{where}: {name} has numbers beyond {out.dtype}; enable jax_enable_x64 to read them.")
    return out


def rewards_of(x: np.ndarray, where: str) -> np.ndarray:
    if x.ndim != 1:
        raise ValueError(f"{where}: rewards must be a number a step; their shape is {list(x.shape)}.")
    return in_precision(x.astype(np.float64) if x.dtype.kind in "biu" else x, "rewards", where)


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
        "spaces": {name: json.dumps(space_as_json(space)) for name, space in spaces.items()},
        "made": environment_of_run(),
        **({"reference": checked_reference({"reference": reference})} if reference else {}),
        **more,
    }


def checked_reference(about: dict[str, Any]) -> dict[str, Any] | None:
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
    if scores := checked_reference(about):
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
    check_spaces(dataset, env.observation_space(params), action, made, f"{env.id or type(env).__name__}'s")
    there = dict_of((about.get("spaces") or {}).get("action", "{}"), f"{made}: its action space")
    here = space_as_json(action)
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


def check_spaces(dataset: Dataset, observation: Space, action: Space, made: str, here: str) -> None:
    arrays = named_arrays(dataset)
    for field, space in (("obs", observation), ("action", action)):
        there = {n: x for n, x in arrays.items() if n.split(".")[0] == field}
        wanted = dict(leaves_of(field, space))
        if there.keys() != wanted.keys():
            raise ValueError(f"{made} has {', '.join(there)} where {here} are {', '.join(wanted)}.")
        for name, leaf in wanted.items():
            x = there[name]
            if x.shape[1:] != tuple(leaf.shape) or _kind(x.dtype) != _kind(leaf.dtype):
                wants = f"{jnp.dtype(leaf.dtype).name}{list(leaf.shape)}"
                raise ValueError(f"{made} has {name} of {shown(x)}; {here} is {wants}.")
    for name, leaf in leaves_of("obs", observation):
        if isinstance(leaf, Discrete | MultiDiscrete):
            low, high = _bounds(leaf)
            if outside := int(((arrays[name] < low) | (arrays[name] > high)).sum()):
                raise ValueError(f"{made} has {outside} of {arrays[name].size} numbers of {name} outside {leaf}.")
    for name, leaf in leaves_of("action", action):
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


def leaves_of(name: str, space: Space) -> Iterator[tuple[str, Space]]:
    """As `npz_files.named` names the arrays of its members."""
    if isinstance(space, Dict):
        for key, child in space.spaces.items():
            yield from leaves_of(f"{name}.{key}", child)
    elif isinstance(space, Tuple):
        for i, child in enumerate(space.spaces):
            yield from leaves_of(f"{name}.{i}", child)
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


def space_as_json(space: Space) -> dict[str, Any]:
    """As Minari writes spaces; infinite bounds are the JSON dialect's Infinity."""
    if isinstance(space, Dict):
        return {"type": "Dict", "subspaces": {key: space_as_json(child) for key, child in space.spaces.items()}}
    if isinstance(space, Tuple):
        return {"type": "Tuple", "subspaces": [space_as_json(child) for child in space.spaces]}
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


# ---- what readers share


def kept_names(names: Sequence[str], drop: Sequence[str], where: str) -> list[str]:
    """The names without those of `drop`, as `obs.mission`, and what is below them; of `next_obs`, too."""
    entries = dict.fromkeys(name.removeprefix("next_") for name in names if name.startswith(("obs.", "next_obs.")))

    def is_below(name: str, entry: str) -> bool:
        return name.removeprefix("next_") == entry or name.removeprefix("next_").startswith(f"{entry}.")

    if unknown := [entry for entry in drop if not any(is_below(name, entry) for name in entries)]:
        has = f"its entries are {', '.join(entries)}" if entries else "its observations have no entries"
        raise ValueError(f"{where}: there is no {', '.join(unknown)} to be left out; {has}.")
    return [name for name in names if not any(is_below(name, entry) for entry in drop)]


def no_dataset(path: str | Path, kind: str) -> ValueError:
    end = "" if kind == "pickle" else ": a dataset is npz (jaxrl's, OGBench's) or HDF5 (Minari's, D4RL's)."
    return ValueError(f"{path} {npz_files.BEGINS[kind]}{end}")


@contextlib.contextmanager
def opened_npz(path: str | Path) -> Iterator[Any]:
    if (kind := npz_files.kind_of(path)) != "npz":
        raise no_dataset(path, kind)
    with npz_files.opened(path) as file:
        yield file
