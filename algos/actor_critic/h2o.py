"""Hybrid offline-and-online learning (H2O): CQL whose penalty and errors are weighted by a dynamics gap.

Niu et al. (2022), "When to trust your simulator: dynamics-aware hybrid offline-and-online reinforcement learning". Soft
actor-critic that learns from an inaccurate simulator and a small real dataset at once; simulated steps count by how
likely their dynamics are in reality. Two discriminators tell real from simulated (s, a, s') and (s, a); with logits l,
log P_real/P_sim (s' | s, a) is l(s, a, s') - l(s, a). Each discriminator has two outputs, for real and simulated,
bounded by 2 tanh; their difference is its logit. The logit of (s, a) is added to that of (s, a, s'), so that the log
ratio is the difference of the latter's outputs, within [-4, 4]. The critics' loss is

    mean_real (Q - y)^2 + mean_sim w (Q - y)^2 + min_q_weight (logsumexp_sim (Q + log omega) - mean_real Q)

with w = clip(P_real / P_sim, 1e-5, 1) and omega proportional over the batch to u(s, a) = clip(mean log P_sim / P_real,
0, 10), a mean over `NUM_NEAR` next states around the simulated one. The replay buffer holds the simulator's steps, real
steps come from a dataset; the actor learns on states of both.

Deviations from the authors' code: the smallest u is 1e-6, not 1e-45, which is no float32; real and simulated steps have
separate batches; the penalty is not clipped at 1,000; next states around the simulated one are drawn with the standard
deviation of real states in the batch, theirs with that of the whole dataset; critics, actor and temperature learn one
after the other, theirs with the weights before the step; the temperature follows the entropy at simulated states only,
theirs at real ones, too; discriminators are initialised as the other networks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from jaxrl.algorithm import Algorithm, as_vector_env, check_at_least_one, shared, spaces_of
from jaxrl.algos.actor_critic import cql
from jaxrl.data.datasets import Dataset, stored
from jaxrl.data.transitions import Batch, Transition
from jaxrl.environment import Environment, pytree
from jaxrl.nn.actor_critic import Actor, Critic, TanhGaussian
from jaxrl.nn.losses import td_target
from jaxrl.nn.nets import Nets, critic_values, init_critics
from jaxrl.nn.networks import MLP, Network, own
from jaxrl.nn.optim import OptimizerLike
from jaxrl.off_policy import learner, steps
from jaxrl.replay.ring import Replay
from jaxrl.spaces import Box
from jaxrl.vector_env import VectorEnv

NUM_NEAR, SPREAD = 10, 1.0
"""The number of next states around a simulated one, and their standard deviation in units of that of real states."""
NOISE = 0.1
"""Standard deviation of the noise on the inputs of discriminators while they learn, in units of each input."""
BOUND = 2.0
"""The largest output of a discriminator."""


@dataclasses.dataclass(frozen=True)
class Config:
    """Static settings: each value compiles its own program."""

    num_envs: int = 1  # simulators stepped together
    num_steps: int = 1  # steps of each between updates
    num_updates: int = 1  # gradient steps an update, at most: see Hyper.replay_ratio
    batch_size: int = 256  # simulated steps of a batch, and as many real ones
    buffer_size: int = 100_000  # simulated transitions kept
    num_critics: int = 2  # critics; the target takes the smallest of their values
    trusting: bool = False  # w = 1: errors of simulated steps have full weight
    hidden: tuple[int, ...] = (256, 256)  # widths of all networks
    activation: str = "relu"
    layer_norm: bool = False  # in the critics
    optimizer: str = "adam"  # a name of optim.OPTIMIZERS
    adam_eps: float = 1e-8  # added to the denominator of Adam and its kin

    def __post_init__(self) -> None:
        steps.check_config(self)
        check_at_least_one(self, "num_critics")


@pytree
class Hyper(learner.SoftHyper):
    """Dynamic settings: leaves, so vmap over any of them."""

    min_q_weight: jax.Array = 0.01  # of the penalty


def log_ratio(logit_sas: Float[Array, "*batch"], logit_sa: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
    """log P_real / P_sim of the next state."""
    return logit_sas - logit_sa


def logit(outputs: Float[Array, "*batch 2"]) -> Float[Array, "*batch"]:
    """The logit of "real" from a discriminator's two unbounded outputs."""
    bounded = BOUND * jnp.tanh(outputs)
    return bounded[..., 0] - bounded[..., 1]


def trust(log_ratio: Float[Array, " B"]) -> Float[Array, " B"]:
    """w, the weight of errors of simulated steps."""
    return jnp.clip(jnp.exp(log_ratio), 1e-5, 1.0)


def dynamics_gap(log_ratios: Float[Array, "n B"]) -> Float[Array, " B"]:
    """u, from the log ratios at n next states near each simulated one."""
    return jnp.clip(jnp.mean(-log_ratios, 0), 0.0, 10.0)


def penalty(q_sim: Float[Array, "K B"], gap: Float[Array, " B"], q_real: Float[Array, "K B"]) -> Float[Array, ""]:
    """sum_k logsumexp_i (Q_k(s_i, a_i) + log omega_i) - mean Q_k of real steps; `gap` is u.

    This is the penalty of CQL for a single state, with the simulated steps as actions drawn from the density 1 / omega.
    """
    log_omega = jnp.log(gap + 1e-6) - jnp.log(jnp.sum(gap + 1e-6))
    return cql.penalty(q_sim[..., None], -log_omega[:, None], jnp.mean(q_real, -1, keepdims=True), 1.0)


def critic_loss(
    q_sim: Float[Array, "K B"],
    q_real: Float[Array, "K B"],
    target_sim: Float[Array, " B"],
    target_real: Float[Array, " B"],
    weight: Float[Array, " B"],
) -> Float[Array, ""]:
    """The sum over critics of mean squared errors: on real steps, and weighted on simulated ones."""
    real, simulated = (q_real - target_real) ** 2, weight * (q_sim - target_sim) ** 2
    return jnp.sum(jnp.mean(real, -1) + jnp.mean(simulated, -1))


def discriminator_loss(simulated: Sequence[Float[Array, " B"]], real: Sequence[Float[Array, " B"]]) -> Array:
    """The sum of the discriminators' cross-entropies [nats]; large logits mean "real"."""
    losses = [jnp.mean(jax.nn.softplus(logit)) for logit in simulated]
    return sum(losses + [jnp.mean(jax.nn.softplus(-logit)) for logit in real], jnp.zeros(()))


def noisy(key: Key[Array, ""], batch: Batch) -> list[Array]:
    """Observations, actions and next observations with normal noise, which regularises the discriminators."""
    parts = batch.obs, batch.action, batch.next_obs
    keys = jax.random.split(key, len(parts))
    return [x + NOISE * jax.random.normal(k, x.shape) for k, x in zip(keys, parts, strict=True)]


@dataclasses.dataclass(frozen=True)
class _H2O:
    """The learning rule, a `learner.Rule`."""

    networks: ClassVar[tuple[str, ...]] = ("discriminator", "critic", "actor", "log_alpha")
    targets: ClassVar[tuple[str, ...]] = ("critic",)

    config: Config
    real: Replay
    discriminator: Any  # flax modules
    critic: Any
    actor: TanhGaussian

    def init(self, keys: dict[str, Array], obs: Any, action: Any, hyper: Hyper) -> dict[str, Any]:
        sas_key, sa_key = jax.random.split(keys["discriminator"])
        sa = jnp.concatenate([obs, action], -1)
        sas = jnp.concatenate([sa, obs], -1)
        return {
            "discriminator": (self.discriminator.init(sas_key, sas), self.discriminator.init(sa_key, sa)),
            "critic": init_critics(self.critic, keys["critic"], self.config.num_critics, obs, action),
            "actor": self.actor.init(keys["actor"], obs),
            "log_alpha": jnp.log(hyper.alpha),
        }

    def logits(self, weights: Any, obs: Array, action: Array, next_obs: Array) -> tuple[Array, Array]:
        """Logits of (s, a, s'), a residual added to the second, and of (s, a); large for real steps."""
        sa = jnp.concatenate([obs, action], -1)
        of_sa = logit(self.discriminator.apply(weights[1], sa))
        residual = logit(self.discriminator.apply(weights[0], jnp.concatenate([sa, next_obs], -1)))
        return residual + of_sa, of_sa

    def real_steps(self, key: Key[Array, ""]) -> Transition:
        return Transition(*self.real.sample(key, (), self.config.batch_size)[: len(Transition._fields)])

    def gap(self, weights: Any, key: Key[Array, ""], batch: Batch, deviation: Float[Array, " F"]) -> Float[Array, " B"]:
        """u of simulated steps; next states near theirs are drawn with the `deviation` of real states."""
        noise = jax.random.normal(key, (NUM_NEAR, *batch.next_obs.shape))
        near = batch.next_obs + SPREAD * deviation * noise
        return dynamics_gap(log_ratio(*jax.vmap(lambda x: self.logits(weights, batch.obs, batch.action, x))(near)))

    def gradient_step(self, nets: Nets, key: Array, batch: Batch, hyper: Hyper) -> tuple[Nets, dict[str, Array]]:
        """The discriminators, the weighted critics, the actor on all states, the temperature (algorithm 1)."""
        discriminator, critic, actor, log_alpha = (nets[name] for name in self.networks)
        sort_key, critic_key, actor_key, alpha_key = jax.random.split(key, 4)
        settings, alpha = (hyper.learning_rate, hyper.max_grad_norm), jnp.exp(log_alpha.weights)
        simulated_key, drawn_key, noise_key = jax.random.split(sort_key, 3)
        simulated, real = noisy(simulated_key, batch), noisy(noise_key, self.real_steps(drawn_key))

        def discriminator_objective(weights: Any) -> tuple[Array, dict[str, Array]]:
            return discriminator_loss(self.logits(weights, *simulated), self.logits(weights, *real)), {}

        discriminator, discriminator_report = discriminator.descend(discriminator_objective, *settings)
        real_key, next_key, near_key = jax.random.split(critic_key, 3)
        both, n = with_real(batch, self.real_steps(real_key)), self.config.batch_size
        next_action = self.actor.explore(actor.weights, next_key, both.next_obs)
        next_q = critic_values(self.critic, critic.target, both.next_obs, next_action)
        target = td_target(both.reward, both.terminated, jnp.min(next_q, 0), hyper.gamma)
        ratio = log_ratio(*self.logits(discriminator.weights, batch.obs, batch.action, batch.next_obs))
        weight = jnp.ones_like(ratio) if self.config.trusting else trust(ratio)
        gap = self.gap(discriminator.weights, near_key, batch, jnp.std(both.obs[n:], 0))

        def critic_objective(weights: Any) -> tuple[Array, dict[str, Array]]:
            q = critic_values(self.critic, weights, both.obs, both.action)
            low = penalty(q[:, :n], gap, q[:, n:])
            loss = critic_loss(q[:, :n], q[:, n:], target[:n], target[n:], weight) + hyper.min_q_weight * low
            return loss, {"trust": jnp.mean(weight), "penalty": low, "q_value": jnp.mean(q)}

        critic, critic_report = critic.descend(critic_objective, *settings)
        sample_key, real_key = jax.random.split(actor_key)
        seen = with_real(batch, self.real_steps(real_key)).obs

        def actor_objective(weights: Any) -> tuple[Array, dict[str, Array]]:
            action, log_prob = self.actor(weights, seen).sample_and_log_prob(sample_key)
            q = jnp.min(critic_values(self.critic, critic.weights, seen, action), 0)
            return jnp.mean(alpha * log_prob - q), {"entropy": -jnp.mean(log_prob)}

        actor, actor_report = actor.descend(actor_objective, *learner.actor_settings(hyper))
        pi = self.actor(actor.weights, batch.obs)
        log_alpha, alpha_report = learner.temperature_step(log_alpha, pi, alpha_key, hyper)
        nets = {"discriminator": discriminator, "critic": critic.track(hyper.tau), "actor": actor}
        report = {**discriminator_report, **critic_report, **actor_report, **alpha_report}
        return {**nets, "log_alpha": log_alpha}, report


def with_real(simulated: Batch, real: Transition) -> Transition:
    """One batch of the simulated steps, followed by the real ones."""
    return jax.tree.map(lambda *x: jnp.concatenate(x), Transition(*simulated[: len(real)]), real)


@shared
def make(
    env: Environment | VectorEnv,
    config: Config = Config(),
    *,
    real: Replay | Dataset | None = None,
    replay: Replay | Dataset | None = None,
    actor: Network | None = None,
    critic: Network | None = None,
    optimizer: OptimizerLike | None = None,
) -> Algorithm:
    """H2O that acts in `env`, the simulator. Equal arguments give the same functions, so they share one jit cache.

    Args:
        real: a dataset of the real system, or what `datasets.stored` makes of one; required.
        replay: simulated steps, as a dataset or what `datasets.stored` makes of one, and then the learner does not act;
            None: it acts and fills a replay buffer.
        actor: a flax module from an observation to `(mean, log_std)` of actions before tanh, (..., A) each.
        critic: a flax module from an observation and an action to values (...); there will be `num_critics`.
        optimizer: in place of `config.optimizer`; see `optim.optimizer_of`.

    Raises ValueError without real steps, for observations or actions that are not vectors, several agents, or networks
    whose outputs do not fit, and TypeError for a `replay` that is neither a dataset nor a Replay.
    """
    venv = as_vector_env(env, config.num_envs)
    obs_space, space = spaces_of("h2o", venv, Box, between_ends=True)
    if not isinstance(obs_space, Box) or len(obs_space.shape) != 1:
        raise ValueError(f"h2o: observations are {obs_space}; its discriminators read a one-dimensional Box.")
    real = stored(real, space) if isinstance(real, Dataset) else real
    if not isinstance(real, Replay) or real.add is not None:
        raise ValueError(f"h2o: real={real!r}; a dataset of the real system, or what datasets.stored makes of it.")
    critic = own("critic", critic) or Critic(obs_space, config.hidden, config.activation, config.layer_norm)
    acting = TanhGaussian(own("actor", actor) or Actor(obs_space, space, config.hidden, config.activation, spread=True))
    rule = _H2O(config, real, MLP(config.hidden, 2, config.activation), critic, acting)
    given = {"replay": replay, "optimizer": optimizer, "critic": critic, "num_critics": config.num_critics}
    return learner.algorithm("h2o", venv, config, Hyper, rule, acting, **given)


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
