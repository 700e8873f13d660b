"""Reach-aware value learning (RAVL): pessimism about values at the edge of reach, not about the model.

Sims, Lu, Foerster and Teh (2024), "The edge-of-reach problem in offline model-based reinforcement learning". Some
states are reached only at the last step of rollouts of k steps from a dataset. They occur in targets but their values
are never trained, so they are arbitrary, and maximisation propagates the highest of them. A penalty for the model's
uncertainty hides this problem, and vanishes for an exact model. RAVL has no such penalty: its critics are those of EDAC
(`edac.py`), many and diverse, whose smallest value is low where they are untrained:

    critics  sum_k mean_B (Q_k(s, a) - r - gamma (1 - terminated) (min_l Q'_l(s', a') - alpha log pi(a' | s')))^2
             + diversity * similarity of the gradients in the action

The published settings: N = 10, diversity 1, k = 5 and 5 % real steps in the authors' example.
`experiments/edge_of_reach` studies an exact model. Deviations: as in `mopo.py`.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxrl.algorithm import Algorithm, as_vector_env, shared, spaces_of
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

    num_critics: int = 10  # critics; the smallest of their values is used
    diverse: bool = True  # False: N critics without the gradients in the actions

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_critics < 2:
            raise ValueError(f"num_critics={self.num_critics}: it must be at least 2.")


@pytree
class Hyper(imagination.Hyper):
    """Dynamic settings: leaves, so vmap over any of them."""

    diversity: jax.Array = 1.0  # eta; read with Config.diverse


def similarity(gradients: Float[Array, "K B A"]) -> Float[Array, ""]:
    """EDAC's 1 / (K - 1) mean_B sum_{k != l} <e_k, e_l> of normalised gradients in the action."""
    square = jnp.sum(gradients**2, -1, keepdims=True)
    unit = gradients / jnp.sqrt(square + 1e-10)
    together = jnp.sum(jnp.sum(unit, 0) ** 2, -1) - jnp.sum(unit**2, (0, 2))
    return jnp.mean(together) / (gradients.shape[0] - 1)


@dataclasses.dataclass(frozen=True)
class _RAVL:
    """The learning rule, a `learner.Rule`: soft actor-critic with K critics."""

    networks: ClassVar[tuple[str, ...]] = ("critic", "actor", "log_alpha")
    targets: ClassVar[tuple[str, ...]] = ("critic",)

    config: Config
    critic: Any  # a flax module
    actor: TanhGaussian

    init = learner.init_soft

    def values_at_own(self, weights: Any, obs: Any, actions: Float[Array, "K B A"]) -> Float[Array, "K B"]:
        """The values of critic k at `actions[k]`."""
        return jax.vmap(lambda w, a: self.critic.apply(w, obs, a))(weights, actions)

    def gradient_step(self, nets: Nets, key: Array, batch: Batch, hyper: Hyper) -> tuple[Nets, dict[str, Array]]:
        """EDAC's step on rollouts of the model (Sims et al. 2024, section 5)."""
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
            if not self.config.diverse:
                return critic_loss(q, target), report
            # A copy of the actions for each critic: no critic's value depends on another's.
            copies = jnp.broadcast_to(batch.action, (q.shape[0], *batch.action.shape))
            alike = similarity(jax.grad(lambda a: jnp.sum(self.values_at_own(weights, batch.obs, a)))(copies))
            return critic_loss(q, target) + hyper.diversity * alike, {**report, "similarity": alike}

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
    """RAVL for `env`. Equal arguments give the same functions, so they share one jit cache.

    `imagination.algorithm` explains the arguments and the errors. `model` is made by
    `dynamics.predictor(ensemble)`; `actor` is the network of a `TanhGaussian`, and there are `config.num_critics`
    critics.
    """
    venv = as_vector_env(env, config.num_envs)
    obs_space, space = spaces_of("ravl", venv, Box, between_ends=True)
    critic = own("critic", critic) or Critic(obs_space, config.hidden, config.activation, config.layer_norm)
    acting = TanhGaussian(own("actor", actor) or Actor(obs_space, space, config.hidden, config.activation, spread=True))
    rule = _RAVL(config, critic, acting)
    given = {"replay": replay, "model": model, "optimizer": optimizer, "critic": critic}
    return imagination.algorithm("ravl", venv, config, Hyper, rule, acting, **given)


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
