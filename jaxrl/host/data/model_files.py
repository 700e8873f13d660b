"""Models of dynamics on disk (`data.dynamics.Ensemble`): npz with a hash and where the model comes from, no pickle.

`about` is a dict of JSON values, as a dataset's: `env` (id), `dataset` ({"path", "digest"}), `config`, `hyper`, `seed`,
`held_out` (the elites' errors), `made` (versions, commit), `digest`; more keys are kept.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.data.dynamics import Ensemble, Scale
from jaxrl.environment import Environment
from jaxrl.host.data import npz_files
from jaxrl.host.data.npz_files import ABOUT, dict_of
from jaxrl.spaces import Box

ARRAYS = ("weights", "low", "high", "inputs", "targets")
NETWORK = "network"
"""What no array shows, as JSON: `hidden` and `activation`."""


def digest(ensemble: Ensemble) -> str:
    """SHA-256 over the names, dtypes, shapes and bytes of the arrays, and over what the networks are."""
    return npz_files.digest(_arrays(ensemble))


def _arrays(ensemble: Ensemble) -> dict[str, np.ndarray]:
    network = {"hidden": list(ensemble.hidden), "activation": ensemble.activation}
    leaves = {name: getattr(ensemble, name) for name in ARRAYS}
    scales = {name: {"mean": leaves[name].mean, "std": leaves[name].std} for name in ("inputs", "targets")}
    items = {**leaves, **scales}
    arrays = dict(item for name in ARRAYS for item in npz_files.named(name, items[name], "the model"))
    return {**arrays, NETWORK: np.asarray(json.dumps(network))}


def write(path: str | Path, ensemble: Ensemble, about: dict[str, Any], overwrite: bool = False) -> Path:
    """Write the model, whole or not at all; `read` gives the same one, and `about` with its `digest`.

    Raises FileExistsError where something is, unless `overwrite`.
    """
    return npz_files.write(path, _arrays(ensemble), about, overwrite)


def read(path: str | Path) -> tuple[Ensemble, dict[str, Any]]:
    """`(model, about)` of a file that `write` wrote. Raises ValueError, in a line, for any other or a damaged one."""
    kind, wanted = npz_files.kind_of(path), "a model is npz, as `jaxrl dataset model` writes it."
    if kind != "npz":
        raise ValueError(f"{path} {npz_files.BEGINS[kind]}" + ("" if kind == "pickle" else f": {wanted}"))
    with npz_files.opened(path) as file:
        found = {name.split(".")[0] for name in file.files}
        if found != {*ARRAYS, NETWORK, ABOUT}:
            raise ValueError(f"{path} is no model, it has {', '.join(sorted(found)) or 'nothing'}: {wanted}")
        arrays = {name: npz_files.member(file, name, path) for name in file.files}
    about = dict_of(str(arrays.pop(ABOUT)), f"{path}: {ABOUT}")
    npz_files.check_digest(path, arrays, about)
    network = dict_of(str(arrays.pop(NETWORK)), f"{path}: {NETWORK}")
    weights, low, high, inputs, targets = (npz_files.tree_of(arrays, name) for name in ARRAYS)
    hidden, activation = tuple(network["hidden"]), network["activation"]
    ensemble = Ensemble(weights, low, high, Scale(**inputs), Scale(**targets), hidden, activation)
    return jax.tree.map(jnp.asarray, ensemble), about


def check_fits(ensemble: Ensemble, about: dict[str, Any], env: Environment, params: Any) -> None:
    """Raise ValueError for a model of observations or actions of another size than those of `env` with `params`."""
    made = f"the model, of {about['env']}," if about.get("env") else "the model"
    spaces = env.observation_space(params), env.action_space(params)
    if not all(isinstance(space, Box) and len(space.shape) == 1 for space in spaces):
        raise ValueError(f"{made} is of vectors; {env.id} has observations {spaces[0]} and actions {spaces[1]}.")
    numbers = len(ensemble.targets.mean) - 1
    there, here = (numbers, len(ensemble.inputs.mean) - numbers), tuple(space.shape[0] for space in spaces)
    if there != here:
        raise ValueError(
            f"{made} has observations of {there[0]} numbers and actions of {there[1]}; {env.id}'s are of {here[0]} and "
            f"{here[1]}."
        )
