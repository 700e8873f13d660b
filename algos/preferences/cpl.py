"""Contrastive preference learning (CPL): a policy from preferences, without a reward and without values.

Hejna et al. (2024), "Contrastive preference learning: learning from human feedback without RL". If people prefer the
segment with the smaller regret, a pair tells of advantages, and the advantage of an action under the optimal policy of
maximum-entropy reinforcement learning is alpha log pi(a | s). So the policy itself is the model of the labels:

    score of a segment    S = sum_t gamma^t alpha log pi(a_t | s_t)
    loss                  -log [ exp(S+) / (exp(S+) + exp(bias S-)) ]     S+ of the better segment, S- of the other

averaged over both orders by the label where it is not 0 or 1. With `bias` 1 only differences count, and the loss is
as small for a policy that makes both segments unlikely. The **conservative** variant, bias < 1, counts the worse
segment for less: of two policies with equal differences the loss is smaller for the one that makes the segments likely.
Labels by return, not regret, are not what the loss assumes.

The first `cloning_steps` gradient steps clone all segments (mean -log pi); then the optimiser starts afresh, and the
learning rate rises linearly over `warmup_steps`.

In a Box the policy is a normal distribution of unit variance around a tanh, of which log pi is -|a - mu|^2 (constant
and the factor 1/2 are left out, as in the authors' code); in a Discrete space it is a softmax.

Deviations from the authors' code: no dropout (theirs 0.25); actions are in units of the box; shorter cloning and
warm-up by default (theirs 200,000 of 500,000 steps, and 10,000); pairs alone, where theirs may also rank all segments
of a batch. The paper's discount is not in their code: `gamma` is 1.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxrl.algorithm import Algorithm, as_vector_env, check_at_least_one, shared, spaces_of
from jaxrl.data.preferences import Compared, Preferences, as_replay
from jaxrl.data.reward_models import accuracy
from jaxrl.environment import Environment, pytree
from jaxrl.nn.actor_critic import Actor, Deterministic, Softmax
from jaxrl.nn.nets import Net, Nets
from jaxrl.nn.networks import Network, own
from jaxrl.nn.optim import OptimizerLike
from jaxrl.off_policy import learner
from jaxrl.replay.ring import Replay
from jaxrl.spaces import Box, Discrete
from jaxrl.vector_env import VectorEnv


@dataclasses.dataclass(frozen=True)
class Config:
    """Static settings: each value compiles its own program."""

    num_envs: int = 1  # environments in the state; nothing acts in them
    num_updates: int = 1  # gradient steps an update
    batch_size: int = 96  # pairs of segments a gradient step
    hidden: tuple[int, ...] = (512, 512)  # widths of the actor
    activation: str = "relu"
    layer_norm: bool = False
    optimizer: str = "adam"  # a name of optim.OPTIMIZERS
    adam_eps: float = 1e-8  # added to the denominator of Adam and its kin

    def __post_init__(self) -> None:
        check_at_least_one(self, "num_envs", "num_updates", "batch_size")


@pytree
class Hyper:
    """Dynamic settings: leaves, so vmap over any of them."""

    learning_rate: jax.Array = 1e-4
    alpha: jax.Array = 0.1  # temperature: an advantage for each nat of log-probability
    bias: jax.Array = 0.5  # weight of the worse segment's score; 1: not conservative
    gamma: jax.Array = 1.0  # discount within a segment
    cloning_steps: jax.Array = 5_000  # gradient steps of cloning before the contrastive loss
    warmup_steps: jax.Array = 500  # gradient steps over which the learning rate rises after that
    max_grad_norm: jax.Array = 1e6  # of the gradient; the default clips nothing


def score(
    log_prob: Float[Array, "*batch L"], alpha: float | Float[Array, ""], gamma: float | Float[Array, ""] = 1.0
) -> Float[Array, "*batch"]:
    """sum_t gamma^t alpha log pi(a_t | s_t) of segments."""
    return alpha * jnp.sum(gamma ** jnp.arange(log_prob.shape[-1]) * log_prob, -1)


def cpl_loss(
    scores: Float[Array, "B 2"], label: Float[Array, " B"], bias: float | Float[Array, ""] = 1.0
) -> Float[Array, ""]:
    """The contrastive loss of Hejna et al. (2024), with their conservative bias; `label`: the second is better."""
    first, second = scores[:, 0], scores[:, 1]
    second_won, first_won = jax.nn.softplus(bias * first - second), jax.nn.softplus(bias * second - first)
    return jnp.mean(label * second_won + (1 - label) * first_won)


@dataclasses.dataclass(frozen=True)
class _CPL:
    """The learning rule, a `learner.Rule`."""

    networks: ClassVar[tuple[str, ...]] = ("actor",)
    targets: ClassVar[tuple[str, ...]] = ()

    actor: Softmax | Deterministic

    def init(self, keys: dict[str, Array], obs: Any, action: Any, hyper: Hyper) -> dict[str, Any]:
        return {"actor": self.actor.init(keys["actor"], obs), "steps": jnp.int32(0)}

    def log_prob(self, weights: Any, obs: Any, action: Array) -> Float[Array, "..."]:
        """log pi(a | s), in a Box up to the constant and the factor of a normal of unit variance."""
        if isinstance(self.actor, Softmax):
            return self.actor(weights, obs).log_prob(action)
        return -jnp.sum((self.actor(weights, obs) - action) ** 2, -1)

    def gradient_step(self, nets: Nets, key: Array, batch: Compared, hyper: Hyper) -> tuple[Nets, dict[str, Array]]:
        """A step of cloning, or of the contrastive loss with an optimiser that began at the first of these."""
        done, actor = nets["steps"], nets["actor"]
        cloning, since = done < hyper.cloning_steps, done - hyper.cloning_steps
        actor = begun_anew(actor, hyper.learning_rate, since == 0)
        rising = jnp.minimum((since + 1) / jnp.maximum(hyper.warmup_steps, 1), 1.0)
        rate = hyper.learning_rate * jnp.where(cloning, 1.0, rising)

        def objective(weights: Any) -> tuple[Array, dict[str, Array]]:
            log_prob = self.log_prob(weights, batch.pair_obs, batch.pair_action)
            scores = score(log_prob, hyper.alpha, hyper.gamma)
            contrastive, cloned = cpl_loss(scores, batch.label, hyper.bias), -jnp.mean(log_prob)
            report = {
                "contrastive_loss": contrastive,
                "cloning_loss": cloned,
                "accuracy": accuracy(scores[:, 1] - scores[:, 0], batch.label),
            }
            return jnp.where(cloning, cloned, contrastive), report

        actor, report = actor.descend(objective, rate, hyper.max_grad_norm)
        return {"actor": actor, "steps": done + 1}, report


def begun_anew(net: Net, learning_rate: Array, when: Array) -> Net:
    """The network with its optimiser's state as at the start, where `when`."""
    fresh = net.optimizer.init(net.weights, learning_rate)
    return net.replace(state=jax.tree.map(lambda new, old: jnp.where(when, new, old), fresh, net.state))


@shared
def make(
    env: Environment | VectorEnv,
    config: Config = Config(),
    *,
    replay: Replay | Preferences | None = None,
    actor: Network | None = None,
    optimizer: OptimizerLike | None = None,
) -> Algorithm:
    """CPL for `env`. Equal arguments give the same functions, so they share one jit cache.

    Args:
        replay: preferences, or what `preferences.stored` makes of them; required.
        actor: a flax module from an observation without its privileged part to actions (..., A) in [-1, 1], or to
            logits (..., n) of a Discrete space.
        optimizer: in place of `config.optimizer`; see `optim.optimizer_of`.

    Raises ValueError without preferences, for an action space that is neither a vector nor Discrete, several agents, or
    a network whose outputs do not fit, and TypeError for a `replay` of another kind.
    """
    venv = as_vector_env(env, config.num_envs)
    obs_space, space = spaces_of("cpl", venv, Discrete, Box, between_ends=True)
    drawn = as_replay("cpl", replay, space)
    network = own("actor", actor) or Actor(obs_space, space, config.hidden, config.activation, config.layer_norm)
    acting = Softmax(network, obs_space) if isinstance(space, Discrete) else Deterministic(network)
    return learner.algorithm("cpl", venv, config, Hyper, _CPL(acting), acting, replay=drawn, optimizer=optimizer)


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
