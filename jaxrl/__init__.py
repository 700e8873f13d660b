"""jaxrl: reinforcement-learning environments, algorithms and curricula as pure functions in JAX."""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from jaxrl import curriculum as curriculum
    from jaxrl.algorithm import Algorithm as Algorithm
    from jaxrl.algorithm import train as train
    from jaxrl.environment import Environment as Environment
    from jaxrl.environment import TimeStep as TimeStep
    from jaxrl.environment import Transition as Transition
    from jaxrl.environment import pytree as pytree
    from jaxrl.evaluation import evaluate as evaluate
    from jaxrl.fit import fit as fit
    from jaxrl.registry import get_algo as get_algo
    from jaxrl.registry import list_algos as list_algos
    from jaxrl.registry import list_envs as list_envs
    from jaxrl.registry import make as make
    from jaxrl.registry import register as register
    from jaxrl.vectorize import VectorEnv as VectorEnv
    from jaxrl.vectorize import vectorize as vectorize

_HOME = {
    "Algorithm": "algorithm",
    "train": "algorithm",
    "Environment": "environment",
    "TimeStep": "environment",
    "Transition": "environment",
    "pytree": "environment",
    "evaluate": "evaluation",
    "fit": "fit",
    "get_algo": "registry",
    "list_algos": "registry",
    "list_envs": "registry",
    "make": "registry",
    "register": "registry",
    "VectorEnv": "vectorize",
    "vectorize": "vectorize",
}

__all__ = [*_HOME, "curriculum"]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used: `import jaxrl` costs what `import jax` costs."""
    import importlib

    if name in _HOME:
        module = importlib.import_module(f"jaxrl.{_HOME[name]}")
        value = getattr(module, name)
    elif name == "curriculum":
        value = importlib.import_module("jaxrl.curriculum")
    else:
        raise AttributeError(f"module 'jaxrl' has no attribute {name!r}")
    globals()[name] = value  # also where the submodule has the same name (`fit`), which its import has just put here
    return value
