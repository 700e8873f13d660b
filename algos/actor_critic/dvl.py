"""Dual value learning (f-DVL) and extreme Q-learning (XQL).

Sikchi, Zheng, Zhang and Niekum (2024), "Dual RL: unification and new methods for reinforcement and imitation learning".
Maximising the return minus a divergence between the visitation distributions of policy and dataset has a dual problem
in the state value alone. Its loss is the convex conjugate of the divergence and makes V follow the best of the
dataset's actions, as the expectile does in IQL: with d = min_k Q'_k(s, a) - V(s) and l the temperature,

    chi2             mean l max(d + d^2 / 4, 0) - (1 - l) d
    total_variation  mean l max(d, 0) - (1 - l) d            d is above 0 with probability (1 - l) / l
    gumbel           mean exp(z) - z - 1, z = min(d / l, max_clip), divided by the batch's largest exp(z)

`gumbel` is the reverse KL divergence: XQL of Garg, Hejna, Geist and Ermon (2023), "Extreme Q-learning: MaxEnt RL
without entropy"; the other two avoid its exponential. The rest is IQL with Huber's loss,

    critics  Huber(Q_k(s, a) - (r + gamma (1 - terminated) V(s')))
    actor    -mean min(exp(beta d), 100) log pi(a | s)

`Config.random_actions` uniform actions for each state enter the value's loss, too, as the authors do for locomotion.
There they also scale rewards by 1,000 over the range of returns: `chi2` and `gumbel` depend on the scale of rewards.
For l at or below 1/2 `total_variation` has no unique minimum, or none.

Deviations from the authors' code: actions are in units of the box; orthogonal initialisation with a small last layer of
the actor; its learning rate is constant, where theirs has a cosine decay over the whole training.
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
from jaxrl.nn.actor_critic import (
    Critic,
    Gaussian,
    GaussianActor,
    Value,
)
from jaxrl.nn.losses import advantage_weighted_loss, td_target
from jaxrl.nn.nets import Nets, critic_values
from jaxrl.nn.networks import Network, own
from jaxrl.nn.optim import OptimizerLike
from jaxrl.off_policy import learner
from jaxrl.replay.ring import Replay
from jaxrl.spaces import Box
from jaxrl.vector_env import VectorEnv

HUBER_DELTA = 20.0  # as in the authors' code


@dataclasses.dataclass(frozen=True)
class Config(learner.Config):
    """Static settings: each value compiles its own program."""

    divergence: str = "chi2"  # a name of VALUE_LOSSES
    random_actions: int = 0  # uniform actions for each state in the value's loss, besides the dataset's

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.divergence not in VALUE_LOSSES:
            raise ValueError(f"divergence={self.divergence!r}: it is one of {', '.join(VALUE_LOSSES)}.")
        if self.random_actions < 0:
            raise ValueError(f"random_actions={self.random_actions}: it must be at least 0.")


@pytree
class Hyper(learner.Hyper):
    """Dynamic settings: leaves, so vmap over any of them."""

    temperature: jax.Array = 0.8  # l; chi2, total_variation: towards 1 V nears the value of the best action
    beta: jax.Array = 3.0  # inverse temperature of the actor's weights
    max_clip: jax.Array = 7.0  # gumbel: the largest exponent; infinite: no limit


def chi2(advantage: Float[Array, " B"], temperature: Any, max_clip: Any = jnp.inf) -> Float[Array, ""]:
    """mean l max(d + d^2 / 4, 0) - (1 - l) d; for l = 1 it has no gradient at d from -4 to 0."""
    conjugate = jnp.maximum(advantage + advantage**2 / 4, 0)
    return jnp.mean(temperature * conjugate - (1 - temperature) * advantage)


def total_variation(advantage: Float[Array, " B"], temperature: Any, max_clip: Any = jnp.inf) -> Float[Array, ""]:
    """mean l max(d, 0) - (1 - l) d."""
    return jnp.mean(temperature * jnp.maximum(advantage, 0) - (1 - temperature) * advantage)


def gumbel(advantage: Float[Array, " B"], temperature: Any, max_clip: Any = jnp.inf) -> Float[Array, ""]:
    """mean (exp(z) - z - 1) / exp(m), z = min(d / l, clip); the constant m is the batch's largest z, at least -1."""
    z = jnp.minimum(advantage / temperature, max_clip)
    most = jax.lax.stop_gradient(jnp.maximum(jnp.max(z), -1.0))
    return jnp.mean(jnp.exp(z - most) - (z + 1) * jnp.exp(-most))


VALUE_LOSSES = {"chi2": chi2, "total_variation": total_variation, "gumbel": gumbel}
"""By name: `(advantage, temperature, max_clip) -> loss`, the advantage being d."""


def huber_loss(q: Float[Array, "K B"], target: Float[Array, " B"]) -> Float[Array, ""]:
    """The sum over critics of the mean Huber loss: half the square, linear beyond 20."""
    error = jnp.abs(q - target)
    near = jnp.minimum(error, HUBER_DELTA)
    return jnp.sum(jnp.mean(near**2 / 2 + HUBER_DELTA * (error - near), -1))


@dataclasses.dataclass(frozen=True)
class _DVL:
    """The learning rule, a `learner.Rule`."""

    networks: ClassVar[tuple[str, ...]] = ("value", "critic", "actor")
    targets: ClassVar[tuple[str, ...]] = ("critic",)

    config: Config
    value: Any  # flax modules
    critic: Any
    actor: Gaussian

    init = learner.init_with_value

    def advantage(self, value_weights: Any, critic_weights: Any, obs: Any, action: Array) -> Float[Array, " B"]:
        """d = min_k Q'_k - V."""
        q = jnp.min(critic_values(self.critic, critic_weights, obs, action), 0)
        return q - self.value.apply(value_weights, obs)

    def gradient_step(self, nets: Nets, key: Array, batch: Batch, hyper: Hyper) -> tuple[Nets, dict[str, Array]]:
        """The value with the loss of the divergence, the critics on its target, the actor, the target critics."""
        value, critic, actor = (nets[name] for name in self.networks)
        value_key, _, _ = jax.random.split(key, 3)
        settings, times = (hyper.learning_rate, hyper.max_grad_norm), self.config.random_actions
        obs, action = batch.obs, batch.action
        if times:
            obs = jax.tree.map(lambda x: jnp.concatenate([x] * (1 + times)), obs)
            drawn = jax.random.uniform(value_key, (times * len(action), *action.shape[1:]), action.dtype, -1, 1)
            action = jnp.concatenate([action, drawn])

        def value_objective(weights: Any) -> tuple[Array, dict[str, Array]]:
            advantage = self.advantage(weights, critic.target, obs, action)
            loss = VALUE_LOSSES[self.config.divergence](advantage, hyper.temperature, hyper.max_clip)
            return loss, {"advantage": jnp.mean(advantage[: len(batch.action)])}

        value, value_report = value.descend(value_objective, *settings)
        next_value = self.value.apply(value.weights, batch.next_obs)
        target = td_target(batch.reward, batch.terminated, next_value, hyper.gamma)

        def critic_objective(weights: Any) -> tuple[Array, dict[str, Array]]:
            q = critic_values(self.critic, weights, batch.obs, batch.action)
            return huber_loss(q, target), {"q_value": jnp.mean(q)}

        advantage = self.advantage(value.weights, critic.target, batch.obs, batch.action)
        critic, critic_report = critic.descend(critic_objective, *settings)

        def actor_objective(weights: Any) -> tuple[Array, dict[str, Array]]:
            log_prob = self.actor(weights, batch.obs).log_prob(batch.action)
            return advantage_weighted_loss(log_prob, hyper.beta * advantage), {}

        actor, actor_report = actor.descend(actor_objective, *settings)
        nets = {"value": value, "critic": critic.track(hyper.tau), "actor": actor}
        return nets, {**value_report, **critic_report, **actor_report}


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
    """f-DVL for `env`. Equal arguments give the same functions, so they share one jit cache.

    `learner.algorithm` explains the arguments and the errors; `actor` is the network of a `Gaussian`, and there
    are two critics.
    """
    venv = as_vector_env(env, config.num_envs)
    obs_space, space = spaces_of("dvl", venv, Box, between_ends=True)
    sizes = config.hidden, config.activation, config.layer_norm
    critic = own("critic", critic) or Critic(obs_space, *sizes)
    acting = Gaussian(own("actor", actor) or GaussianActor(obs_space, space, config.hidden, config.activation))
    rule = _DVL(config, Value(obs_space, *sizes), critic, acting)
    return learner.algorithm(
        "dvl", venv, config, Hyper, rule, acting, replay=replay, optimizer=optimizer, critic=critic
    )


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
