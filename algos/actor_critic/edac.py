"""Ensemble-diversified actor-critic (EDAC), and SAC-N, which is EDAC with `diversity` 0.

An, Moon, Kim and Song (2021), "Uncertainty-based offline reinforcement learning with diversified Q-ensemble". Soft
actor-critic with N critics, whose smallest value is low where they disagree,

    critics r + gamma (1 - terminated) (min_k Q'_k(s', a') - alpha log pi(a' | s')),   a' ~ pi(s')
    actor   mean alpha log pi(a_pi | s) - min_k Q_k(s, a_pi),   a_pi ~ pi(s)

and, so that few critics do, their gradients in the data's action are kept from pointing one way: the critics' loss has

    diversity / (N - 1) mean_B sum_{k != l} <e_k, e_l>,   e_k = grad_a Q_k(s, a) / |grad_a Q_k(s, a)|

The published settings: N = 10 and diversity 1 on most of MuJoCo's tasks (50 and 1 on Hopper); SAC-N takes 10 to 500
critics. The temperature follows the target entropy -A.

Online, SAC-N with LayerNorm, many gradient steps a step and targets of the smaller of two critics drawn anew each time
(`num_target_critics`, REDQ's) is RLPD's learner, with a dataset as half of its memory (`datasets.mixed`; Ball et al.
2023, "Efficient online reinforcement learning with offline data"), and that of WSRL, which goes on from trained weights
(`going_on`). Deviations from the authors' code: actions are in units of the
box; orthogonal initialisation with a small last layer of the actor.
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
from jaxrl.replay.actor_critic import Actor, SoftActorCritic
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
    num_critics: int = 10  # N
    diverse: bool = True  # False: SAC-N, without the gradients in the actions
    num_target_critics: int | None = None  # drawn for each target, whose smallest value it takes; None: all N
    mean_actor: bool = False  # the actor follows the critics' mean, as RLPD's does, not their smallest value
    soft_targets: bool = True  # with the entropy of the next action; False as in WSRL
    hidden: tuple[int, ...] = (256, 256, 256)  # widths of actor and critics
    activation: str = "relu"
    layer_norm: bool = False  # in the critics
    optimizer: str = "adam"  # a name of optim.OPTIMIZERS
    adam_eps: float = 1e-8  # added to the denominator of Adam and its kin

    def __post_init__(self) -> None:
        off_policy.check_config(self)
        if self.num_critics < 2:
            raise ValueError(f"num_critics={self.num_critics}: it must be at least 2.")
        if self.num_target_critics is not None and not 1 <= self.num_target_critics <= self.num_critics:
            raise ValueError(
                f"num_target_critics={self.num_target_critics}: it must be 1 to num_critics={self.num_critics}."
            )


@pytree
class Hyper:
    """Dynamic settings: leaves, so vmap over any of them."""

    learning_rate: jax.Array = 3e-4  # of actor and critics
    alpha_learning_rate: jax.Array = 3e-4  # of the logarithm of the temperature; 0: constant
    alpha: jax.Array = 1.0  # temperature, at first
    target_entropy: jax.Array = jnp.inf  # nats in units of the box; infinite: -A
    gamma: jax.Array = 0.99  # discount
    tau: jax.Array = 0.005  # how far target critics move to the others, each gradient step
    diversity: jax.Array = 1.0  # eta; read where Config.diverse
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


def similarity(gradients: Float[Array, "K B A"]) -> Float[Array, ""]:
    """1 / (K - 1) mean_B sum_{k != l} <e_k, e_l> of gradients in the action, each made of length 1 (equation 6)."""
    square = jnp.sum(gradients**2, -1, keepdims=True)
    unit = gradients / jnp.sqrt(square + 1e-10)
    together = jnp.sum(jnp.sum(unit, 0) ** 2, -1) - jnp.sum(unit**2, (0, 2))
    return jnp.mean(together) / (gradients.shape[0] - 1)


@dataclasses.dataclass(frozen=True)
class _EDAC(SoftActorCritic):
    """The losses; what else the Algorithm's functions do is `SoftActorCritic`'s."""

    name: ClassVar = "edac"
    hyper_class: ClassVar = Hyper

    def own_values(self, weights: Any, obs: Any, actions: Float[Array, "K B A"]) -> Float[Array, "K B"]:
        """Of each critic at actions of its own."""
        critic: Any = self.network("critic")
        return jax.vmap(lambda w, a: critic.apply(w, obs, a))(weights, actions)

    def critic_loss(
        self, own: Any, weights: Any, target_weights: Any, key: Array, batch: Batch, hyper: Hyper
    ) -> tuple[Array, dict[str, Array]]:
        key, drawn_key = jax.random.split(key)
        action, log_prob = self.distribution(weights["actor"], batch.next_obs).sample_and_log_prob(key)
        judges = target_weights["critic"]
        if self.config.num_target_critics is not None:
            drawn = jax.random.permutation(drawn_key, self.num_critics)[: self.config.num_target_critics]
            judges = jax.tree.map(lambda x: x[drawn], judges)
        next_q = self.act_values(judges, batch.next_obs, action)
        alpha = jnp.exp(weights["log_alpha"]) if self.config.soft_targets else 0.0
        target = td_target(batch.reward, batch.terminated, next_q, log_prob, alpha, hyper.gamma)
        q = self.act_values(own, batch.obs, batch.action)
        loss, report = critic_loss(q, target), {"q_value": jnp.mean(q), "q_deviation": jnp.mean(jnp.std(q, 0))}
        if self.config.diverse:
            # A copy of the actions for each critic: no critic's value depends on another's.
            copies = jnp.broadcast_to(batch.action, (q.shape[0], *batch.action.shape))
            gradients = jax.grad(lambda action: jnp.sum(self.own_values(own, batch.obs, action)))(copies)
            alike = similarity(gradients)
            loss, report["similarity"] = loss + hyper.diversity * alike, alike
        return loss, report

    def actor_loss(
        self, own: Any, weights: Any, target_weights: Any, key: Array, batch: Batch, hyper: Hyper
    ) -> tuple[Array, dict[str, Array]]:
        action, log_prob = self.distribution(own, batch.obs).sample_and_log_prob(key)
        q = self.act_values(weights["critic"], batch.obs, action)
        q = jnp.mean(q, 0) if self.config.mean_actor else jnp.min(q, 0)
        loss = jnp.mean(jnp.exp(weights["log_alpha"]) * log_prob - q)
        return loss, {"entropy": -jnp.mean(log_prob)}


@shared
def make(
    env: Environment | VectorEnv,
    config: Config = Config(),
    memory: Replay | None = None,
    actor: nn.Module | None = None,
    critic: nn.Module | None = None,
    optimizer: OptimizerLike | None = None,
) -> Algorithm:
    """EDAC for `env`. Equal arguments give the same functions, so they share one jit cache.

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
    obs_space, space = spaces_of("edac", venv, Box)
    networks = (
        ("actor", actor or Actor(obs_space, space, config.hidden, config.activation, spread=True)),
        ("critic", critic or Critic(obs_space, config.hidden, config.activation, config.layer_norm)),
    )
    chosen = optimizer_of(optimizer or config.optimizer, eps=config.adam_eps)
    return _EDAC(config, venv, networks, obs_space, space, memory or uniform(config.buffer_size), chosen).algorithm()


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
