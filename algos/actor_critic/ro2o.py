"""Robust offline-to-online learning (RO2O).

Wen et al. (2024), "Towards robust offline-to-online reinforcement learning via uncertainty and smoothness". SAC-N
(`edac.py`) whose critics and actor are smooth around the dataset's states and whose critics are low where they
disagree, with the same losses offline and online. With n states s^ = s + d, d uniform in [-eps, eps] per feature, the
losses have these additional terms:

    critics + smooth_q mean_B max_i mean_k L(Q_k(s^_i, a) - Q_k(s, a)),   L(x) = 0.8 max(x, 0)^2 + 0.2 min(x, 0)^2
            + ood mean (Q_k(s^_i, a_i) - y_k)^2,   y_k = Q_k(s^_i, a_i) - uncertainty std_k Q_k(s^_i, a_i) without
              a gradient, a_i ~ pi(s^_i)
    actor   + smooth_actor mean_B max_i KL(pi(s) || pi(s^_i)) + KL(pi(s^_i) || pi(s))

The defaults are the authors' settings for MuJoCo, for observations normalised by the dataset. Their fine-tuning does
not use the dataset; the trained policy first fills the replay buffer (`fine_tune.start(..., warm_up=2_500)`).
Deviations from their code: `uncertainty` is a constant, where theirs falls from 1 to 0.1 over 1.8 million steps;
critics learn first, then actor and temperature; no behaviour cloning and no lower bound for the actor, which they have
for AntMaze; actions are in units of the box; orthogonal initialisation with a small last layer of the actor.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from jaxrl.algorithm import Algorithm, as_vector_env, check_at_least_one, shared, spaces_of
from jaxrl.data.datasets import Dataset
from jaxrl.data.transitions import Batch
from jaxrl.environment import Environment, pytree
from jaxrl.nn.actor_critic import (
    Actor,
    Critic,
    TanhGaussian,
)
from jaxrl.nn.losses import critic_loss, td_target
from jaxrl.nn.nets import Nets, critic_values
from jaxrl.nn.networks import Network, own
from jaxrl.nn.optim import OptimizerLike
from jaxrl.off_policy import learner
from jaxrl.replay.ring import Replay
from jaxrl.spaces import Box
from jaxrl.vector_env import VectorEnv

TAU = 0.2  # weight of negative differences, as in the authors' code


@dataclasses.dataclass(frozen=True)
class Config(learner.Config):
    """Static settings: each value compiles its own program."""

    num_critics: int = 10  # N
    num_samples: int = 20  # n, states around each state of the dataset
    hidden: tuple[int, ...] = (256, 256, 256)  # widths of all networks

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_critics < 2:
            raise ValueError(f"num_critics={self.num_critics}: it must be at least 2.")
        check_at_least_one(self, "num_samples")


@pytree
class Hyper(learner.SoftHyper):
    """Dynamic settings: leaves, so vmap over any of them."""

    smooth_q: jax.Array = 1e-4  # weight of the critics' smoothness
    smooth_actor: jax.Array = 1.0  # weight of the actor's smoothness
    ood: jax.Array = 0.1  # weight of the loss of the actor's actions around the dataset's states
    uncertainty: jax.Array = 1.0  # standard deviations by which their values are lowered
    smooth_q_eps: jax.Array = 0.01  # eps of the critics' smoothness, in units of the observation
    smooth_actor_eps: jax.Array = 0.01  # eps of the actor's smoothness
    ood_eps: jax.Array = 0.01  # eps of the loss of the actor's actions


def around(key: Key[Array, ""], obs: Any, num_samples: int, eps: Float[Array, ""] | float) -> Any:
    """`num_samples` states (n, B, ...) around each of B states; all have the same n displacements, as in their code."""

    def leaf(key, x):
        if not jnp.issubdtype(x.dtype, jnp.floating):
            return jnp.broadcast_to(x, (num_samples, *x.shape))
        return x + eps * jax.random.uniform(key, (num_samples, 1, *x.shape[1:]), x.dtype, -1, 1)

    leaves, form = jax.tree.flatten(obs)
    return form.unflatten(map(leaf, jax.random.split(key, len(leaves)), leaves))


def largest(x: Float[Array, "n B"]) -> Float[Array, " B"]:
    """The maximum over n, whose derivative is that of the first of the largest.

    That of `jnp.max` compares the entries with the maximum. XLA may compute both anew, one with another rounding; then
    none is equal, and the derivative is 0 / 0.
    """
    first = jnp.argmax(x, 0) == jnp.arange(x.shape[0])[:, None]
    return jnp.sum(jnp.where(first, x, 0.0), 0)


def smoothness(q_around: Float[Array, "K n B"], q: Float[Array, "K B"]) -> Float[Array, ""]:
    """mean_B max_i mean_k L(q_around - q); L weighs positive differences four times as much as negative ones."""
    difference = q_around - q[:, None]
    return jnp.mean(largest(jnp.mean(jnp.where(difference > 0, 1 - TAU, TAU) * difference**2, 0)))


def ood_loss(q_around: Float[Array, "K n B"], uncertainty: Float[Array, ""] | float) -> Float[Array, ""]:
    """mean (q - y)^2 with y = q - uncertainty std_k q constant: lowers values on which the critics disagree."""
    lower = q_around - uncertainty * jnp.std(q_around, 0, ddof=1)
    return jnp.mean((q_around - jax.lax.stop_gradient(lower)) ** 2)


@dataclasses.dataclass(frozen=True)
class _RO2O:
    """The learning rule, a `learner.Rule`."""

    networks: ClassVar[tuple[str, ...]] = ("critic", "actor", "log_alpha")
    targets: ClassVar[tuple[str, ...]] = ("critic",)

    config: Config
    critic: Any  # a flax module
    actor: TanhGaussian

    init = learner.init_soft

    def gradient_step(self, nets: Nets, key: Array, batch: Batch, hyper: Hyper) -> tuple[Nets, dict[str, Array]]:
        """Critics that are smooth and low around the data, a smooth actor, the temperature."""
        critic, actor, log_alpha = (nets[name] for name in self.networks)
        critic_key, actor_key, alpha_key = jax.random.split(key, 3)
        settings, alpha = (hyper.learning_rate, hyper.max_grad_norm), jnp.exp(log_alpha.weights)
        keys, n = jax.random.split(critic_key, 4), self.config.num_samples
        next_action, next_log_prob = self.actor(actor.weights, batch.next_obs).sample_and_log_prob(keys[0])
        next_q = jnp.min(critic_values(self.critic, critic.target, batch.next_obs, next_action), 0)
        target = td_target(batch.reward, batch.terminated, next_q - alpha * next_log_prob, hyper.gamma)
        near, copies = around(keys[1], batch.obs, n, hyper.smooth_q_eps), (n, *batch.action.shape)
        tried_obs = around(keys[2], batch.obs, n, hyper.ood_eps)
        tried = self.actor(actor.weights, tried_obs).sample(keys[3])

        def critic_objective(weights: Any) -> tuple[Array, dict[str, Array]]:
            q = critic_values(self.critic, weights, batch.obs, batch.action)
            q_near = critic_values(self.critic, weights, near, jnp.broadcast_to(batch.action, copies))
            smooth = smoothness(q_near, q)
            low = ood_loss(critic_values(self.critic, weights, tried_obs, tried), hyper.uncertainty)
            loss = critic_loss(q, target) + hyper.smooth_q * smooth + hyper.ood * low
            report = {"q_value": jnp.mean(q), "q_deviation": jnp.mean(jnp.std(q, 0))}
            return loss, {**report, "smoothness": smooth, "ood_loss": low}

        critic, critic_report = critic.descend(critic_objective, *settings)
        sample_key, near_key = jax.random.split(actor_key)
        near = around(near_key, batch.obs, n, hyper.smooth_actor_eps)

        def actor_objective(weights: Any) -> tuple[Array, dict[str, Array]]:
            pi, pi_near = self.actor(weights, batch.obs), self.actor(weights, near)
            action, log_prob = pi.sample_and_log_prob(sample_key)
            q = jnp.min(critic_values(self.critic, critic.weights, batch.obs, action), 0)
            apart = jnp.mean(largest(pi.kl(pi_near) + pi_near.kl(pi)))
            loss = jnp.mean(alpha * log_prob - q) + hyper.smooth_actor * apart
            return loss, {"entropy": -jnp.mean(log_prob), "actor_distance": apart}

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
    """RO2O for `env`. Equal arguments give the same functions, so they share one jit cache.

    `learner.algorithm` explains the arguments and the errors; `actor` is the network of a `TanhGaussian`, and
    there are `config.num_critics` critics.
    """
    venv = as_vector_env(env, config.num_envs)
    obs_space, space = spaces_of("ro2o", venv, Box, between_ends=True)
    critic = own("critic", critic) or Critic(obs_space, config.hidden, config.activation, config.layer_norm)
    acting = TanhGaussian(own("actor", actor) or Actor(obs_space, space, config.hidden, config.activation, spread=True))
    rule = _RO2O(config, critic, acting)
    given = {"replay": replay, "optimizer": optimizer, "critic": critic, "num_critics": config.num_critics}
    return learner.algorithm("ro2o", venv, config, Hyper, rule, acting, **given)


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
