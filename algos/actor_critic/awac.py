"""Advantage-weighted actor-critic (AWAC).

Nair, Gupta, Dalal and Levine (2020), "AWAC: accelerating online reinforcement learning with offline datasets". The
critics regress on the value of the actor's own actions; the actor is cloned from the memory by weights of advantages,

    critics r + gamma (1 - terminated) min_k Q'_k(s', a'),   a' ~ pi(s')
    actor   -mean min(exp(A / temperature), 100) log pi(a | s),   A = min_k Q_k(s, a) - min_k Q_k(s, b),   b ~ pi(s)

so that it learns alike from a dataset and, where it acts, from what it adds to it. Deviations from the authors' code:
weights are not normalised over the batch but cut at 100; actions are in units of the box; orthogonal initialisation
with a small last layer of the actor.
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
from jaxrl.replay.actor_critic import ActorCritic, GaussianActor, GaussianPolicies
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
    normalize_obs: bool = False  # observations, by the dataset's mean and deviation; without one as they are
    hidden: tuple[int, ...] = (256, 256)  # widths of actor and critics
    activation: str = "relu"
    layer_norm: bool = False  # in the critics
    optimizer: str = "adam"  # a name of optim.OPTIMIZERS
    adam_eps: float = 1e-8  # added to the denominator of Adam and its kin

    def __post_init__(self) -> None:
        off_policy.check_config(self)


@pytree
class Hyper:
    """Dynamic settings: leaves, so vmap over any of them."""

    learning_rate: jax.Array = 3e-4  # of actor and critics
    gamma: jax.Array = 0.99  # discount
    tau: jax.Array = 0.005  # how far target critics move to the others, each gradient step
    temperature: jax.Array = 1.0  # of the actor's weights
    learning_starts: jax.Array = 1000  # where it acts: environment steps before the first gradient step
    replay_ratio: jax.Array = jnp.inf  # where it acts: gradient steps an environment step; infinite: num_updates
    max_grad_norm: jax.Array = 1e6  # of each network


LARGEST_WEIGHT = 100.0


def td_target(
    reward: Float[Array, " B"],
    terminated: Bool[Array, " B"],
    next_q: Float[Array, "K B"],
    gamma: Float[Array, ""] | float,
) -> Float[Array, " B"]:
    """r + gamma (1 - terminated) min_k next_q[k]."""
    return reward + gamma * jnp.where(terminated, 0, jnp.min(next_q, 0))


def critic_loss(q: Float[Array, "K B"], target: Float[Array, " B"]) -> Float[Array, ""]:
    """The mean squared error of each critic, added up."""
    return jnp.sum(jnp.mean((q - target) ** 2, -1))


def actor_loss(
    log_prob: Float[Array, " B"], advantage: Float[Array, " B"], temperature: Float[Array, ""] | float
) -> Float[Array, ""]:
    """-mean min(exp(A / temperature), 100) log pi(a | s) (Nair et al. 2020, equation 13)."""
    weight = jnp.minimum(jnp.exp(advantage / temperature), LARGEST_WEIGHT)
    return -jnp.mean(jax.lax.stop_gradient(weight) * log_prob)


@dataclasses.dataclass(frozen=True)
class _AWAC(GaussianPolicies, ActorCritic):
    """The losses; what else the Algorithm's functions do is `ActorCritic`'s."""

    name: ClassVar = "awac"
    hyper_class: ClassVar = Hyper

    def drawn(self, actor_weights: Any, key: Array, obs: Any) -> Float[Array, "B A"]:
        return jnp.clip(self.distribution(actor_weights, obs).sample(key), -1, 1)

    def critic_loss(
        self, own: Any, weights: Any, target_weights: Any, key: Array, batch: Batch, hyper: Hyper
    ) -> tuple[Array, dict[str, Array]]:
        action = self.drawn(weights["actor"], key, batch.next_obs)
        next_q = self.act_values(target_weights["critic"], batch.next_obs, action)
        q = self.act_values(own, batch.obs, batch.action)
        return critic_loss(q, td_target(batch.reward, batch.terminated, next_q, hyper.gamma)), {"q_value": jnp.mean(q)}

    def actor_loss(
        self, own: Any, weights: Any, target_weights: Any, key: Array, batch: Batch, hyper: Hyper
    ) -> tuple[Array, dict[str, Array]]:
        drawn = self.drawn(weights["actor"], key, batch.obs)
        of_data, of_actor = (
            jnp.min(self.act_values(weights["critic"], batch.obs, a), 0) for a in (batch.action, drawn)
        )
        log_prob = self.distribution(own, batch.obs).log_prob(batch.action)
        advantage = of_data - of_actor
        return actor_loss(log_prob, advantage, hyper.temperature), {"advantage": jnp.mean(advantage)}


@shared
def make(
    env: Environment | VectorEnv,
    config: Config = Config(),
    memory: Replay | None = None,
    actor: nn.Module | None = None,
    critic: nn.Module | None = None,
    optimizer: OptimizerLike | None = None,
) -> Algorithm:
    """AWAC for `env`. Equal arguments give the same functions, so they share one jit cache.

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
    obs_space, space = spaces_of("awac", venv, Box)
    networks = (
        ("actor", actor or GaussianActor(obs_space, space, config.hidden, config.activation)),
        ("critic", critic or Critic(obs_space, config.hidden, config.activation, config.layer_norm)),
    )
    chosen = optimizer_of(optimizer or config.optimizer, eps=config.adam_eps)
    return _AWAC(config, venv, networks, obs_space, space, memory or uniform(config.buffer_size), chosen).algorithm()


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
