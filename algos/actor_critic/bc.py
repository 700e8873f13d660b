"""Behaviour cloning: the actor is fitted to the data's actions (Pomerleau 1989), nothing else is learned.

    loss = mean_B sum_A (mu(s) - a)^2 / A     of a deterministic actor in a Box
    loss = mean_B -log pi(a | s)              of logits in a Discrete space

On a memory with weights of episodes it is weighted or filtered cloning: `datasets.best_weights(dataset, 0.1)` gives the
"10 % BC" that Chen et al. (2021), "Decision transformer", compare with.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxrl.algorithm import Algorithm, as_vector_env, shared, spaces_of
from jaxrl.environment import Environment, pytree, split_observation
from jaxrl.nn.distributions import Categorical, mask_logits
from jaxrl.nn.optim import OptimizerLike, optimizer_of
from jaxrl.replay import off_policy
from jaxrl.replay.actor_critic import Actor, ActorCritic, Policy
from jaxrl.replay.off_policy import Batch
from jaxrl.replay.ring import Replay, uniform
from jaxrl.spaces import Box, Discrete
from jaxrl.vectorize import VectorEnv


@dataclasses.dataclass(frozen=True)
class Config:
    """Static settings: each value compiles its own program."""

    num_envs: int = 1  # environments stepped together, where it acts
    num_steps: int = 1  # steps of each between updates, where it acts
    num_updates: int = 1  # gradient steps an update; where it acts, at most: see Hyper.replay_ratio
    batch_size: int = 256
    buffer_size: int = 100_000  # transitions kept, without a dataset
    normalize_obs: bool = False  # observations, by the dataset's mean and deviation; without one as they are
    hidden: tuple[int, ...] = (256, 256)  # widths of the actor
    activation: str = "relu"
    optimizer: str = "adam"  # a name of optim.OPTIMIZERS
    adam_eps: float = 1e-8  # added to the denominator of Adam and its kin

    def __post_init__(self) -> None:
        off_policy.check_config(self)


@pytree
class Hyper:
    """Dynamic settings: leaves, so vmap over any of them."""

    learning_rate: jax.Array = 3e-4
    exploration_noise: jax.Array = 0.1  # standard deviation in units of the box, where it acts; Discrete: it draws
    learning_starts: jax.Array = 1000  # where it acts: environment steps before the first gradient step
    replay_ratio: jax.Array = jnp.inf  # where it acts: gradient steps an environment step; infinite: num_updates
    max_grad_norm: jax.Array = 1e6


def actor_loss(policy_action: Float[Array, "B A"], action: Float[Array, "B A"]) -> Float[Array, ""]:
    """mean (mu(s) - a)^2."""
    return jnp.mean((policy_action - action) ** 2)


def cross_entropy(logits: Float[Array, "B n"], action: Int[Array, " B"]) -> Float[Array, ""]:
    """mean -log pi(a | s) [nats]."""
    return -jnp.mean(Categorical(logits).log_prob(action))


@dataclasses.dataclass(frozen=True)
class _BC(ActorCritic):
    """The loss; what else the Algorithm's functions do is `ActorCritic`'s."""

    name: ClassVar = "bc"
    hyper_class: ClassVar = Hyper
    order: ClassVar = ("actor",)
    tracked: ClassVar = ()

    def actor_loss(
        self, own: Any, weights: Any, target_weights: Any, key: Array, batch: Batch, hyper: Hyper
    ) -> tuple[Array, dict[str, Array]]:
        loss = cross_entropy if isinstance(self.action_space, Discrete) else actor_loss
        return loss(self.actions(own, batch.obs), batch.action), {}

    def actions(self, weights: Any, obs: Any) -> Any:
        """The actor's actions in units of the box, or its logits, those of allowed actions alone if there is a mask."""
        output, allowed = super().actions(weights, obs), split_observation(obs, self.observation_space)[2]
        if allowed is None or not isinstance(self.action_space, Discrete):
            return output
        return mask_logits(output, allowed)

    def explore(self, policy: Policy, key: Array, obs: Any) -> Array:
        if isinstance(self.action_space, Discrete):
            return Categorical(self.actions(policy.weights, obs)).sample(key)
        return super().explore(policy, key, obs)

    def mode(self, policy: Policy, obs: Any) -> Array:
        output = self.actions(policy.weights, obs)
        return Categorical(output).mode() if isinstance(self.action_space, Discrete) else output


@shared
def make(
    env: Environment | VectorEnv,
    config: Config = Config(),
    memory: Replay | None = None,
    actor: nn.Module | None = None,
    optimizer: OptimizerLike | None = None,
) -> Algorithm:
    """Behaviour cloning for `env`. Equal arguments give the same functions, so they share one jit cache.

    Args:
        memory: a dataset, `datasets.stored(dataset, env.action_space(params))`; None: it acts and fills its own.
        actor: a flax module from an observation without its privileged part to actions (..., A) in [-1, 1], or to
            logits (..., n) of a Discrete space.
        optimizer: an optax transformation or a function of the learning rate that makes one, for `config.optimizer`;
            see `optim.optimizer_of`.

    Raises ValueError for an action space that is neither a vector nor Discrete, several agents, or a network whose
    outputs do not fit.
    """
    venv = as_vector_env(env, config.num_envs)
    obs_space, space = spaces_of("bc", venv, Discrete, Box)
    networks = (("actor", actor or Actor(obs_space, space, config.hidden, config.activation)),)
    chosen = optimizer_of(optimizer or config.optimizer, eps=config.adam_eps)
    return _BC(config, venv, networks, obs_space, space, memory or uniform(config.buffer_size), chosen).algorithm()


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
