"""Behaviour cloning: the actor is fitted to the dataset's actions by supervised learning (Pomerleau 1989).

    loss = mean_B sum_A (mu(s) - a)^2 / A     for a deterministic actor in a Box
    loss = mean_B -log pi(a | s)              for logits in a Discrete space

With a dataset whose episodes have weights it is weighted or filtered cloning: `datasets.best_weights(dataset, 0.1)`
gives the "10 % BC" that Chen et al. (2021), "Decision transformer", compare with.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxrl.algorithm import Algorithm, as_vector_env, shared, spaces_of
from jaxrl.data.datasets import Dataset
from jaxrl.data.transitions import Batch
from jaxrl.environment import Environment, pytree
from jaxrl.nn.actor_critic import Actor, Deterministic, Softmax
from jaxrl.nn.distributions import Categorical
from jaxrl.nn.nets import Nets
from jaxrl.nn.networks import Network, own
from jaxrl.nn.optim import OptimizerLike
from jaxrl.off_policy import learner
from jaxrl.replay.ring import Replay
from jaxrl.spaces import Box, Discrete
from jaxrl.vector_env import VectorEnv


@dataclasses.dataclass(frozen=True)
class Config(learner.Config):
    """Static settings: each value compiles its own program."""


@pytree
class Hyper(learner.Hyper):
    """Dynamic settings: leaves, so vmap over any of them."""

    exploration_noise: jax.Array = 0.1  # standard deviation in units of the box, when acting in a Box


def actor_loss(policy_action: Float[Array, "B A"], action: Float[Array, "B A"]) -> Float[Array, ""]:
    """mean (mu(s) - a)^2."""
    return jnp.mean((policy_action - action) ** 2)


def cross_entropy(logits: Float[Array, "B n"], action: Int[Array, " B"]) -> Float[Array, ""]:
    """mean -log pi(a | s) [nats]."""
    return -jnp.mean(Categorical(logits).log_prob(action))


@dataclasses.dataclass(frozen=True)
class _BC:
    """The learning rule, a `learner.Rule`."""

    networks: ClassVar[tuple[str, ...]] = ("actor",)
    targets: ClassVar[tuple[str, ...]] = ()

    actor: Softmax | Deterministic

    def init(self, keys: dict[str, Array], obs: Any, action: Any, hyper: Hyper) -> dict[str, Any]:
        return {"actor": self.actor.init(keys["actor"], obs)}

    def gradient_step(self, nets: Nets, key: Array, batch: Batch, hyper: Hyper) -> tuple[Nets, dict[str, Array]]:
        """A step on the cross entropy with the dataset's actions, or on the squared error."""

        def objective(weights: Any) -> tuple[Array, dict[str, Array]]:
            if isinstance(self.actor, Softmax):
                return cross_entropy(self.actor(weights, batch.obs).logits, batch.action), {}
            return actor_loss(self.actor(weights, batch.obs), batch.action), {}

        actor, report = nets["actor"].descend(objective, hyper.learning_rate, hyper.max_grad_norm)
        return {"actor": actor}, report


@shared
def make(
    env: Environment | VectorEnv,
    config: Config = Config(),
    *,
    replay: Replay | Dataset | None = None,
    actor: Network | None = None,
    optimizer: OptimizerLike | None = None,
) -> Algorithm:
    """Behaviour cloning for `env`. Equal arguments give the same functions, so they share one jit cache.

    Args:
        replay: a dataset, or what `datasets.stored` makes of one; None: the learner acts and fills a replay buffer.
        actor: a flax module from an observation without its privileged part to actions (..., A) in [-1, 1], or to
            logits (..., n) of a Discrete space.
        optimizer: in place of `config.optimizer`; see `optim.optimizer_of`.

    Raises ValueError for an action space that is neither a vector nor Discrete, several agents, or a network whose
    outputs do not fit, and TypeError for a `replay` that is neither a dataset nor a Replay.
    """
    venv = as_vector_env(env, config.num_envs)
    obs_space, space = spaces_of("bc", venv, Discrete, Box, between_ends=True)
    actor = own("actor", actor) or Actor(obs_space, space, config.hidden, config.activation, config.layer_norm)
    acting = Softmax(actor, obs_space) if isinstance(space, Discrete) else Deterministic(actor)
    return learner.algorithm("bc", venv, config, Hyper, _BC(acting), acting, replay=replay, optimizer=optimizer)


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
