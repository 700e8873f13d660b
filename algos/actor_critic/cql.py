"""Conservative Q-learning (CQL), and calibrated (Cal-QL), for vectors of actions.

Kumar, Zhou, Tucker and Levine (2020), "Conservative Q-learning for offline reinforcement learning". Soft actor-critic
whose critics are low for actions that the data does not have: to the squared error of each comes

    min_q_weight (T mean logsumexp_i (Q(s, a_i) / T - log p(a_i)) - mean Q(s, a))

over `num_actions` actions each that are uniform, the actor's at s and the actor's at s', p being what they were drawn
from (CQL(H) with importance sampling). Nakamoto et al. (2023), "Cal-QL: calibrated offline RL pre-training for
efficient online fine-tuning": with `Config.calibrated` values of the actor's actions count as at least the return that
the dataset had from s on (`datasets.return_bounds`, of `datasets.stored(..., gamma)`), so that they do not sink below
what was seen, which is what made them recover slowly online.

Targets are without entropy, as in the authors' settings. Published are an actor's rate of 1e-4 beside 3e-4 of the
critics (3e-5 in CORL), `Hyper.actor_learning_rate`; three layers in CORL; and `Config.max_target_backup` on AntMaze
and in WSRL. Deviations from their code: actions are in units of the box; orthogonal initialisation with a small last
layer of the actor; no Lagrange multiplier for the weight; T divides Q alone, where theirs divides Q - log p; the actor
does not begin by cloning the data, where theirs does for 40,000 steps. Of an episode that was cut only the first
rewards are known, and Cal-QL's code takes their sum for the return unless the episode missed its goal; here rewards
beyond the cut are the dataset's least.
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
from jaxrl.vectorize import VectorEnv


@dataclasses.dataclass(frozen=True)
class Config(learner.Config):
    """Static settings: each value compiles its own program."""

    num_actions: int = 10  # of each kind, for the penalty
    max_target_backup: bool = False  # the target is of the best of num_actions next actions, not of one
    calibrated: bool = False  # Cal-QL; of its own episodes returns are not known, and there it is CQL
    actor_layer_norm: bool = False  # in the actor, before each activation
    num_critics: int = 2  # of which the target takes the smallest value; WSRL has 10

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least_one(self, "num_actions", "num_critics")


@pytree
class Hyper(learner.SoftHyper):
    """Dynamic settings: leaves, so vmap over any of them."""

    min_q_weight: jax.Array = 5.0  # of the penalty
    temperature: jax.Array = 1.0  # T


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
    """max_i min_k Q_k(s', a_i): the most that the smallest critic gives to one of n next actions."""
    return jnp.max(jnp.min(next_q, 0), 0)


def tried_actions(
    key: Key[Array, ""], num: int, policies: Sequence[TanhNormal]
) -> tuple[Float[Array, "n B A"], Float[Array, "n B"]]:
    """`num` uniform actions, then so many of each policy (B, A), and the logarithms of their densities."""
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
    """What is learned, as `learner.Rule` asks for it."""

    networks: ClassVar[tuple[str, ...]] = ("critic", "actor", "log_alpha")
    targets: ClassVar[tuple[str, ...]] = ("critic",)

    config: Config
    critic: Any  # a flax module
    actor: TanhGaussian

    init = learner.init_soft

    def next_value(self, weights: Any, target_weights: Any, key: Array, next_obs: Any) -> Float[Array, " B"]:
        """The next state's value by the target critics at an action of the actor, or at the best of several."""
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

    `learner.algorithm` explains the arguments and what is refused; `actor` is the network of a `TanhGaussian`, and
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
