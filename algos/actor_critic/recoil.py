"""ReCOIL: imitation from few demonstrations and other steps, without rewards and without a discriminator.

Sikchi, Zheng, Zhang and Niekum (2024), "Dual RL: unification and new methods for reinforcement and imitation learning".
The visitation distributions of learner and expert are matched after each is mixed with that of the other steps, which
therefore need not cover the expert's. The dual problem has a critic that is high on demonstrations and satisfies the
Bellman equation without rewards on the mixture, a value that follows the best of the mixture's actions, as in XQL, and
an actor by advantage-weighted cloning. With d = min_k Q'_k(s, a) - V(s) and the bound b = cost / (1 - gamma),

    critics  E_expert (Q_k(s, a) - b)^2 / 2 + E_mixture (Q_k(s, a) - y)^2 / 2
             y = -cost + gamma (V(s') where the task goes on, -b where it terminated)
    value    E_mixture exp(z) - z - 1, z = min(d / temperature, max_clip), divided by the batch's largest exp(z)
    actor    -E_mixture min(exp(beta d), 100) log pi(a | s)

So the value of an action is higher the sooner it leads to states and actions of the expert. Half of the mixture are
demonstrations, half the other steps, which come from a dataset or from the learner (`demonstrated`).

This is the bounded form of the authors' code (after LS-IQ of Al-Hafez et al. 2023). The form in the paper has the
difference of Q between expert and other steps in place of the first square, and no cost. Sources of this file: the
authors' critic and training loop, and the similar learner of their later project SMORe; neither ReCOIL's learner nor
the paper's appendix was available. Deviations from that code: its value and y use the other steps only, to which it
adds up to 200 expert episodes; actions are in units of the box; orthogonal initialisation with a small last layer of
the actor; a constant learning rate of the actor.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from jaxrl.algorithm import Algorithm, as_vector_env, check_at_least_one, shared, spaces_of
from jaxrl.data.transitions import Batch, Transition
from jaxrl.environment import Environment, pytree
from jaxrl.nn.actor_critic import (
    Critic,
    Gaussian,
    GaussianActor,
    Value,
)
from jaxrl.nn.losses import advantage_weighted_loss
from jaxrl.nn.nets import Nets, critic_values
from jaxrl.nn.networks import Network, own
from jaxrl.nn.optim import OptimizerLike
from jaxrl.off_policy import learner
from jaxrl.replay.ring import Replay
from jaxrl.spaces import Box
from jaxrl.vector_env import VectorEnv


@dataclasses.dataclass(frozen=True)
class Config:
    """Static settings: each value compiles its own program."""

    num_envs: int = 1  # environments stepped together, where it acts
    num_steps: int = 1  # steps of each between updates, where it acts
    num_updates: int = 1  # gradient steps an update; where it acts, at most: see Hyper.replay_ratio
    batch_size: int = 256  # demonstrations of a batch, and as many other steps
    hidden: tuple[int, ...] = (256, 256)  # widths of all networks
    activation: str = "relu"
    layer_norm: bool = False  # in the critics and the state value
    optimizer: str = "adam"  # a name of optim.OPTIMIZERS
    adam_eps: float = 1e-8  # added to the denominator of Adam and its kin

    def __post_init__(self) -> None:
        check_at_least_one(self, "num_envs", "num_steps", "num_updates", "batch_size")


@pytree
class Hyper(learner.Hyper):
    """Dynamic settings: leaves, so vmap over any of them."""

    cost: jax.Array = 2.0  # of each step; the target value of demonstrations is cost / (1 - gamma)
    temperature: jax.Array = 1.0  # of the value's loss; towards 0 V nears the value of the best action
    beta: jax.Array = 3.0  # inverse temperature of the advantage weights
    max_clip: jax.Array = 7.0  # the largest exponent in the value's loss; infinite: no limit


class Pair(NamedTuple):
    """A batch: demonstrations, and as many other steps."""

    expert: Batch
    other: Batch

    def mixture(self) -> Transition:
        """One batch of the demonstrations, followed by the other steps."""
        parts = ([getattr(batch, name) for name in Transition._fields] for batch in self)
        return Transition(*jax.tree.map(lambda *x: jnp.concatenate(x), *parts))


class Demonstrated(Replay):
    """A replay of `Pair`s."""


def demonstrated(expert: Replay, other: Replay) -> Replay:
    """A Replay that draws equally many steps of both replays, as a `Pair`.

    Args:
        expert: demonstrations, `datasets.stored(dataset, env.action_space(params))`.
        other: another dataset, `datasets.stored(...)`, and then the learner does not act; or a replay buffer,
            `ring.uniform(capacity)`, which stores the steps that the learner takes.
    """

    def sample(key: Key[Array, ""], state: Any, n: int) -> Pair:
        expert_key, other_key = jax.random.split(key)
        return Pair(expert.sample(expert_key, (), n), other.sample(other_key, state, n))

    return Demonstrated(other.init, other.add, sample)


def recoil_target(
    terminated: Bool[Array, " B"],
    next_value: Float[Array, " B"],
    gamma: Float[Array, ""] | float,
    cost: Float[Array, ""] | float,
) -> Float[Array, " B"]:
    """-cost + gamma V(s'); after termination V is -cost / (1 - gamma), the cost of all further steps."""
    return -cost + gamma * jnp.where(terminated, -cost / (1 - gamma), next_value)


def recoil_loss(
    q: Float[Array, "K B"], target: Float[Array, " B"], bound: Float[Array, ""] | float
) -> Float[Array, ""]:
    """The sum over critics of half the mean squared errors: of demonstrations from `bound`, of all rows from `target`.

    Demonstrations are the first half of the rows.
    """
    of_expert = q[:, : q.shape[1] // 2]
    return jnp.sum(jnp.mean((of_expert - bound) ** 2, -1) + jnp.mean((q - target) ** 2, -1)) / 2


def value_loss(advantage: Float[Array, " B"], temperature: Any, max_clip: Any = jnp.inf) -> Float[Array, ""]:
    """mean (exp(z) - z - 1) / exp(m), z = min(d / l, clip); the constant m is the batch's largest z, at least -1."""
    z = jnp.minimum(advantage / temperature, max_clip)
    most = jax.lax.stop_gradient(jnp.maximum(jnp.max(z), -1.0))
    return jnp.mean(jnp.exp(z - most) - (z + 1) * jnp.exp(-most))


@dataclasses.dataclass(frozen=True)
class _ReCOIL:
    """The learning rule, a `learner.Rule`."""

    networks: ClassVar[tuple[str, ...]] = ("value", "critic", "actor")
    targets: ClassVar[tuple[str, ...]] = ("critic",)

    value: Any  # flax modules
    critic: Any
    actor: Gaussian

    init = learner.init_with_value

    def gradient_step(self, nets: Nets, key: Array, batch: Pair, hyper: Hyper) -> tuple[Nets, dict[str, Array]]:
        """The value on the mixture, the critics on demonstrations and mixture, the actor, the target critics."""
        value, critic, actor = (nets[name] for name in self.networks)
        settings, mixture = (hyper.learning_rate, hyper.max_grad_norm), batch.mixture()
        q_target = jnp.min(critic_values(self.critic, critic.target, mixture.obs, mixture.action), 0)

        def value_objective(weights: Any) -> tuple[Array, dict[str, Array]]:
            advantage = q_target - self.value.apply(weights, mixture.obs)
            return value_loss(advantage, hyper.temperature, hyper.max_clip), {"advantage": jnp.mean(advantage)}

        value, value_report = value.descend(value_objective, *settings)
        next_value = self.value.apply(value.weights, mixture.next_obs)
        target = recoil_target(mixture.terminated, next_value, hyper.gamma, hyper.cost)

        def critic_objective(weights: Any) -> tuple[Array, dict[str, Array]]:
            q = critic_values(self.critic, weights, mixture.obs, mixture.action)
            of_expert, of_other = jnp.split(q, 2, -1)
            report = {"expert_q_value": jnp.mean(of_expert), "other_q_value": jnp.mean(of_other)}
            return recoil_loss(q, target, hyper.cost / (1 - hyper.gamma)), report

        critic, critic_report = critic.descend(critic_objective, *settings)
        advantage = q_target - self.value.apply(value.weights, mixture.obs)

        def actor_objective(weights: Any) -> tuple[Array, dict[str, Array]]:
            log_prob = self.actor(weights, mixture.obs).log_prob(mixture.action)
            return advantage_weighted_loss(log_prob, hyper.beta * advantage), {}

        actor, actor_report = actor.descend(actor_objective, *settings)
        nets = {"value": value, "critic": critic.track(hyper.tau), "actor": actor}
        return nets, {**value_report, **critic_report, **actor_report}


@shared
def make(
    env: Environment | VectorEnv,
    config: Config = Config(),
    *,
    replay: Replay | None = None,
    actor: Network | None = None,
    critic: Network | None = None,
    optimizer: OptimizerLike | None = None,
) -> Algorithm:
    """ReCOIL for `env`. Equal arguments give the same functions, so they share one jit cache.

    Args:
        replay: `demonstrated(expert, other)`; required.
        actor: a flax module from an observation without its privileged part to `(mean, log_std)` (..., A) in units of
            the box.
        critic: a flax module from a whole observation and an action to values (...); there will be two of them.
        optimizer: in place of `config.optimizer`; see `optim.optimizer_of`.

    Raises ValueError without a replay, for an action space that is not a vector, several agents, or networks whose
    outputs do not fit.
    """
    if replay is None:
        raise ValueError("recoil has nothing to imitate: its replay is recoil.demonstrated(expert, other).")
    if not isinstance(replay, Demonstrated):
        raise ValueError("recoil: this replay does not say whom to imitate; use recoil.demonstrated(expert, other).")
    venv = as_vector_env(env, config.num_envs)
    obs_space, space = spaces_of("recoil", venv, Box, between_ends=True)
    sizes = config.hidden, config.activation, config.layer_norm
    critic = own("critic", critic) or Critic(obs_space, *sizes)
    acting = Gaussian(own("actor", actor) or GaussianActor(obs_space, space, config.hidden, config.activation))
    rule = _ReCOIL(Value(obs_space, *sizes), critic, acting)
    return learner.algorithm(
        "recoil", venv, config, Hyper, rule, acting, replay=replay, optimizer=optimizer, critic=critic
    )


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
