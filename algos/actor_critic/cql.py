"""Conservative Q-learning (CQL), and calibrated (Cal-QL), for vectors of actions.

Kumar, Zhou, Tucker and Levine (2020), "Conservative Q-learning for offline reinforcement learning". Soft actor-critic
whose critics are low for actions that the dataset does not have: the loss of each is its squared error plus the penalty

    min_q_weight (T mean logsumexp_i (Q(s, a_i) / T - log p(a_i)) - mean Q(s, a))

over `num_actions` uniform actions, as many of the actor at s and as many of the actor at s', with p the density that an
action was drawn from (CQL(H) with importance sampling).

Cal-QL, Nakamoto et al. (2023), "Cal-QL: calibrated offline RL pre-training for efficient online fine-tuning": with
`Config.calibrated` the penalty counts values of the actor's actions as at least the dataset's return from s on
(`datasets.return_bounds`, of `datasets.stored(..., gamma)`). Values then do not fall below observed returns, which
makes online fine-tuning slow.

Targets are without entropy, as in the authors' settings. Published settings: an actor's learning rate of 1e-4
(`Hyper.actor_learning_rate`) with 3e-4 for the critics (3e-5 in CORL); three layers in CORL; `Config.max_target_backup`
on AntMaze and in WSRL. Deviations from the authors' code: actions are in units of the box; orthogonal initialisation
with a small last layer of the actor; no Lagrange multiplier for the weight; T divides Q alone, where theirs divides Q -
log p; the actor does not begin by cloning the dataset, where theirs does for 40,000 steps. For a truncated episode
Cal-QL's code takes the sum of the known rewards as the return, unless the episode missed its goal; here rewards after
the cut count as the lowest of the dataset.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from jaxrl.algorithm import Algorithm, as_vector_env, check_at_least_one, shared, spaces_of
from jaxrl.data.datasets import Dataset
from jaxrl.data.transitions import Batch, Transition
from jaxrl.environment import Environment, pytree
from jaxrl.nn.actor_critic import (
    Actor,
    Critic,
    TanhGaussian,
)
from jaxrl.nn.distributions import TanhNormal
from jaxrl.nn.losses import critic_loss, td_target
from jaxrl.nn.nets import Nets, critic_values
from jaxrl.nn.networks import Network, own
from jaxrl.nn.optim import OptimizerLike
from jaxrl.off_policy import learner
from jaxrl.replay.ring import Replay
from jaxrl.spaces import Box
from jaxrl.vector_env import VectorEnv


@dataclasses.dataclass(frozen=True)
class Config(learner.Config):
    """Static settings: each value compiles its own program."""

    num_actions: int = 10  # actions of each of the three kinds in the penalty
    max_target_backup: bool = False  # the target takes the best of num_actions next actions, not one action
    calibrated: bool = False  # Cal-QL; for steps without a known return, such as the learner's, it is CQL
    actor_layer_norm: bool = False  # in the actor, before each activation
    num_critics: int = 2  # critics; the target takes the smallest of their values; WSRL has 10

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least_one(self, "num_actions", "num_critics")


@pytree
class Hyper(learner.SoftHyper):
    """Dynamic settings: leaves, so vmap over any of them."""

    min_q_weight: jax.Array = 5.0  # of the penalty
    temperature: jax.Array = 1.0  # T of the penalty


def penalty(
    q_tried: Float[Array, "K n B"],
    log_density: Float[Array, "n B"],
    q_data: Float[Array, "K B"],
    temperature: Float[Array, ""] | float,
) -> Float[Array, ""]:
    """sum_k T mean logsumexp_i (Q_k(s, a_i) / T - log p(a_i)) - mean Q_k(s, a) (Kumar et al. 2020, appendix F)."""
    soft = temperature * jax.nn.logsumexp(q_tried / temperature - log_density, 1)
    return jnp.sum(jnp.mean(soft - q_data, -1))


def best_of(next_q: Float[Array, "K n B"]) -> Float[Array, " B"]:
    """max_i min_k Q_k(s', a_i): the value of the best of n next actions by the smallest critic."""
    return jnp.max(jnp.min(next_q, 0), 0)


def tried_actions(
    key: Key[Array, ""], num: int, policies: Sequence[TanhNormal]
) -> tuple[Float[Array, "n B A"], Float[Array, "n B"]]:
    """`num` uniform actions, then `num` of each policy (B, A), and their log-densities."""
    keys, shape = jax.random.split(key, 1 + len(policies)), (num, *policies[0].mode().shape)
    actions = [jax.random.uniform(keys[0], shape, policies[0].mode().dtype, -1, 1)]
    densities = [jnp.full(shape[:-1], -shape[-1] * jnp.log(2.0), actions[0].dtype)]
    for own_key, policy in zip(keys[1:], policies, strict=True):
        copies = jax.tree.map(lambda x: jnp.broadcast_to(x, shape), policy)
        action, log_prob = copies.sample_and_log_prob(own_key)
        actions.append(action)
        densities.append(log_prob)
    return jnp.concatenate(actions), jnp.concatenate(densities)


@dataclasses.dataclass(frozen=True)
class _CQL:
    """The learning rule, a `learner.Rule`."""

    networks: ClassVar[tuple[str, ...]] = ("critic", "actor", "log_alpha")
    targets: ClassVar[tuple[str, ...]] = ("critic",)

    config: Config
    critic: Any  # a flax module
    actor: TanhGaussian

    init = learner.init_soft

    def next_value(self, weights: Any, target_weights: Any, key: Array, next_obs: Any) -> Float[Array, " B"]:
        """The target critics' value of the next state, at an action of the actor or at the best of several."""
        if not self.config.max_target_backup:
            next_action = self.actor.explore(weights, key, next_obs)
            return jnp.min(critic_values(self.critic, target_weights, next_obs, next_action), 0)
        keys = jax.random.split(key, self.config.num_actions)
        next_action = jax.vmap(lambda key: self.actor.explore(weights, key, next_obs))(keys)
        values = lambda action: critic_values(self.critic, target_weights, next_obs, action)  # noqa: E731
        return best_of(jax.vmap(values, out_axes=1)(next_action))

    def gradient_step(self, nets: Nets, key: Array, batch: Batch, hyper: Hyper) -> tuple[Nets, dict[str, Array]]:
        """The critics with their penalty, the actor, the temperature, the target critics (Kumar et al. 2020)."""
        critic, actor, log_alpha = (nets[name] for name in self.networks)
        critic_key, actor_key, alpha_key = jax.random.split(key, 3)
        settings, alpha = (hyper.learning_rate, hyper.max_grad_norm), jnp.exp(log_alpha.weights)
        next_key, tried_key = jax.random.split(critic_key)
        next_value = self.next_value(actor.weights, critic.target, next_key, batch.next_obs)
        target = td_target(batch.reward, batch.terminated, next_value, hyper.gamma)
        policies = [self.actor(actor.weights, obs) for obs in (batch.obs, batch.next_obs)]
        actions, densities = tried_actions(tried_key, self.config.num_actions, policies)

        def critic_objective(weights: Any) -> tuple[Array, dict[str, Array]]:
            q = critic_values(self.critic, weights, batch.obs, batch.action)
            values = jax.vmap(lambda a: critic_values(self.critic, weights, batch.obs, a), out_axes=1)(actions)
            if self.config.calibrated and not isinstance(batch, Transition):
                of_actor = jnp.arange(len(actions)) >= self.config.num_actions
                values = jnp.where(of_actor[:, None], jnp.maximum(values, batch.return_bound), values)
            error, low = critic_loss(q, target), penalty(values, densities, q, hyper.temperature)
            return error + hyper.min_q_weight * low, {"q_value": jnp.mean(q), "td_error": error, "penalty": low}

        critic, critic_report = critic.descend(critic_objective, *settings)

        def actor_objective(weights: Any) -> tuple[Array, dict[str, Array]]:
            action, log_prob = self.actor(weights, batch.obs).sample_and_log_prob(actor_key)
            q = jnp.min(critic_values(self.critic, critic.weights, batch.obs, action), 0)
            return jnp.mean(alpha * log_prob - q), {"entropy": -jnp.mean(log_prob)}

        actor, actor_report = actor.descend(actor_objective, *learner.actor_settings(hyper))
        pi = self.actor(actor.weights, batch.obs)
        log_alpha, alpha_report = learner.temperature_step(log_alpha, pi, alpha_key, hyper)
        nets = {"critic": critic.track(hyper.tau), "actor": actor, "log_alpha": log_alpha}
        return nets, {**critic_report, **actor_report, **alpha_report}


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
    """CQL for `env`. Equal arguments give the same functions, so they share one jit cache.

    `learner.algorithm` explains the arguments and the errors; `actor` is the network of a `TanhGaussian`, and
    there are `config.num_critics` critics.
    """
    venv = as_vector_env(env, config.num_envs)
    obs_space, space = spaces_of("cql", venv, Box, between_ends=True)
    critic = own("critic", critic) or Critic(obs_space, config.hidden, config.activation, config.layer_norm)
    sizes = config.hidden, config.activation
    acting = TanhGaussian(own("actor", actor) or Actor(obs_space, space, *sizes, config.actor_layer_norm, spread=True))
    rule = _CQL(config, critic, acting)
    given = {"replay": replay, "optimizer": optimizer, "critic": critic, "num_critics": config.num_critics}
    return learner.algorithm("cql", venv, config, Hyper, rule, acting, **given)


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
