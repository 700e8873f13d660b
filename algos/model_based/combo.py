"""Conservative offline model-based policy optimisation (COMBO).

Yu, Kumar, Rafailov, Rajeswaran, Levine and Finn (2021), "COMBO: conservative offline model-based policy optimization".
Soft actor-critic on short rollouts of a model, without a penalty for the model's uncertainty: instead, critics are made
low at model states and high on the dataset. Their loss is the squared error on batches of both, plus

    min_q_weight (mean_{s of the model} T logsumexp_i (Q(s, a_i) / T - log p(a_i)) - mean_{s, a of the dataset} Q(s, a))

over `num_actions` uniform actions, as many of the actor at s and as many of the actor at s', as in `cql.py`.

Defaults are those of unifloral (Jackson et al. 2025), except for the actor's learning rate and 10 critics. Deviations
from the paper: targets have an entropy term, as in unifloral; only the policy acts in rollouts; the penalty is over
model states with ten actions of each kind, in unifloral over the whole batch with one of each; else as in `mopo.py`.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxrl.algorithm import Algorithm, as_vector_env, check_at_least_one, shared, spaces_of
from jaxrl.algos.actor_critic import cql
from jaxrl.data.datasets import Dataset
from jaxrl.data.transitions import Batch
from jaxrl.environment import Environment, pytree
from jaxrl.nn.actor_critic import Actor, Critic, TanhGaussian
from jaxrl.nn.losses import critic_loss, td_target
from jaxrl.nn.nets import Nets, critic_values
from jaxrl.nn.networks import Network, own
from jaxrl.nn.optim import OptimizerLike
from jaxrl.off_policy import imagination, learner
from jaxrl.off_policy.imagination import Model
from jaxrl.replay.ring import Replay
from jaxrl.spaces import Box
from jaxrl.vector_env import VectorEnv


@dataclasses.dataclass(frozen=True)
class Config(imagination.Config):
    """Static settings: each value compiles its own program."""

    real_ratio: float = 0.5  # share of a batch that comes from the dataset
    num_actions: int = 10  # actions of each of the three kinds in the penalty

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least_one(self, "num_actions")
        if not 0 < imagination.num_real(self) < self.batch_size:
            raise ValueError(
                f"real_ratio={self.real_ratio}: a batch of {self.batch_size} must have rows of both kinds."
            )


@pytree
class Hyper(imagination.Hyper):
    """Dynamic settings: leaves, so vmap over any of them."""

    min_q_weight: jax.Array = 0.5  # of the penalty
    temperature: jax.Array = 1.0  # T of the penalty


@dataclasses.dataclass(frozen=True)
class _COMBO:
    """The learning rule, a `learner.Rule`: soft actor-critic with K critics."""

    networks: ClassVar[tuple[str, ...]] = ("critic", "actor", "log_alpha")
    targets: ClassVar[tuple[str, ...]] = ("critic",)

    config: Config
    critic: Any  # a flax module
    actor: TanhGaussian
    imagines: bool  # False: it acts in the environment, without a model and a penalty

    init = learner.init_soft

    def gradient_step(self, nets: Nets, key: Array, batch: Batch, hyper: Hyper) -> tuple[Nets, dict[str, Array]]:
        """CQL's step, with values low at model states and high on the dataset (Yu et al. 2021, eq. 2)."""
        critic, actor, log_alpha = (nets[name] for name in self.networks)
        critic_key, actor_key, alpha_key = jax.random.split(key, 3)
        settings, alpha = (hyper.learning_rate, hyper.max_grad_norm), jnp.exp(log_alpha.weights)
        next_key, tried_key = jax.random.split(critic_key)
        next_action, next_log_prob = self.actor(actor.weights, batch.next_obs).sample_and_log_prob(next_key)
        next_q = critic_values(self.critic, critic.target, batch.next_obs, next_action)
        next_value = jnp.min(next_q, 0) - alpha * next_log_prob
        target = td_target(batch.reward, batch.terminated, next_value, hyper.gamma)
        real = imagination.num_real(self.config)
        imagined = jax.tree.map(lambda x: x[real:], batch)
        policies = [self.actor(actor.weights, obs) for obs in (imagined.obs, imagined.next_obs)]
        actions, densities = cql.tried_actions(tried_key, self.config.num_actions, policies)

        def critic_objective(weights: Any) -> tuple[Array, dict[str, Array]]:
            q = critic_values(self.critic, weights, batch.obs, batch.action)
            report = {"q_value": jnp.mean(q), "next_q_value": jnp.mean(next_q), "q_deviation": jnp.mean(jnp.std(q, 0))}
            if not self.imagines:
                return critic_loss(q, target), {**report, "penalty": jnp.zeros(())}
            values = jax.vmap(lambda a: critic_values(self.critic, weights, imagined.obs, a), out_axes=1)(actions)
            # The mean over the dataset's rows, repeated for each row of the model's.
            of_data = jnp.broadcast_to(jnp.mean(q[:, :real], -1, keepdims=True), (q.shape[0], q.shape[1] - real))
            low = cql.penalty(values, densities, of_data, hyper.temperature)
            return critic_loss(q, target) + hyper.min_q_weight * low, {**report, "penalty": low}

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
    model: Model | None = None,
    actor: Network | None = None,
    critic: Network | None = None,
    optimizer: OptimizerLike | None = None,
) -> Algorithm:
    """COMBO for `env`. Equal arguments give the same functions, so they share one jit cache.

    `imagination.algorithm` explains the arguments and the errors. `model` is made by
    `dynamics.predictor(ensemble)`; `actor` is the network of a `TanhGaussian`, and there are `config.num_critics`
    critics.
    """
    venv = as_vector_env(env, config.num_envs)
    obs_space, space = spaces_of("combo", venv, Box, between_ends=True)
    critic = own("critic", critic) or Critic(obs_space, config.hidden, config.activation, config.layer_norm)
    acting = TanhGaussian(own("actor", actor) or Actor(obs_space, space, config.hidden, config.activation, spread=True))
    rule = _COMBO(config, critic, acting, replay is not None)
    given = {"replay": replay, "model": model, "optimizer": optimizer, "critic": critic}
    return imagination.algorithm("combo", venv, config, Hyper, rule, acting, **given)


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
