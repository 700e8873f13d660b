"""CrossQ: soft actor-critic with batch-normalised critics and without target networks.

Bhatt, Palenicek et al. (2024), "CrossQ: batch normalization in deep reinforcement learning for greater sample
efficiency and simplicity" (ICLR). One forward pass of the critics takes both (s, a) and (s', a') with a' of the policy,
so that batch renormalisation (Ioffe 2017) uses the statistics of their mixture. The values at (s', a'), with their
gradient stopped, are the bootstrap:

    y = r + gamma (1 - terminated) (min_k Q_k(s', a') - alpha log pi(a' | s'))

Critics are wide and Adam's momentum is short (b1 = 0.5). Every `policy_delay`-th gradient step the actor and the
temperature learn as in `sac.py`, from critics that normalise by their running statistics.

Deviations from the authors' code: critics of 1,024 units by default, theirs 2,048 (`Config.critic_hidden`); no batch
normalisation in the actor; actions in units of the box; several environments may step together.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxrl.algorithm import Algorithm, as_vector_env, check_at_least_one, shared, spaces_of
from jaxrl.data.datasets import Dataset
from jaxrl.data.transitions import Batch
from jaxrl.environment import Environment, pytree
from jaxrl.nn.actor_critic import (
    Actor,
    TanhGaussian,
)
from jaxrl.nn.losses import critic_loss, td_target, temperature_loss
from jaxrl.nn.nets import Nets, critic_values, init_critics
from jaxrl.nn.networks import Network, activation_function, active_units, encode, own
from jaxrl.nn.optim import OptimizerLike, optimizer_of
from jaxrl.off_policy import learner
from jaxrl.replay.ring import Replay
from jaxrl.spaces import Box, Space
from jaxrl.vector_env import VectorEnv


@dataclasses.dataclass(frozen=True)
class Config(learner.Config):
    """Static settings: each value compiles its own program."""

    policy_delay: int = 3  # gradient steps of the critics for one of the actor
    hidden: tuple[int, ...] = (256, 256)  # widths of the actor
    critic_hidden: tuple[int, ...] = (1024, 1024)  # widths of the critics; the paper's are 2,048
    b1: float = 0.5  # of Adam, for actor and critics
    momentum: float = 0.99  # of the running statistics of batch renormalisation
    warmup: int = 100_000  # gradient steps of plain batch normalisation before its limits on r and d apply

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least_one(self, "policy_delay")
        if not 0 <= self.momentum < 1:
            raise ValueError(f"momentum={self.momentum}: it must be at least 0 and below 1.")


@pytree
class Hyper(learner.SoftHyper):
    """Dynamic settings: leaves, so vmap over any of them."""

    learning_rate: jax.Array = 1e-3  # of all networks
    alpha_learning_rate: jax.Array = 1e-3  # of the logarithm of the temperature; 0: constant


LOG_STD_MIN = -20.0  # as in the authors' code and in SAC
R_MAX, D_MAX = 3.0, 5.0  # limits of the correction, as in the authors' code


def renormalize(
    x: Float[Array, "*batch F"],
    mean: Float[Array, " F"],
    var: Float[Array, " F"],
    warm: Bool[Array, ""] | bool = True,
    epsilon: float = 1e-3,
) -> tuple[Float[Array, "*batch F"], Float[Array, " F"], Float[Array, " F"]]:
    """`(normalised, mean, variance)` of a batch, by its statistics corrected towards running ones (Ioffe 2017).

    (x - m) / s * r + d with r = s / s_running, clipped to [1/3, 3], and d = (m - m_running) / s_running, clipped to
    +-5, both without a gradient. Before `warm` they are 1 and 0: plain batch normalisation.
    """
    axes = tuple(range(x.ndim - 1))
    batch_mean, batch_var = jnp.mean(x, axes), jnp.var(x, axes)
    std, running = jnp.sqrt(batch_var + epsilon), jnp.sqrt(var + epsilon)
    r = jnp.where(warm, jnp.clip(std / running, 1 / R_MAX, R_MAX), 1)
    d = jnp.where(warm, jnp.clip((batch_mean - mean) / running, -D_MAX, D_MAX), 0)
    r, d = jax.lax.stop_gradient((r, d))
    return (x - batch_mean) / std * r + d, batch_mean, batch_var


class BatchRenorm(nn.Module):
    """`renormalize` with running statistics in the collection `batch_stats`, then a learnt scale and shift."""

    momentum: float
    warmup: int
    epsilon: float = 1e-3

    @nn.compact
    def __call__(self, x: Float[Array, "*batch F"], train: bool) -> Float[Array, "*batch F"]:
        features = x.shape[-1:]
        mean = self.variable("batch_stats", "mean", jnp.zeros, features, x.dtype)
        var = self.variable("batch_stats", "var", jnp.ones, features, x.dtype)
        steps = self.variable("batch_stats", "steps", jnp.zeros, (), jnp.int32)
        scale = self.param("scale", nn.initializers.ones, features)
        shift = self.param("shift", nn.initializers.zeros, features)
        if not train:
            return (x - mean.value) * jax.lax.rsqrt(var.value + self.epsilon) * scale + shift
        warm = steps.value >= self.warmup
        y, batch_mean, batch_var = renormalize(x, mean.value, var.value, warm, self.epsilon)
        if not self.is_initializing():
            mean.value = self.momentum * mean.value + (1 - self.momentum) * batch_mean
            var.value = self.momentum * var.value + (1 - self.momentum) * batch_var
            steps.value = steps.value + 1
        return y * scale + shift


class Critic(nn.Module):
    """The default action-value network, normalised at its input and after each hidden layer."""

    observation_space: Space
    hidden: tuple[int, ...]
    activation: str
    momentum: float
    warmup: int

    @nn.compact
    def __call__(self, obs: Any, action: Float[Array, "*batch A"], train: bool = False) -> Float[Array, "*batch"]:
        x = encode(self.observation_space, obs, privileged=True)
        x = BatchRenorm(self.momentum, self.warmup)(jnp.concatenate([x, action.astype(x.dtype)], -1), train)
        for width in self.hidden:
            # Not orthogonal: for layers this wide that takes seconds, and normalisation removes the scale.
            x = activation_function(self.activation)(nn.Dense(width)(x))
            self.sow("intermediates", "active", jnp.mean(x > 0))
            x = BatchRenorm(self.momentum, self.warmup)(x, train)
        return nn.Dense(1)(x)[..., 0]


@dataclasses.dataclass(frozen=True)
class _CrossQ:
    """The learning rule, a `learner.Rule`."""

    networks: ClassVar[tuple[str, ...]] = ("critic", "actor", "log_alpha")
    targets: ClassVar[tuple[str, ...]] = ()

    config: Config
    critic: Any  # a flax module with running statistics
    actor: TanhGaussian

    def init(self, keys: dict[str, Array], obs: Any, action: Any, hyper: Hyper) -> dict[str, Any]:
        variables = init_critics(self.critic, keys["critic"], 2, obs, action)
        if "batch_stats" not in variables:
            raise ValueError(
                "crossq's critic needs running statistics, a collection 'batch_stats' (see crossq.BatchRenorm); sac "
                "takes a critic without."
            )
        return {
            "critic": {"params": variables["params"]},
            "actor": self.actor.init(keys["actor"], obs),
            "log_alpha": jnp.log(hyper.alpha),
            "batch_stats": variables["batch_stats"],
        }

    def both(self, weights: Any, batch_stats: Any, obs: Any, action: Array) -> tuple[Float[Array, "K B"], Any]:
        """`(values, collections)`: values by the batch's statistics, and new collections with the running ones."""

        def one(weights: Any, batch_stats: Any) -> Any:
            variables = {**weights, "batch_stats": batch_stats}
            return self.critic.apply(variables, obs, action, train=True, mutable=["batch_stats", "intermediates"])

        return jax.vmap(one)(weights, batch_stats)

    def gradient_step(self, nets: Nets, key: Array, batch: Batch, hyper: Hyper) -> tuple[Nets, dict[str, Array]]:
        """The critics on (s, a) and (s', a') at once; every `policy_delay` steps actor and temperature."""
        critic, actor, log_alpha = (nets[name] for name in self.networks)
        critic_key, actor_key = jax.random.split(key)
        settings, alpha = (hyper.learning_rate, hyper.max_grad_norm), jnp.exp(log_alpha.weights)
        next_action, next_log_prob = self.actor(actor.weights, batch.next_obs).sample_and_log_prob(critic_key)
        halves = (batch.obs, batch.action), (batch.next_obs, next_action)
        obs, action = jax.tree.map(lambda *x: jnp.concatenate(x), *halves)

        def critic_objective(weights: Any) -> tuple[Array, dict[str, Any]]:
            values, new = self.both(weights, nets["batch_stats"], obs, action)
            q, next_q = jnp.split(values, 2, -1)
            next_value = jnp.min(jax.lax.stop_gradient(next_q), 0) - alpha * next_log_prob
            target = td_target(batch.reward, batch.terminated, next_value, hyper.gamma)
            sown = new.get("intermediates", {})
            active = active_units(sown) if jax.tree.leaves(sown) else jnp.full((), jnp.nan)
            report = {"q_value": jnp.mean(q), "active_units": active, "batch_stats": new["batch_stats"]}
            return 0.5 * critic_loss(q, target), report

        critic, critic_report = critic.descend(critic_objective, *settings)
        batch_stats = critic_report.pop("batch_stats")
        known = {**critic.weights, "batch_stats": batch_stats}

        def actor_objective(weights: Any) -> tuple[Array, dict[str, Array]]:
            action, log_prob = self.actor(weights, batch.obs).sample_and_log_prob(actor_key)
            q = critic_values(self.critic, known, batch.obs, action)
            return -jnp.mean(jnp.min(q, 0) - alpha * log_prob), {"entropy": -jnp.mean(log_prob)}

        due = critic.count % self.config.policy_delay == 0
        actor, actor_report = actor.descend(actor_objective, *learner.actor_settings(hyper), when=due)
        usual = jnp.asarray(-batch.action.shape[-1], hyper.target_entropy.dtype)
        target_entropy = jnp.where(jnp.isfinite(hyper.target_entropy), hyper.target_entropy, usual)

        def temperature_objective(weights: Array) -> tuple[Array, dict[str, Array]]:
            return temperature_loss(weights, actor_report["entropy"], target_entropy), {}

        rate = hyper.alpha_learning_rate, hyper.max_grad_norm
        log_alpha, alpha_report = log_alpha.descend(temperature_objective, *rate, when=due)
        nets = {"critic": critic, "actor": actor, "log_alpha": log_alpha, "batch_stats": batch_stats}
        return nets, {**critic_report, **actor_report, **alpha_report, "alpha": alpha}


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
    """CrossQ for `env`. Equal arguments give the same functions, so they share one jit cache.

    Args:
        replay: a dataset, or what `datasets.stored` makes of one; None: the learner acts and fills a replay buffer.
        actor: a flax module from an observation without its privileged part to `(mean, log_std)` of actions before
            tanh, (..., A) each.
        critic: a flax module from a whole observation, an action and the keyword `train` to values (...), with running
            statistics in the collection `batch_stats`; there will be two of them.
        optimizer: in place of `config.optimizer`; see `optim.optimizer_of`.

    Raises ValueError for an action space that is not a vector, several agents, or networks whose outputs do not fit,
    and TypeError for a `replay` that is neither a dataset nor a Replay.
    """
    venv = as_vector_env(env, config.num_envs)
    obs_space, space = spaces_of("crossq", venv, Box, between_ends=True)
    critic = own("critic", critic) or Critic(
        obs_space, config.critic_hidden, config.activation, config.momentum, config.warmup
    )
    acting = TanhGaussian(
        own("actor", actor) or Actor(obs_space, space, config.hidden, config.activation, spread=True), LOG_STD_MIN
    )
    rule = _CrossQ(config, critic, acting)
    chosen = optimizer_of(optimizer or config.optimizer, b1=config.b1, eps=config.adam_eps)
    given = {"replay": replay, "optimizer": chosen}
    return learner.algorithm("crossq", venv, config, Hyper, rule, acting, **given)


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
