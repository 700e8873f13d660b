"""Critic-regularised regression (CRR) for discrete actions.

Wang et al. (2020), "Critic regularized regression". The critic learns the value of the policy's own next action, and
the policy is cloned from the data's actions that the critic likes better than the policy's,

    critic    Huber(Q(s, a) - r - gamma sum_b pi'(b | s') Q'(s', b))
    policy    -f(A) log pi(a | s),    A = Q(s, a) - sum_b pi(b | s) Q(s, b)
              f(A) = 1(A > 0)  or  min(exp(A / temperature), 20)    (`Config.weight`)

(equations 3 to 5, with the mean over the policy's actions). With actions that can be counted both sums are exact, where
the paper draws. Without a dataset it acts by the same losses, as advantage-weighted regression does.

Deviations: those of `dqn.py`; Huber's loss of single values, not of a distribution of returns; greedy actions are the
policy's likeliest, others are random with probability epsilon, and are not drawn from the policy or by its values; the
gradients of both networks are clipped together.
"""

from __future__ import annotations

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxrl.algorithm import Algorithm, as_vector_env, shared, spaces_of
from jaxrl.algos.deep_q import dqn
from jaxrl.environment import Environment, pytree, split_observation
from jaxrl.nn.action_values import value_of
from jaxrl.nn.distributions import mask_logits
from jaxrl.nn.optim import OptimizerLike
from jaxrl.replay.deep_q import Critic, algorithm, apply, check_network, check_sizes, q_network
from jaxrl.replay.ring import Replay
from jaxrl.spaces import Discrete, Space
from jaxrl.vectorize import VectorEnv

WEIGHTS = ("binary", "exp")
LARGEST_WEIGHT = 20.0  # the paper's


@dataclasses.dataclass(frozen=True)
class Config:
    """Static settings: each value compiles its own program."""

    num_envs: int = 10  # environments stepped together, where it acts
    num_steps: int = 1  # steps of each between updates, where it acts
    num_updates: int = 1  # gradient steps an update; where it acts, at most: see Hyper.replay_ratio
    batch_size: int = 128
    buffer_size: int = 10_000  # transitions kept, without a dataset; a multiple of num_envs
    n_step: int = 1  # rewards before the bootstrap, without a dataset
    weight: str = "binary"  # one of WEIGHTS: of the data's actions
    prioritised: bool = False  # replay by the priorities of Hyper, without a dataset
    dueling: bool = False  # the default network's head: a state value plus centred advantages
    conv: tuple[int, ...] = ()  # features of 3x3 convolutions over images, before the hidden layers
    hidden: tuple[int, ...] = (120, 84)
    activation: str = "relu"
    optimizer: str = "adam"  # a name of optim.OPTIMIZERS
    adam_eps: float = 1e-8  # added to the denominator of Adam and its kin

    def __post_init__(self) -> None:
        check_sizes(self)
        if self.weight not in WEIGHTS:
            raise ValueError(f"weight={self.weight!r} is unknown; use one of {', '.join(WEIGHTS)}.")


@pytree
class Hyper:
    """Dynamic settings: leaves, so vmap over any of them. Steps are of the environment, on a dataset of gradients."""

    learning_rate: jax.Array = 2.5e-4
    anneal_steps: jax.Array = 0  # steps over which the learning rate goes to zero; 0: constant
    gamma: jax.Array = 0.99  # discount
    temperature: jax.Array = 1.0  # of exp weights
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


def expected(logits: Float[Array, "*batch n"], q: Float[Array, "*batch n"]) -> Float[Array, "*batch"]:
    """sum_b pi(b | s) Q(s, b)."""
    return jnp.sum(jax.nn.softmax(logits) * q, -1)


def policy_loss(
    log_prob: Float[Array, " B"], advantage: Float[Array, " B"], temperature: Float[Array, ""] | float, weight: str
) -> Float[Array, " B"]:
    """-f(A) log pi(a | s)."""
    if weight == "binary":
        f = (advantage > 0).astype(log_prob.dtype)
    else:
        f = jnp.minimum(jnp.exp(advantage / temperature), LARGEST_WEIGHT)
    return -jax.lax.stop_gradient(f) * log_prob


def critic(config: Config, network: nn.Module, observation_space: Space) -> Critic:
    """Logits of the policy, which are acted on, and the loss of both networks; of Hyper it is given `temperature`."""

    def values(weights, obs, support, key):
        allowed = split_observation(obs, observation_space)[2]
        logits = apply(network, weights["policy"], obs, None)[0]
        return logits if allowed is None else mask_logits(logits, allowed)

    def ahead(target_weights, batch, support, key):
        next_q = apply(network, target_weights["values"], batch.next_obs, None)[0]
        return expected(values(target_weights, batch.next_obs, support, None), next_q)

    def loss(weights, batch, next_value, support, key):
        outputs, report = apply(network, weights["values"], batch.obs, None)
        q = value_of(outputs, batch.action)
        each, priority = dqn.scalar_loss(q, batch.reward, batch.discount, next_value, huber=True)
        logits = values(weights, batch.obs, support, None)
        advantage = q - expected(logits, outputs)
        log_prob = value_of(jax.nn.log_softmax(logits), batch.action)
        cloned = policy_loss(log_prob, advantage, support[0], config.weight)
        report = {"q_value": jnp.mean(q), "advantage": jnp.mean(advantage), "policy_loss": jnp.mean(cloned), **report}
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
    """Discrete CRR for `env`. Equal arguments give the same functions, so they share one jit cache.

    Args:
        memory: a dataset, `datasets.stored(dataset, env.action_space(params))`; None: it acts and fills its own.
        network: a flax module as `dqn.make` takes it, to (..., n); there will be two of them.
        optimizer: an optax transformation or a function of the learning rate that makes one, for `config.optimizer`;
            see `optim.optimizer_of`.

    Raises ValueError for an action space that is not Discrete, several agents, or a network whose outputs do not fit.
    """
    venv = as_vector_env(env, config.num_envs)
    observation_space, action_space = spaces_of("crr_discrete", venv, Discrete)
    network = network or q_network(config, observation_space, action_space.n)

    def init(key, obs):
        keys = jax.random.split(key)
        return {name: network.init(k, obs) for name, k in zip(("values", "policy"), keys, strict=True)}

    of_critic = critic(config, network, observation_space), init, False, ("temperature",)
    algo = algorithm("crr_discrete", venv, config, Hyper, observation_space, *of_critic, optimizer, memory)
    for name in ("values", "policy"):
        check_network(algo, network, action_space.n, 1, name)
    return algo


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
