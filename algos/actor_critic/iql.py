"""Implicit Q-learning (IQL).

Kostrikov, Nair and Levine (2022), "Offline reinforcement learning with implicit Q-learning". No action outside the data
is ever asked for: a state value follows an upper expectile of the target critics' values of the data's actions, the
critics regress on it, and the actor is cloned from the data by weights of its advantage,

    value   mean L(min_k Q'_k(s, a) - V(s)),    L(u) = |expectile - 1(u < 0)| u^2
    critics r + gamma (1 - terminated) V(s')
    actor   -mean min(exp(beta (min_k Q'_k(s, a) - V(s))), 100) log pi(a | s)

The actor is normal with a mean of tanh and deviations that do not depend on the state, its actions are clipped. Where
it acts, it draws from it, and goes on by the same losses (the paper's online fine-tuning).

Deviations from the authors' code: actions are in units of the box; orthogonal initialisation with a small last layer of
the actor; the actor's learning rate is constant, where theirs falls along a cosine over the whole training.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxrl.algorithm import Algorithm, as_vector_env, shared, spaces_of
from jaxrl.environment import Environment, pytree
from jaxrl.nn.optim import OptimizerLike, optimizer_of
from jaxrl.replay import off_policy
from jaxrl.replay.actor_critic import ActorCritic, GaussianActor, GaussianPolicies, Value
from jaxrl.replay.off_policy import Batch, Critic
from jaxrl.replay.ring import Replay, uniform
from jaxrl.spaces import Box
from jaxrl.vectorize import VectorEnv

LARGEST_WEIGHT = 100.0  # the authors'


@dataclasses.dataclass(frozen=True)
class Config:
    """Static settings: each value compiles its own program."""

    num_envs: int = 1  # environments stepped together, where it acts
    num_steps: int = 1  # steps of each between updates, where it acts
    num_updates: int = 1  # gradient steps an update; where it acts, at most: see Hyper.replay_ratio
    batch_size: int = 256
    buffer_size: int = 100_000  # transitions kept, without a dataset
    normalize_obs: bool = False  # observations, by the dataset's mean and deviation; without one as they are
    hidden: tuple[int, ...] = (256, 256)  # widths of all networks
    activation: str = "relu"
    layer_norm: bool = False  # in the critics and the value
    optimizer: str = "adam"  # a name of optim.OPTIMIZERS
    adam_eps: float = 1e-8  # added to the denominator of Adam and its kin

    def __post_init__(self) -> None:
        off_policy.check_config(self)


@pytree
class Hyper:
    """Dynamic settings: leaves, so vmap over any of them."""

    learning_rate: jax.Array = 3e-4  # of all networks
    gamma: jax.Array = 0.99  # discount
    tau: jax.Array = 0.005  # how far target critics move to the others, each gradient step
    expectile: jax.Array = 0.7  # above 1/2: how near the value is to the best action's in the data
    beta: jax.Array = 3.0  # inverse temperature of the actor's weights
    learning_starts: jax.Array = 1000  # where it acts: environment steps before the first gradient step
    replay_ratio: jax.Array = jnp.inf  # where it acts: gradient steps an environment step; infinite: num_updates
    max_grad_norm: jax.Array = 1e6  # of each network


def value_loss(advantage: Float[Array, " B"], expectile: Float[Array, ""] | float) -> Float[Array, ""]:
    """mean |expectile - 1(u < 0)| u^2 of u = Q - V (Kostrikov et al. 2022, equation 5)."""
    return jnp.mean(jnp.where(advantage > 0, expectile, 1 - expectile) * advantage**2)


def critic_loss(q: Float[Array, "K B"], target: Float[Array, " B"]) -> Float[Array, ""]:
    """The mean squared error of each critic, added up (equation 6)."""
    return jnp.sum(jnp.mean((q - target) ** 2, -1))


def actor_loss(
    log_prob: Float[Array, " B"], advantage: Float[Array, " B"], beta: Float[Array, ""] | float
) -> Float[Array, ""]:
    """-mean min(exp(beta A), 100) log pi(a | s) (equation 7)."""
    weight = jnp.minimum(jnp.exp(beta * advantage), LARGEST_WEIGHT)
    return -jnp.mean(jax.lax.stop_gradient(weight) * log_prob)


@dataclasses.dataclass(frozen=True)
class _IQL(GaussianPolicies, ActorCritic):
    """The losses; what else the Algorithm's functions do is `ActorCritic`'s."""

    name: ClassVar = "iql"
    hyper_class: ClassVar = Hyper
    order: ClassVar = ("value", "critic", "actor")

    def advantage(self, value_weights: Any, target_weights: Any, batch: Batch) -> Float[Array, " B"]:
        q = self.act_values(target_weights["critic"], batch.obs, batch.action)
        return jnp.min(q, 0) - self.values(value_weights, batch.obs)

    def value_loss(
        self, own: Any, weights: Any, target_weights: Any, key: Array, batch: Batch, hyper: Hyper
    ) -> tuple[Array, dict[str, Array]]:
        advantage = self.advantage(own, target_weights, batch)
        return value_loss(advantage, hyper.expectile), {"advantage": jnp.mean(advantage)}

    def critic_loss(
        self, own: Any, weights: Any, target_weights: Any, key: Array, batch: Batch, hyper: Hyper
    ) -> tuple[Array, dict[str, Array]]:
        next_value = self.values(weights["value"], batch.next_obs)
        target = batch.reward + hyper.gamma * jnp.where(batch.terminated, 0, next_value)
        q = self.act_values(own, batch.obs, batch.action)
        return critic_loss(q, target), {"q_value": jnp.mean(q)}

    def actor_loss(
        self, own: Any, weights: Any, target_weights: Any, key: Array, batch: Batch, hyper: Hyper
    ) -> tuple[Array, dict[str, Array]]:
        log_prob = self.distribution(own, batch.obs).log_prob(batch.action)
        return actor_loss(log_prob, self.advantage(weights["value"], target_weights, batch), hyper.beta), {}


@shared
def make(
    env: Environment | VectorEnv,
    config: Config = Config(),
    memory: Replay | None = None,
    actor: nn.Module | None = None,
    critic: nn.Module | None = None,
    optimizer: OptimizerLike | None = None,
) -> Algorithm:
    """IQL for `env`. Equal arguments give the same functions, so they share one jit cache.

    Args:
        memory: a dataset, `datasets.stored(dataset, env.action_space(params))`; None: it acts and fills its own.
        actor: a flax module from an observation without its privileged part to `(mean, log_std)` (..., A) in units of
            the box.
        critic: a flax module from a whole observation and an action to values (...); there will be two of them.
        optimizer: an optax transformation or a function of the learning rate that makes one, for `config.optimizer`;
            see `optim.optimizer_of`.

    Raises ValueError for an action space that is not a vector, several agents, or networks whose outputs do not fit.
    """
    venv = as_vector_env(env, config.num_envs)
    obs_space, space = spaces_of("iql", venv, Box)
    sizes = config.hidden, config.activation, config.layer_norm
    networks = (
        ("value", Value(obs_space, *sizes)),
        ("critic", critic or Critic(obs_space, *sizes)),
        ("actor", actor or GaussianActor(obs_space, space, config.hidden, config.activation)),
    )
    chosen = optimizer_of(optimizer or config.optimizer, eps=config.adam_eps)
    return _IQL(config, venv, networks, obs_space, space, memory or uniform(config.buffer_size), chosen).algorithm()


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
