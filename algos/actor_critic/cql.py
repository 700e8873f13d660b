"""Conservative Q-learning (CQL), and calibrated (Cal-QL), for vectors of actions.

Kumar, Zhou, Tucker and Levine (2020), "Conservative Q-learning for offline reinforcement learning". Soft actor-critic
whose critics are low for actions that the data does not have: to the squared error of each comes

    min_q_weight (T mean logsumexp_i (Q(s, a_i) / T - log p(a_i)) - mean Q(s, a))

over `num_actions` actions each that are uniform, the actor's at s and the actor's at s', p being what they were drawn
from (CQL(H) with importance sampling). Nakamoto et al. (2023), "Cal-QL: calibrated offline RL pre-training for
efficient online fine-tuning": with `Config.calibrated` values of the actor's actions count as at least the return that
the dataset had from s on (`datasets.stored(..., gamma)`), so that they do not sink below what was seen, which is what
made them recover slowly online.

Targets are without entropy, as in the authors' settings. Deviations from their code: actions are in units of the box;
orthogonal initialisation with a small last layer of the actor; no Lagrange multiplier for the weight.
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
from jaxrl.replay.off_policy import Batch, Critic, Transition
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
    num_actions: int = 10  # of each kind, for the penalty
    calibrated: bool = False  # Cal-QL; of its own episodes returns are not known, and there it is CQL
    num_critics: int = 2  # of which the target takes the smallest value; WSRL has 10
    hidden: tuple[int, ...] = (256, 256)  # widths of actor and critics
    activation: str = "relu"
    layer_norm: bool = False  # in the critics
    optimizer: str = "adam"  # a name of optim.OPTIMIZERS
    adam_eps: float = 1e-8  # added to the denominator of Adam and its kin

    def __post_init__(self) -> None:
        off_policy.check_config(self)
        if self.num_actions < 1:
            raise ValueError(f"num_actions={self.num_actions}: it must be at least 1.")
        if self.num_critics < 1:
            raise ValueError(f"num_critics={self.num_critics}: it must be at least 1.")


@pytree
class Hyper:
    """Dynamic settings: leaves, so vmap over any of them."""

    learning_rate: jax.Array = 3e-4  # of actor and critics
    alpha_learning_rate: jax.Array = 3e-4  # of the logarithm of the temperature; 0: constant
    alpha: jax.Array = 1.0  # temperature, at first
    target_entropy: jax.Array = jnp.inf  # nats in units of the box; infinite: -A
    gamma: jax.Array = 0.99  # discount
    tau: jax.Array = 0.005  # how far target critics move to the others, each gradient step
    min_q_weight: jax.Array = 5.0  # of the penalty
    temperature: jax.Array = 1.0  # T
    learning_starts: jax.Array = 1000  # where it acts: environment steps before the first gradient step
    replay_ratio: jax.Array = jnp.inf  # where it acts: gradient steps an environment step; infinite: num_updates
    max_grad_norm: jax.Array = 1e6  # of each network


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


def penalty(
    q_tried: Float[Array, "K n B"],
    log_density: Float[Array, "n B"],
    q_data: Float[Array, "K B"],
    temperature: Float[Array, ""] | float,
) -> Float[Array, ""]:
    """sum_k T mean logsumexp_i (Q_k(s, a_i) / T - log p(a_i)) - mean Q_k(s, a) (Kumar et al. 2020, appendix F)."""
    soft = temperature * jax.nn.logsumexp(q_tried / temperature - log_density, 1)
    return jnp.sum(jnp.mean(soft - q_data, -1))


@dataclasses.dataclass(frozen=True)
class _CQL(SoftActorCritic):
    """The losses; what else the Algorithm's functions do is `SoftActorCritic`'s."""

    name: ClassVar = "cql"
    hyper_class: ClassVar = Hyper

    def tried(self, actor_weights: Any, key: Array, batch: Batch) -> tuple[Float[Array, "n B A"], Float[Array, "n B"]]:
        """Uniform actions, the actor's at s and the actor's at s', and the logarithms of their densities."""
        n, keys = self.config.num_actions, jax.random.split(key, 3)
        shape = (n, *batch.action.shape)
        actions = [jax.random.uniform(keys[0], shape, batch.action.dtype, -1, 1)]
        densities = [jnp.full(shape[:-1], -batch.action.shape[-1] * jnp.log(2.0), batch.action.dtype)]
        for own_key, obs in zip(keys[1:], (batch.obs, batch.next_obs), strict=True):
            pi = jax.tree.map(lambda x: jnp.broadcast_to(x, shape), self.distribution(actor_weights, obs))
            action, log_prob = pi.sample_and_log_prob(own_key)
            actions.append(action)
            densities.append(log_prob)
        return jnp.concatenate(actions), jnp.concatenate(densities)

    def critic_loss(
        self, own: Any, weights: Any, target_weights: Any, key: Array, batch: Batch, hyper: Hyper
    ) -> tuple[Array, dict[str, Array]]:
        next_key, tried_key = jax.random.split(key)
        action = self.distribution(weights["actor"], batch.next_obs).sample(next_key)
        next_q = self.act_values(target_weights["critic"], batch.next_obs, action)
        q = self.act_values(own, batch.obs, batch.action)
        error = critic_loss(q, td_target(batch.reward, batch.terminated, next_q, hyper.gamma))
        actions, densities = self.tried(weights["actor"], tried_key, batch)
        values = jax.vmap(lambda action: self.act_values(own, batch.obs, action), out_axes=1)(actions)
        if self.config.calibrated and not isinstance(batch, Transition):
            of_actor = jnp.arange(len(actions)) >= self.config.num_actions
            values = jnp.where(of_actor[:, None], jnp.maximum(values, batch.return_to_go), values)
        low = penalty(values, densities, q, hyper.temperature)
        return error + hyper.min_q_weight * low, {"q_value": jnp.mean(q), "td_error": error, "penalty": low}

    def actor_loss(
        self, own: Any, weights: Any, target_weights: Any, key: Array, batch: Batch, hyper: Hyper
    ) -> tuple[Array, dict[str, Array]]:
        action, log_prob = self.distribution(own, batch.obs).sample_and_log_prob(key)
        q = jnp.min(self.act_values(weights["critic"], batch.obs, action), 0)
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
    """CQL for `env`. Equal arguments give the same functions, so they share one jit cache.

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
    obs_space, space = spaces_of("cql", venv, Box)
    networks = (
        ("actor", actor or Actor(obs_space, space, config.hidden, config.activation, spread=True)),
        ("critic", critic or Critic(obs_space, config.hidden, config.activation, config.layer_norm)),
    )
    chosen = optimizer_of(optimizer or config.optimizer, eps=config.adam_eps)
    return _CQL(config, venv, networks, obs_space, space, memory or uniform(config.buffer_size), chosen).algorithm()


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
