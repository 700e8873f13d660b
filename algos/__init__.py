"""Learning algorithms, one file each in a folder for each family; `from jaxrl.algos import ppo` finds any by name."""

from __future__ import annotations

import importlib
from typing import Any

from jaxrl.algos.ids import ALGORITHMS


def __getattr__(name: str) -> Any:
    if name not in ALGORITHMS:
        raise AttributeError(f"jaxrl.algos has no {name!r}; `jaxrl.list_algos()` has the names of all algorithms.")
    return importlib.import_module(f"jaxrl.algos.{ALGORITHMS[name][0]}")


def __dir__() -> list[str]:
    return sorted({*globals(), *ALGORITHMS})
