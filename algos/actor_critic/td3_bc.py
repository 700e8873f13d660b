"""TD3 with behaviour cloning (TD3+BC).

Fujimoto and Gu (2021), "A minimalist approach to offline reinforcement learning". TD3 whose actor also clones the
dataset's actions,

    loss = -lambda mean Q_1(s, mu(s)) + mean_B sum_A (mu(s) - a)^2 / A,    lambda = alpha / mean |Q_1(s, mu(s))|

where lambda has no gradient. Everything else is as in TD3: two critics regress on one target at a smoothed action of
the target actor, and every `policy_delay`-th gradient step the actor learns and the target networks take a Polyak step.

The second change to TD3 is `Config.normalize_obs`: from each dimension of an observation the dataset's mean is
subtracted, and the result is divided by the standard deviation plus 1e-3.

Deviations from the authors' code: actions are in units of the box; orthogonal initialisation with a small last layer of
the actor.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from jaxrl.algorithm import Algorithm, as_vector_env, check_at_least_one, shared, spaces_of
from jaxrl.data.datasets import Dataset
from jaxrl.data.transitions import Batch
from jaxrl.environment import Environment, pytree
from jaxrl.nn.actor_critic import (
    Actor,
    Critic,
    Deterministic,
)
from jaxrl.nn.losses import critic_loss, td_target
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

    normalize_obs: bool = True  # by the dataset's mean and deviation; without a dataset nothing is normalised
    policy_delay: int = 2  # gradient steps of the critics for one of the actor

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least_one(self, "policy_delay")


@pytree
class Hyper(learner.Hyper):
    """Dynamic settings: leaves, so vmap over any of them."""

    alpha: jax.Array = 2.5  # weight of the values relative to cloning
    policy_noise: jax.Array = 0.2  # standard deviation of the smoothing of the target action, in units of the box
    noise_clip: jax.Array = 0.5  # largest smoothing
    exploration_noise: jax.Array = 0.1  # standard deviation, when acting


def actor_loss(
    q: Float[Array, " B"],
    policy_action: Float[Array, "B A"],
    action: Float[Array, "B A"],
    alpha: Float[Array, ""] | float,
) -> Float[Array, ""]:
    """-alpha mean(q) / mean |q| + mean (pi(s) - a)^2 (Fujimoto and Gu 2021, equations 3 and 5)."""
    scale = alpha / jnp.maximum(jax.lax.stop_gradient(jnp.mean(jnp.abs(q))), 1e-6)
    return -scale * jnp.mean(q) + jnp.mean((policy_action - action) ** 2)


def smoothed(
    key: Key[Array, ""], action: Float[Array, "B A"], noise: Float[Array, ""] | float, clip: Float[Array, ""] | float
) -> Float[Array, "B A"]:
    """The target action with clipped normal noise, within the box (Fujimoto et al. 2018, equation 14)."""
    drawn = noise * jax.random.normal(key, action.shape, action.dtype)
    return jnp.clip(action + jnp.clip(drawn, -clip, clip), -1, 1)


@dataclasses.dataclass(frozen=True)
class _TD3BC:
    """The learning rule, a `learner.Rule`."""

    networks: ClassVar[tuple[str, ...]] = ("critic", "actor")
    targets: ClassVar[tuple[str, ...]] = ("critic", "actor")

    config: Config
    critic: Any  # a flax module
    actor: Deterministic

    init = learner.init_twin

    def gradient_step(self, nets: Nets, key: Array, batch: Batch, hyper: Hyper) -> tuple[Nets, dict[str, Array]]:
        """The critics on the smoothed target action; every `policy_delay` steps the actor and all target networks."""
        critic, actor = nets["critic"], nets["actor"]
        critic_key, _ = jax.random.split(key)
        settings = hyper.learning_rate, hyper.max_grad_norm

        next_action = smoothed(
            critic_key, self.actor(actor.target, batch.next_obs), hyper.policy_noise, hyper.noise_clip
        )
        next_q = critic_values(self.critic, critic.target, batch.next_obs, next_action)
        target = td_target(batch.reward, batch.terminated, jnp.min(next_q, 0), hyper.gamma)

        def critic_objective(weights: Any) -> tuple[Array, dict[str, Array]]:
            q = critic_values(self.critic, weights, batch.obs, batch.action)
            return critic_loss(q, target), {"q_value": jnp.mean(q)}

        critic, critic_report = critic.descend(critic_objective, *settings)
        first = jax.tree.map(lambda x: x[0], critic.weights)

        def actor_objective(weights: Any) -> tuple[Array, dict[str, Array]]:
            action = self.actor(weights, batch.obs)
            q = self.critic.apply(first, batch.obs, action)
            return actor_loss(q, action, batch.action, hyper.alpha), {}

        due = critic.count % self.config.policy_delay == 0
        when = None if self.config.policy_delay == 1 else due
        actor, actor_report = actor.descend(actor_objective, *settings, when=when)
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
    """TD3+BC for `env`. Equal arguments give the same functions, so they share one jit cache.

    `learner.algorithm` explains the arguments and the errors; `actor` is the network of a `Deterministic`, and
    there are two critics.
    """
    venv = as_vector_env(env, config.num_envs)
    obs_space, space = spaces_of("td3_bc", venv, Box, between_ends=True)
    critic = own("critic", critic) or Critic(obs_space, config.hidden, config.activation, config.layer_norm)
    acting = Deterministic(own("actor", actor) or Actor(obs_space, space, config.hidden, config.activation))
    rule = _TD3BC(config, critic, acting)
    return learner.algorithm(
        "td3_bc", venv, config, Hyper, rule, acting, replay=replay, optimizer=optimizer, critic=critic
    )


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
