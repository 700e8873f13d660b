"""DAgger: the expert says what it would do in the states that the learner visits, and these are imitated.

Ross, Gordon and Bagnell (2011), "A reduction of imitation learning and structured prediction to no-regret online
learning", algorithm 3.1. The expert drives first, for `learning_starts` steps; then the learner drives alone, and at
each step is stored

    (s, pi*(s)), the state that the learner is in, and the expert's action there

all of which, from the first on, are fitted by supervised learning:

    loss = mean_B sum_A (mu(s) - pi*(s))^2 / A     for a deterministic actor in a Box
    loss = mean_B -log pi(pi*(s) | s)              for logits in a Discrete space

This is the paper's beta_i = 1(i = 1): the expert drives in the first iteration only. An iteration is an update. Where
behaviour cloning's errors grow with the square of an episode's length, since it has never seen the states that they
lead to, DAgger's grow linearly.

Deviations: networks go on learning from where they are, in place of being fitted anew in each iteration; the ring holds
the last `buffer_size` steps, not all; the paper's last step, to choose the best of all iterations' policies, is left to
evaluations (`--keep-best`). In a Box the learner drives with noise, `exploration_noise`, by default none.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxrl.actors import Actor as Expert
from jaxrl.algorithm import Algorithm, as_vector_env, shared, spaces_of
from jaxrl.data.transitions import Batch, Transition
from jaxrl.environment import Environment, pytree
from jaxrl.nn.actor_critic import Actor, Deterministic, Softmax
from jaxrl.nn.distributions import Categorical
from jaxrl.nn.nets import Nets
from jaxrl.nn.networks import Network, own
from jaxrl.nn.optim import OptimizerLike
from jaxrl.off_policy import interventions, learner
from jaxrl.off_policy.interventions import Steps
from jaxrl.replay.ring import Kept
from jaxrl.spaces import Box, Discrete
from jaxrl.vector_env import VectorEnv


@dataclasses.dataclass(frozen=True)
class Config(learner.Config):
    """Static settings: each value compiles its own program."""


@pytree
class Hyper(learner.Hyper):
    """Dynamic settings: leaves, so vmap over any of them."""

    exploration_noise: jax.Array = 0.0  # standard deviation in units of the box, when driving in a Box


def squared_error(policy_action: Float[Array, "B A"], expert_action: Float[Array, "B A"]) -> Float[Array, ""]:
    """mean (mu(s) - pi*(s))^2."""
    return jnp.mean((policy_action - expert_action) ** 2)


def cross_entropy(logits: Float[Array, "B n"], expert_action: Int[Array, " B"]) -> Float[Array, ""]:
    """mean -log pi(pi*(s) | s) [nats]."""
    return -jnp.mean(Categorical(logits).log_prob(expert_action))


@dataclasses.dataclass(frozen=True)
class _DAgger:
    """The learning rule, an `interventions.Rule`."""

    networks: ClassVar[tuple[str, ...]] = ("actor",)
    targets: ClassVar[tuple[str, ...]] = ()

    actor: Softmax | Deterministic

    def init(self, keys: dict[str, Array], obs: Any, action: Any, hyper: Hyper) -> dict[str, Any]:
        return {"actor": self.actor.init(keys["actor"], obs)}

    def kept(self, steps: Steps) -> Kept:
        """Every state, with the expert's action there, whoever acted."""
        told = Transition(steps.obs, steps.expert_action, steps.reward, steps.terminated, steps.next_obs)
        return Kept(told, jnp.ones_like(steps.by_expert))

    def gradient_step(self, nets: Nets, key: Array, batch: Batch, hyper: Hyper) -> tuple[Nets, dict[str, Array]]:
        """A step on the squared error or the cross entropy with the expert's actions, of all iterations so far."""

        def objective(weights: Any) -> tuple[Array, dict[str, Array]]:
            if isinstance(self.actor, Softmax):
                return cross_entropy(self.actor(weights, batch.obs).logits, batch.action), {}
            return squared_error(self.actor(weights, batch.obs), batch.action), {}

        actor, report = nets["actor"].descend(objective, hyper.learning_rate, hyper.max_grad_norm)
        return {"actor": actor}, report


@shared
def make(
    env: Environment | VectorEnv,
    config: Config = Config(),
    *,
    expert: Expert | None = None,
    actor: Network | None = None,
    optimizer: OptimizerLike | None = None,
) -> Algorithm:
    """DAgger for `env`. Equal arguments give the same functions, so they share one jit cache.

    Args:
        expert: who is imitated, as `actors.of_policy(algo, policy)`, `actors.scripted(env)` or
            `actors.of_function(act)`; required.
        actor: a flax module from an observation without its privileged part to actions (..., A) in [-1, 1], or to
            logits (..., n) of a Discrete space.
        optimizer: in place of `config.optimizer`; see `optim.optimizer_of`.

    Raises ValueError without an expert and for one that does not act here, for an action space that is neither a vector
    nor Discrete, several agents, levels, or a network whose outputs do not fit.
    """
    venv = as_vector_env(env, config.num_envs)
    obs_space, space = spaces_of("dagger", venv, Discrete, Box, between_ends=True)
    actor = own("actor", actor) or Actor(obs_space, space, config.hidden, config.activation, config.layer_norm)
    acting = Softmax(actor, obs_space) if isinstance(space, Discrete) else Deterministic(actor)
    return interventions.algorithm("dagger", venv, config, Hyper, _DAgger(acting), acting, expert, optimizer=optimizer)


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
