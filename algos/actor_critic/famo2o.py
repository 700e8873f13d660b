"""Family offline-to-online learning (FamO2O), on implicit Q-learning.

Wang et al. (2023), "Train once, get a family: state-adaptive balances for offline-to-online reinforcement learning".
IQL (`iql.py`) with an actor that takes the balance beta between cloning and improvement as an input, and a balance
model that predicts the best beta for each state,

    actor    -mean min(exp(beta (min_k Q'_k(s, a) - V(s))), 100) log pi(a | s, beta)
    balance  mean temperature log pi_b(beta | s) - min_k Q'_k(s, a),   beta ~ pi_b(s), a ~ pi(s, beta)

Offline beta is uniform in [beta_min, beta_max]; online (`Config.balanced`) the balance model draws it. The actor's
input is sin and cos of beta / 10000^(2i / 6), i = 0, 1, 2. The balance is a tanh-normal scaled to the interval; its
temperature is tuned to the target entropy -1/2. When acting, beta is the median of the balance model.

Deviations from the authors' code: networks learn in the order value, critics, balance, temperature, actor (theirs has
the critics last); the balance's standard deviation depends on the state; actions are in units of the box; orthogonal
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
from jaxrl.data.datasets import Dataset
from jaxrl.data.transitions import Batch
from jaxrl.environment import Environment, pytree, visible
from jaxrl.nn.actor_critic import (
    LOG_STD_MAX,
    LOG_STD_MIN,
    Actor,
    Critic,
    Value,
)
from jaxrl.nn.distributions import Normal, TanhNormal
from jaxrl.nn.losses import advantage_weighted_loss, critic_loss, expectile_loss, td_target, temperature_loss
from jaxrl.nn.nets import Nets, critic_values, init_critics
from jaxrl.nn.networks import MLP, Network, encode, own
from jaxrl.nn.optim import OptimizerLike
from jaxrl.off_policy import learner
from jaxrl.replay.ring import Replay
from jaxrl.spaces import Box, Space
from jaxrl.vector_env import VectorEnv

WAVELENGTH, SIZE = 10_000.0, 6  # of the encoding of beta, as in the authors' code


@dataclasses.dataclass(frozen=True)
class Config(learner.Config):
    """Static settings: each value compiles its own program."""

    balanced: bool = False  # the actor learns at the balance model's beta (online), not at uniform ones (offline)


@pytree
class Hyper(learner.Hyper):
    """Dynamic settings: leaves, so vmap over any of them."""

    expectile: jax.Array = 0.7  # of the state value; towards 1 it nears the value of the dataset's best action
    beta_min: jax.Array = 1.0  # smallest inverse temperature of the advantage weights
    beta_max: jax.Array = 5.0  # largest one; for AntMaze the authors take 8 and 14
    alpha: jax.Array = 1.0  # initial temperature of the balance
    alpha_learning_rate: jax.Array = 3e-4  # of the logarithm of that temperature
    target_entropy: jax.Array = -0.5  # nats, of the balance in [-1, 1]


def encoded(beta: Float[Array, "..."]) -> Float[Array, "... 6"]:
    """sin and cos of beta / 10000^(2i / 6), i = 0, 1, 2."""
    angle = beta[..., None] / WAVELENGTH ** (2 * jnp.arange(SIZE // 2) / SIZE)
    return jnp.stack([jnp.sin(angle), jnp.cos(angle)], -1).reshape(*beta.shape, SIZE)


class FamilyActor(nn.Module):
    """`(mean, log_std)` (..., A) of an observation and a balance (...): a mean inside the box, a constant log_std."""

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


def beta_of(unit: Float[Array, "... 1"], low: Array, high: Array) -> Float[Array, "..."]:
    """The inverse temperature beta in [low, high] for a balance in [-1, 1]."""
    return low + (unit[..., 0] + 1) / 2 * (high - low)


@dataclasses.dataclass(frozen=True)
class Family:
    """The acting policy: the actor at the median of the balance. Weights are those of `deployed`."""

    actor: Any  # flax modules
    balance: Any

    def policy(self, weights: Any, obs: Any, beta: Array) -> Normal:
        """The actor's distribution of actions at a balance."""
        mean, log_std = self.actor.apply(weights, visible(obs), beta)
        return Normal(mean, jnp.clip(log_std, LOG_STD_MIN, LOG_STD_MAX))

    def balances(self, weights: Any, obs: Any) -> TanhNormal:
        """The distribution of balances (..., 1), between -1 and 1."""
        mean, log_std = self.balance.apply(weights, visible(obs))
        return TanhNormal(mean, jnp.clip(log_std, LOG_STD_MIN, LOG_STD_MAX))

    def at_median(self, weights: Any, obs: Any) -> Normal:
        unit = self.balances(weights["balance"], obs).mode()
        return self.policy(weights["actor"], obs, beta_of(unit, weights["beta_min"], weights["beta_max"]))

    def explore(self, weights: Any, key: Array, obs: Any, noise: Any = None) -> Float[Array, "... A"]:
        return jnp.clip(self.at_median(weights, obs).sample(key), -1, 1)

    def mode(self, weights: Any, obs: Any) -> Float[Array, "... A"]:
        return jnp.clip(self.at_median(weights, obs).mode(), -1, 1)


def deployed(state: learner.State) -> dict[str, Any]:
    """The weights that act: the actor, the balance model and the interval of beta."""
    interval = {"beta_min": state.hyper.beta_min, "beta_max": state.hyper.beta_max}
    return {**{name: state.weights[name] for name in ("actor", "balance")}, **interval}


@dataclasses.dataclass(frozen=True)
class _FamO2O:
    """The learning rule, a `learner.Rule`."""

    networks: ClassVar[tuple[str, ...]] = ("value", "critic", "balance", "log_alpha", "actor")
    targets: ClassVar[tuple[str, ...]] = ("critic",)

    config: Config
    value: Any  # flax modules
    critic: Any
    family: Family

    def init(self, keys: dict[str, Array], obs: Any, action: Any, hyper: Hyper) -> dict[str, Any]:
        return {
            "value": self.value.init(keys["value"], obs),
            "critic": init_critics(self.critic, keys["critic"], 2, obs, action),
            "balance": self.family.balance.init(keys["balance"], visible(obs)),
            "log_alpha": jnp.log(hyper.alpha),
            "actor": self.family.actor.init(keys["actor"], visible(obs), jnp.zeros(())),
        }

    def gradient_step(self, nets: Nets, key: Array, batch: Batch, hyper: Hyper) -> tuple[Nets, dict[str, Array]]:
        """IQL's value and critics, the balance and its temperature, the actor at many balances (algorithm 1)."""
        value, critic, balance, log_alpha, actor = (nets[name] for name in self.networks)
        _, _, balance_key, alpha_key, actor_key = jax.random.split(key, 5)
        settings, family, interval = (
            (hyper.learning_rate, hyper.max_grad_norm),
            self.family,
            (hyper.beta_min, hyper.beta_max),
        )
        q_target = jnp.min(critic_values(self.critic, critic.target, batch.obs, batch.action), 0)

        def value_objective(weights: Any) -> tuple[Array, dict[str, Array]]:
            advantage = q_target - self.value.apply(weights, batch.obs)
            return expectile_loss(advantage, hyper.expectile), {"advantage": jnp.mean(advantage)}

        value, value_report = value.descend(value_objective, *settings)
        next_value = self.value.apply(value.weights, batch.next_obs)
        target = td_target(batch.reward, batch.terminated, next_value, hyper.gamma)

        def critic_objective(weights: Any) -> tuple[Array, dict[str, Array]]:
            q = critic_values(self.critic, weights, batch.obs, batch.action)
            return critic_loss(q, target), {"q_value": jnp.mean(q)}

        judges = critic.target
        critic, critic_report = critic.descend(critic_objective, *settings)
        unit_key, act_key = jax.random.split(balance_key)

        def balance_objective(weights: Any) -> tuple[Array, dict[str, Array]]:
            unit, log_prob = family.balances(weights, batch.obs).sample_and_log_prob(unit_key)
            beta = beta_of(unit, *interval)
            action = family.policy(actor.weights, batch.obs, beta).sample(act_key)
            q = jnp.min(critic_values(self.critic, judges, batch.obs, action), 0)
            return jnp.mean(jnp.exp(log_alpha.weights) * log_prob - q), {"beta": jnp.mean(beta)}

        balance, balance_report = balance.descend(balance_objective, *settings)
        balances = family.balances(balance.weights, batch.obs)
        entropy = -jnp.mean(balances.sample_and_log_prob(alpha_key)[1])

        def temperature_objective(weights: Array) -> tuple[Array, dict[str, Array]]:
            loss = temperature_loss(weights, entropy, hyper.target_entropy)
            return loss, {"alpha": jnp.exp(weights), "entropy": entropy}

        rate = hyper.alpha_learning_rate, hyper.max_grad_norm
        log_alpha, alpha_report = log_alpha.descend(temperature_objective, *rate)
        if self.config.balanced:
            unit = balances.sample(actor_key)
        else:
            unit = jax.random.uniform(actor_key, (*batch.reward.shape, 1), batch.reward.dtype, -1, 1)
        beta, advantage = beta_of(unit, *interval), q_target - self.value.apply(value.weights, batch.obs)

        def actor_objective(weights: Any) -> tuple[Array, dict[str, Array]]:
            log_prob = family.policy(weights, batch.obs, beta).log_prob(batch.action)
            return advantage_weighted_loss(log_prob, beta * advantage), {}

        actor, actor_report = actor.descend(actor_objective, *settings)
        nets = {"value": value, "critic": critic.track(hyper.tau), "balance": balance}
        report = {**value_report, **critic_report, **balance_report, **alpha_report, **actor_report}
        return {**nets, "log_alpha": log_alpha, "actor": actor}, report


@shared
def make(
    env: Environment | VectorEnv,
    config: Config = Config(),
    *,
    replay: Replay | Dataset | None = None,
    actor: Network | None = None,
    balance: Network | None = None,
    critic: Network | None = None,
    optimizer: OptimizerLike | None = None,
) -> Algorithm:
    """FamO2O for `env`. Equal arguments give the same functions, so they share one jit cache.

    Args:
        replay: a dataset, or what `datasets.stored` makes of one; None: the learner acts and fills a replay buffer.
        actor: a flax module from an observation without its privileged part and a balance (...) to `(mean, log_std)`
            (..., A) in units of the box.
        balance: a flax module from such an observation to `(mean, log_std)` (..., 1) before tanh.
        critic: a flax module from a whole observation and an action to values (...); there will be two of them.
        optimizer: in place of `config.optimizer`; see `optim.optimizer_of`.

    Raises ValueError for an action space that is not a vector, several agents, or networks whose outputs do not fit,
    and TypeError for a `replay` that is neither a dataset nor a Replay.
    """
    venv = as_vector_env(env, config.num_envs)
    obs_space, space = spaces_of("famo2o", venv, Box, between_ends=True)
    sizes = config.hidden, config.activation, config.layer_norm
    critic, unit = own("critic", critic) or Critic(obs_space, *sizes), Box(-1.0, 1.0, (1,))
    acting = Family(
        own("actor", actor) or FamilyActor(obs_space, space, config.hidden, config.activation),
        balance or Actor(obs_space, unit, config.hidden, config.activation, spread=True),
    )
    rule = _FamO2O(config, Value(obs_space, *sizes), critic, acting)
    given = {"replay": replay, "optimizer": optimizer, "critic": critic, "deploy": deployed}
    return learner.algorithm("famo2o", venv, config, Hyper, rule, acting, **given)


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
