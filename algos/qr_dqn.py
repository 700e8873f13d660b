"""QR-DQN: quantiles of the return.

Dabney, Rowland, Bellemare and Munos (2018), "Distributional reinforcement learning with quantile regression"
(arXiv:1710.10044). The network gives N values theta[i] for each action, theta[i] learning to be the quantile of the
return at tau[i] = (2i + 1) / 2N; Q(s, a) is their mean. With the target network's theta' of the next action that
maximises its mean, the errors are u[i, j] = reward + discount * theta'[j] - theta[i], and the loss is

    sum over i of the mean over j of |tau[i] - [u[i, j] < 0]| L(u[i, j]),    L: Huber's loss with slope 1 beyond 1

(eq. 9 and 10, kappa = 1). No range of returns has to be known, unlike C51.

Everything else is DQN's (`dqn.py`), its static choices too: this file is `dqn.Config.critic = "quantile"`. Deviations:
those of `dqn.py`; 51 quantiles, where the paper has 200 on Atari: in classic control returns vary little, and the loss
costs N^2. Results: `docs/results.md`.
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

    critic: str = "quantile"
    num_outputs: int = 51  # quantiles
    double: bool = False


@functools.cache
def make(env: Environment | VectorEnv, config: Config = Config(), network: nn.Module | None = None) -> Algorithm:
    """QR-DQN on `env`. Arguments and errors as of `dqn.make`; a network gives quantiles (..., n, num_outputs)."""
    return dqn.build("qr_dqn", Hyper, env, config, network)


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
