"""The Whittle index policy for restless bandits: pull the arms whose current states have the highest indices.

Whittle (1988), "Restless bandits: activity allocation in a changing world". The arms are known: the indices are
computed exactly (`jaxrl.exact.whittle`) from the params that `init` is given, and nothing is learned. It is the
standard heuristic, asymptotically optimal as arms and budget grow together under a condition on their dynamics (Weber
and Weiss 1990). Arms of negative index are never pulled.

It plays environments whose params have `transition` (M, 2, S, S) and `reward` (M, 2, S), with index 0 for a resting and
1 for a pulled arm, and whose observations (the arms' states) and actions (0 or 1 for each arm) are MultiDiscrete.
Results: `experiments/sequoia`.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Integer

from jaxrl.algorithm import Algorithm, environment_of, shared
from jaxrl.environment import Environment, pytree
from jaxrl.exact.whittle import whittle_action, whittle_index
from jaxrl.online import Experience, Rule
from jaxrl.online import make as make_online
from jaxrl.spaces import MultiDiscrete
from jaxrl.vector_env import VectorEnv


@dataclasses.dataclass(frozen=True)
class Config:
    """Static settings: each value compiles its own program."""

    num_envs: int = 1  # environments stepped together
    budget: int | None = None  # largest number of pulled arms; None: the environment's budget

    def __post_init__(self) -> None:
        if self.budget is not None and self.budget < 1:
            raise ValueError(f"budget={self.budget}: it must be at least 1.")


@pytree
class Hyper:
    """Dynamic settings: leaves."""

    discount: jax.Array = 0.95  # of the subsidy problem that defines the index


@shared
def make(env: Environment | VectorEnv, config: Config = Config()) -> Algorithm:
    """The index policy on a restless bandit. Equal arguments share one jit cache.

    Raises ValueError unless observations and actions are MultiDiscrete with one entry for each arm, for a budget above
    the environment's, or for a level_fn, as the arms of drawn levels differ from those of the params.
    """
    bandit = environment_of(env)
    params = bandit.default_params
    obs, action = bandit.observation_space(params), bandit.action_space(params)
    if not (isinstance(obs, MultiDiscrete) and isinstance(action, MultiDiscrete) and obs.shape == action.shape):
        raise ValueError(f"whittle pulls restless arms; {bandit.id} has observations {obs} and actions {action}.")
    if isinstance(env, VectorEnv) and env.level_fn is not None:
        raise ValueError(
            "whittle knows the arms of its params; with a level_fn each slot has others: vmap over params."
        )

    own = getattr(bandit, "budget", None)
    budget = own if config.budget is None else config.budget
    if budget is None or (own is not None and budget > own):
        raise ValueError(f"budget={config.budget}: {bandit.id} allows {own}; give a budget of at most that.")

    def init(key: Array, hyper: Hyper, env_params: Any) -> Float[Array, "M S"]:
        """The index of each state of each arm."""
        index = jax.vmap(lambda p, r: whittle_index(p, r, hyper.discount).index)
        return index(env_params.transition, env_params.reward)

    def act(weights: Array, hyper: Hyper, key: Array, obs: Integer[Array, " M"], greedy: bool) -> Integer[Array, " M"]:
        return whittle_action(weights, obs, budget)

    def learn(weights: Array, hyper: Hyper, key: Array, experience: Experience) -> tuple[Array, Array]:
        return weights, jnp.zeros(())

    return make_online("whittle", Rule(init, act, learn), config, Hyper, env)


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
