"""TD3 with behaviour cloning (TD3+BC).

Fujimoto and Gu (2021), "A minimalist approach to offline reinforcement learning". TD3 whose actor also stays with the
data,

    loss = -lambda mean Q_1(s, mu(s)) + mean_B sum_A (mu(s) - a)^2 / A,    lambda = alpha / mean |Q_1(s, mu(s))|

where lambda is held fixed in the gradient. Everything else is TD3's: two critics regress on one target at a smoothed
action of the target actor, and every `policy_delay`-th gradient step the actor learns and the targets follow.

The second change to TD3 is `Config.normalize_obs`: observations less the dataset's mean, divided by its deviation plus
1e-3, each dimension for itself.

Deviations from the authors' code: actions are in units of the box; orthogonal initialisation with a small last layer of
the actor.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxrl.algorithm import Algorithm, as_vector_env, shared, spaces_of
from jaxrl.environment import Environment, pytree
from jaxrl.nn.optim import OptimizerLike, optimizer_of
from jaxrl.replay import off_policy
from jaxrl.replay.actor_critic import Actor, ActorCritic
from jaxrl.replay.off_policy import Batch, Critic
from jaxrl.replay.ring import Replay, uniform
from jaxrl.spaces import Box
from jaxrl.vectorize import VectorEnv


@dataclasses.dataclass(frozen=True)
class Config:
    """Static settings: each value compiles its own program."""

    num_envs: int = 1  # environments stepped together, where it acts
    num_steps: int = 1  # steps of each between updates, where it acts
    num_updates: int = 1  # gradient steps an update; where it acts, at most: see Hyper.replay_ratio
    batch_size: int = 256
    buffer_size: int = 100_000  # transitions kept, without a dataset
    normalize_obs: bool = True  # observations, by the dataset's mean and deviation; without one as they are
    policy_delay: int = 2  # gradient steps of the critics for one of the actor
    hidden: tuple[int, ...] = (256, 256)  # widths of actor and critics
    activation: str = "relu"
    layer_norm: bool = False  # in the critics
    optimizer: str = "adam"  # a name of optim.OPTIMIZERS
    adam_eps: float = 1e-8  # added to the denominator of Adam and its kin

    def __post_init__(self) -> None:
        off_policy.check_config(self)
        if self.policy_delay < 1:
            raise ValueError(f"policy_delay={self.policy_delay}: it must be at least 1.")


@pytree
class Hyper:
    """Dynamic settings: leaves, so vmap over any of them."""

    learning_rate: jax.Array = 3e-4  # of actor and critics
    gamma: jax.Array = 0.99  # discount
    tau: jax.Array = 0.005  # how far target networks move to the others, each time the actor learns
    alpha: jax.Array = 2.5  # weight of the values against the data
    policy_noise: jax.Array = 0.2  # standard deviation of the smoothing of the target action, in units of the box
    noise_clip: jax.Array = 0.5  # largest smoothing
    exploration_noise: jax.Array = 0.1  # standard deviation where it acts
    learning_starts: jax.Array = 1000  # where it acts: environment steps before the first gradient step
    replay_ratio: jax.Array = jnp.inf  # where it acts: gradient steps an environment step; infinite: num_updates
    max_grad_norm: jax.Array = 1e6  # of actor and of critics, each


def td_target(
    reward: Float[Array, " B"],
    terminated: Bool[Array, " B"],
    next_q: Float[Array, "K B"],
    gamma: Float[Array, ""] | float,
) -> Float[Array, " B"]:
    """r + gamma (1 - terminated) min_k next_q[k] (TD3's)."""
    return reward + gamma * jnp.where(terminated, 0, jnp.min(next_q, 0))


def critic_loss(q: Float[Array, "K B"], target: Float[Array, " B"]) -> Float[Array, ""]:
    """The mean squared error of each critic, added up."""
    return jnp.sum(jnp.mean((q - target) ** 2, -1))


def actor_loss(
    q: Float[Array, " B"],
    policy_action: Float[Array, "B A"],
    action: Float[Array, "B A"],
    alpha: Float[Array, ""] | float,
) -> Float[Array, ""]:
    """-alpha mean(q) / mean |q| + mean (pi(s) - a)^2 (Fujimoto and Gu 2021, equations 3 and 5)."""
    scale = alpha / jnp.maximum(jax.lax.stop_gradient(jnp.mean(jnp.abs(q))), 1e-6)
    return -scale * jnp.mean(q) + jnp.mean((policy_action - action) ** 2)


@dataclasses.dataclass(frozen=True)
class _TD3BC(ActorCritic):
    """The losses; what else the Algorithm's functions do is `ActorCritic`'s."""

    name: ClassVar = "td3_bc"
    hyper_class: ClassVar = Hyper
    tracked: ClassVar = ("critic", "actor")

    def delay(self, name: str) -> int:
        return self.config.policy_delay if name == "actor" else 1

    def critic_loss(
        self, own: Any, weights: Any, target_weights: Any, key: Array, batch: Batch, hyper: Hyper
    ) -> tuple[Array, dict[str, Array]]:
        action = self.actions(target_weights["actor"], batch.next_obs)
        noise = hyper.policy_noise * jax.random.normal(key, action.shape, action.dtype)
        action = jnp.clip(action + jnp.clip(noise, -hyper.noise_clip, hyper.noise_clip), -1, 1)
        next_q = self.act_values(target_weights["critic"], batch.next_obs, action)
        q = self.act_values(own, batch.obs, batch.action)
        return critic_loss(q, td_target(batch.reward, batch.terminated, next_q, hyper.gamma)), {"q_value": jnp.mean(q)}

    def actor_loss(
        self, own: Any, weights: Any, target_weights: Any, key: Array, batch: Batch, hyper: Hyper
    ) -> tuple[Array, dict[str, Array]]:
        action = self.actions(own, batch.obs)
        first = jax.tree.map(lambda x: x[:1], weights["critic"])
        return actor_loss(self.act_values(first, batch.obs, action)[0], action, batch.action, hyper.alpha), {}


@shared
def make(
    env: Environment | VectorEnv,
    config: Config = Config(),
    memory: Replay | None = None,
    actor: nn.Module | None = None,
    critic: nn.Module | None = None,
    optimizer: OptimizerLike | None = None,
) -> Algorithm:
    """TD3+BC for `env`. Equal arguments give the same functions, so they share one jit cache.

    Args:
        memory: a dataset, `datasets.stored(dataset, env.action_space(params))`; None: it acts and fills its own.
        actor: a flax module from an observation without its privileged part to actions (..., A) in [-1, 1].
        critic: a flax module from a whole observation and an action to values (...); there will be two of them.
        optimizer: an optax transformation or a function of the learning rate that makes one, for `config.optimizer`;
            see `optim.optimizer_of`.

    Raises ValueError for an action space that is not a vector, several agents, or networks whose outputs do not fit.
    """
    venv = as_vector_env(env, config.num_envs)
    obs_space, space = spaces_of("td3_bc", venv, Box)
    networks = (
        ("actor", actor or Actor(obs_space, space, config.hidden, config.activation)),
        ("critic", critic or Critic(obs_space, config.hidden, config.activation, config.layer_norm)),
    )
    chosen = optimizer_of(optimizer or config.optimizer, eps=config.adam_eps)
    return _TD3BC(config, venv, networks, obs_space, space, memory or uniform(config.buffer_size), chosen).algorithm()


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
