"""Deep deterministic policy gradient (DDPG).

Lillicrap et al. (2016), "Continuous control with deep reinforcement learning". A critic regresses on

    y = r + gamma (1 - terminated) Q'(s', mu'(s'))

and at every gradient step the actor ascends Q(s, mu(s)) and the target networks take a Polyak step. `td3.py` is this
with a second critic, a smoothed target and a delayed actor.

Deviations from the paper: Gaussian exploration noise instead of an Ornstein-Uhlenbeck process, one learning rate, no
weight decay, no batch normalisation, the action enters at the first layer (these are TD3's choices); actions
in units of the box; orthogonal initialisation with a small last layer of the actor; several environments may step
together. Results: `docs/results.md`.
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
    Actor,
    Critic,
    Deterministic,
)
from jaxrl.nn.losses import td_target
from jaxrl.nn.nets import Nets, apply_critic
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

    exploration_noise: jax.Array = 0.1  # standard deviation, in units of the box


@dataclasses.dataclass(frozen=True)
class _DDPG:
    """The learning rule, a `learner.Rule`."""

    networks: ClassVar[tuple[str, ...]] = ("critic", "actor")
    targets: ClassVar[tuple[str, ...]] = ("critic", "actor")

    critic: Any  # a flax module
    actor: Deterministic

    def init(self, keys: dict[str, Array], obs: Any, action: Any, hyper: Hyper) -> dict[str, Any]:
        return {"critic": self.critic.init(keys["critic"], obs, action), "actor": self.actor.init(keys["actor"], obs)}

    def gradient_step(self, nets: Nets, key: Array, batch: Batch, hyper: Hyper) -> tuple[Nets, dict[str, Array]]:
        """The critic, the actor, the targets (Lillicrap et al. 2016, algorithm 1)."""
        critic, actor = nets["critic"], nets["actor"]
        settings = hyper.learning_rate, hyper.max_grad_norm

        next_q = self.critic.apply(critic.target, batch.next_obs, self.actor(actor.target, batch.next_obs))
        target = td_target(batch.reward, batch.terminated, next_q, hyper.gamma)

        def critic_objective(weights: Any) -> tuple[Array, dict[str, Array]]:
            q, active = apply_critic(self.critic, weights, batch.obs, batch.action)
            return jnp.mean((q - target) ** 2), {"q_value": jnp.mean(q), "active_units": active}

        critic, critic_report = critic.descend(critic_objective, *settings)

        def actor_objective(weights: Any) -> tuple[Array, dict[str, Array]]:
            return -jnp.mean(self.critic.apply(critic.weights, batch.obs, self.actor(weights, batch.obs))), {}

        actor, actor_report = actor.descend(actor_objective, *settings)
        nets = {"critic": critic.track(hyper.tau), "actor": actor.track(hyper.tau)}
        return nets, {**critic_report, **actor_report}


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
    """DDPG for `env`. Equal arguments give the same functions, so they share one jit cache.

    `learner.algorithm` explains the arguments and the errors; `actor` is the network of a `Deterministic`, and
    there is one critic.
    """
    venv = as_vector_env(env, config.num_envs)
    obs_space, space = spaces_of("ddpg", venv, Box, between_ends=True)
    critic = own("critic", critic) or Critic(obs_space, config.hidden, config.activation, config.layer_norm)
    acting = Deterministic(own("actor", actor) or Actor(obs_space, space, config.hidden, config.activation))
    given = {"replay": replay, "optimizer": optimizer, "critic": critic, "num_critics": 0}
    return learner.algorithm("ddpg", venv, config, Hyper, _DDPG(critic, acting), acting, **given)


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
