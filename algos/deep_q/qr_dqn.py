"""QR-DQN: quantiles of the return.

Dabney, Rowland, Bellemare and Munos (2018), "Distributional reinforcement learning with quantile regression"
(arXiv:1710.10044). The network gives N values theta[i] for each action, theta[i] learning to be the quantile of the
return at tau[i] = (2i + 1) / 2N; Q(s, a) is their mean. With the target network's theta' of the next action that
maximises its mean, the errors are u[i, j] = reward + discount * theta'[j] - theta[i], and the loss is

    sum over i of the mean over j of |tau[i] - [u[i, j] < 0]| L(u[i, j]),    L: Huber's loss with slope 1 beyond 1

(eq. 9 and 10, kappa = 1). No range of returns has to be known, unlike C51.

Everything else is DQN's (`dqn.py`), its static choices too. Deviations: those of `dqn.py`; 51 quantiles, where the
paper has 200 on Atari: in classic control returns vary little, and the loss costs N^2. Results: `docs/results.md`.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxrl.algorithm import Algorithm, shared
from jaxrl.environment import Environment, pytree
from jaxrl.nn.optim import OptimizerLike
from jaxrl.replay.deep_q import algorithm_of_outputs, check_num_outputs, check_sizes
from jaxrl.replay.ring import Replay
from jaxrl.vectorize import VectorEnv


@dataclasses.dataclass(frozen=True)
class Config:
    """Static settings: each value compiles its own program."""

    num_envs: int = 10  # environments stepped together
    num_steps: int = 1  # steps of each between updates
    num_updates: int = 1  # gradient steps an update, at most: see Hyper.replay_ratio
    batch_size: int = 128
    buffer_size: int = 10_000  # transitions kept; a multiple of num_envs
    n_step: int = 1  # rewards before the bootstrap
    double: bool = False  # the online network picks the action that the target network values
    num_outputs: int = 51  # quantiles
    prioritised: bool = False  # replay by the priorities of Hyper, not uniformly
    dueling: bool = False  # the default network's head: a state value plus centred advantages
    noisy: bool = False  # the default network explores by noise on its weights, and not at random
    conv: tuple[int, ...] = ()  # features of 3x3 convolutions over images, before the hidden layers
    hidden: tuple[int, ...] = (120, 84)
    activation: str = "relu"
    optimizer: str = "adam"  # a name of optim.OPTIMIZERS
    adam_eps: float = 1e-8  # added to the denominator of Adam and its kin

    def __post_init__(self) -> None:
        check_sizes(self)
        check_num_outputs(self.num_outputs, 2, "qr_dqn")


@pytree
class Hyper:
    """Dynamic settings: leaves, so vmap over any of them. Steps are environment steps."""

    learning_rate: jax.Array = 2.5e-4
    anneal_steps: jax.Array = 0  # steps over which the learning rate goes to zero; 0: constant
    gamma: jax.Array = 0.99  # discount
    epsilon_start: jax.Array = 1.0  # probability of a random action, at first
    epsilon_end: jax.Array = 0.05  # and after exploration_steps, linear between
    exploration_steps: jax.Array = 250_000
    learning_starts: jax.Array = 10_000  # steps before the first gradient step
    target_period: jax.Array = 500  # steps between updates of the target network; at most once an update
    tau: jax.Array = 1.0  # how far it then moves to the online one; 1: a copy
    max_grad_norm: jax.Array = 10.0
    replay_ratio: jax.Array = float("inf")  # gradient steps per environment step; inf: num_updates an update
    priority_alpha: jax.Array = 0.5  # prioritised: 0 is uniform
    priority_beta: jax.Array = 0.4  # how far its bias is corrected, at first
    priority_steps: jax.Array = 0  # steps until the correction is full; 0: it stays as it is


def fractions(num: int) -> Float[Array, " num"]:
    """tau: the middles of `num` equal parts of [0, 1], where quantiles are best estimated (lemma 2)."""
    return (jnp.arange(num) + 0.5) / num


def values(quantiles: Float[Array, "*batch N"], support: Any = ()) -> Float[Array, "*batch"]:
    """Q: the mean of each distribution."""
    return jnp.mean(quantiles, -1)


def quantile_huber(
    quantiles: Float[Array, "*batch n"],
    fraction: Float[Array, "*#batch n"],
    targets: Float[Array, "*batch k"],
    kappa: Float[Array, ""] | float = 1.0,
) -> Float[Array, "*batch"]:
    """A sum over the n `quantiles`, each at its `fraction`, of its mean loss over the k `targets` (eq. 9 and 10).

    Divided by kappa > 0 as in the IQN paper, eq. 3: a small one is quantile regression.
    """
    u = targets[..., None, :] - quantiles[..., None]
    size = jnp.abs(u)
    near = jnp.minimum(size, kappa)
    huber = near * (size - near / 2) / kappa
    return jnp.sum(jnp.mean(jnp.abs(fraction[..., None] - (u < 0)) * huber, -1), -1)


def loss(
    quantiles: Float[Array, "B N"],
    reward: Float[Array, " B"],
    discount: Float[Array, " B"],
    next_quantiles: Float[Array, "B N"],
    support: Any = (),
) -> tuple[Float[Array, " B"], Float[Array, " B"]]:
    """`(loss, priority)` of each transition; they are the same."""
    targets = reward[:, None] + discount[:, None] * next_quantiles
    each = quantile_huber(quantiles, fractions(quantiles.shape[-1]), targets)
    return each, each


@shared
def make(
    env: Environment | VectorEnv,
    config: Config = Config(),
    network: nn.Module | None = None,
    optimizer: OptimizerLike | None = None,
    memory: Replay | None = None,
) -> Algorithm:
    """QR-DQN on `env`. Arguments and errors as of `dqn.make`; a network gives quantiles (..., n, num_outputs)."""
    return algorithm_of_outputs(
        "qr_dqn", env, config, Hyper, network, values, loss, config.num_outputs, False, optimizer, memory
    )


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
