"""Dual value learning (f-DVL) and extreme Q-learning (XQL).

Sikchi, Zheng, Zhang and Niekum (2024), "Dual RL: unification and new methods for reinforcement and imitation learning".
Offline learning as maximising return less a divergence of visitations from the data's has a dual in the state value
alone. Its loss is the conjugate of the divergence, which makes V follow the best of the data's actions, as the
expectile does in IQL: with d = min_k Q'_k(s, a) - V(s) and l the temperature,

    chi2             mean l max(d + d^2 / 4, 0) - (1 - l) d
    total_variation  mean l max(d, 0) - (1 - l) d            d is above 0 with probability (1 - l) / l
    gumbel           mean exp(z) - z - 1, z = min(d / l, max_clip), over the batch's largest exp(z)

`gumbel` is reverse KL: XQL of Garg, Hejna, Geist and Ermon (2023), "Extreme Q-learning: MaxEnt RL without entropy",
whose exponential is what the other two do without. The rest is IQL's but for Huber's loss,

    critics  Huber(Q_k(s, a) - (r + gamma (1 - terminated) V(s')))
    actor    -mean min(exp(beta d), 100) log pi(a | s)

`Config.random_actions` uniform ones a state go into the value's loss beside the data's, as the authors do for
locomotion, where they also scale rewards by 1,000 over the range of the episodes' returns: `chi2` and `gumbel` are not
indifferent to the scale of rewards. For l at or below 1/2 `total_variation` is low without a bound or minimal.

Deviations from the authors' code: actions are in units of the box; orthogonal initialisation with a small last layer of
the actor; its learning rate is constant, where theirs falls along a cosine over the whole training.
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
HUBER_DELTA = 20.0  # theirs


@dataclasses.dataclass(frozen=True)
class Config:
    """Static settings: each value compiles its own program."""

    num_envs: int = 1  # environments stepped together, where it acts
    num_steps: int = 1  # steps of each between updates, where it acts
    num_updates: int = 1  # gradient steps an update; where it acts, at most: see Hyper.replay_ratio
    batch_size: int = 256
    buffer_size: int = 100_000  # transitions kept, without a dataset
    normalize_obs: bool = False  # observations, by the dataset's mean and deviation; without one as they are
    divergence: str = "chi2"  # a name of VALUE_LOSSES
    random_actions: int = 0  # uniform ones a state beside the data's, in the value's loss
    hidden: tuple[int, ...] = (256, 256)  # widths of all networks
    activation: str = "relu"
    layer_norm: bool = False  # in the critics and the value
    optimizer: str = "adam"  # a name of optim.OPTIMIZERS
    adam_eps: float = 1e-8  # added to the denominator of Adam and its kin

    def __post_init__(self) -> None:
        off_policy.check_config(self)
        if self.divergence not in VALUE_LOSSES:
            raise ValueError(f"divergence={self.divergence!r}: it is one of {', '.join(VALUE_LOSSES)}.")
        if self.random_actions < 0:
            raise ValueError(f"random_actions={self.random_actions}: it must be at least 0.")


@pytree
class Hyper:
    """Dynamic settings: leaves, so vmap over any of them."""

    learning_rate: jax.Array = 3e-4  # of all networks
    gamma: jax.Array = 0.99  # discount
    tau: jax.Array = 0.005  # how far target critics move to the others, each gradient step
    temperature: jax.Array = 0.8  # l: of chi2 and total_variation the nearer to 1 the nearer to the best action's value
    beta: jax.Array = 3.0  # inverse temperature of the actor's weights
    max_clip: jax.Array = 7.0  # of gumbel: the largest exponent; infinite: none
    learning_starts: jax.Array = 1000  # where it acts: environment steps before the first gradient step
    replay_ratio: jax.Array = jnp.inf  # where it acts: gradient steps an environment step; infinite: num_updates
    max_grad_norm: jax.Array = 1e6  # of each network


def chi2(advantage: Float[Array, " B"], temperature: Any, max_clip: Any = jnp.inf) -> Float[Array, ""]:
    """mean l max(d + d^2 / 4, 0) - (1 - l) d; flat for l = 1 and d from -4 to 0."""
    conjugate = jnp.maximum(advantage + advantage**2 / 4, 0)
    return jnp.mean(temperature * conjugate - (1 - temperature) * advantage)


def total_variation(advantage: Float[Array, " B"], temperature: Any, max_clip: Any = jnp.inf) -> Float[Array, ""]:
    """mean l max(d, 0) - (1 - l) d."""
    return jnp.mean(temperature * jnp.maximum(advantage, 0) - (1 - temperature) * advantage)


def gumbel(advantage: Float[Array, " B"], temperature: Any, max_clip: Any = jnp.inf) -> Float[Array, ""]:
    """mean (exp(z) - z - 1) / exp(m), z = min(d / l, clip); the constant m is the batch's largest z, at least -1."""
    z = jnp.minimum(advantage / temperature, max_clip)
    most = jax.lax.stop_gradient(jnp.maximum(jnp.max(z), -1.0))
    return jnp.mean(jnp.exp(z - most) - (z + 1) * jnp.exp(-most))


VALUE_LOSSES = {"chi2": chi2, "total_variation": total_variation, "gumbel": gumbel}
"""`(advantage, temperature, max_clip) -> loss`, of d = Q - V"""


def critic_loss(q: Float[Array, "K B"], target: Float[Array, " B"]) -> Float[Array, ""]:
    """The mean of Huber's loss of each critic, added up: half the square, beyond 20 linear."""
    error = jnp.abs(q - target)
    near = jnp.minimum(error, HUBER_DELTA)
    return jnp.sum(jnp.mean(near**2 / 2 + HUBER_DELTA * (error - near), -1))


def actor_loss(
    log_prob: Float[Array, " B"], advantage: Float[Array, " B"], beta: Float[Array, ""] | float
) -> Float[Array, ""]:
    """-mean min(exp(beta d), 100) log pi(a | s)."""
    weight = jnp.minimum(jnp.exp(beta * advantage), LARGEST_WEIGHT)
    return -jnp.mean(jax.lax.stop_gradient(weight) * log_prob)


@dataclasses.dataclass(frozen=True)
class _DVL(GaussianPolicies, ActorCritic):
    """The losses; what else the Algorithm's functions do is `ActorCritic`'s."""

    name: ClassVar = "dvl"
    hyper_class: ClassVar = Hyper
    order: ClassVar = ("value", "critic", "actor")

    def advantage(self, value_weights: Any, target_weights: Any, obs: Any, action: Array) -> Float[Array, " B"]:
        q = self.act_values(target_weights["critic"], obs, action)
        return jnp.min(q, 0) - self.values(value_weights, obs)

    def value_loss(
        self, own: Any, weights: Any, target_weights: Any, key: Array, batch: Batch, hyper: Hyper
    ) -> tuple[Array, dict[str, Array]]:
        obs, action, times = batch.obs, batch.action, self.config.random_actions
        if times:
            obs = jax.tree.map(lambda x: jnp.concatenate([x] * (1 + times)), obs)
            drawn = jax.random.uniform(key, (times * len(action), *action.shape[1:]), action.dtype, -1, 1)
            action = jnp.concatenate([action, drawn])
        advantage = self.advantage(own, target_weights, obs, action)
        loss = VALUE_LOSSES[self.config.divergence](advantage, hyper.temperature, hyper.max_clip)
        return loss, {"advantage": jnp.mean(advantage[: len(batch.action)])}

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
        advantage = self.advantage(weights["value"], target_weights, batch.obs, batch.action)
        return actor_loss(log_prob, advantage, hyper.beta), {}


@shared
def make(
    env: Environment | VectorEnv,
    config: Config = Config(),
    memory: Replay | None = None,
    actor: nn.Module | None = None,
    critic: nn.Module | None = None,
    optimizer: OptimizerLike | None = None,
) -> Algorithm:
    """f-DVL, or with `divergence="gumbel"` XQL, for `env`. Equal arguments give the same functions, so they share one
    jit cache.

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
    obs_space, space = spaces_of("dvl", venv, Box)
    sizes = config.hidden, config.activation, config.layer_norm
    networks = (
        ("value", Value(obs_space, *sizes)),
        ("critic", critic or Critic(obs_space, *sizes)),
        ("actor", actor or GaussianActor(obs_space, space, config.hidden, config.activation)),
    )
    chosen = optimizer_of(optimizer or config.optimizer, eps=config.adam_eps)
    return _DVL(config, venv, networks, obs_space, space, memory or uniform(config.buffer_size), chosen).algorithm()


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
