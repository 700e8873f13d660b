"""Shared parts of on-policy learners: the initial state, the policy of a network, epochs of minibatches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PyTree

from jaxrl import algorithm
from jaxrl.algorithm import spaces_of, starting_values
from jaxrl.environment import pytree, split_observation
from jaxrl.nn.distributions import Distribution, num_outputs, of_space
from jaxrl.nn.networks import ActorCritic, Network, own
from jaxrl.nn.optim import Optimizer, OptimizerState
from jaxrl.rollout import minibatches, spread
from jaxrl.spaces import Box, Discrete, MultiDiscrete, Space
from jaxrl.vector_env import VectorEnv


@pytree
class State(algorithm.State):
    """The state of an on-policy learner; an algorithm's file may add fields."""

    weights: Any
    optimizer: OptimizerState


def begin(
    hyper_class: type,
    venv: VectorEnv,
    optimizer: Optimizer,
    init: Callable[[Key[Array, ""], Any], PyTree],
    key: Key[Array, ""],
    hyper: Any = None,
    env_params: Any = None,
) -> dict[str, Any]:
    """The fields of `State` before the first step; `init(key, obs)` gives the initial weights, obs being (N, ...)."""
    hyper, env_params = starting_values(hyper_class, venv, hyper, env_params)
    key, weights_key, reset_key = jax.random.split(key, 3)
    obs, env_state = venv.reset(reset_key, env_params)
    weights = jax.tree.map(lambda x: x.astype(jnp.result_type(float)), init(weights_key, obs))
    return dict(
        key=key,
        hyper=hyper,
        env_params=env_params,
        env_state=env_state,
        obs=obs,
        step=jnp.int32(0),
        weights=weights,
        optimizer=optimizer.init(weights, hyper.learning_rate),
    )


def first_of(tree: PyTree) -> PyTree:
    """The first environment's (or row's) part of `tree`, without the leading axis."""
    return jax.tree.map(lambda x: x[0], tree)


def policy_of(network: Network, weights: Any, obs: Any, observation_space: Space, action_space: Space) -> Distribution:
    """The action distribution of the network's `actor` for observations (...), with the action mask applied."""
    outputs: Any = network.apply(weights, obs, method="actor")
    return of_space(action_space, outputs, split_observation(obs, observation_space)[2])


def actor_critic(name: str, venv: VectorEnv, config: Any, network: Network | None) -> tuple[Network, Space, Space]:
    """`(network, observation space, action space)` of algorithm `name`: the network given, or the default one.

    A given `network` is a flax module with the methods `actor`, `critic` and `__call__` (both) of `ActorCritic`. The
    default one has the `hidden`, `activation` and, where there is one, `conv` of `config`. Raises ValueError for an
    action space it cannot handle, several agents, or a network whose outputs do not fit.
    """
    observation_space, action_space = spaces_of(name, venv, Discrete, MultiDiscrete, Box)
    outputs, continuous = num_outputs(action_space), isinstance(action_space, Box)
    network = own("network", network, "actor", "critic")
    if network is None:
        body = config.hidden, config.activation, getattr(config, "conv", ())
        network = ActorCritic(observation_space, outputs, continuous, *body)

    def applied(reset_key: Array, weights_key: Array) -> Any:
        obs, _ = venv.reset(reset_key, venv.default_params)
        return network.apply(network.init(weights_key, first_of(obs)), obs)

    head, value = jax.eval_shape(applied, jax.random.key(0), jax.random.key(1))
    shape, N = (head[0] if continuous else head).shape, venv.num_envs
    if shape[-1] != outputs or value.shape != (N,):
        raise ValueError(
            f"network gives outputs {shape} and values {value.shape} for {N} observations; "
            f"{action_space} needs {(N, outputs)} and {(N,)}."
        )
    return network, observation_space, action_space


def flattened(batch: PyTree) -> PyTree:
    """Leaves (T, N, ...) of a rollout as (T N, ...)."""
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), batch)


def epochs(
    gradient_step: Callable[[Any, Any], tuple[Any, dict[str, Array]]],
    carry: Any,
    batch: PyTree,
    orders: Int[Array, "epochs B"],
    num_minibatches: int,
    sequences: bool = False,
) -> tuple[Any, dict[str, Float[Array, ""]]]:
    """`(carry, mean metrics)` after passes over the rows of `batch` (B, ...), pass i in the order `orders[i]`.

    `gradient_step` is `(carry, minibatch) -> (carry, metrics)`, called `num_minibatches` times a pass. With `sequences`
    leaves are (T, B, ...) and a minibatch has whole columns.
    """

    def parts(order: Array) -> PyTree:
        if not sequences:
            return minibatches(batch, order, num_minibatches)
        order = order.reshape(num_minibatches, -1)
        return spread(jax.tree.map(lambda x: jnp.moveaxis(x[:, order], 1, 0), batch), 2)

    carry, reports = jax.lax.scan(lambda carry, order: jax.lax.scan(gradient_step, carry, parts(order)), carry, orders)
    return carry, jax.tree.map(jnp.mean, reports)


def explained_variance(target: Float[Array, "T N"], value: Float[Array, "T N"]) -> Float[Array, ""]:
    """1 - Var(target - value) / Var(target)."""
    return 1 - jnp.var(target - value) / jnp.maximum(jnp.var(target), 1e-8)
