"""P-IQL: implicit Q-learning on a reward that was learned from preferences. It is `iql` behind a reward model.

The baseline of Hejna et al. (2024), "Contrastive preference learning", and of Kim et al. (2023), "Preference
transformer". For the first `reward_steps` gradient steps an ensemble of networks r_k(s, a) is fitted to the labels by
the model of Bradley and Terry (`reward_models.bradley_terry_loss`), each member to the same pairs,

    P(second better) = sigmoid(sum_t r_k(s2_t, a2_t) - sum_t r_k(s1_t, a1_t));

afterwards it stays as it is, and IQL learns from the mean of the ensemble in the place of the reward, on all steps of
the dataset that the segments are parts of. The true reward is in no batch. `Config.num_members` 1 is a single model.

Sums of rewards of segments of one length do not say where zero is: in tasks whose episodes end early, or go on for
having reached nothing, `Hyper.reward_bias` decides between the two.

Deviations from the authors' code: there IQL already learns while the reward does, and from the segments' steps alone;
the actor's standard deviation is learned (theirs is fixed), there is no dropout, and its learning rate is constant.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxrl.algorithm import Algorithm, as_vector_env, check_at_least_one, shared, spaces_of
from jaxrl.algos.actor_critic import iql
from jaxrl.data.preferences import Compared, Preferences, as_replay
from jaxrl.data.reward_models import Reward, accuracy, bradley_terry_loss, margin_of
from jaxrl.data.transitions import Transition
from jaxrl.environment import Environment, pytree
from jaxrl.math import rarely
from jaxrl.nn.actor_critic import Critic, Gaussian, GaussianActor, Value
from jaxrl.nn.nets import Nets, init_critics
from jaxrl.nn.networks import Network, own
from jaxrl.nn.optim import OptimizerLike
from jaxrl.off_policy import learner
from jaxrl.replay.ring import Replay
from jaxrl.spaces import Box
from jaxrl.vector_env import VectorEnv


@dataclasses.dataclass(frozen=True)
class Config:
    """Static settings: each value compiles its own program."""

    num_envs: int = 1  # environments in the state; nothing acts in them
    num_updates: int = 1  # gradient steps an update
    batch_size: int = 256  # steps, and pairs of segments, a gradient step
    num_members: int = 1  # networks of the reward, whose mean is learned from
    hidden: tuple[int, ...] = (256, 256)  # widths of all networks
    activation: str = "relu"
    layer_norm: bool = False  # in the critics and the state value
    optimizer: str = "adam"  # a name of optim.OPTIMIZERS
    adam_eps: float = 1e-8  # added to the denominator of Adam and its kin

    def __post_init__(self) -> None:
        check_at_least_one(self, "num_envs", "num_updates", "batch_size", "num_members")


@pytree
class Hyper:
    """Dynamic settings: leaves, so vmap over any of them."""

    learning_rate: jax.Array = 3e-4  # of all networks
    gamma: jax.Array = 0.99  # discount
    tau: jax.Array = 0.005  # Polyak step of target networks, each gradient step
    reward_steps: jax.Array = 2_000  # gradient steps of the reward before IQL begins
    expectile: jax.Array = 0.7  # of the state value; towards 1 it nears the value of the dataset's best action
    beta: jax.Array = 3.0  # inverse temperature of the advantage weights
    reward_scale: jax.Array = 1.0  # factor of each learned reward
    reward_bias: jax.Array = 0.0  # added to each scaled reward
    max_grad_norm: jax.Array = 1e6  # of each network's gradient; the default clips nothing


OF_IQL = ("learning_rate", "gamma", "tau", "expectile", "beta", "reward_scale", "reward_bias", "max_grad_norm")
"""Settings of `iql.Hyper` that are read; nothing acts here."""


@dataclasses.dataclass(frozen=True)
class _PIQL:
    """The learning rule, a `learner.Rule`."""

    networks: ClassVar[tuple[str, ...]] = ("reward", "value", "critic", "actor")
    targets: ClassVar[tuple[str, ...]] = ("critic",)

    reward: Reward
    num_members: int
    iql: Any  # IQL's rule

    def init(self, keys: dict[str, Array], obs: Any, action: Any, hyper: Hyper) -> dict[str, Any]:
        reward = init_critics(self.reward, keys["reward"], self.num_members, obs, action)
        return {"reward": reward, "steps": jnp.int32(0), **self.iql.init(keys, obs, action, hyper)}

    def members(self, weights: Any, obs: Any, action: Array) -> Array:
        """r_k(s, a), (K, ...)."""
        found: Any = jax.vmap(lambda weights: self.reward.apply(weights, obs, action))(weights)
        return found

    def gradient_step(self, nets: Nets, key: Array, batch: Compared, hyper: Hyper) -> tuple[Nets, dict[str, Array]]:
        """A step of the reward, or of IQL on it."""
        done = nets["steps"]

        def of_reward(weights: Any) -> tuple[Array, dict[str, Array]]:
            margin = margin_of(self.members(weights, batch.pair_obs, batch.pair_action))
            report = {"reward_accuracy": accuracy(margin, batch.label)}
            return bradley_terry_loss(margin, batch.label), report

        def reward_step() -> tuple[Any, dict[str, Array]]:
            return nets["reward"].descend(of_reward, hyper.learning_rate, hyper.max_grad_norm)

        # Of each phase, also under vmap over seeds, only what is due is computed: a `cond` would compute both.
        learning = done < hyper.reward_steps
        reward, reward_report = rarely(learning, reward_step, (nets["reward"], nothing(reward_step)))
        own = {name: nets[name] for name in self.iql.networks}
        settings = iql.Hyper(**{name: getattr(hyper, name) for name in OF_IQL})

        def on_reward() -> tuple[Nets, dict[str, Array]]:
            learned = jnp.mean(self.members(reward.weights, batch.obs, batch.action), 0)
            steps = Transition(batch.obs, batch.action, learned, batch.terminated, batch.next_obs)
            after, report = self.iql.gradient_step(own, key, steps, settings)
            return after, {**report, "learned_reward": jnp.mean(learned)}

        after, report = rarely(~learning, on_reward, (own, nothing(on_reward)))
        of_both = {
            "loss": jnp.where(learning, reward_report["reward_loss"], report["value_loss"]),
            "grad_norm": jnp.where(learning, reward_report["reward_grad_norm"], report["value_grad_norm"]),
        }
        return {**after, "reward": reward, "steps": done + 1}, {**reward_report, **report, **of_both}


def nothing(step: Callable[[], tuple[Any, dict[str, Array]]]) -> dict[str, Array]:
    """The metrics of a step that is not taken, all NaN."""
    return jax.tree.map(lambda x: jnp.full(x.shape, jnp.nan, x.dtype), jax.eval_shape(step)[1])


@shared
def make(
    env: Environment | VectorEnv,
    config: Config = Config(),
    *,
    replay: Replay | Preferences | None = None,
    actor: Network | None = None,
    critic: Network | None = None,
    optimizer: OptimizerLike | None = None,
) -> Algorithm:
    """P-IQL for `env`. Equal arguments give the same functions, so they share one jit cache.

    Args:
        replay: preferences, or what `preferences.stored` makes of them; required.
        actor: a flax module from an observation without its privileged part to `(mean, log_std)` (..., A) in units of
            the box.
        critic: a flax module from a whole observation and an action to values (...); there are two of them.
        optimizer: in place of `config.optimizer`; see `optim.optimizer_of`.

    Raises ValueError without preferences, for an action space that is not a vector, several agents, or networks whose
    outputs do not fit, and TypeError for a `replay` of another kind.
    """
    venv = as_vector_env(env, config.num_envs)
    obs_space, space = spaces_of("p_iql", venv, Box, between_ends=True)
    drawn = as_replay("p_iql", replay, space)
    sizes = config.hidden, config.activation, config.layer_norm
    critic = own("critic", critic) or Critic(obs_space, *sizes)
    acting = Gaussian(own("actor", actor) or GaussianActor(obs_space, space, config.hidden, config.activation))
    reward = Reward(obs_space, space, config.hidden, config.activation)
    rule = _PIQL(reward, config.num_members, iql._IQL(Value(obs_space, *sizes), critic, acting))
    return learner.algorithm(
        "p_iql", venv, config, Hyper, rule, acting, replay=drawn, optimizer=optimizer, critic=critic
    )


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
