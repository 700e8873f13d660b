"""C51: a categorical distribution of returns.

Bellemare, Dabney and Munos (2017), "A distributional perspective on reinforcement learning" (arXiv:1707.06887). The
network gives logits of m atoms z[i], equidistant from v_min to v_max, for each action; Q(s, a) is their mean. The
target distribution puts the successor's probabilities at

    y[i] = reward + discount * z[i],    of the next action that maximises the mean in the target network,

and splits the mass of each y[i], clipped to the support, between the two atoms around it, in proportion to how near
they are (eq. 7 and algorithm 1). The loss is the cross entropy with it.

Everything else is DQN's (`dqn.py`), its static choices too: this file is `dqn.Config.critic = "c51"` with the defaults
of CleanRL's `c51.py` for classic control, which has one environment and ten steps where there are ten environments
here. The paper has 51 atoms from -10 to 10 on Atari, where rewards are clipped. `v_min` and `v_max` are leaves; returns
beyond them cannot be represented. Deviations: those of `dqn.py`;
Adam's epsilon and the clipping of gradients are DQN's too. Results: `docs/results.md`.
"""

from __future__ import annotations

import dataclasses
import functools

import flax.linen as nn

from jaxrl.algorithm import Algorithm
from jaxrl.algos import dqn
from jaxrl.algos.dqn import Hyper
from jaxrl.environment import Environment
from jaxrl.vectorize import VectorEnv

__all__ = ["Config", "Hyper", "make"]


@dataclasses.dataclass(frozen=True)
class Config(dqn.Config):
    """Static settings: see `dqn.Config`."""

    critic: str = "c51"
    num_outputs: int = 101  # atoms
    double: bool = False


@functools.cache
def make(env: Environment | VectorEnv, config: Config = Config(), network: nn.Module | None = None) -> Algorithm:
    """C51 on `env`. Arguments and errors as of `dqn.make`; a network gives logits (..., n, num_outputs)."""
    return dqn.build("c51", Hyper, env, config, network)


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
