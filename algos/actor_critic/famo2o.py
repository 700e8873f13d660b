"""Family offline-to-online learning (FamO2O), on implicit Q-learning.

Wang et al. (2023), "Train once, get a family: state-adaptive balances for offline-to-online reinforcement learning".
IQL (see iql) with an actor for each balance beta between the data and improvement, and a model that says for each state
which balance is best,

    actor    -mean min(exp(beta (min_k Q'_k(s, a) - V(s))), 100) log pi(a | s, beta)
    balance  mean temperature log pi_b(beta | s) - min_k Q'_k(s, a),   beta ~ pi_b(s), a ~ pi(s, beta)

Offline beta is uniform in [beta_min, beta_max], online (`Config.balanced`) the balance model's. The actor is told beta
as sines and cosines of beta / 10000^(2i / 6), i = 0, 1, 2. The balance is tanh of a normal, spread over the interval;
its temperature follows the target entropy -1/2. Where it acts, its balance is that model's median.

Deviations from the authors' code: networks learn in the order value, critics, balance, temperature, actor (theirs has
the critics last); the balance's deviations depend on the state; actions are in units of the box; orthogonal
initialisation with a small last layer; the actor's learning rate is constant. FamO2O on CQL is not here.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxrl.algorithm import Algorithm, as_vector_env, shared, spaces_of
from jaxrl.environment import Environment, pytree, visible
from jaxrl.nn.distributions import Normal, TanhNormal
from jaxrl.nn.networks import MLP, encode
from jaxrl.nn.optim import OptimizerLike, optimizer_of
from jaxrl.replay import off_policy
from jaxrl.replay.actor_critic import LOG_STD_MAX, LOG_STD_MIN, Actor, ActorCritic, Policy, State, Value
from jaxrl.replay.off_policy import Batch, Critic
from jaxrl.replay.ring import Replay, uniform
from jaxrl.spaces import Box, Space
from jaxrl.vectorize import VectorEnv

LARGEST_WEIGHT = 100.0  # the authors', as the next two
WAVELENGTH, SIZE = 10_000.0, 6  # of the encoding of beta


@dataclasses.dataclass(frozen=True)
class Config:
    """Static settings: each value compiles its own program."""

    num_envs: int = 1  # environments stepped together, where it acts
    num_steps: int = 1  # steps of each between updates, where it acts
    num_updates: int = 1  # gradient steps an update; where it acts, at most: see Hyper.replay_ratio
    batch_size: int = 256
    buffer_size: int = 100_000  # transitions kept, without a dataset
    hidden: tuple[int, ...] = (256, 256)  # widths of all networks
    activation: str = "relu"
    layer_norm: bool = False  # in the critics and the value
    balanced: bool = False  # the actor learns at the balance model's beta, not at uniform ones: online
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
    beta_min: jax.Array = 1.0  # least inverse temperature of the actor's weights
    beta_max: jax.Array = 5.0  # and the largest; the authors' for AntMaze are 8 and 14
    alpha: jax.Array = 1.0  # temperature of the balance, at first
    alpha_learning_rate: jax.Array = 3e-4  # of its logarithm
    target_entropy: jax.Array = -0.5  # nats, of the balance in [-1, 1]
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
    log_prob: Float[Array, " B"], advantage: Float[Array, " B"], beta: Float[Array, " B"]
) -> Float[Array, ""]:
    """-mean min(exp(beta A), 100) log pi(a | s) (IQL's, with a beta of each)."""
    weight = jnp.minimum(jnp.exp(beta * advantage), LARGEST_WEIGHT)
    return -jnp.mean(jax.lax.stop_gradient(weight) * log_prob)


def encoded(beta: Float[Array, "..."]) -> Float[Array, "... 6"]:
    """sin and cos of beta / 10000^(2i / 6), i = 0, 1, 2."""
    angle = beta[..., None] / WAVELENGTH ** (2 * jnp.arange(SIZE // 2) / SIZE)
    return jnp.stack([jnp.sin(angle), jnp.cos(angle)], -1).reshape(*beta.shape, SIZE)


class FamilyActor(nn.Module):
    """`(mean, log_std)` (..., A) of an observation and a balance (...): a mean within the box, constant deviations."""

    observation_space: Space
    action_space: Space
    hidden: tuple[int, ...]
    activation: str

    @nn.compact
    def __call__(self, obs: Any, beta: Float[Array, "..."]) -> tuple[Float[Array, "... A"], Float[Array, "... A"]]:
        x = encode(self.observation_space, obs, privileged=False)
        x = jnp.concatenate([x, encoded(beta).astype(x.dtype)], -1)
        size = self.action_space.shape[0]
        mean = jnp.tanh(MLP(self.hidden, size, self.activation, out_scale=0.01)(x))
        log_std = self.param("log_std", nn.initializers.zeros, (size,))
        return mean, jnp.broadcast_to(log_std, mean.shape)


@dataclasses.dataclass(frozen=True)
class _FamO2O(ActorCritic):
    """The losses and how it acts; what else the Algorithm's functions do is `ActorCritic`'s."""

    name: ClassVar = "famo2o"
    hyper_class: ClassVar = Hyper
    order: ClassVar = ("value", "critic", "balance", "log_alpha", "actor")

    def initial(self, name: str, key: Array, item: Any, hyper: Hyper) -> Any:
        if name == "log_alpha":
            return jnp.log(hyper.alpha)
        if name == "actor":
            return self.network(name).init(key, visible(item.obs), jnp.zeros(()))
        if name == "balance":
            return self.network(name).init(key, visible(item.obs))
        return super().initial(name, key, item, hyper)

    def learning_rate(self, name: str, hyper: Hyper) -> Array:
        return hyper.alpha_learning_rate if name == "log_alpha" else hyper.learning_rate

    def distribution(self, weights: Any, obs: Any, beta: Array) -> Normal:
        found: Any = self.network("actor").apply(weights, visible(obs), beta)
        return Normal(found[0], jnp.clip(found[1], LOG_STD_MIN, LOG_STD_MAX))

    def balances(self, weights: Any, obs: Any) -> TanhNormal:
        """Of (..., 1), between -1 and 1."""
        found: Any = self.network("balance").apply(weights, visible(obs))
        return TanhNormal(found[0], jnp.clip(found[1], LOG_STD_MIN, LOG_STD_MAX))

    def beta(self, unit: Float[Array, "... 1"], hyper: Hyper) -> Float[Array, "..."]:
        return hyper.beta_min + (unit[..., 0] + 1) / 2 * (hyper.beta_max - hyper.beta_min)

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

    def balance_loss(
        self, own: Any, weights: Any, target_weights: Any, key: Array, batch: Batch, hyper: Hyper
    ) -> tuple[Array, dict[str, Array]]:
        key, act_key = jax.random.split(key)
        unit, log_prob = self.balances(own, batch.obs).sample_and_log_prob(key)
        beta = self.beta(unit, hyper)
        action = self.distribution(weights["actor"], batch.obs, beta).sample(act_key)
        q = jnp.min(self.act_values(target_weights["critic"], batch.obs, action), 0)
        return jnp.mean(jnp.exp(weights["log_alpha"]) * log_prob - q), {"beta": jnp.mean(beta)}

    def log_alpha_loss(
        self, own: Any, weights: Any, target_weights: Any, key: Array, batch: Batch, hyper: Hyper
    ) -> tuple[Array, dict[str, Array]]:
        log_prob = self.balances(weights["balance"], batch.obs).sample_and_log_prob(key)[1]
        entropy = jax.lax.stop_gradient(-jnp.mean(log_prob))
        return own * (entropy - hyper.target_entropy), {"alpha": jnp.exp(own), "entropy": entropy}

    def actor_loss(
        self, own: Any, weights: Any, target_weights: Any, key: Array, batch: Batch, hyper: Hyper
    ) -> tuple[Array, dict[str, Array]]:
        if self.config.balanced:
            unit = self.balances(weights["balance"], batch.obs).sample(key)
        else:
            unit = jax.random.uniform(key, (*batch.reward.shape, 1), batch.reward.dtype, -1, 1)
        beta = self.beta(unit, hyper)
        log_prob = self.distribution(own, batch.obs, beta).log_prob(batch.action)
        return actor_loss(log_prob, self.advantage(weights["value"], target_weights, batch), beta), {}

    # ---- how it acts

    def policy(self, state: State) -> Policy:
        """Of the actor, the balance and the interval."""
        interval = {"beta_min": state.hyper.beta_min, "beta_max": state.hyper.beta_max}
        return Policy({**{name: state.weights[name] for name in ("actor", "balance")}, **interval}, jnp.float32(0))

    def chosen(self, policy: Policy, obs: Any) -> Normal:
        """The distribution of actions at the median of the balance."""
        weights = policy.weights
        unit = self.balances(weights["balance"], obs).mode()
        beta = self.beta(unit, Hyper(beta_min=weights["beta_min"], beta_max=weights["beta_max"]))
        return self.distribution(weights["actor"], obs, beta)

    def explore(self, policy: Policy, key: Array, obs: Any) -> Array:
        return jnp.clip(self.chosen(policy, obs).sample(key), -1, 1)

    def mode(self, policy: Policy, obs: Any) -> Array:
        return jnp.clip(self.chosen(policy, obs).mode(), -1, 1)


@shared
def make(
    env: Environment | VectorEnv,
    config: Config = Config(),
    memory: Replay | None = None,
    actor: nn.Module | None = None,
    balance: nn.Module | None = None,
    critic: nn.Module | None = None,
    optimizer: OptimizerLike | None = None,
) -> Algorithm:
    """FamO2O for `env`. Equal arguments give the same functions, so they share one jit cache.

    Args:
        memory: a dataset, `datasets.stored(dataset, env.action_space(params))`; None: it acts and fills its own.
        actor: a flax module from an observation without its privileged part and a balance (...) to `(mean, log_std)`
            (..., A) in units of the box.
        balance: a flax module from such an observation to `(mean, log_std)` (..., 1) before tanh.
        critic: a flax module from a whole observation and an action to values (...); there will be two of them.
        optimizer: an optax transformation or a function of the learning rate that makes one, for `config.optimizer`;
            see `optim.optimizer_of`.

    Raises ValueError for an action space that is not a vector, several agents, or networks whose outputs do not fit.
    """
    venv = as_vector_env(env, config.num_envs)
    obs_space, space = spaces_of("famo2o", venv, Box)
    sizes = config.hidden, config.activation, config.layer_norm
    networks = (
        ("value", Value(obs_space, *sizes)),
        ("critic", critic or Critic(obs_space, *sizes)),
        ("balance", balance or Actor(obs_space, Box(-1.0, 1.0, (1,)), config.hidden, config.activation, spread=True)),
        ("actor", actor or FamilyActor(obs_space, space, config.hidden, config.activation)),
    )
    chosen = optimizer_of(optimizer or config.optimizer, eps=config.adam_eps)
    return _FamO2O(config, venv, networks, obs_space, space, memory or uniform(config.buffer_size), chosen).algorithm()


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
