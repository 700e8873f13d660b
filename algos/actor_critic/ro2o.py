"""Robust offline-to-online learning (RO2O).

Wen et al. (2024), "Towards robust offline-to-online reinforcement learning via uncertainty and smoothness". SAC-N (see
edac) whose critics and actor are smooth around the data's states and whose critics are low where they disagree, by the
same losses offline and online. With n states s^ = s + d, d uniform in [-eps, eps] per feature,

    critics + smooth_q mean_B max_i mean_k L(Q_k(s^_i, a) - Q_k(s, a)),   L(x) = 0.8 max(x, 0)^2 + 0.2 min(x, 0)^2
            + ood mean (Q_k(s^_i, a_i) - y_k)^2,   y_k = Q_k(s^_i, a_i) - uncertainty std_k Q_k(s^_i, a_i) held fixed,
              a_i ~ pi(s^_i)
    actor   + smooth_actor mean_B max_i KL(pi(s) || pi(s^_i)) + KL(pi(s^_i) || pi(s))

The authors' settings for MuJoCo are the defaults, of observations normalised by the dataset. They go on without the
dataset, with a memory that the trained policy has first filled (`going_on.start(..., warm_up=2_500)`). Deviations from
their code: `uncertainty` is a constant, where theirs falls from 1 to 0.1 over 1.8 million steps; critics learn first,
then actor and temperature; no behaviour cloning and no lower bound for the actor, which they have for AntMaze; actions
are in units of the box; orthogonal initialisation with a small last layer of the actor.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from jaxrl.algorithm import Algorithm, as_vector_env, shared, spaces_of
from jaxrl.environment import Environment, pytree
from jaxrl.nn.optim import OptimizerLike, optimizer_of
from jaxrl.replay import off_policy
from jaxrl.replay.actor_critic import Actor, SoftActorCritic
from jaxrl.replay.off_policy import Batch, Critic
from jaxrl.replay.ring import Replay, uniform
from jaxrl.spaces import Box
from jaxrl.vectorize import VectorEnv

TAU = 0.2  # weight of values below, as the authors have it


@dataclasses.dataclass(frozen=True)
class Config:
    """Static settings: each value compiles its own program."""

    num_envs: int = 1  # environments stepped together, where it acts
    num_steps: int = 1  # steps of each between updates, where it acts
    num_updates: int = 1  # gradient steps an update; where it acts, at most: see Hyper.replay_ratio
    batch_size: int = 256
    buffer_size: int = 100_000  # transitions kept, without a dataset
    num_critics: int = 10  # N
    num_samples: int = 20  # n, states around each of the data
    hidden: tuple[int, ...] = (256, 256, 256)  # widths of actor and critics
    activation: str = "relu"
    layer_norm: bool = False  # in the critics
    optimizer: str = "adam"  # a name of optim.OPTIMIZERS
    adam_eps: float = 1e-8  # added to the denominator of Adam and its kin

    def __post_init__(self) -> None:
        off_policy.check_config(self)
        if self.num_critics < 2:
            raise ValueError(f"num_critics={self.num_critics}: it must be at least 2.")
        if self.num_samples < 1:
            raise ValueError(f"num_samples={self.num_samples}: it must be at least 1.")


@pytree
class Hyper:
    """Dynamic settings: leaves, so vmap over any of them."""

    learning_rate: jax.Array = 3e-4  # of actor and critics
    alpha_learning_rate: jax.Array = 3e-4  # of the logarithm of the temperature; 0: constant
    alpha: jax.Array = 1.0  # temperature, at first
    target_entropy: jax.Array = jnp.inf  # nats in units of the box; infinite: -A
    gamma: jax.Array = 0.99  # discount
    tau: jax.Array = 0.005  # how far target critics move to the others, each gradient step
    smooth_q: jax.Array = 1e-4  # weight of the critics' smoothness
    smooth_actor: jax.Array = 1.0  # and of the actor's
    ood: jax.Array = 0.1  # weight of the values of the actor's actions around the data
    uncertainty: jax.Array = 1.0  # standard deviations that those are lowered by
    smooth_q_eps: jax.Array = 0.01  # half a side of the box around a state, for the critics, in the observation's units
    smooth_actor_eps: jax.Array = 0.01  # for the actor
    ood_eps: jax.Array = 0.01  # for values of the actor's actions
    learning_starts: jax.Array = 1000  # where it acts: environment steps before the first gradient step
    replay_ratio: jax.Array = jnp.inf  # where it acts: gradient steps an environment step; infinite: num_updates
    max_grad_norm: jax.Array = 1e6  # of each network


def td_target(
    reward: Float[Array, " B"],
    terminated: Bool[Array, " B"],
    next_q: Float[Array, "K B"],
    next_log_prob: Float[Array, " B"],
    alpha: Float[Array, ""] | float,
    gamma: Float[Array, ""] | float,
) -> Float[Array, " B"]:
    """r + gamma (1 - terminated) (min_k next_q[k] - alpha log pi) (An et al. 2021, equation 2)."""
    return reward + gamma * jnp.where(terminated, 0, jnp.min(next_q, 0) - alpha * next_log_prob)


def critic_loss(q: Float[Array, "K B"], target: Float[Array, " B"]) -> Float[Array, ""]:
    """The mean squared error of each critic, added up."""
    return jnp.sum(jnp.mean((q - target) ** 2, -1))


def around(key: Key[Array, ""], obs: Any, num_samples: int, eps: Float[Array, ""] | float) -> Any:
    """`num_samples` states around each of (B, ...), (n, B, ...): the same n displacements for all, as the authors'."""

    def leaf(key, x):
        if not jnp.issubdtype(x.dtype, jnp.floating):
            return jnp.broadcast_to(x, (num_samples, *x.shape))
        return x + eps * jax.random.uniform(key, (num_samples, 1, *x.shape[1:]), x.dtype, -1, 1)

    leaves, form = jax.tree.flatten(obs)
    return form.unflatten(map(leaf, jax.random.split(key, len(leaves)), leaves))


def smoothness(q_around: Float[Array, "K n B"], q: Float[Array, "K B"]) -> Float[Array, ""]:
    """mean_B max_i mean_k L(q_around - q), values above counting four times those below (the paper's tau = 0.2)."""
    difference = q_around - q[:, None]
    return jnp.mean(jnp.max(jnp.mean(jnp.where(difference > 0, 1 - TAU, TAU) * difference**2, 0), 0))


def ood_loss(q_around: Float[Array, "K n B"], uncertainty: Float[Array, ""] | float) -> Float[Array, ""]:
    """mean (q - y)^2, y = q - uncertainty std_k q held fixed: pulls down values on which the critics disagree."""
    lower = q_around - uncertainty * jnp.std(q_around, 0, ddof=1)
    return jnp.mean((q_around - jax.lax.stop_gradient(lower)) ** 2)


@dataclasses.dataclass(frozen=True)
class _RO2O(SoftActorCritic):
    """The losses; what else the Algorithm's functions do is `SoftActorCritic`'s."""

    name: ClassVar = "ro2o"
    hyper_class: ClassVar = Hyper

    def critic_loss(
        self, own: Any, weights: Any, target_weights: Any, key: Array, batch: Batch, hyper: Hyper
    ) -> tuple[Array, dict[str, Array]]:
        keys, n = jax.random.split(key, 4), self.config.num_samples
        action, log_prob = self.distribution(weights["actor"], batch.next_obs).sample_and_log_prob(keys[0])
        next_q = self.act_values(target_weights["critic"], batch.next_obs, action)
        alpha = jnp.exp(weights["log_alpha"])
        target = td_target(batch.reward, batch.terminated, next_q, log_prob, alpha, hyper.gamma)
        q = self.act_values(own, batch.obs, batch.action)
        near = around(keys[1], batch.obs, n, hyper.smooth_q_eps)
        smooth = smoothness(self.act_values(own, near, jnp.broadcast_to(batch.action, (n, *batch.action.shape))), q)
        near = around(keys[2], batch.obs, n, hyper.ood_eps)
        tried = self.distribution(weights["actor"], near).sample(keys[3])
        low = ood_loss(self.act_values(own, near, tried), hyper.uncertainty)
        loss = critic_loss(q, target) + hyper.smooth_q * smooth + hyper.ood * low
        report = {"q_value": jnp.mean(q), "q_deviation": jnp.mean(jnp.std(q, 0))}
        return loss, {**report, "smoothness": smooth, "ood_loss": low}

    def actor_loss(
        self, own: Any, weights: Any, target_weights: Any, key: Array, batch: Batch, hyper: Hyper
    ) -> tuple[Array, dict[str, Array]]:
        key, near_key = jax.random.split(key)
        pi = self.distribution(own, batch.obs)
        action, log_prob = pi.sample_and_log_prob(key)
        q = jnp.min(self.act_values(weights["critic"], batch.obs, action), 0)
        near = self.distribution(own, around(near_key, batch.obs, self.config.num_samples, hyper.smooth_actor_eps))
        apart = jnp.mean(jnp.max(pi.kl(near) + near.kl(pi), 0))
        loss = jnp.mean(jnp.exp(weights["log_alpha"]) * log_prob - q) + hyper.smooth_actor * apart
        return loss, {"entropy": -jnp.mean(log_prob), "actor_distance": apart}


@shared
def make(
    env: Environment | VectorEnv,
    config: Config = Config(),
    memory: Replay | None = None,
    actor: nn.Module | None = None,
    critic: nn.Module | None = None,
    optimizer: OptimizerLike | None = None,
) -> Algorithm:
    """RO2O for `env`. Equal arguments give the same functions, so they share one jit cache.

    Args:
        memory: a dataset, `datasets.stored(dataset, env.action_space(params))`; None: it acts and fills its own.
        actor: a flax module from an observation without its privileged part to `(mean, log_std)` of actions before
            tanh, (..., A) each.
        critic: a flax module from a whole observation and an action to values (...); there will be `num_critics`.
        optimizer: an optax transformation or a function of the learning rate that makes one, for `config.optimizer`;
            see `optim.optimizer_of`.

    Raises ValueError for an action space that is not a vector, several agents, or networks whose outputs do not fit.
    """
    venv = as_vector_env(env, config.num_envs)
    obs_space, space = spaces_of("ro2o", venv, Box)
    networks = (
        ("actor", actor or Actor(obs_space, space, config.hidden, config.activation, spread=True)),
        ("critic", critic or Critic(obs_space, config.hidden, config.activation, config.layer_norm)),
    )
    chosen = optimizer_of(optimizer or config.optimizer, eps=config.adam_eps)
    return _RO2O(config, venv, networks, obs_space, space, memory or uniform(config.buffer_size), chosen).algorithm()


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
