"""Implicit Q-learning (IQL).

Kostrikov, Nair and Levine (2022), "Offline reinforcement learning with implicit Q-learning". Values are only computed
for actions of the dataset: a state value follows an upper expectile of the target critics' values, the critics regress
on the state value, and the actor clones the dataset's actions, weighted by their advantages,

    value   mean L(min_k Q'_k(s, a) - V(s)),    L(u) = |expectile - 1(u < 0)| u^2
    critics r + gamma (1 - terminated) V(s')
    actor   -mean min(exp(beta (min_k Q'_k(s, a) - V(s))), 100) log pi(a | s)

Rewards r are `Hyper.reward_scale` times the task's reward plus `Hyper.reward_bias`, for steps of the dataset and of the
learner. On locomotion the authors scale by 1,000 over the difference of the best and the worst return
(`datasets.reward_scale`), on AntMaze they subtract 1; beta 3 and 10 are for such rewards. By default r is the task's
reward.

The actor is a normal distribution whose mean is a tanh and whose standard deviation does not depend on the state;
samples are clipped to the box. Without a dataset it acts by samples and learns with the same losses (the paper's online
fine-tuning).

Deviations from the authors' code: actions are in units of the box; orthogonal initialisation with a small last layer of
the actor; the actor's learning rate is constant, where theirs falls along a cosine over the whole training.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxrl.algorithm import Algorithm, as_vector_env, shared, spaces_of
from jaxrl.data.datasets import Dataset
from jaxrl.data.transitions import Batch
from jaxrl.environment import Environment, pytree
from jaxrl.nn.actor_critic import Critic, Gaussian, GaussianActor, Value
from jaxrl.nn.losses import advantage_weighted_loss, critic_loss, expectile_loss, td_target
from jaxrl.nn.nets import Nets, critic_values
from jaxrl.nn.networks import Network, own
from jaxrl.nn.optim import OptimizerLike
from jaxrl.off_policy import learner
from jaxrl.replay.ring import Replay
from jaxrl.spaces import Box
from jaxrl.vector_env import VectorEnv


@dataclasses.dataclass(frozen=True)
class Config(learner.Config):
    """Static settings: each value compiles its own program."""


@pytree
class Hyper(learner.Hyper):
    """Dynamic settings: leaves, so vmap over any of them."""

    expectile: jax.Array = 0.7  # of the state value; towards 1 it nears the value of the dataset's best action
    beta: jax.Array = 3.0  # inverse temperature of the advantage weights
    reward_scale: jax.Array = 1.0  # factor of each reward; see datasets.reward_scale
    reward_bias: jax.Array = 0.0  # added to each scaled reward; -1 on AntMaze


@dataclasses.dataclass(frozen=True)
class _IQL:
    """The learning rule, a `learner.Rule`."""

    networks: ClassVar[tuple[str, ...]] = ("value", "critic", "actor")
    targets: ClassVar[tuple[str, ...]] = ("critic",)

    value: Any  # flax modules
    critic: Any
    actor: Gaussian

    init = learner.init_with_value

    def gradient_step(self, nets: Nets, key: Array, batch: Batch, hyper: Hyper) -> tuple[Nets, dict[str, Array]]:
        """The value, the critics, the actor, the target critics (Kostrikov et al. 2022, algorithm 1)."""
        value, critic, actor = (nets[name] for name in self.networks)
        settings = hyper.learning_rate, hyper.max_grad_norm
        q_target = jnp.min(critic_values(self.critic, critic.target, batch.obs, batch.action), 0)

        def value_objective(weights: Any) -> tuple[Array, dict[str, Array]]:
            advantage = q_target - self.value.apply(weights, batch.obs)
            return expectile_loss(advantage, hyper.expectile), {"advantage": jnp.mean(advantage)}

        value, value_report = value.descend(value_objective, *settings)
        next_value = self.value.apply(value.weights, batch.next_obs)
        reward = hyper.reward_scale * batch.reward + hyper.reward_bias
        target = td_target(reward, batch.terminated, next_value, hyper.gamma)

        def critic_objective(weights: Any) -> tuple[Array, dict[str, Array]]:
            q = critic_values(self.critic, weights, batch.obs, batch.action)
            return critic_loss(q, target), {"q_value": jnp.mean(q)}

        critic, critic_report = critic.descend(critic_objective, *settings)
        advantage = q_target - self.value.apply(value.weights, batch.obs)

        def actor_objective(weights: Any) -> tuple[Array, dict[str, Array]]:
            log_prob = self.actor(weights, batch.obs).log_prob(batch.action)
            return advantage_weighted_loss(log_prob, hyper.beta * advantage), {}

        actor, actor_report = actor.descend(actor_objective, *settings)
        nets = {"value": value, "critic": critic.track(hyper.tau), "actor": actor}
        return nets, {**value_report, **critic_report, **actor_report}


@shared
def make(
    env: Environment | VectorEnv,
    config: Config = Config(),
    *,
    replay: Replay | Dataset | None = None,
    actor: Network | None = None,
    critic: Network | None = None,
    optimizer: OptimizerLike | None = None,
) -> Algorithm:
    """IQL for `env`. Equal arguments give the same functions, so they share one jit cache.

    `learner.algorithm` explains the arguments and the errors; `actor` is the network of a `Gaussian`, and there
    are two critics.
    """
    venv = as_vector_env(env, config.num_envs)
    obs_space, space = spaces_of("iql", venv, Box, between_ends=True)
    sizes = config.hidden, config.activation, config.layer_norm
    critic = own("critic", critic) or Critic(obs_space, *sizes)
    acting = Gaussian(own("actor", actor) or GaussianActor(obs_space, space, config.hidden, config.activation))
    rule = _IQL(Value(obs_space, *sizes), critic, acting)
    return learner.algorithm(
        "iql", venv, config, Hyper, rule, acting, replay=replay, optimizer=optimizer, critic=critic
    )


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
