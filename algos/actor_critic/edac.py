"""Ensemble-diversified actor-critic (EDAC), and SAC-N, which is EDAC with `diversity` 0.

An, Moon, Kim and Song (2021), "Uncertainty-based offline reinforcement learning with diversified Q-ensemble". Soft
actor-critic with N critics; their smallest value is low where they disagree,

    critics r + gamma (1 - terminated) (min_k Q'_k(s', a') - alpha log pi(a' | s')),   a' ~ pi(s')
    actor   mean alpha log pi(a_pi | s) - min_k Q_k(s, a_pi),   a_pi ~ pi(s)

So that few critics suffice, their gradients with respect to the dataset's action are made diverse: the critics' loss
has the additional term

    diversity / (N - 1) mean_B sum_{k != l} <e_k, e_l>,   e_k = grad_a Q_k(s, a) / |grad_a Q_k(s, a)|

The published settings: N = 10 and diversity 1 on most MuJoCo tasks (50 and 1 on Hopper); SAC-N takes 10 to 500 critics.
The temperature is tuned to the target entropy -A.

Online, SAC-N with LayerNorm, many gradient steps per environment step, and targets of the smaller of two randomly drawn
critics (`num_target_critics`, from REDQ) is the learner of RLPD, where half of each batch comes from a dataset
(`datasets.mixed`; Ball et al. 2023, "Efficient online reinforcement learning with offline data"), and of WSRL, which
fine-tunes trained weights (`fine_tune`); `docs/algos/offline.md` has the settings of both. Deviations from the authors'
code: actions are in units of the box; orthogonal initialisation with a small last layer of the actor, where EDAC's last
layers are uniform in +-0.003 and its other biases 0.1; networks learn in the order critics, actor, temperature, in
EDAC's code in the reverse order.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

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


@dataclasses.dataclass(frozen=True)
class Config(learner.Config):
    """Static settings: each value compiles its own program."""

    num_critics: int = 10  # N
    diverse: bool = True  # False: SAC-N, without the gradients in the actions
    num_target_critics: int | None = None  # critics drawn for a target, which takes their smallest value; None: all N
    mean_actor: bool = False  # the actor ascends the critics' mean, as in RLPD, not their smallest value
    soft_targets: bool = True  # targets have the entropy of the next action; False as in WSRL
    policy_delay: int = 1  # gradient steps of the critics for one of the actor and the temperature
    actor_layer_norm: bool = False  # in the actor, before each activation
    hidden: tuple[int, ...] = (256, 256, 256)  # widths of all networks

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least_one(self, "policy_delay")
        if self.num_critics < 2:
            raise ValueError(f"num_critics={self.num_critics}: it must be at least 2.")
        if self.num_target_critics is not None and not 1 <= self.num_target_critics <= self.num_critics:
            raise ValueError(
                f"num_target_critics={self.num_target_critics}: it must be 1 to num_critics={self.num_critics}."
            )


@pytree
class Hyper(learner.SoftHyper):
    """Dynamic settings: leaves, so vmap over any of them."""

    diversity: jax.Array = 1.0  # eta; read with Config.diverse


def similarity(gradients: Float[Array, "K B A"]) -> Float[Array, ""]:
    """1 / (K - 1) mean_B sum_{k != l} <e_k, e_l> of normalised gradients in the action (equation 6)."""
    square = jnp.sum(gradients**2, -1, keepdims=True)
    unit = gradients / jnp.sqrt(square + 1e-10)
    together = jnp.sum(jnp.sum(unit, 0) ** 2, -1) - jnp.sum(unit**2, (0, 2))
    return jnp.mean(together) / (gradients.shape[0] - 1)


@dataclasses.dataclass(frozen=True)
class _EDAC:
    """The learning rule, a `learner.Rule`."""

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
        """Diverse critics on the smallest target, the actor, the temperature (An et al. 2021, algorithm 1)."""
        critic, actor, log_alpha = (nets[name] for name in self.networks)
        critic_key, actor_key, alpha_key = jax.random.split(key, 3)
        settings, alpha = (hyper.learning_rate, hyper.max_grad_norm), jnp.exp(log_alpha.weights)
        next_key, drawn_key = jax.random.split(critic_key)
        next_action, next_log_prob = self.actor(actor.weights, batch.next_obs).sample_and_log_prob(next_key)
        judges = critic.target
        if self.config.num_target_critics is not None:
            drawn = jax.random.permutation(drawn_key, self.config.num_critics)[: self.config.num_target_critics]
            judges = jax.tree.map(lambda x: x[drawn], judges)
        next_q = jnp.min(critic_values(self.critic, judges, batch.next_obs, next_action), 0)
        next_value = next_q - (alpha if self.config.soft_targets else 0.0) * next_log_prob
        target = td_target(batch.reward, batch.terminated, next_value, hyper.gamma)

        def critic_objective(weights: Any) -> tuple[Array, dict[str, Array]]:
            q = critic_values(self.critic, weights, batch.obs, batch.action)
            loss, report = critic_loss(q, target), {"q_value": jnp.mean(q), "q_deviation": jnp.mean(jnp.std(q, 0))}
            if self.config.diverse:
                # A copy of the actions for each critic: no critic's value depends on another's.
                copies = jnp.broadcast_to(batch.action, (q.shape[0], *batch.action.shape))
                gradients = jax.grad(lambda a: jnp.sum(self.values_at_own(weights, batch.obs, a)))(copies)
                alike = similarity(gradients)
                loss, report["similarity"] = loss + hyper.diversity * alike, alike
            return loss, report

        critic, critic_report = critic.descend(critic_objective, *settings)

        def actor_objective(weights: Any) -> tuple[Array, dict[str, Array]]:
            action, log_prob = self.actor(weights, batch.obs).sample_and_log_prob(actor_key)
            q = critic_values(self.critic, critic.weights, batch.obs, action)
            q = jnp.mean(q, 0) if self.config.mean_actor else jnp.min(q, 0)
            return jnp.mean(alpha * log_prob - q), {"entropy": -jnp.mean(log_prob)}

        when = None if self.config.policy_delay == 1 else critic.count % self.config.policy_delay == 0
        actor, actor_report = actor.descend(actor_objective, *learner.actor_settings(hyper), when=when)
        pi = self.actor(actor.weights, batch.obs)
        log_alpha, alpha_report = learner.temperature_step(log_alpha, pi, alpha_key, hyper, when)
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
    """EDAC for `env`. Equal arguments give the same functions, so they share one jit cache.

    `learner.algorithm` explains the arguments and the errors; `actor` is the network of a `TanhGaussian`, and
    there are `config.num_critics` critics.
    """
    venv = as_vector_env(env, config.num_envs)
    obs_space, space = spaces_of("edac", venv, Box, between_ends=True)
    critic = own("critic", critic) or Critic(obs_space, config.hidden, config.activation, config.layer_norm)
    sizes = config.hidden, config.activation
    acting = TanhGaussian(own("actor", actor) or Actor(obs_space, space, *sizes, config.actor_layer_norm, spread=True))
    rule = _EDAC(config, critic, acting)
    given = {"replay": replay, "optimizer": optimizer, "critic": critic, "num_critics": config.num_critics}
    return learner.algorithm("edac", venv, config, Hyper, rule, acting, **given)


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
