"""jaxrl: reinforcement-learning environments, algorithms and curricula as pure functions in JAX.

What is imported here needs only jax and numpy; flax, optax, orbax and the rest load when first used.
"""

from typing import TYPE_CHECKING, Any

from jaxrl import curriculum, data, spaces
from jaxrl.algorithm import Algorithm, train
from jaxrl.environment import Environment, Hints, Levels, TimeStep, Transition, pytree
from jaxrl.evaluation import evaluate
from jaxrl.host.run.fit import fit
from jaxrl.host.run.sweep import sweep
from jaxrl.registry import get_algo, get_curriculum, list_algos, list_curricula, list_envs, make, register
from jaxrl.vectorize import VectorEnv, vectorize

if TYPE_CHECKING:
    from jaxrl.host.run.load import load

__version__ = "0.1.0"

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
    if name != "load":
        raise AttributeError(
            f"jaxrl has no {name!r}; it has {', '.join(__all__)}. "
            "Other modules are imported first, as `import jaxrl.wrappers`."
        )
    from jaxrl.host.run.load import load  # which reads the algorithms' optimisers and networks

    return load


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
