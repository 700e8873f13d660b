"""Maximize to explore (MEX) is TD3 (`td3.py`) with optimistic critics.

Liu et al. (2023), "Maximize to explore: one objective function fusing estimation, planning, and exploration". The
critics' loss is TD3's minus `optimism` times the mean over the batch of sum_k Q_k(s, a) or, with `Config.baseline`, of
sum_k A_k with

    A_k = Q_k(s, mu(s)) - log sum_a' exp Q_k(s, a')    over a' in {a, mu(s'), a uniform one}

as in the authors' released code (there the second sum takes Q_1 at the batch's action, here Q_2). With an optimism of 0
it is TD3.

Deviations: those of `td3.py`.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxrl.algorithm import Algorithm, as_vector_env, shared, spaces_of
from jaxrl.algos.actor_critic import td3
from jaxrl.data.datasets import Dataset
from jaxrl.data.transitions import Batch
from jaxrl.environment import Environment, pytree
from jaxrl.nn.actor_critic import (
    Actor,
    Critic,
    Deterministic,
)
from jaxrl.nn.losses import critic_loss, td_target
from jaxrl.nn.nets import Nets, apply_critics, critic_values
from jaxrl.nn.networks import Network, own
from jaxrl.nn.optim import OptimizerLike
from jaxrl.off_policy import learner
from jaxrl.replay.ring import Replay
from jaxrl.spaces import Box
from jaxrl.vector_env import VectorEnv


@dataclasses.dataclass(frozen=True)
class Config(td3.Config):
    """Static settings: each value compiles its own program."""

    baseline: bool = False  # optimism about A_k, the actor's action against others, not about the batch's action


@pytree
class Hyper(td3.Hyper):
    """Dynamic settings: leaves, so vmap over any of them."""

    optimism: jax.Array = 0.001  # eta


def advantage(q_actor: Float[Array, "K B"], q_others: Float[Array, "K B n"]) -> Float[Array, "K B"]:
    """A_k: the value of the actor's action minus the logsumexp over n others (as in MEX's released code)."""
    return q_actor - jax.nn.logsumexp(q_others, -1)


@dataclasses.dataclass(frozen=True)
class _MEX:
    """The learning rule, a `learner.Rule`."""

    networks: ClassVar[tuple[str, ...]] = ("critic", "actor")
    targets: ClassVar[tuple[str, ...]] = ("critic", "actor")

    config: Config
    critic: Any  # a flax module
    actor: Deterministic

    init = learner.init_twin

    def gradient_step(self, nets: Nets, key: Array, batch: Batch, hyper: Hyper) -> tuple[Nets, dict[str, Array]]:
        """TD3's gradient step, with the optimism term in the critics' loss."""
        critic, actor = nets["critic"], nets["actor"]
        noise_key, random_key = jax.random.split(key)
        settings = hyper.learning_rate, hyper.max_grad_norm

        next_action = self.actor(actor.target, batch.next_obs)
        next_action = td3.smoothed(noise_key, next_action, hyper.policy_noise, hyper.noise_clip)
        next_q = critic_values(self.critic, critic.target, batch.next_obs, next_action)
        target = td_target(batch.reward, batch.terminated, jnp.min(next_q, 0), hyper.gamma)
        tried = [self.actor(actor.weights, x) for x in (batch.obs, batch.next_obs)]
        tried.append(jax.random.uniform(random_key, batch.action.shape, batch.action.dtype, -1, 1))

        def critic_objective(weights: Any) -> tuple[Array, dict[str, Array]]:
            q, active = apply_critics(self.critic, weights, batch.obs, batch.action)
            optimistic = q
            if self.config.baseline:
                q_actor, *others = (critic_values(self.critic, weights, batch.obs, action) for action in tried)
                optimistic = advantage(q_actor, jnp.stack([q, *others], -1))
            loss = critic_loss(q, target) - hyper.optimism * jnp.sum(jnp.mean(optimistic, -1))
            return loss, {"q_value": jnp.mean(q), "active_units": active}

        critic, critic_report = critic.descend(critic_objective, *settings)
        first = jax.tree.map(lambda x: x[0], critic.weights)

        def actor_objective(weights: Any) -> tuple[Array, dict[str, Array]]:
            action = self.actor(weights, batch.obs)
            return -jnp.mean(self.critic.apply(first, batch.obs, action)), {}

        due = critic.count % self.config.policy_delay == 0
        actor, actor_report = actor.descend(actor_objective, *settings, when=due)
        tau = jnp.where(due, hyper.tau, 0)
        return {"critic": critic.track(tau), "actor": actor.track(tau)}, {**critic_report, **actor_report}


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
    """MEX for `env`. Equal arguments give the same functions, so they share one jit cache.

    `learner.algorithm` explains the arguments and the errors; `actor` is the network of a `Deterministic`, and
    there are two critics.
    """
    venv = as_vector_env(env, config.num_envs)
    obs_space, space = spaces_of("mex", venv, Box, between_ends=True)
    critic = own("critic", critic) or Critic(obs_space, config.hidden, config.activation, config.layer_norm)
    acting = Deterministic(own("actor", actor) or Actor(obs_space, space, config.hidden, config.activation))
    rule = _MEX(config, critic, acting)
    return learner.algorithm(
        "mex", venv, config, Hyper, rule, acting, replay=replay, optimizer=optimizer, critic=critic
    )


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
