"""Model-based offline policy optimisation (MOPO); with `penalty` 0 it is offline MBPO.

Yu, Thomas, Yu, Ermon, Zou, Levine, Finn and Ma (2020), "MOPO: model-based offline policy optimization". Soft
actor-critic on short rollouts of a model, whose reward is reduced by the model's uncertainty,

    r(s, a) - penalty u(s, a),   u = max_k |sigma_k(s, a)|

where sigma_k is the standard deviation that member k of an ensemble predicts (`dynamics.largest_std`). The rollouts are
those of MBPO (`mbpo.py`, which acts and keeps training the model): Janner, Fu, Zhang and Levine (2019), "When to trust
your model: model-based policy optimization".

Usual settings (unifloral, Jackson et al. 2025): horizons of 1 and 5, penalties from 0 to 5 by task, 5 % real steps.
Deviations from the authors' code: the maximum is over the ensemble's elites, as only these are kept; after the end of
an episode a rollout continues from another state of the dataset; actions are in units of the box.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxrl.algorithm import Algorithm, as_vector_env, shared, spaces_of
from jaxrl.data import dynamics
from jaxrl.data.datasets import Dataset
from jaxrl.data.dynamics import Ends, Ensemble
from jaxrl.data.transitions import Batch
from jaxrl.environment import Environment, pytree
from jaxrl.nn.actor_critic import Actor, Critic, TanhGaussian
from jaxrl.nn.losses import critic_loss, td_target
from jaxrl.nn.nets import Nets, critic_values
from jaxrl.nn.networks import Network, own
from jaxrl.nn.optim import OptimizerLike
from jaxrl.off_policy import imagination, learner
from jaxrl.off_policy.imagination import Model, Prediction
from jaxrl.replay.ring import Replay
from jaxrl.spaces import Box
from jaxrl.vector_env import VectorEnv


@dataclasses.dataclass(frozen=True)
class Config(imagination.Config):
    """Static settings: each value compiles its own program."""


@pytree
class Hyper(imagination.Hyper):
    """Dynamic settings: leaves, so vmap over any of them."""

    penalty: jax.Array = 1.0  # weight of the model's uncertainty; 0: MBPO


def penalised(
    reward: Float[Array, " B"], uncertainty: Float[Array, " B"], penalty: Float[Array, ""] | float
) -> Float[Array, " B"]:
    """r - penalty u (Yu et al. 2020, equation 4)."""
    return reward - penalty * uncertainty


def model_of(ensemble: Ensemble, dataset: Dataset, terminated: Ends | None = None) -> Model:
    """A learned model with the uncertainty u; `terminated` is the termination function of the task."""
    return dynamics.predictor(ensemble, dynamics.largest_std, terminated)


def pessimistic(predicted: Prediction, hyper: Hyper) -> Prediction:
    """The prediction as it is stored, with the penalised reward."""
    return predicted._replace(reward=penalised(predicted.reward, predicted.uncertainty, hyper.penalty))


@dataclasses.dataclass(frozen=True)
class _MOPO:
    """The learning rule, a `learner.Rule`: soft actor-critic with K critics."""

    networks: ClassVar[tuple[str, ...]] = ("critic", "actor", "log_alpha")
    targets: ClassVar[tuple[str, ...]] = ("critic",)

    config: Config
    critic: Any  # a flax module
    actor: TanhGaussian

    init = learner.init_soft

    def gradient_step(self, nets: Nets, key: Array, batch: Batch, hyper: Hyper) -> tuple[Nets, dict[str, Array]]:
        """The critics, the actor, the temperature, the target critics (Yu et al. 2020, algorithm 2)."""
        critic, actor, log_alpha = (nets[name] for name in self.networks)
        critic_key, actor_key, alpha_key = jax.random.split(key, 3)
        settings, alpha = (hyper.learning_rate, hyper.max_grad_norm), jnp.exp(log_alpha.weights)
        next_key, _ = jax.random.split(critic_key)
        next_action, next_log_prob = self.actor(actor.weights, batch.next_obs).sample_and_log_prob(next_key)
        next_q = critic_values(self.critic, critic.target, batch.next_obs, next_action)
        next_value = jnp.min(next_q, 0) - alpha * next_log_prob
        target = td_target(batch.reward, batch.terminated, next_value, hyper.gamma)

        def critic_objective(weights: Any) -> tuple[Array, dict[str, Array]]:
            q = critic_values(self.critic, weights, batch.obs, batch.action)
            report = {"q_value": jnp.mean(q), "next_q_value": jnp.mean(next_q), "q_deviation": jnp.mean(jnp.std(q, 0))}
            return critic_loss(q, target), report

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
    """MOPO for `env`. Equal arguments give the same functions, so they share one jit cache.

    `imagination.algorithm` explains the arguments and the errors. `model` is made by `model_of`; `actor` is the
    network of a `TanhGaussian`, and there are `config.num_critics` critics.
    """
    venv = as_vector_env(env, config.num_envs)
    obs_space, space = spaces_of("mopo", venv, Box, between_ends=True)
    critic = own("critic", critic) or Critic(obs_space, config.hidden, config.activation, config.layer_norm)
    acting = TanhGaussian(own("actor", actor) or Actor(obs_space, space, config.hidden, config.activation, spread=True))
    rule = _MOPO(config, critic, acting)
    given = {"replay": replay, "model": model, "optimizer": optimizer, "critic": critic}
    return imagination.algorithm("mopo", venv, config, Hyper, rule, acting, pessimistic=pessimistic, **given)


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
