"""HG-DAgger: the learner drives until the expert takes over, and what the expert then does is imitated.

Kelly, Sidrane, Driggs-Campbell and Kochenderfer (2019), "HG-DAgger: interactive imitation learning with human experts",
algorithm 1. The expert drives first, for `learning_starts` steps; these are the demonstrations. Then the learner
drives, and where the expert takes over, stored are the expert's steps alone:

    (s, pi*(s)) of the steps in which the expert drives

which are all fitted by supervised learning, as in `dagger.py`, from which it differs in who drives and what is stored:

    loss = mean_B sum_A (mu(s) - a)^2 / A     for a deterministic actor in a Box
    loss = mean_B -log pi(a | s)              for logits in a Discrete space

A person takes over where they see fit. Here a rule stands for them, which `Config.takeover` names: by "value", where
the learner's action is worth less to the expert than its own by more than `threshold` (`interventions.by_value`), or at
"random". The expert then drives for `expert_steps` steps.

Deviations: as in `dagger.py`; the paper's measure of doubt, by an ensemble of networks, which it uses to say afterwards
where the policy is safe, is left out; a person drives until the car is safe, here a takeover has a fixed length and the
next may follow a step later.
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
from jaxrl.off_policy.interventions import Steps, Takeover
from jaxrl.replay.ring import Kept
from jaxrl.spaces import Box, Discrete
from jaxrl.vector_env import VectorEnv


@dataclasses.dataclass(frozen=True)
class Config(learner.Config):
    """Static settings: each value compiles its own program."""

    takeover: str = "value"  # when the expert takes over: by "value" or at "random"
    expert_steps: int = 4  # that it then drives
    horizon: int = 50  # steps of the rollouts by which it judges actions

    def __post_init__(self) -> None:
        super().__post_init__()
        interventions.check_takeover(self)


@pytree
class Hyper(learner.Hyper):
    """Dynamic settings: leaves, so vmap over any of them."""

    exploration_noise: jax.Array = 0.0  # standard deviation in units of the box, when driving in a Box
    threshold: jax.Array = 0.0  # by value: how much less than the expert's the learner's action may be worth
    lapse_prob: jax.Array = 0.05  # by value: probability with which the expert does the opposite
    takeover_prob: jax.Array = 0.1  # at random: of taking over, after each step of the learner


def squared_error(policy_action: Float[Array, "B A"], expert_action: Float[Array, "B A"]) -> Float[Array, ""]:
    """mean (mu(s) - a)^2."""
    return jnp.mean((policy_action - expert_action) ** 2)


def cross_entropy(logits: Float[Array, "B n"], expert_action: Int[Array, " B"]) -> Float[Array, ""]:
    """mean -log pi(a | s) [nats]."""
    return -jnp.mean(Categorical(logits).log_prob(expert_action))


@dataclasses.dataclass(frozen=True)
class _HGDAgger:
    """The learning rule, an `interventions.Rule`."""

    networks: ClassVar[tuple[str, ...]] = ("actor",)
    targets: ClassVar[tuple[str, ...]] = ()

    actor: Softmax | Deterministic

    def init(self, keys: dict[str, Array], obs: Any, action: Any, hyper: Hyper) -> dict[str, Any]:
        return {"actor": self.actor.init(keys["actor"], obs)}

    def kept(self, steps: Steps) -> Kept:
        """The steps in which the expert drove."""
        done = Transition(steps.obs, steps.action, steps.reward, steps.terminated, steps.next_obs)
        return Kept(done, steps.by_expert)

    def gradient_step(self, nets: Nets, key: Array, batch: Batch, hyper: Hyper) -> tuple[Nets, dict[str, Array]]:
        """A step on the squared error or the cross entropy with what the expert did, in all iterations so far."""

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
    """HG-DAgger for `env`. Equal arguments give the same functions, so they share one jit cache.

    Args:
        expert: who takes over and is imitated, as `actors.of_policy(algo, policy)`, `actors.scripted(env)` or
            `actors.of_function(act)`; required.
        actor: a flax module from an observation without its privileged part to actions (..., A) in [-1, 1], or to
            logits (..., n) of a Discrete space.
        optimizer: in place of `config.optimizer`; see `optim.optimizer_of`.

    Raises ValueError without an expert and for one that does not act here, for an action space that is neither a vector
    nor Discrete, several agents, levels, or a network whose outputs do not fit.
    """
    venv = as_vector_env(env, config.num_envs)
    obs_space, space = spaces_of("hg_dagger", venv, Discrete, Box, between_ends=True)
    actor = own("actor", actor) or Actor(obs_space, space, config.hidden, config.activation, config.layer_norm)
    acting = Softmax(actor, obs_space) if isinstance(space, Discrete) else Deterministic(actor)
    takeover = Takeover(config.takeover, horizon=config.horizon)
    parts = _HGDAgger(acting), acting, expert, takeover
    return interventions.algorithm("hg_dagger", venv, config, Hyper, *parts, optimizer=optimizer)


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
