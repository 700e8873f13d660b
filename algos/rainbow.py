"""Rainbow: DQN with six improvements together.

Hessel et al. (2018), "Rainbow: combining improvements in deep reinforcement learning" (arXiv:1710.02298). Each is a
static choice of `dqn.py`, and this file switches all of them on:

    double      the online network picks the next action
    prioritised transitions drawn in proportion to KL(target || prediction)^alpha; weights (size P)^-beta, beta -> 1
    dueling     of each atom, value + advantage - mean advantage; the softmax over atoms comes after it
    n_step      three rewards before the bootstrap
    c51         a categorical distribution of returns, its target projected onto the atoms
    noisy       factorised noise on all weights instead of random actions; greedy actions use the means

Deviations: those of `dqn.py`; the two streams of the dueling head share all hidden layers; the learning rate is 2.5e-4
for classic control, where the paper has 6.25e-5 on Atari, and the 51 atoms reach from -100 to 100, as rewards are not
clipped; each environment of a rollout draws noise of its own. Set `priority_steps`, over which the correction of the
bias becomes full, to the length of the run.
"""

from __future__ import annotations

import dataclasses
import functools

import flax.linen as nn
import jax

from jaxrl.algorithm import Algorithm
from jaxrl.algos import dqn
from jaxrl.environment import Environment, pytree
from jaxrl.vectorize import VectorEnv


@dataclasses.dataclass(frozen=True)
class Config(dqn.Config):
    """Static settings: see `dqn.Config`. Each improvement can be taken away."""

    n_step: int = 3
    double: bool = True
    critic: str = "c51"
    num_outputs: int = 51  # atoms
    prioritised: bool = True
    dueling: bool = True
    noisy: bool = True


@pytree
class Hyper(dqn.Hyper):
    """Dynamic settings: see `dqn.Hyper`."""

    epsilon_start: jax.Array = 0.0  # the noise explores
    epsilon_end: jax.Array = 0.0
    exploration_steps: jax.Array = 0
    priority_steps: jax.Array = 500_000


@functools.cache
def make(env: Environment | VectorEnv, config: Config = Config(), network: nn.Module | None = None) -> Algorithm:
    """Rainbow on `env`. Arguments and errors as of `dqn.make`; a network that is brought along draws its own noise.

    It finds the key as its rng "noise", absent where actions are greedy, and gives logits (..., n, num_outputs).
    """
    return dqn.build("rainbow", Hyper, env, config, network)


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
