"""C51: a categorical distribution of returns.

Bellemare, Dabney and Munos (2017), "A distributional perspective on reinforcement learning" (arXiv:1707.06887). The
network gives logits of m atoms z[i], equidistant from v_min to v_max, for each action; Q(s, a) is their mean. The
target distribution puts the successor's probabilities at

    y[i] = reward + discount * z[i],    of the next action that maximises the mean in the target network,

and splits the mass of each y[i], clipped to the support, between the two atoms around it, in proportion to how near
they are (eq. 7 and algorithm 1). The loss is the cross entropy with it.

Everything else is DQN's (`dqn.py`), its static choices too. The defaults are those of CleanRL's `c51.py` for classic
control, which has one environment and ten steps where there are ten environments here. The paper has 51 atoms from -10
to 10 on Atari, where rewards are clipped. `v_min` and `v_max` are leaves; returns beyond them cannot be represented.
Deviations: those of `dqn.py`; Adam's epsilon and the clipping of gradients are DQN's too. Results: `docs/results.md`.
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
from jaxrl.nn.value_heads import cross_entropy, entropy, expected_value, two_hot
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
    num_outputs: int = 101  # atoms
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
        check_num_outputs(self.num_outputs, 2, "c51")


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
    v_min: jax.Array = -100.0  # the first atom
    v_max: jax.Array = 100.0  # the last one
    priority_alpha: jax.Array = 0.5  # prioritised: 0 is uniform
    priority_beta: jax.Array = 0.4  # how far its bias is corrected, at first
    priority_steps: jax.Array = 0  # steps until the correction is full; 0: it stays as it is


def atoms(num: int, support: tuple[Any, Any]) -> Float[Array, " num"]:
    """The returns z; `support` is `(v_min, v_max)`."""
    return jnp.linspace(*support, num)


def values(logits: Float[Array, "*batch m"], support: tuple[Any, Any]) -> Float[Array, "*batch"]:
    """Q: the mean of each distribution."""
    return expected_value(logits, atoms(logits.shape[-1], support))


def project(
    values: Float[Array, "*batch k"], probability: Float[Array, "*batch k"], centres: Float[Array, " m"]
) -> Float[Array, "*batch m"]:
    """The distribution of `values` moved onto `centres`: the mass of each goes to the two centres around it.

    The mean is kept unless values lie beyond the centres (eq. 7; `two_hot` is its bracket, clipped to 0 and 1).
    """
    return jnp.sum(probability[..., None] * two_hot(values, centres), -2)


def loss(
    logits: Float[Array, "B m"],
    reward: Float[Array, " B"],
    discount: Float[Array, " B"],
    next_logits: Float[Array, "B m"],
    support: tuple[Any, Any],
) -> tuple[Float[Array, " B"], Float[Array, " B"]]:
    """`(loss, priority)` of each transition: cross entropy with the projected target, and the divergence from it."""
    z = atoms(logits.shape[-1], support)
    target = project(reward[:, None] + discount[:, None] * z, jax.nn.softmax(next_logits), z)
    each = cross_entropy(logits, target)
    return each, each - entropy(target)


@shared
def make(
    env: Environment | VectorEnv,
    config: Config = Config(),
    network: nn.Module | None = None,
    optimizer: OptimizerLike | None = None,
    memory: Replay | None = None,
) -> Algorithm:
    """C51 on `env`. Arguments and errors as of `dqn.make`; a network gives logits (..., n, num_outputs)."""
    return algorithm_of_outputs(
        "c51", env, config, Hyper, network, values, loss, config.num_outputs, True, optimizer, memory
    )


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
