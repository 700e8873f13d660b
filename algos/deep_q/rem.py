"""Random ensemble mixture (REM): DQN on many heads, mixed anew at every gradient step.

Agarwal, Schuurmans and Norouzi (2020), "An optimistic perspective on offline reinforcement learning". The network gives
K values of each action. Every batch draws K uniform numbers, which divided by their sum are weights alpha, and

    Q(s, a) = sum_k alpha_k Q_k(s, a)    learns    r + gamma max_b sum_k alpha_k Q'_k(s', b)

by Huber's loss: a Bellman equation of every mixture at once. Acted on is the mean of the heads.

Everything else is DQN's (`dqn.py`), and so are its deviations; on 64 heads where the paper has 200 on Atari.
"""

from __future__ import annotations

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from jaxrl.algorithm import Algorithm, as_vector_env, shared, spaces_of
from jaxrl.algos.deep_q import dqn
from jaxrl.environment import Environment, pytree, split_observation
from jaxrl.nn.action_values import best_action, outputs_of, value_of
from jaxrl.nn.optim import OptimizerLike
from jaxrl.replay.deep_q import (
    Critic,
    algorithm,
    apply,
    check_network,
    check_num_outputs,
    check_sizes,
    q_network,
)
from jaxrl.replay.ring import Replay
from jaxrl.spaces import Discrete, Space
from jaxrl.vectorize import VectorEnv


@dataclasses.dataclass(frozen=True)
class Config:
    """Static settings: each value compiles its own program."""

    num_envs: int = 10  # environments stepped together, where it acts
    num_steps: int = 1  # steps of each between updates, where it acts
    num_updates: int = 1  # gradient steps an update; where it acts, at most: see Hyper.replay_ratio
    batch_size: int = 128
    buffer_size: int = 10_000  # transitions kept, without a dataset; a multiple of num_envs
    n_step: int = 1  # rewards before the bootstrap, without a dataset
    double: bool = False  # the online network picks the action that the target network values
    num_outputs: int = 64  # heads, K
    prioritised: bool = False  # replay by the priorities of Hyper, without a dataset
    dueling: bool = False  # the default network's head: a state value plus centred advantages
    conv: tuple[int, ...] = ()  # features of 3x3 convolutions over images, before the hidden layers
    hidden: tuple[int, ...] = (120, 84)
    activation: str = "relu"
    optimizer: str = "adam"  # a name of optim.OPTIMIZERS
    adam_eps: float = 1e-8  # added to the denominator of Adam and its kin

    def __post_init__(self) -> None:
        check_sizes(self)
        check_num_outputs(self.num_outputs, 2, "rem")


@pytree
class Hyper:
    """Dynamic settings: leaves, so vmap over any of them. Steps are of the environment, on a dataset of gradients."""

    learning_rate: jax.Array = 2.5e-4
    anneal_steps: jax.Array = 0  # steps over which the learning rate goes to zero; 0: constant
    gamma: jax.Array = 0.99  # discount
    epsilon_start: jax.Array = 1.0  # probability of a random action where it acts, at first
    epsilon_end: jax.Array = 0.05  # and after exploration_steps, linear between
    exploration_steps: jax.Array = 250_000
    learning_starts: jax.Array = 10_000  # where it acts: steps before the first gradient step
    target_period: jax.Array = 500  # steps between updates of the target network; at most once an update
    tau: jax.Array = 1.0  # how far it then moves to the online one; 1: a copy
    max_grad_norm: jax.Array = 10.0
    replay_ratio: jax.Array = float("inf")  # where it acts: gradient steps a step; inf: num_updates an update
    priority_alpha: jax.Array = 0.5  # prioritised: 0 is uniform
    priority_beta: jax.Array = 0.4  # how far its bias is corrected, at first
    priority_steps: jax.Array = 0  # steps until the correction is full; 0: it stays as it is


def mixture(key: Key[Array, ""], num_heads: int) -> Float[Array, " K"]:
    """alpha: uniform numbers, divided by their sum."""
    drawn = jax.random.uniform(key, (num_heads,))
    return drawn / jnp.sum(drawn)


def critic(config: Config, network: nn.Module, observation_space: Space) -> Critic:
    """Values of the mean over heads, and Huber's loss of a mixture of them."""

    def values(weights, obs, support, key):
        return jnp.mean(apply(network, weights, obs, None)[0], -1)

    def ahead(target_weights, batch, support, key):
        return apply(network, target_weights, batch.next_obs, None)[0]

    def loss(weights, batch, next_heads, support, key):
        alpha = mixture(key, config.num_outputs)
        heads, report = apply(network, weights, batch.obs, None)
        q, next_q = outputs_of(heads, batch.action) @ alpha, next_heads @ alpha
        choosing = next_q
        if config.double:
            choosing = apply(network, jax.lax.stop_gradient(weights), batch.next_obs, None)[0] @ alpha
        allowed = split_observation(batch.next_obs, observation_space)[2]
        following = jax.lax.stop_gradient(value_of(next_q, best_action(choosing, allowed)))
        each, priority = dqn.scalar_loss(q, batch.reward, batch.discount, following, huber=True)
        return each, priority, {"q_value": jnp.mean(q), **report}

    return Critic(values, ahead, loss)


@shared
def make(
    env: Environment | VectorEnv,
    config: Config = Config(),
    memory: Replay | None = None,
    network: nn.Module | None = None,
    optimizer: OptimizerLike | None = None,
) -> Algorithm:
    """REM for `env`. Equal arguments give the same functions, so they share one jit cache.

    Args:
        memory: a dataset, `datasets.stored(dataset, env.action_space(params))`; None: it acts and fills its own.
        network: a flax module from an observation (a dict keeps its `action_mask`) to values (..., n, num_outputs).
        optimizer: an optax transformation or a function of the learning rate that makes one, for `config.optimizer`;
            see `optim.optimizer_of`.

    Raises ValueError for an action space that is not Discrete, several agents, or a network whose outputs do not fit.
    """
    venv = as_vector_env(env, config.num_envs)
    observation_space, action_space = spaces_of("rem", venv, Discrete)
    if network is None:
        network = q_network(config, observation_space, action_space.n, config.num_outputs)
    of_critic = critic(config, network, observation_space), network.init, True, ()
    algo = algorithm("rem", venv, config, Hyper, observation_space, *of_critic, optimizer, memory)
    check_network(algo, network, action_space.n, config.num_outputs)
    return algo


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
