"""Twin delayed deep deterministic policy gradient (TD3).

Fujimoto, van Hoof and Meger (2018), "Addressing function approximation error in actor-critic methods". Two critics
regress on one target with the smaller target value at a smoothed action of the target actor,

    y = r + gamma (1 - terminated) min_k Q'_k(s', clip(mu'(s') + clip(e, -c, c), -1, 1)),   e ~ N(0, sigma)

and every `policy_delay`-th gradient step the actor ascends Q_1(s, mu(s)) and the target networks take a Polyak step.

Deviations from the authors' code: actions are in units of the box; orthogonal initialisation with a small last layer of
the actor; several environments may step together; a replay ratio other than one step each may be set. Results:
`docs/results.md`.
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
from jaxrl.nn.nets import Nets, apply_critics, critic_values
from jaxrl.nn.networks import Network, own
from jaxrl.nn.optim import OptimizerLike
from jaxrl.off_policy import learner
from jaxrl.replay.ring import Replay
from jaxrl.spaces import Box
from jaxrl.vector_env import VectorEnv


@dataclasses.dataclass(frozen=True)
class Config(learner.Config):
    """Static settings: each value compiles its own program."""

    policy_delay: int = 2  # gradient steps of the critics for one of the actor

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least_one(self, "policy_delay")


@pytree
class Hyper(learner.Hyper):
    """Dynamic settings: leaves, so vmap over any of them."""

    exploration_noise: jax.Array = 0.1  # standard deviation, in units of the box
    policy_noise: jax.Array = 0.2  # standard deviation of the smoothing of the target action
    noise_clip: jax.Array = 0.5  # largest smoothing


def smoothed(
    key: Key[Array, ""], action: Float[Array, "B A"], noise: Float[Array, ""] | float, clip: Float[Array, ""] | float
) -> Float[Array, "B A"]:
    """The target action with clipped normal noise, within the box (Fujimoto et al. 2018, equation 14)."""
    drawn = noise * jax.random.normal(key, action.shape, action.dtype)
    return jnp.clip(action + jnp.clip(drawn, -clip, clip), -1, 1)


@dataclasses.dataclass(frozen=True)
class _TD3:
    """The learning rule, a `learner.Rule`."""

    networks: ClassVar[tuple[str, ...]] = ("critic", "actor")
    targets: ClassVar[tuple[str, ...]] = ("critic", "actor")

    config: Config
    critic: Any  # a flax module
    actor: Deterministic

    init = learner.init_twin

    def gradient_step(self, nets: Nets, key: Array, batch: Batch, hyper: Hyper) -> tuple[Nets, dict[str, Array]]:
        """The critics; every `policy_delay` steps the actor and all targets (Fujimoto et al. 2018, algorithm 1)."""
        critic, actor = nets["critic"], nets["actor"]
        noise_key, _ = jax.random.split(key)
        settings = hyper.learning_rate, hyper.max_grad_norm

        next_action = self.actor(actor.target, batch.next_obs)
        next_action = smoothed(noise_key, next_action, hyper.policy_noise, hyper.noise_clip)
        next_q = critic_values(self.critic, critic.target, batch.next_obs, next_action)
        target = td_target(batch.reward, batch.terminated, jnp.min(next_q, 0), hyper.gamma)

        def critic_objective(weights: Any) -> tuple[Array, dict[str, Array]]:
            q, active = apply_critics(self.critic, weights, batch.obs, batch.action)
            return critic_loss(q, target), {"q_value": jnp.mean(q), "active_units": active}

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
    """TD3 for `env`. Equal arguments give the same functions, so they share one jit cache.

    `learner.algorithm` explains the arguments and the errors; `actor` is the network of a `Deterministic`, and
    there are two critics.
    """
    venv = as_vector_env(env, config.num_envs)
    obs_space, space = spaces_of("td3", venv, Box, between_ends=True)
    critic = own("critic", critic) or Critic(obs_space, config.hidden, config.activation, config.layer_norm)
    acting = Deterministic(own("actor", actor) or Actor(obs_space, space, config.hidden, config.activation))
    rule = _TD3(config, critic, acting)
    return learner.algorithm(
        "td3", venv, config, Hyper, rule, acting, replay=replay, optimizer=optimizer, critic=critic
    )


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
