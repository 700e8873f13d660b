"""jaxrl: reinforcement-learning environments, algorithms and curricula as pure functions in JAX.

Each name is imported when it is first used, so that `import jaxrl` and `jaxrl --help` wait for no other library.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jaxrl import curriculum, data, spaces
    from jaxrl.algorithm import Algorithm, train
    from jaxrl.environment import Environment, Hints, Levels, TimeStep, Transition, pytree
    from jaxrl.evaluation import evaluate
    from jaxrl.host.run.fit import fit
    from jaxrl.host.run.load import load
    from jaxrl.host.run.sweep import sweep
    from jaxrl.registry import get_algo, get_curriculum, list_algos, list_curricula, list_envs, make, register
    from jaxrl.vector_env import VectorEnv, vectorize

__version__ = "0.1.0"

NAMES = {
    "algorithm": ("Algorithm", "train"),
    "environment": ("Environment", "Hints", "Levels", "TimeStep", "Transition", "pytree"),
    "evaluation": ("evaluate",),
    "host.run.fit": ("fit",),
    "host.run.load": ("load",),
    "host.run.sweep": ("sweep",),
    "registry": ("get_algo", "get_curriculum", "list_algos", "list_curricula", "list_envs", "make", "register"),
    "vector_env": ("VectorEnv", "vectorize"),
}
"""What is imported from where, as above for editors and type checkers."""

__all__ = [
    "Algorithm",
    "Environment",
    "Hints",
    "Levels",
    "TimeStep",
    "Transition",
    "VectorEnv",
    "curriculum",
    "data",
    "evaluate",
    "fit",
    "get_algo",
    "get_curriculum",
    "list_algos",
    "list_curricula",
    "list_envs",
    "load",
    "make",
    "pytree",
    "register",
    "spaces",
    "sweep",
    "train",
    "vectorize",
]


def __getattr__(name: str) -> Any:
    for module, names in NAMES.items():
        if name in names:
            found = globals()[name] = getattr(importlib.import_module(f"jaxrl.{module}"), name)
            return found
    if not name.startswith("__"):
        try:
            return importlib.import_module(f"jaxrl.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"jaxrl.{name}":
                raise
    raise AttributeError(f"jaxrl has no {name!r}; it has {', '.join(__all__)}, and its modules, as jaxrl.wrappers.")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
