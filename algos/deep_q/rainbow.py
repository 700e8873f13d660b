"""Rainbow is C51 (`c51.py`) with five further improvements of DQN.

Hessel et al. (2018), "Rainbow: combining improvements in deep reinforcement learning" (arXiv:1710.02298). Five are
static choices that `dqn.py` and `c51.py` have too, switched on here; each can be switched off:

    double      the online network picks the next action
    prioritised transitions drawn in proportion to KL(target || prediction)^alpha; weights (size P)^-beta, beta -> 1
    dueling     for each atom, value + advantage - mean advantage, followed by the softmax over atoms
    n_step      three rewards before the bootstrap
    noisy       factorised noise on all weights instead of random actions; greedy actions use the mean weights

The sixth is C51's categorical distribution of returns, with the values and the loss of `c51.py`: with R the window's
sum of rewards and gamma^k its discount, the loss is the cross entropy with the projection onto z of the atoms R +
gamma^k z, which have the target network's probabilities for the action argmax_a of the online network's means. Without
the sixth Rainbow is `dqn.py` with these settings.

Deviations: those of `dqn.py`; the two streams of the dueling head share all hidden layers; the learning rate is 2.5e-4
for classic control, where the paper has 6.25e-5 on Atari, and the 51 atoms reach from -100 to 100, as rewards are not
clipped; each environment of a rollout draws separate noise. Set `priority_steps`, after which the importance weights
correct the whole bias, to the length of the run.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxrl.algorithm import Algorithm, as_vector_env, shared, spaces_of
from jaxrl.algos.deep_q import c51
from jaxrl.environment import Environment, pytree, split_observation
from jaxrl.nn.action_values import best_action, outputs_of
from jaxrl.nn.nets import Net
from jaxrl.nn.networks import Network, own
from jaxrl.nn.optim import OptimizerLike
from jaxrl.off_policy import q_learner
from jaxrl.off_policy.q_learner import Batch, apply, clipped_targets, split_or_none, weighted_mean
from jaxrl.spaces import Discrete
from jaxrl.vector_env import VectorEnv


@dataclasses.dataclass(frozen=True)
class Config(c51.Config):
    """Static settings: each value compiles its own program."""

    n_step: int = 3  # rewards before the bootstrap
    double: bool = True  # double Q-learning: the online network picks the action that the target network evaluates
    num_outputs: int = 51  # atoms
    prioritised: bool = True  # prioritised replay, with Hyper.priority_*; else uniform
    dueling: bool = True  # dueling head of the default network: a state value plus centred advantages
    noisy: bool = True  # noisy layers in the default network explore; without them set epsilon_start


@pytree
class Hyper(c51.Hyper):
    """Dynamic settings: leaves, so vmap over any of them. Steps are environment steps."""

    epsilon_start: jax.Array = 0.0  # probability of a random action: the noise explores
    epsilon_end: jax.Array = 0.0  # and after exploration_steps; linear in between
    exploration_steps: jax.Array = 0
    priority_alpha: jax.Array = 0.5  # exponent of priorities; 0: uniform
    priority_steps: jax.Array = 500_000  # steps until priority_beta is 1; 0: constant


@dataclasses.dataclass(frozen=True)
class _Rainbow:
    """The learning rule, a `q_learner.Rule`: C51's loss with a double arg-max.

    `n_step` and `prioritised` are settings of the replay buffer: `batch.reward` is a window's discounted sum,
    `batch.weight` its importance weight, and the reported priorities replace the old ones. `dueling` and `noisy` are
    settings of the network; with noise `epsilon_start` and `epsilon_end` have no effect. After an update, every
    `target_period` steps, the learner moves the target network to the online one by `tau`.
    """

    config: Any
    network: Any  # a flax module: logits (..., n, num_outputs)
    observation_space: Any

    @property
    def draws(self) -> bool:
        return self.config.noisy

    def init(self, key: Array, obs: Any) -> Any:
        return self.network.init(key, obs)

    def support(self, hyper: Any) -> tuple[Array, Array]:
        return q_learner.limits(hyper)

    def values(self, weights: Any, obs: Any, support: Any, key: Array | None) -> Float[Array, "..."]:
        return c51.values(apply(self.network, weights, obs, key)[0], support)

    def ahead(self, target_weights: Any, batch: Batch, hyper: Any, key: Array | None) -> Float[Array, "B n m"]:
        """The target network's logits for all actions at next_obs."""
        return apply(self.network, target_weights, batch.next_obs, key)[0]

    def gradient_step(
        self, net: Net, batch: Batch, ahead: Array, key: Array | None, hyper: Any, learning_rate: Array
    ) -> tuple[Net, dict[str, Array]]:
        """Double Q-learning's next action, the projected n-step target, the weighted cross entropy (section 4)."""
        support, (online_key, choice_key) = self.support(hyper), split_or_none(key)
        allowed = split_observation(batch.next_obs, self.observation_space)[2]

        def objective(weights: Any) -> tuple[Array, dict[str, Array]]:
            logits, report = apply(self.network, weights, batch.obs, online_key)
            choosing = ahead
            if self.config.double:
                choosing, _ = apply(self.network, jax.lax.stop_gradient(weights), batch.next_obs, choice_key)
            next_action = best_action(c51.values(choosing, support), allowed)
            taken = outputs_of(logits, batch.action)
            following = jax.lax.stop_gradient(outputs_of(ahead, next_action))
            each, priority = c51.loss(taken, batch.reward, batch.discount, following, support)
            target = batch.reward + batch.discount * c51.values(following, support)
            report |= {"q_value": jnp.mean(c51.values(taken, support))}
            report["clipped_targets"] = clipped_targets(target, support)
            return weighted_mean(each, batch.weight), {"priority": priority, **report}

        return net.descend(objective, learning_rate, hyper.max_grad_norm)


@shared
def make(
    env: Environment | VectorEnv,
    config: Config = Config(),
    *,
    network: Network | None = None,
    optimizer: OptimizerLike | None = None,
) -> Algorithm:
    """Rainbow on `env`. Arguments and errors as of `dqn.make`.

    A `network` of yours gives logits (..., n, num_outputs). It draws noise with the rng "noise", which is absent for
    greedy actions.
    """
    venv = as_vector_env(env, config.num_envs)
    observation_space, space = spaces_of("rainbow", venv, Discrete)
    network = own("network", network) or q_learner.q_network(config, observation_space, space.n, config.num_outputs)
    rule = _Rainbow(config, network, observation_space)
    algo = q_learner.algorithm("rainbow", venv, config, Hyper, rule, optimizer=optimizer)
    q_learner.check_network(algo, network, space.n, config.num_outputs)
    return algo


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
