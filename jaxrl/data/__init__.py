"""Stored experience: datasets, how learners draw from them, and models of transitions.

`jaxrl.data.datasets` and the other modules are imported when they are first used.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jaxrl.data import datasets, diffusion, dynamics, hindsight, preferences, quality, reward_models, transitions

__all__ = ["datasets", "diffusion", "dynamics", "hindsight", "preferences", "quality", "reward_models", "transitions"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"jaxrl.data has no {name!r}; it has {', '.join(__all__)}.")
    return importlib.import_module(f"jaxrl.data.{name}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
