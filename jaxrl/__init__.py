"""jaxrl: reinforcement-learning environments, algorithms and curricula as pure functions in JAX.

What is imported here needs only jax and numpy; flax, optax, orbax and the rest load when first used.
"""

from jaxrl import curriculum
from jaxrl.algorithm import Algorithm, train
from jaxrl.environment import Environment, Hints, TimeStep, Transition, pytree
from jaxrl.evaluation import evaluate
from jaxrl.host.run.fit import fit
from jaxrl.registry import get_algo, list_algos, list_envs, make, register
from jaxrl.vectorize import VectorEnv, vectorize

__version__ = "0.1.0"

__all__ = [
    "Algorithm",
    "Environment",
    "Hints",
    "TimeStep",
    "Transition",
    "VectorEnv",
    "curriculum",
    "evaluate",
    "fit",
    "get_algo",
    "list_algos",
    "list_envs",
    "make",
    "pytree",
    "register",
    "train",
    "vectorize",
]
