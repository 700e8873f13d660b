"""Rainbow: DQN with six improvements together.

Hessel et al. (2018), "Rainbow: combining improvements in deep reinforcement learning" (arXiv:1710.02298). Five are
static choices that `dqn.py` and `c51.py` have too, switched on here, and each can be taken away:

    double      the online network picks the next action
    prioritised transitions drawn in proportion to KL(target || prediction)^alpha; weights (size P)^-beta, beta -> 1
    dueling     of each atom, value + advantage - mean advantage; the softmax over atoms comes after it
    n_step      three rewards before the bootstrap
    noisy       factorised noise on all weights instead of random actions; greedy actions use the means

The sixth is C51's categorical distribution of returns, whose values and loss (`c51.py`) are this algorithm's: with the
window's sum of rewards R and discount gamma^k,

    cross entropy with the projection of R + gamma^k z onto z, of the target network's probabilities for
    argmax_a of the online network's means;

without it Rainbow is `dqn.py` with these settings.

Deviations: those of `dqn.py`; the two streams of the dueling head share all hidden layers; the learning rate is 2.5e-4
for classic control, where the paper has 6.25e-5 on Atari, and the 51 atoms reach from -100 to 100, as rewards are not
clipped; each environment of a rollout draws noise of its own. Set `priority_steps`, over which the correction of the
bias becomes full, to the length of the run.
"""

from __future__ import annotations

import dataclasses

import flax.linen as nn
import jax

from jaxrl.algorithm import Algorithm, shared
from jaxrl.algos.deep_q import c51
from jaxrl.environment import Environment, pytree
from jaxrl.nn.optim import OptimizerLike
from jaxrl.replay.deep_q import algorithm_of_outputs, check_num_outputs, check_sizes
from jaxrl.vectorize import VectorEnv


@dataclasses.dataclass(frozen=True)
class Config:
    """Static settings: each value compiles its own program."""

    num_envs: int = 10  # environments stepped together
    num_steps: int = 1  # steps of each between updates
    num_updates: int = 1  # gradient steps an update, at most: see Hyper.replay_ratio
    batch_size: int = 128
    buffer_size: int = 10_000  # transitions kept; a multiple of num_envs
    n_step: int = 3  # rewards before the bootstrap
    double: bool = True  # the online network picks the action that the target network values
    num_outputs: int = 51  # atoms
    prioritised: bool = True  # replay by the priorities of Hyper, not uniformly
    dueling: bool = True  # the default network's head: a state value plus centred advantages
    noisy: bool = True  # the default network explores by noise on its weights; without it set epsilon_start
    conv: tuple[int, ...] = ()  # features of 3x3 convolutions over images, before the hidden layers
    hidden: tuple[int, ...] = (120, 84)
    activation: str = "relu"
    optimizer: str = "adam"  # a name of optim.OPTIMIZERS
    adam_eps: float = 1e-8  # added to the denominator of Adam and its kin

    def __post_init__(self) -> None:
        check_sizes(self)
        check_num_outputs(self.num_outputs, 2, "rainbow")


@pytree
class Hyper:
    """Dynamic settings: leaves, so vmap over any of them. Steps are environment steps."""

    learning_rate: jax.Array = 2.5e-4
    anneal_steps: jax.Array = 0  # steps over which the learning rate goes to zero; 0: constant
    gamma: jax.Array = 0.99  # discount
    epsilon_start: jax.Array = 0.0  # probability of a random action: the noise explores
    epsilon_end: jax.Array = 0.0  # and after exploration_steps, linear between
    exploration_steps: jax.Array = 0
    learning_starts: jax.Array = 10_000  # steps before the first gradient step
    target_period: jax.Array = 500  # steps between updates of the target network; at most once an update
    tau: jax.Array = 1.0  # how far it then moves to the online one; 1: a copy
    max_grad_norm: jax.Array = 10.0
    replay_ratio: jax.Array = float("inf")  # gradient steps per environment step; inf: num_updates an update
    v_min: jax.Array = -100.0  # the first atom
    v_max: jax.Array = 100.0  # the last one
    priority_alpha: jax.Array = 0.5  # prioritised: 0 is uniform
    priority_beta: jax.Array = 0.4  # how far its bias is corrected, at first
    priority_steps: jax.Array = 500_000  # steps until the correction is full; 0: it stays as it is


@shared
def make(
    env: Environment | VectorEnv,
    config: Config = Config(),
    network: nn.Module | None = None,
    optimizer: OptimizerLike | None = None,
) -> Algorithm:
    """Rainbow on `env`. Arguments and errors as of `dqn.make`; a network that is brought along draws its own noise.

    It finds the key as its rng "noise", absent where actions are greedy, and gives logits (..., n, num_outputs).
    """
    return algorithm_of_outputs(
        "rainbow", env, config, Hyper, network, c51.values, c51.loss, config.num_outputs, True, optimizer
    )


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
