"""Advantage-weighted actor-critic (AWAC).

Nair, Gupta, Dalal and Levine (2020), "AWAC: accelerating online reinforcement learning with offline datasets". The
critics regress on the value of the actor's actions; the actor clones stored actions, weighted by their advantages,

    critics r + gamma (1 - terminated) min_k Q'_k(s', a'),   a' ~ pi(s')
    actor   -mean min(exp(A / temperature), 100) log pi(a | s),   A = min_k Q_k(s, a) - min_k Q_k(s, b),   b ~ pi(s)

so the same losses serve for a dataset and for the steps that the learner takes itself. Deviations from the authors'
code: weights are not normalised over the batch but clipped at 100; actions are in units of the box; orthogonal
initialisation with a small last layer of the actor.
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
from jaxrl.nn.actor_critic import (
    Critic,
    Gaussian,
    GaussianActor,
)
from jaxrl.nn.losses import advantage_weighted_loss, critic_loss, td_target
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

    temperature: jax.Array = 1.0  # of the advantage weights


@dataclasses.dataclass(frozen=True)
class _AWAC:
    """The learning rule, a `learner.Rule`."""

    networks: ClassVar[tuple[str, ...]] = ("critic", "actor")
    targets: ClassVar[tuple[str, ...]] = ("critic",)

    critic: Any  # a flax module
    actor: Gaussian

    init = learner.init_twin

    def gradient_step(self, nets: Nets, key: Array, batch: Batch, hyper: Hyper) -> tuple[Nets, dict[str, Array]]:
        """The critics on the actor's next action, then cloning by the advantage (Nair et al. 2020, algorithm 1)."""
        critic, actor = nets["critic"], nets["actor"]
        critic_key, actor_key = jax.random.split(key)
        settings = hyper.learning_rate, hyper.max_grad_norm

        next_action = self.actor.explore(actor.weights, critic_key, batch.next_obs)
        next_q = critic_values(self.critic, critic.target, batch.next_obs, next_action)
        target = td_target(batch.reward, batch.terminated, jnp.min(next_q, 0), hyper.gamma)

        def critic_objective(weights: Any) -> tuple[Array, dict[str, Array]]:
            q = critic_values(self.critic, weights, batch.obs, batch.action)
            return critic_loss(q, target), {"q_value": jnp.mean(q)}

        critic, critic_report = critic.descend(critic_objective, *settings)
        drawn = self.actor.explore(actor.weights, actor_key, batch.obs)
        q_data, q_actor = (
            jnp.min(critic_values(self.critic, critic.weights, batch.obs, a), 0) for a in (batch.action, drawn)
        )
        advantage = q_data - q_actor

        def actor_objective(weights: Any) -> tuple[Array, dict[str, Array]]:
            log_prob = self.actor(weights, batch.obs).log_prob(batch.action)
            loss = advantage_weighted_loss(log_prob, advantage / hyper.temperature)
            return loss, {"advantage": jnp.mean(advantage)}

        actor, actor_report = actor.descend(actor_objective, *settings)
        return {"critic": critic.track(hyper.tau), "actor": actor}, {**critic_report, **actor_report}


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
    """AWAC for `env`. Equal arguments give the same functions, so they share one jit cache.

    `learner.algorithm` explains the arguments and the errors; `actor` is the network of a `Gaussian`, and there
    are two critics.
    """
    venv = as_vector_env(env, config.num_envs)
    obs_space, space = spaces_of("awac", venv, Box, between_ends=True)
    critic = own("critic", critic) or Critic(obs_space, config.hidden, config.activation, config.layer_norm)
    acting = Gaussian(own("actor", actor) or GaussianActor(obs_space, space, config.hidden, config.activation))
    rule = _AWAC(critic, acting)
    return learner.algorithm(
        "awac", venv, config, Hyper, rule, acting, replay=replay, optimizer=optimizer, critic=critic
    )


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
