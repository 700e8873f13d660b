"""QR-DQN: quantiles of the return.

Dabney, Rowland, Bellemare and Munos (2018), "Distributional reinforcement learning with quantile regression"
(arXiv:1710.10044). The network gives N values theta[i] for each action; theta[i] estimates the quantile of the return
at tau[i] = (2i + 1) / 2N, and Q(s, a) is their mean. With theta' the target network's quantiles of the next action that
maximises their mean, the errors are u[i, j] = reward + discount * theta'[j] - theta[i], and the loss is

    sum over i of the mean over j of |tau[i] - [u[i, j] < 0]| L(u[i, j]),    L: Huber's loss with slope 1 beyond 1

(eq. 9 and 10, kappa = 1). No range of returns has to be known, unlike C51.

Everything else is as in `dqn.py`, with its static choices. Deviations: those of `dqn.py`; 51 quantiles, where the
paper has 200 on Atari: in classic control returns vary little, and the loss costs N^2. Results: `docs/results.md`.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxrl.algorithm import Algorithm, as_vector_env, shared, spaces_of
from jaxrl.data.datasets import Dataset
from jaxrl.environment import Environment, pytree, split_observation
from jaxrl.nn.action_values import best_action, outputs_of
from jaxrl.nn.nets import Net
from jaxrl.nn.networks import Network, own
from jaxrl.nn.optim import OptimizerLike
from jaxrl.nn.value_heads import fractions, quantile_huber
from jaxrl.off_policy import q_learner
from jaxrl.off_policy.q_learner import Batch, apply, split_or_none, weighted_mean
from jaxrl.replay.ring import Replay
from jaxrl.spaces import Discrete, Space
from jaxrl.vector_env import VectorEnv


@dataclasses.dataclass(frozen=True)
class Config(q_learner.Config):
    """Static settings: each value compiles its own program."""

    double: bool = False  # double Q-learning: the online network picks the action that the target network evaluates
    num_outputs: int = 51  # quantiles
    dueling: bool = False  # dueling head of the default network: a state value plus centred advantages
    noisy: bool = False  # noisy layers in the default network explore, in the place of random actions
    conv: tuple[int, ...] = ()  # features of 3x3 convolutions over images, before the hidden layers

    def __post_init__(self) -> None:
        super().__post_init__()
        q_learner.check_num_outputs(self.num_outputs, 2, "qr_dqn")


@pytree
class Hyper(q_learner.Hyper):
    """Dynamic settings: leaves, so vmap over any of them. Steps are environment steps; on a dataset, gradient steps."""


def values(quantiles: Float[Array, "*batch N"]) -> Float[Array, "*batch"]:
    """Q: the mean of each distribution."""
    return jnp.mean(quantiles, -1)


def loss(
    quantiles: Float[Array, "B N"],
    reward: Float[Array, " B"],
    discount: Float[Array, " B"],
    next_quantiles: Float[Array, "B N"],
) -> Float[Array, " B"]:
    """The quantile Huber loss of each transition (equation 10 and algorithm 1)."""
    targets = reward[:, None] + discount[:, None] * next_quantiles
    return quantile_huber(quantiles, fractions(quantiles.shape[-1]), targets)


@dataclasses.dataclass(frozen=True)
class _QRDQN:
    """The learning rule, a `q_learner.Rule`.

    After an update, every `target_period` steps, the learner moves the target network to the online one by `tau`.
    """

    config: Config
    network: Network  # quantiles (..., n, num_outputs)
    observation_space: Space

    @property
    def draws(self) -> bool:
        return self.config.noisy

    def init(self, key: Array, obs: Any) -> Any:
        return self.network.init(key, obs)

    def support(self, hyper: Hyper) -> tuple:
        return ()

    def values(self, weights: Any, obs: Any, support: Any, key: Array | None) -> Float[Array, "..."]:
        return values(apply(self.network, weights, obs, key)[0])

    def ahead(self, target_weights: Any, batch: Batch, hyper: Hyper, key: Array | None) -> Float[Array, "B n N"]:
        """The target network's quantiles for all actions at next_obs."""
        return apply(self.network, target_weights, batch.next_obs, key)[0]

    def gradient_step(
        self, net: Net, batch: Batch, ahead: Array, key: Array | None, hyper: Hyper, learning_rate: Array
    ) -> tuple[Net, dict[str, Array]]:
        """The next action, its quantiles as targets, the quantile Huber loss (algorithm 1)."""
        online_key, choice_key = split_or_none(key)
        allowed = split_observation(batch.next_obs, self.observation_space)[2]

        def objective(weights: Any) -> tuple[Array, dict[str, Array]]:
            quantiles, report = apply(self.network, weights, batch.obs, online_key)
            choosing = ahead
            if self.config.double:
                choosing, _ = apply(self.network, jax.lax.stop_gradient(weights), batch.next_obs, choice_key)
            next_action = best_action(values(choosing), allowed)
            taken = outputs_of(quantiles, batch.action)
            following = jax.lax.stop_gradient(outputs_of(ahead, next_action))
            each = loss(taken, batch.reward, batch.discount, following)
            report = {"priority": each, "q_value": jnp.mean(values(taken)), **report}
            return weighted_mean(each, batch.weight), report

        return net.descend(objective, learning_rate, hyper.max_grad_norm)


@shared
def make(
    env: Environment | VectorEnv,
    config: Config = Config(),
    *,
    replay: Replay | Dataset | None = None,
    network: Network | None = None,
    optimizer: OptimizerLike | None = None,
) -> Algorithm:
    """QR-DQN on `env`. Arguments and errors as of `dqn.make`; a network gives quantiles (..., n, num_outputs)."""
    venv = as_vector_env(env, config.num_envs)
    observation_space, space = spaces_of("qr_dqn", venv, Discrete)
    network = own("network", network) or q_learner.q_network(config, observation_space, space.n, config.num_outputs)
    rule = _QRDQN(config, network, observation_space)
    algo = q_learner.algorithm("qr_dqn", venv, config, Hyper, rule, replay=replay, optimizer=optimizer)
    q_learner.check_network(algo, network, space.n, config.num_outputs)
    return algo


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
