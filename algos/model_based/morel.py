"""Model-based offline reinforcement learning (MOReL): a pessimistic MDP that halts where its model is uncertain.

Kidambi, Rajeswaran, Netrapalli and Joachims (2020), "MOReL: model-based offline reinforcement learning". Where the
members of an ensemble disagree by more than a threshold, an episode of the model ends with a low reward,

    r_halt, terminated   where max_{k, l} |f_k(s, a) - f_l(s, a)| > threshold

where f_k is the prediction of member k (`dynamics.disagreement`). The threshold is in units of the largest disagreement
on the dataset, as is `model_of`'s uncertainty; `halt_reward` should be well below the dataset's lowest reward (in
unifloral 200 below).

The loop is that of `mopo.py` with another penalty, as in unifloral (Jackson et al. 2025), whose settings are the
defaults. The paper trains by natural policy gradients with long rollouts in the pessimistic MDP, this file by soft
actor-critic with short ones. Other deviations are those of `mopo.py`.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

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

    real_ratio: float = 0.01  # share of a batch that comes from the dataset
    num_critics: int = 10  # critics; the smallest of their values is used


@pytree
class Hyper(imagination.Hyper):
    """Dynamic settings: leaves, so vmap over any of them."""

    learning_rate: jax.Array = 1e-4  # of all networks
    alpha_learning_rate: jax.Array = 1e-4  # of the logarithm of the temperature; 0: constant
    threshold: jax.Array = 1.0  # largest uncertainty of the model without halting; infinite: never halts
    halt_reward: jax.Array = -200.0  # of the step that halts, in the task's units


def halted(
    reward: Float[Array, " B"],
    terminated: Bool[Array, " B"],
    uncertainty: Float[Array, " B"],
    threshold: Float[Array, ""] | float,
    halt_reward: Float[Array, ""] | float,
) -> tuple[Float[Array, " B"], Bool[Array, " B"]]:
    """`(reward, terminated)` of the pessimistic MDP (Kidambi et al. 2020, definitions 1 and 2)."""
    unknown = uncertainty > threshold
    return jnp.where(unknown, halt_reward, reward), terminated | unknown


def model_of(ensemble: Ensemble, dataset: Dataset, terminated: Ends | None = None) -> Model:
    """A learned model with its disagreement as uncertainty, scaled so that the largest on the dataset is 1.

    `terminated` is the termination function of the task. Raises ValueError if the members agree on the whole dataset.
    """
    largest = float(jnp.max(dynamics.uncertainties(ensemble, dataset, dynamics.disagreement)))
    if not 0 < largest < jnp.inf:
        raise ValueError(f"morel: the members disagree by at most {largest} on the data; it takes 2 elites or more.")

    def measure(mean: Float[Array, "E B D"], std: Float[Array, "E B D"]) -> Float[Array, " B"]:
        return dynamics.disagreement(mean, std) / largest

    return dynamics.predictor(ensemble, measure, terminated)


def pessimistic(predicted: Prediction, hyper: Hyper) -> Prediction:
    """The prediction as it is stored, halted where its uncertainty exceeds the threshold."""
    _, reward, terminated, uncertainty = predicted
    reward, terminated = halted(reward, terminated, uncertainty, hyper.threshold, hyper.halt_reward)
    return predicted._replace(reward=reward, terminated=terminated)


@dataclasses.dataclass(frozen=True)
class _MOReL:
    """The learning rule, a `learner.Rule`: soft actor-critic with K critics."""

    networks: ClassVar[tuple[str, ...]] = ("critic", "actor", "log_alpha")
    targets: ClassVar[tuple[str, ...]] = ("critic",)

    config: Config
    critic: Any  # a flax module
    actor: TanhGaussian

    init = learner.init_soft

    def gradient_step(self, nets: Nets, key: Array, batch: Batch, hyper: Hyper) -> tuple[Nets, dict[str, Array]]:
        """The critics, the actor, the temperature, the target critics, in the pessimistic MDP."""
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
    """MOReL for `env`. Equal arguments give the same functions, so they share one jit cache.

    `imagination.algorithm` explains the arguments and the errors. `model` is made by `model_of`; `actor` is the
    network of a `TanhGaussian`, and there are `config.num_critics` critics.
    """
    venv = as_vector_env(env, config.num_envs)
    obs_space, space = spaces_of("morel", venv, Box, between_ends=True)
    critic = own("critic", critic) or Critic(obs_space, config.hidden, config.activation, config.layer_norm)
    acting = TanhGaussian(own("actor", actor) or Actor(obs_space, space, config.hidden, config.activation, spread=True))
    rule = _MOReL(config, critic, acting)
    given = {"replay": replay, "model": model, "optimizer": optimizer, "critic": critic}
    return imagination.algorithm("morel", venv, config, Hyper, rule, acting, pessimistic=pessimistic, **given)


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
