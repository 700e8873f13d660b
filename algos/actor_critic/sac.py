"""Soft actor-critic (SAC), for Box and Discrete actions.

Haarnoja et al. (2018), "Soft actor-critic algorithms and applications" (arXiv:1812.05905); Christodoulou (2019), "Soft
actor-critic for discrete action settings". Two critics regress on one target, the smaller value plus the entropy of the
policy at the next observation,

    y = r + gamma (1 - terminated) E_a' [min_k Q'_k(s', a') - alpha log pi(a' | s')]

the actor ascends the same expectation at s, and the temperature alpha is tuned so that the policy's entropy reaches a
target. The expectation is one sample of a tanh-normal for a Box, and exact for Discrete actions.

Deviations from the authors' code: the temperature's loss is log(alpha) times the difference, as in most
implementations, not alpha times it; actions are in units of the box; orthogonal initialisation with a small last layer
of the actor; several environments may step together; the default target entropy of n actions is 0.89 log n, CleanRL's,
where Christodoulou's 0.98 log n hardly lets the policy prefer anything. Results: `docs/results.md`.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxrl.algorithm import Algorithm, as_vector_env, shared, spaces_of
from jaxrl.data.datasets import Dataset
from jaxrl.data.transitions import Batch
from jaxrl.environment import Environment, pytree, split_observation
from jaxrl.nn.actor_critic import (
    Actor,
    Critic,
    Softmax,
    TanhGaussian,
)
from jaxrl.nn.distributions import Categorical
from jaxrl.nn.losses import critic_loss, td_target, temperature_loss
from jaxrl.nn.nets import Nets, apply_critics, critic_values, init_critics
from jaxrl.nn.networks import Network, own
from jaxrl.nn.optim import OptimizerLike
from jaxrl.off_policy import learner
from jaxrl.replay.ring import Replay
from jaxrl.spaces import Box, Discrete, Space
from jaxrl.vector_env import VectorEnv

LOG_STD_MIN = -20.0  # as in the authors' code


@dataclasses.dataclass(frozen=True)
class Config(learner.Config):
    """Static settings: each value compiles its own program."""

    actor_layer_norm: bool = False  # in the actor, before each activation


@pytree
class Hyper(learner.SoftHyper):
    """Dynamic settings: leaves, so vmap over any of them."""

    target_entropy: jax.Array = jnp.inf  # nats; infinite: -A in units of a Box, 0.89 log n of n actions


def soft_value(
    q: Float[Array, "K B *n"], log_prob: Float[Array, "B *n"], alpha: Float[Array, ""] | float
) -> Float[Array, " B"]:
    """min_k q[k] - alpha log_prob of the sampled action (Haarnoja et al. 2018, eq. 3).

    With an axis of n actions, the mean over the policy's probabilities (Christodoulou 2019, eq. 10).
    """
    value = jnp.min(q, 0) - alpha * log_prob
    return value if value.ndim == 1 else jnp.sum(jnp.exp(log_prob) * value, -1)


def default_target_entropy(space: Space, action_mask: Array | None = None) -> Float[Array, ""] | float:
    """-A in units of a Box of A dimensions (Haarnoja et al. 2018, table 1); 0.89 log n for n Discrete actions.

    With masks (B, n) n counts the allowed actions, and the result is a mean over the batch.
    """
    if not isinstance(space, Discrete):
        return -float(space.shape[0])
    return 0.89 * (math.log(space.n) if action_mask is None else jnp.mean(jnp.log(action_mask.sum(-1))))


@dataclasses.dataclass(frozen=True)
class _SAC:
    """The learning rule, a `learner.Rule`."""

    networks: ClassVar[tuple[str, ...]] = ("critic", "actor", "log_alpha")
    targets: ClassVar[tuple[str, ...]] = ("critic",)

    action_space: Space
    observation_space: Space
    critic: Any  # a flax module
    actor: TanhGaussian | Softmax

    def init(self, keys: dict[str, Array], obs: Any, action: Any, hyper: Hyper) -> dict[str, Any]:
        inputs = (obs,) if isinstance(self.action_space, Discrete) else (obs, action)
        return {
            "critic": init_critics(self.critic, keys["critic"], 2, *inputs),
            "actor": self.actor.init(keys["actor"], obs),
            "log_alpha": jnp.log(hyper.alpha),
        }

    def soft_values(self, actor_weights: Any, critic_weights: Any, alpha: Any, key: Array, obs: Any) -> tuple[Any, Any]:
        """`(values (B,), entropy ())` of the policy at `obs`; the entropy is a mean over the batch."""
        pi = self.actor(actor_weights, obs)
        if isinstance(pi, Categorical):
            q = critic_values(self.critic, critic_weights, obs)
            return soft_value(q, jax.nn.log_softmax(pi.logits), alpha), jnp.mean(pi.entropy())
        action, log_prob = pi.sample_and_log_prob(key)
        return soft_value(critic_values(self.critic, critic_weights, obs, action), log_prob, alpha), -jnp.mean(log_prob)

    def gradient_step(self, nets: Nets, key: Array, batch: Batch, hyper: Hyper) -> tuple[Nets, dict[str, Array]]:
        """The critics, the actor, the temperature, the target critics (Haarnoja et al. 2018, algorithm 1)."""
        critic, actor, log_alpha = (nets[name] for name in self.networks)
        critic_key, actor_key = jax.random.split(key)
        settings, alpha = (hyper.learning_rate, hyper.max_grad_norm), jnp.exp(log_alpha.weights)
        next_value, _ = self.soft_values(actor.weights, critic.target, alpha, critic_key, batch.next_obs)
        target = td_target(batch.reward, batch.terminated, next_value, hyper.gamma)

        def critic_objective(weights: Any) -> tuple[Array, dict[str, Array]]:
            if isinstance(self.action_space, Discrete):
                q, active = apply_critics(self.critic, weights, batch.obs)
                q = jnp.sum(jnp.where(jnp.arange(q.shape[-1]) == batch.action[:, None], q, 0), -1)
            else:
                q, active = apply_critics(self.critic, weights, batch.obs, batch.action)
            return 0.5 * critic_loss(q, target), {"q_value": jnp.mean(q), "active_units": active}

        critic, critic_report = critic.descend(critic_objective, *settings)

        def actor_objective(weights: Any) -> tuple[Array, dict[str, Array]]:
            value, entropy = self.soft_values(weights, critic.weights, alpha, actor_key, batch.obs)
            return -jnp.mean(value), {"entropy": entropy}

        actor, actor_report = actor.descend(actor_objective, *learner.actor_settings(hyper))
        default = default_target_entropy(self.action_space, split_observation(batch.obs, self.observation_space)[2])
        default = jnp.asarray(default, hyper.target_entropy.dtype)
        target_entropy = jnp.where(jnp.isfinite(hyper.target_entropy), hyper.target_entropy, default)

        def temperature_objective(weights: Array) -> tuple[Array, dict[str, Array]]:
            return temperature_loss(weights, actor_report["entropy"], target_entropy), {"alpha": alpha}

        rate = hyper.alpha_learning_rate, hyper.max_grad_norm
        log_alpha, alpha_report = log_alpha.descend(temperature_objective, *rate)
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
    """SAC for `env`. Equal arguments give the same functions, so they share one jit cache.

    Args:
        replay: a dataset, or what `datasets.stored` makes of one; None: the learner acts and fills a replay buffer.
        actor: a flax module from an observation without its privileged part to `(mean, log_std)` of actions before
            tanh, (..., A) each, or to logits (..., n).
        critic: a flax module from a whole observation and an action to values (...), or from the observation to values
            (..., n); there will be two of them.
        optimizer: in place of `config.optimizer`; see `optim.optimizer_of`.

    Raises ValueError for an action space that is neither a vector nor Discrete, several agents, or networks whose
    outputs do not fit, and TypeError for a `replay` that is neither a dataset nor a Replay.
    """
    venv = as_vector_env(env, config.num_envs)
    obs_space, space = spaces_of("sac", venv, Box, Discrete, between_ends=True)
    actions = space.n if isinstance(space, Discrete) else None
    sizes = config.hidden, config.activation
    actor = own("actor", actor) or Actor(obs_space, space, *sizes, config.actor_layer_norm, spread=True)
    critic = own("critic", critic) or Critic(obs_space, config.hidden, config.activation, config.layer_norm, actions)
    acting = Softmax(actor, obs_space) if actions else TanhGaussian(actor, LOG_STD_MIN)
    rule = _SAC(space, obs_space, critic, acting)
    given = {"replay": replay, "optimizer": optimizer, "critic": critic}
    return learner.algorithm("sac", venv, config, Hyper, rule, acting, **given)


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
