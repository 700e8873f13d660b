"""Batch-constrained deep Q-learning (BCQ) for discrete actions.

Fujimoto, Conti, Ghavamzadeh and Pineau (2019), "Benchmarking batch deep reinforcement learning algorithms". Double DQN
that looks only at actions which the data has: a second network G learns the data's policy, and an action counts if

    G(b | s) / max_c G(c | s) > threshold

The online network picks the best of those at s', the target network values it, and the same rule acts; a threshold of 0
is double DQN, one near 1 behaviour cloning. The loss is

    Huber(Q(s, a) - y) - log G(a | s) + 0.01 mean_b (logit_b of G)^2

Deviations: those of `dqn.py`; G has layers of its own also before the last, on images too, where the authors' shares
the convolutions; the gradients of both networks are clipped together.
"""

from __future__ import annotations

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxrl.algorithm import Algorithm, as_vector_env, shared, spaces_of
from jaxrl.algos.deep_q import dqn
from jaxrl.environment import Environment, pytree, split_observation
from jaxrl.nn.action_values import best_action, value_of
from jaxrl.nn.distributions import Categorical, mask_logits
from jaxrl.nn.optim import OptimizerLike
from jaxrl.replay.deep_q import Critic, algorithm, apply, check_network, check_sizes, q_network
from jaxrl.replay.ring import Replay
from jaxrl.spaces import Discrete, Space
from jaxrl.vectorize import VectorEnv

LOGIT_WEIGHT = 0.01  # the authors'
LEAST = -1e9  # the value of an action that does not count: below all others, and finite


@dataclasses.dataclass(frozen=True)
class Config:
    """Static settings: each value compiles its own program."""

    num_envs: int = 10  # environments stepped together, where it acts
    num_steps: int = 1  # steps of each between updates, where it acts
    num_updates: int = 1  # gradient steps an update; where it acts, at most: see Hyper.replay_ratio
    batch_size: int = 128
    buffer_size: int = 10_000  # transitions kept, without a dataset; a multiple of num_envs
    n_step: int = 1  # rewards before the bootstrap, without a dataset
    prioritised: bool = False  # replay by the priorities of Hyper, without a dataset
    dueling: bool = False  # the default network's head: a state value plus centred advantages
    conv: tuple[int, ...] = ()  # features of 3x3 convolutions over images, before the hidden layers
    hidden: tuple[int, ...] = (120, 84)
    activation: str = "relu"
    optimizer: str = "adam"  # a name of optim.OPTIMIZERS
    adam_eps: float = 1e-8  # added to the denominator of Adam and its kin

    def __post_init__(self) -> None:
        check_sizes(self)


@pytree
class Hyper:
    """Dynamic settings: leaves, so vmap over any of them. Steps are of the environment, on a dataset of gradients."""

    learning_rate: jax.Array = 2.5e-4
    anneal_steps: jax.Array = 0  # steps over which the learning rate goes to zero; 0: constant
    gamma: jax.Array = 0.99  # discount
    threshold: jax.Array = 0.3  # of an action's probability in the data, relative to the likeliest action's
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


def likely(logits: Float[Array, "*batch n"], threshold: Float[Array, ""] | float) -> Bool[Array, "*batch n"]:
    """Which actions count; the likeliest always does."""
    relative = jnp.exp(logits - jnp.max(logits, -1, keepdims=True))
    return (relative > threshold) | (relative == 1)


def masked(logits: Float[Array, "*batch n"], allowed: Bool[Array, "*batch n"] | None) -> Float[Array, "*batch n"]:
    """Logits of the allowed actions alone, if there is a mask."""
    return logits if allowed is None else mask_logits(logits, allowed)


def behaviour_loss(
    logits: Float[Array, "B n"], action: Int[Array, " B"], allowed: Bool[Array, "B n"] | None = None
) -> Float[Array, " B"]:
    """-log G(a | s) + 0.01 mean_b (logit_b)^2."""
    # The squares are of what the network gives: a mask's fill is too large for one.
    return -Categorical(masked(logits, allowed)).log_prob(action) + LOGIT_WEIGHT * jnp.mean(logits**2, -1)


def critic(config: Config, network: nn.Module, observation_space: Space) -> Critic:
    """Values of actions that count, and the loss of both networks; of Hyper it is given `threshold`."""

    def allowed_of(obs):
        return split_observation(obs, observation_space)[2]

    def logits_of(weights, obs):
        return apply(network, weights["behaviour"], obs, None)[0]

    def values(weights, obs, support, key):
        q = apply(network, weights["values"], obs, None)[0]
        return jnp.where(likely(masked(logits_of(weights, obs), allowed_of(obs)), support[0]), q, LEAST)

    def ahead(target_weights, batch, support, key):
        return apply(network, target_weights["values"], batch.next_obs, None)[0]

    def loss(weights, batch, next_q, support, key):
        choosing = values(jax.lax.stop_gradient(weights), batch.next_obs, support, None)
        next_action = best_action(choosing, allowed_of(batch.next_obs))
        outputs, report = apply(network, weights["values"], batch.obs, None)
        q = value_of(outputs, batch.action)
        following = jax.lax.stop_gradient(value_of(next_q, next_action))
        each, priority = dqn.scalar_loss(q, batch.reward, batch.discount, following, huber=True)
        logits, allowed = logits_of(weights, batch.obs), allowed_of(batch.obs)
        cloned = behaviour_loss(logits, batch.action, allowed)
        share = jnp.mean(likely(masked(logits, allowed), support[0]), dtype=q.dtype)
        report = {"q_value": jnp.mean(q), "behaviour_loss": jnp.mean(cloned), "likely": share, **report}
        return each + cloned, priority, report

    return Critic(values, ahead, loss)


@shared
def make(
    env: Environment | VectorEnv,
    config: Config = Config(),
    memory: Replay | None = None,
    network: nn.Module | None = None,
    optimizer: OptimizerLike | None = None,
) -> Algorithm:
    """Discrete BCQ for `env`. Equal arguments give the same functions, so they share one jit cache.

    Args:
        memory: a dataset, `datasets.stored(dataset, env.action_space(params))`; None: it acts and fills its own.
        network: a flax module as `dqn.make` takes it, to (..., n); there will be two of them.
        optimizer: an optax transformation or a function of the learning rate that makes one, for `config.optimizer`;
            see `optim.optimizer_of`.

    Raises ValueError for an action space that is not Discrete, several agents, or a network whose outputs do not fit.
    """
    venv = as_vector_env(env, config.num_envs)
    observation_space, action_space = spaces_of("bcq_discrete", venv, Discrete)
    network = network or q_network(config, observation_space, action_space.n)

    def init(key, obs):
        keys = jax.random.split(key)
        return {name: network.init(k, obs) for name, k in zip(("values", "behaviour"), keys, strict=True)}

    of_critic = critic(config, network, observation_space), init, False, ("threshold",)
    algo = algorithm("bcq_discrete", venv, config, Hyper, observation_space, *of_critic, optimizer, memory)
    for name in ("values", "behaviour"):
        check_network(algo, network, action_space.n, 1, name)
    return algo


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
