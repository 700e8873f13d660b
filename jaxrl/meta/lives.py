"""The life of an agent that learns by a rule: its length, all of its updates, and the return of the last policy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxrl.algorithm import Algorithm
from jaxrl.environment import Environment
from jaxrl.evaluation import evaluate
from jaxrl.meta.agent import AgentConfig, AgentHyper, agent, check_rule
from jaxrl.meta.rule import UpdateRule

Antagonist = UpdateRule | Callable[[Any], Array] | None
"""What agents' final returns are held against: a rule, by which a second agent lives on the same level with the same
settings; or a function of the level, () each, such as its best return, against which they are the exact regret."""


def lifetime_of(level: Any) -> Array:
    """The field `lifetime` of a level, as grid worlds have it. Raises ValueError for levels without that field."""
    if not hasattr(level, "lifetime"):
        raise ValueError("These levels have no lifetime of their own: give learner a lifetime_fn(key, level).")
    return level.lifetime


def lifetime_on(level: Any, key: Array, lifetime_fn: Callable[[Array, Any], Array] | None) -> Array:
    """How many updates a life on a level has, by `lifetime_fn` or the level; where the array says less than 1, it is 1.

    Raises ValueError for what is no whole number, and for a plain number below 1, which is no draw.
    """
    drawn = lifetime_of(level) if lifetime_fn is None else lifetime_fn(key, level)
    of = "the level's lifetime" if lifetime_fn is None else "lifetime_fn(key, level)"
    if jnp.shape(drawn) or not jnp.issubdtype(jnp.result_type(drawn), jnp.integer):
        kind = f"{jnp.result_type(drawn)}{list(jnp.shape(drawn))}"
        raise ValueError(f"{of} is {kind}: it must be one whole number, the updates of a life.")
    if isinstance(drawn, int | np.integer) and drawn < 1:
        raise ValueError(f"{of} is {drawn}: a life has at least one update.")
    return jnp.maximum(drawn, 1)


def life(algo: Algorithm, state: Any, lifetime: Array) -> Any:
    """The state of an agent after `lifetime` updates."""

    def one(carried: tuple[Array, Any]) -> tuple[Array, Any]:
        return carried[0] + 1, algo.update(carried[1])[0]

    return jax.lax.while_loop(lambda carried: carried[0] < lifetime, one, (jnp.zeros_like(lifetime), state))[1]


def final_return(algo: Algorithm, state: Any, key: Array) -> Array:
    """The mean undiscounted return of an agent's policy, sampled, over one episode in each of its environments."""
    episodes = algo.config.num_envs
    return jnp.mean(
        evaluate(
            algo, algo.policy(state), key, algo.venv.env, state.env_params, num_episodes=episodes, greedy=False
        ).returns
    )


def lived(algo: Algorithm, keys: Any, hyper: AgentHyper, level: Any) -> Array:
    """The final return of an agent after a whole life on a level.

    `keys` are two: one for the life and one for the evaluation.
    """
    start_key, end_key = keys
    return final_return(algo, life(algo, algo.init(start_key, hyper, level), hyper.lifetime), end_key)


def drawn_rates(key: Array, hyper: AgentHyper, spread: Array) -> AgentHyper:
    """An agent's settings with both learning rates times exp(u), each with its own u, uniform in (-spread, spread)."""
    actor, critic = jnp.exp(spread * jax.random.uniform(key, (2,), minval=-1.0))
    return hyper.replace(
        learning_rate=hyper.learning_rate * actor, critic_learning_rate=hyper.critic_learning_rate * critic
    )


def other_return(
    antagonist: Antagonist, env: Environment, config: AgentConfig
) -> Callable[[Any, AgentHyper, Any], Array] | None:
    """A function `(keys, hyper, level)`, as `lived`: the antagonist's final return on the level. Without one None."""
    if isinstance(antagonist, UpdateRule):
        other = agent(antagonist, env, config)
        return lambda keys, hyper, level: lived(other, keys, hyper.replace(rule=None), level)
    if antagonist is None:
        return None
    if not callable(antagonist):
        check_rule(antagonist)
    return lambda keys, hyper, level: antagonist(level)


def where_over(over: Array, fn: Callable[..., Array], args: Any, at_once: int, shape: tuple[int, ...]) -> Array:
    """`fn` of the rows of `args` where `over` is True, in groups of `at_once` rows; 0 for the other rows."""
    n, order = over.shape[0], jnp.argsort(~over)
    count = jnp.sum(over)

    def group(carried: tuple[Array, Array]) -> tuple[Array, Array]:
        first, found = carried
        rows = jnp.where(first + jnp.arange(at_once) < count, order[(first + jnp.arange(at_once)) % n], n)
        values = jax.vmap(fn)(*jax.tree.map(lambda x: x[jnp.minimum(rows, n - 1)], args))
        return first + at_once, found.at[rows].set(values, mode="drop")

    return jax.lax.while_loop(lambda carried: carried[0] < count, group, (jnp.int32(0), jnp.zeros((n, *shape))))[1]
