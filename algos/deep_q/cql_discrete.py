"""Conservative Q-learning (CQL) for discrete actions, and the values of the policy that made the data.

Kumar, Zhou, Tucker and Levine (2020), "Conservative Q-learning for offline reinforcement learning", equation 4: to the
loss of each transition of DQN, or of QR-DQN where an action has several outputs, comes

    min_q_weight (logsumexp_b Q(s, b) - Q(s, a))

which is small where the data's action a stands out. `Config.target` says what Q(s, a) learns,

    double, max    r + gamma Q'(s', b), b the best action by Q, or by the target network's Q' itself
    data           r + gamma Q'(s', b), b the data's next action
    returns        the discounted rewards to the end of the episode

With `min_q_weight` 0 these are offline DQN; behaviour value estimation, BVE (Gulcehre et al. 2021, "Regularized
behavior value estimation", without its regulariser); and Monte Carlo estimation, MCE, as Schweighofer et al. (2022), "A
dataset perspective on offline reinforcement learning", have them: one step of improvement on the behaviour's values.

Deviations: those of `dqn.py`; Huber's loss of single values, as in the latter; `returns` do not bootstrap where the
clock ended an episode, and are discounted as the dataset was stored (`datasets.stored`, gamma).
"""

from __future__ import annotations

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxrl.algorithm import Algorithm, as_vector_env, shared, spaces_of
from jaxrl.algos.deep_q import dqn, qr_dqn
from jaxrl.environment import Environment, pytree, split_observation
from jaxrl.nn.action_values import value_of
from jaxrl.nn.distributions import mask_logits
from jaxrl.nn.optim import OptimizerLike
from jaxrl.replay.deep_q import (
    Critic,
    algorithm,
    check_network,
    check_num_outputs,
    check_sizes,
    critic_of_outputs,
    q_network,
)
from jaxrl.replay.ring import Replay
from jaxrl.spaces import Discrete, Space
from jaxrl.vectorize import VectorEnv

TARGETS = ("double", "max", "data", "returns")


@dataclasses.dataclass(frozen=True)
class Config:
    """Static settings: each value compiles its own program."""

    num_envs: int = 10  # environments stepped together, where it acts
    num_steps: int = 1  # steps of each between updates, where it acts
    num_updates: int = 1  # gradient steps an update; where it acts, at most: see Hyper.replay_ratio
    batch_size: int = 128
    buffer_size: int = 10_000  # transitions kept, without a dataset; a multiple of num_envs
    n_step: int = 1  # rewards before the bootstrap, without a dataset
    target: str = "double"  # one of TARGETS: what the value of the data's action learns
    num_outputs: int = 1  # of an action: its value, or so many quantiles
    prioritised: bool = False  # replay by the priorities of Hyper, without a dataset
    dueling: bool = False  # the default network's head: a state value plus centred advantages
    noisy: bool = False  # the default network explores by noise on its weights, and not at random
    conv: tuple[int, ...] = ()  # features of 3x3 convolutions over images, before the hidden layers
    hidden: tuple[int, ...] = (120, 84)
    activation: str = "relu"
    optimizer: str = "adam"  # a name of optim.OPTIMIZERS
    adam_eps: float = 1e-8  # added to the denominator of Adam and its kin

    def __post_init__(self) -> None:
        check_sizes(self)
        check_num_outputs(self.num_outputs, 1, "cql_discrete")
        if self.target not in TARGETS:
            raise ValueError(f"target={self.target!r} is unknown; use one of {', '.join(TARGETS)}.")


@pytree
class Hyper:
    """Dynamic settings: leaves, so vmap over any of them. Steps are of the environment, on a dataset of gradients."""

    learning_rate: jax.Array = 2.5e-4
    anneal_steps: jax.Array = 0  # steps over which the learning rate goes to zero; 0: constant
    gamma: jax.Array = 0.99  # discount
    min_q_weight: jax.Array = 1.0  # of the penalty
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


def penalty(q: Float[Array, "B n"], of_data: Float[Array, " B"]) -> Float[Array, " B"]:
    """logsumexp_b Q(s, b) - Q(s, a): at least 0, at most log n where the data's action is the best."""
    return jax.nn.logsumexp(q, -1) - of_data


def critic(config: Config, network: nn.Module, observation_space: Space) -> Critic:
    """DQN's or QR-DQN's, with the target and the penalty; of Hyper it is given `min_q_weight`."""
    of_value, loss_of = dqn.CRITICS["huber"] if config.num_outputs == 1 else (qr_dqn.values, qr_dqn.loss)
    double, of_data = config.target == "double", config.target == "data"
    plain = critic_of_outputs(network, observation_space, double, of_value, loss_of, of_data)

    def values(weights, obs, support, key):
        return plain.values(weights, obs, (), key)

    def ahead(target_weights, batch, support, key):
        return plain.ahead(target_weights, batch, (), key)

    def loss(weights, batch, next_outputs, support, key):
        if config.target == "returns":
            batch = batch._replace(reward=batch.return_to_go, discount=jnp.zeros_like(batch.discount))
        each, priority, report = plain.loss(weights, batch, next_outputs, (), key)
        q = plain.values(weights, batch.obs, (), None)
        allowed = split_observation(batch.obs, observation_space)[2]
        gap = penalty(q if allowed is None else mask_logits(q, allowed), value_of(q, batch.action))
        return each + support[0] * gap, priority, {**report, "td_error": jnp.mean(each), "penalty": jnp.mean(gap)}

    return Critic(values, ahead, loss)


@shared
def make(
    env: Environment | VectorEnv,
    config: Config = Config(),
    memory: Replay | None = None,
    network: nn.Module | None = None,
    optimizer: OptimizerLike | None = None,
) -> Algorithm:
    """Discrete CQL for `env`. Equal arguments give the same functions, so they share one jit cache.

    Args:
        memory: a dataset, `datasets.stored(dataset, env.action_space(params))`; None: it acts and fills its own.
        network: a flax module as `dqn.make` takes it, with `num_outputs` of each action.
        optimizer: an optax transformation or a function of the learning rate that makes one, for `config.optimizer`;
            see `optim.optimizer_of`.

    Raises ValueError for an action space that is not Discrete, several agents, a network whose outputs do not fit
    or a target that needs a dataset without one.
    """
    venv = as_vector_env(env, config.num_envs)
    observation_space, action_space = spaces_of("cql_discrete", venv, Discrete)
    if config.target in ("data", "returns") and memory is None:
        raise ValueError(f"target={config.target!r}: it needs a dataset as memory; double and max do without.")
    network = network or q_network(config, observation_space, action_space.n, config.num_outputs)
    of_critic = critic(config, network, observation_space), network.init, config.noisy, ("min_q_weight",)
    algo = algorithm("cql_discrete", venv, config, Hyper, observation_space, *of_critic, optimizer, memory)
    check_network(algo, network, action_space.n, config.num_outputs)
    return algo


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
