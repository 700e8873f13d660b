"""What a run begins from, kept in its checkpoints: its key, its params, and what it takes of a dataset.

A state has no other trace of them once it is trained, so that a run that goes on with others, as after an edit of
config.json, would be the result of neither. `checkpoint.restore` compares them.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

import jax
import numpy as np
from jaxtyping import Array

from jaxrl.environment import strongly_typed
from jaxrl.host.run.checkpoint import BEGAN
from jaxrl.host.run.run_folder import tree_values
from jaxrl.host.run.training_program import Program

OF_DATA = ("episodes", "goals", "drop", "max_episode_steps", "digest")
"""What a recipe says of a dataset and training depends on; where the file is, it does not."""


def began(program: Program, recipe: dict[str, Any] | None = None, key: Array | None = None) -> dict[str, Any]:
    """The part of a checkpoint's description; without a key of who goes on with nothing but a policy."""
    params = program.algo.venv.default_params if program.env_params is None else program.env_params
    told: dict[str, Any] = {"params": {k: _brief(x) for k, x in tree_values(strongly_typed(params)).items()}}
    if key is not None:
        told["key"] = key_data(key)
    if data := (recipe or {}).get("dataset"):
        told["dataset"] = {name: data.get(name) for name in OF_DATA}
    return {BEGAN: told}


def key_data(key: Array) -> dict[str, Any]:
    """A key as JSON values."""
    return {"impl": str(jax.random.key_impl(key)), "data": np.asarray(jax.random.key_data(key)).tolist()}


def _brief(value: Any) -> Any:
    """A value, or its hash where it is of many numbers, as a batch of levels."""
    text = json.dumps(value)
    return value if len(text) <= 200 else hashlib.sha256(text.encode()).hexdigest()[:16]
