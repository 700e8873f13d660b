"""Random ensemble mixture (REM): DQN with many heads, mixed with random weights at every gradient step.

Agarwal, Schuurmans and Norouzi (2020), "An optimistic perspective on offline reinforcement learning". The network gives
K values of each action. For every batch K uniform numbers divided by their sum are weights alpha, and the mixture

    Q(s, a) = sum_k alpha_k Q_k(s, a)    has the target    r + gamma max_b sum_k alpha_k Q'_k(s', b)

with Huber's loss, so that every mixture of heads learns to satisfy the Bellman equation. Actions maximise the mean over
heads.

Everything else is as in `dqn.py`, with its deviations; there are 64 heads where the paper has 200 on Atari.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from jaxrl.algorithm import Algorithm, as_vector_env, shared, spaces_of
from jaxrl.data.datasets import Dataset
from jaxrl.environment import Environment, pytree, split_observation
from jaxrl.nn.action_values import best_action, outputs_of, value_of
from jaxrl.nn.losses import half_square
from jaxrl.nn.nets import Net
from jaxrl.nn.networks import Network, own
from jaxrl.nn.optim import OptimizerLike
from jaxrl.off_policy import q_learner
from jaxrl.off_policy.q_learner import Batch, apply, weighted_mean
from jaxrl.replay.ring import Replay
from jaxrl.spaces import Discrete, Space
from jaxrl.vector_env import VectorEnv


@dataclasses.dataclass(frozen=True)
class Config(q_learner.Config):
    """Static settings: each value compiles its own program."""

    double: bool = False  # double Q-learning: the online network picks the action that the target network evaluates
    num_outputs: int = 64  # heads, K
    dueling: bool = False  # dueling head of the default network: a state value plus centred advantages
    conv: tuple[int, ...] = ()  # features of 3x3 convolutions over images, before the hidden layers

    def __post_init__(self) -> None:
        super().__post_init__()
        q_learner.check_num_outputs(self.num_outputs, 2, "rem")


@pytree
class Hyper(q_learner.Hyper):
    """Dynamic settings: leaves, so vmap over any of them. Steps are environment steps; on a dataset, gradient steps."""


def mixture(key: Key[Array, ""], num_heads: int) -> Float[Array, " K"]:
    """alpha: uniform numbers, divided by their sum."""
    drawn = jax.random.uniform(key, (num_heads,))
    return drawn / jnp.sum(drawn)


@dataclasses.dataclass(frozen=True)
class _REM:
    """The learning rule, a `q_learner.Rule`.

    After an update, every `target_period` steps, the learner moves the target network to the online one by `tau`.
    """

    config: Config
    network: Network  # values (..., n, num_outputs)
    observation_space: Space
    draws = True  # it draws the mixture's weights

    def init(self, key: Array, obs: Any) -> Any:
        return self.network.init(key, obs)

    def support(self, hyper: Hyper) -> tuple:
        return ()

    def values(self, weights: Any, obs: Any, support: Any, key: Array | None) -> Float[Array, "..."]:
        """The means over heads."""
        return jnp.mean(apply(self.network, weights, obs, None)[0], -1)

    def ahead(self, target_weights: Any, batch: Batch, hyper: Hyper, key: Array | None) -> Float[Array, "B n K"]:
        """The target network's heads for all actions at next_obs."""
        return apply(self.network, target_weights, batch.next_obs, None)[0]

    def gradient_step(
        self, net: Net, batch: Batch, ahead: Array, key: Array, hyper: Hyper, learning_rate: Array
    ) -> tuple[Net, dict[str, Array]]:
        """One mixture of heads for prediction, target and next action; Huber's loss (algorithm 1)."""
        alpha = mixture(key, self.config.num_outputs)
        next_q = ahead @ alpha
        allowed = split_observation(batch.next_obs, self.observation_space)[2]

        def objective(weights: Any) -> tuple[Array, dict[str, Array]]:
            heads, report = apply(self.network, weights, batch.obs, None)
            q = outputs_of(heads, batch.action) @ alpha
            choosing = next_q
            if self.config.double:
                choosing = apply(self.network, jax.lax.stop_gradient(weights), batch.next_obs, None)[0] @ alpha
            following = jax.lax.stop_gradient(value_of(next_q, best_action(choosing, allowed)))
            error = q - (batch.reward + batch.discount * following)
            report = {"priority": jnp.abs(error), "q_value": jnp.mean(q), **report}
            return weighted_mean(half_square(error, huber=True), batch.weight), report

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
    """REM on `env`. Equal arguments give the same functions, so they share one jit cache.

    `q_learner.algorithm` explains `replay`, `optimizer` and the errors. `network` is a flax module from an
    observation (a dict keeps its `action_mask`) to values (..., n, num_outputs).
    """
    venv = as_vector_env(env, config.num_envs)
    observation_space, space = spaces_of("rem", venv, Discrete)
    network = own("network", network) or q_learner.q_network(config, observation_space, space.n, config.num_outputs)
    rule = _REM(config, network, observation_space)
    algo = q_learner.algorithm("rem", venv, config, Hyper, rule, replay=replay, optimizer=optimizer)
    q_learner.check_network(algo, network, space.n, config.num_outputs)
    return algo


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
