"""Missions in datasets: texts as the numbers that our environments observe, and missions that say nothing.

MiniGrid and BabyAI tell an agent its mission in words; our environments of the same ids observe it as numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxrl import registry
from jaxrl.data.datasets import Dataset
from jaxrl.environment import Environment
from jaxrl.spaces import Dict, MultiDiscrete

ENTRY = "obs.mission"


def environment(id: Any) -> tuple[Environment, Any] | None:
    """`(env, params)` of a registered id, None for any other."""
    known = isinstance(id, str) and id in registry.environments() and registry.is_available(id)
    return registry.make(id) if known else None


def in_numbers(arrays: Mapping[str, np.ndarray], id: Any, where: str) -> dict[str, np.ndarray]:
    """`arrays` with texts of missions as numbers, by the `mission_of` of the environment `id`.

    Raises ValueError for other texts, and for a mission that the environment does not give.
    """
    texts = [name for name, x in arrays.items() if x.dtype.kind == "U"]
    made = environment(id) if texts else None
    out = dict(arrays)
    for name in texts:
        entry = name.removeprefix("next_")
        read: Any = getattr(made[0], "mission_of", None) if made and entry == ENTRY else None
        if read is None:
            whose = f"{id!r} is no id of ours that knows its missions" if id else "of which environment is not said"
            raise ValueError(
                f"{where}: {entry} holds no numbers but texts, as {str(arrays[name][0])!r:.80}, and {whose}; leave "
                f"them out by drop=({entry!r},), or on the command line by `jaxrl dataset convert --drop {entry}`."
            )
        found, place = np.unique(arrays[name], return_inverse=True)
        try:
            numbers = np.array([read(str(text)) for text in found], np.int32)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from error
        out[name] = numbers[place.reshape(-1)]
    return out


def completed(dataset: Dataset, env: Environment, params: Any) -> Dataset:
    """`dataset` with the mission of `env`, where it lacks it and there is but one, which is then all zeros."""
    space = env.observation_space(params)
    mission = space.spaces.get("mission") if isinstance(space, Dict) else None
    alone = isinstance(mission, MultiDiscrete) and set(mission.nvec) == {1}
    if mission is None or not alone or not isinstance(dataset.obs, dict) or "mission" in dataset.obs:
        return dataset
    zeros = np.zeros((dataset.size, *mission.shape), np.int32)
    return dataset.replace(obs={**dataset.obs, "mission": zeros}, next_obs={**dataset.next_obs, "mission": zeros})
