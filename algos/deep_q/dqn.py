"""Deep Q-networks.

Mnih et al. (2015), "Human-level control through deep reinforcement learning" (Nature 518), with, as static choices,
double Q-learning (van Hasselt et al. 2016), the dueling head (Wang et al. 2016), n-step targets (as in Hessel et al.
2018), prioritised replay (Schaul et al. 2016) and noisy networks (Fortunato et al. 2018). Where a transition's window
holds k rewards, k <= n and smaller only where the episode ends, its target is

    y = r[0] + gamma r[1] + ... + gamma^(k-1) r[k-1] + gamma^k Q_target(s[k], argmax_a Q(s[k], a))

without the last term if the episode terminated. `Config.critic` selects what a network's outputs are, and their loss:

    mse, huber          Q itself                 half the squared error of y; with huber linear beyond 1
    two_hot, hl_gauss   logits over bins         cross entropy with y on two bins, or with a Gaussian around y

(two_hot, hl_gauss: Farebrother et al. 2024, "Stop Regressing". Distributions of returns are in other files: c51.py,
qr_dqn.py, iqn.py, and rainbow.py, which switches on all choices of this file.) The loop, its windows and the target
network are `jaxrl/off_policy/q_learner.py`, layers of the network `nn/action_values.py`.

Deviations: episodes cut by a time limit bootstrap from their final observation; Adam instead of RMSprop; several
environments step together; the target network moves and priorities change after the gradient steps of an update, not
between them; epsilon is constant during a rollout; the loss is half the squared error, so that `huber` is the same
near zero; priorities of mse and huber are absolute errors, of bins the divergence KL(target || prediction). Results:
`docs/results.md`.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxrl.algorithm import Algorithm, as_vector_env, shared, spaces_of
from jaxrl.data.datasets import Dataset
from jaxrl.environment import Environment, pytree, split_observation
from jaxrl.nn.action_values import best_action, outputs_of
from jaxrl.nn.losses import half_square
from jaxrl.nn.nets import Net
from jaxrl.nn.networks import Network, own
from jaxrl.nn.optim import OptimizerLike
from jaxrl.nn.value_heads import cross_entropy, entropy, expected_value, hl_gauss, midpoints, padded_edges, two_hot
from jaxrl.off_policy import q_learner
from jaxrl.off_policy.q_learner import Batch, apply, clipped_targets, split_or_none, weighted_mean
from jaxrl.replay.ring import Replay
from jaxrl.spaces import Discrete, Space
from jaxrl.vector_env import VectorEnv


@dataclasses.dataclass(frozen=True)
class Config(q_learner.Config):
    """Static settings: each value compiles its own program."""

    double: bool = True  # double Q-learning: the online network picks the action that the target network evaluates
    critic: str = "mse"  # one of CRITICS: the meaning of an action's outputs, and their loss
    num_outputs: int = 101  # of an action: bins; mse and huber have 1
    dueling: bool = False  # dueling head of the default network: a state value plus centred advantages
    noisy: bool = False  # noisy layers in the default network explore, in the place of random actions
    conv: tuple[int, ...] = ()  # features of 3x3 convolutions over images, before the hidden layers

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.critic not in CRITICS:
            others = "; c51, qr_dqn and iqn learn distributions of returns"
            raise ValueError(f"critic={self.critic!r} is unknown; use one of {', '.join(CRITICS)}{others}.")
        if self.critic not in SCALAR:
            q_learner.check_num_outputs(self.num_outputs, 5 if self.critic == "hl_gauss" else 2, self.critic)


@pytree
class Hyper(q_learner.Hyper):
    """Dynamic settings: leaves, so vmap over any of them. Steps are environment steps; on a dataset, gradient steps."""

    v_min: jax.Array = -100.0  # two_hot, hl_gauss: the smallest return that they can represent
    v_max: jax.Array = 100.0  # and the largest


def n_step_target(
    reward: Float[Array, " B"], discount: Float[Array, " B"], next_value: Float[Array, " B"]
) -> Float[Array, " B"]:
    """y above: `reward` is the window's discounted sum, `discount` gamma^k, 0 if the episode terminated."""
    return reward + discount * next_value


def scalar_values(q: Float[Array, "..."], support: Any = ()) -> Float[Array, "..."]:
    """Q of outputs that are action values: the outputs."""
    return q


def scalar_loss(
    q: Float[Array, " B"],
    reward: Float[Array, " B"],
    discount: Float[Array, " B"],
    next_q: Float[Array, " B"],
    support: Any = (),
    huber: bool = False,
) -> tuple[Float[Array, " B"], Float[Array, " B"]]:
    """`(loss, priority)` of each transition: half the squared error or Huber's loss, and the absolute error."""
    error = q - n_step_target(reward, discount, next_q)
    return half_square(error, huber), jnp.abs(error)


def two_hot_values(logits: Float[Array, "*batch m"], support: tuple[Any, Any]) -> Float[Array, "*batch"]:
    """Q: the means over bins whose centres go from v_min to v_max; `support` is `(v_min, v_max)`."""
    return expected_value(logits, jnp.linspace(*support, logits.shape[-1]))


def two_hot_loss(
    logits: Float[Array, "B m"],
    reward: Float[Array, " B"],
    discount: Float[Array, " B"],
    next_logits: Float[Array, "B m"],
    support: tuple[Any, Any],
) -> tuple[Float[Array, " B"], Float[Array, " B"]]:
    """`(loss, priority)` of each transition: cross entropy with y on the two bins around it, and the KL divergence."""
    target = n_step_target(reward, discount, two_hot_values(next_logits, support))
    probability = two_hot(target, jnp.linspace(*support, logits.shape[-1]))
    each = cross_entropy(logits, probability)
    return each, each - entropy(probability)


def hl_gauss_values(logits: Float[Array, "*batch m"], support: tuple[Any, Any]) -> Float[Array, "*batch"]:
    """Q: the means over bins that exceed [v_min, v_max] by the width of the Gaussian."""
    return expected_value(logits, midpoints(padded_edges(*support, logits.shape[-1])))


def hl_gauss_loss(
    logits: Float[Array, "B m"],
    reward: Float[Array, " B"],
    discount: Float[Array, " B"],
    next_logits: Float[Array, "B m"],
    support: tuple[Any, Any],
) -> tuple[Float[Array, " B"], Float[Array, " B"]]:
    """`(loss, priority)` of each transition: cross entropy with a Gaussian around y, and the KL divergence."""
    target = n_step_target(reward, discount, hl_gauss_values(next_logits, support))
    probability = hl_gauss(target, padded_edges(*support, logits.shape[-1]))
    each = cross_entropy(logits, probability)
    return each, each - entropy(probability)


CRITICS = {
    "mse": (scalar_values, scalar_loss),
    "huber": (scalar_values, functools.partial(scalar_loss, huber=True)),
    "two_hot": (two_hot_values, two_hot_loss),
    "hl_gauss": (hl_gauss_values, hl_gauss_loss),
}
"""For each critic the functions `(values, loss)`: action values from outputs, and loss and priority of transitions."""

SCALAR = ("mse", "huber")  # critics with one output for each action


@dataclasses.dataclass(frozen=True)
class _DQN:
    """The learning rule, a `q_learner.Rule`.

    After an update, every `target_period` steps, the learner moves the target network to the online one by `tau`.
    """

    config: Config
    network: Network  # (..., n), or (..., n, num_outputs) for critics with several outputs for each action
    observation_space: Space

    @property
    def draws(self) -> bool:
        return self.config.noisy

    def init(self, key: Array, obs: Any) -> Any:
        return self.network.init(key, obs)

    def support(self, hyper: Hyper) -> tuple:
        return () if self.config.critic in SCALAR else q_learner.limits(hyper)

    def values(self, weights: Any, obs: Any, support: Any, key: Array | None) -> Float[Array, "..."]:
        of_outputs, _ = CRITICS[self.config.critic]
        return of_outputs(apply(self.network, weights, obs, key)[0], support)

    def ahead(self, target_weights: Any, batch: Batch, hyper: Hyper, key: Array | None) -> Float[Array, "..."]:
        """The target network's outputs for all actions at next_obs."""
        return apply(self.network, target_weights, batch.next_obs, key)[0]

    def gradient_step(
        self, net: Net, batch: Batch, ahead: Array, key: Array | None, hyper: Hyper, learning_rate: Array
    ) -> tuple[Net, dict[str, Array]]:
        """The next action (with `double` by the online network), its target, the loss (van Hasselt et al. 2016)."""
        values, loss = CRITICS[self.config.critic]
        support, (online_key, choice_key) = self.support(hyper), split_or_none(key)
        allowed = split_observation(batch.next_obs, self.observation_space)[2]

        def objective(weights: Any) -> tuple[Array, dict[str, Array]]:
            outputs, report = apply(self.network, weights, batch.obs, online_key)
            choosing = ahead
            if self.config.double:
                choosing, _ = apply(self.network, jax.lax.stop_gradient(weights), batch.next_obs, choice_key)
            next_action = best_action(values(choosing, support), allowed)
            taken = outputs_of(outputs, batch.action)
            following = jax.lax.stop_gradient(outputs_of(ahead, next_action))
            each, priority = loss(taken, batch.reward, batch.discount, following, support)
            report = {"priority": priority, "q_value": jnp.mean(values(taken, support)), **report}
            if support:
                target = n_step_target(batch.reward, batch.discount, values(following, support))
                report["clipped_targets"] = clipped_targets(target, support)
            return weighted_mean(each, batch.weight), report

        return net.descend(objective, learning_rate, hyper.max_grad_norm)


@shared
def make(
    env: Environment | VectorEnv,
    config: Config = Config(),
    *,
    replay: Replay | Dataset | None = None,
    network: Network | None = None,
    optimizer: OptimizerLike | None = None,
) -> Algorithm:
    """DQN on `env`. Equal arguments give the same functions, so they share one jit cache.

    `q_learner.algorithm` explains `replay`, `optimizer` and the errors. `network` is a flax module from an
    observation (a dict keeps its `action_mask`) to values of the n actions (..., n), or to their outputs (..., n,
    num_outputs) if the critic has several.
    """
    venv = as_vector_env(env, config.num_envs)
    observation_space, space = spaces_of("dqn", venv, Discrete)
    num_outputs = 1 if config.critic in SCALAR else config.num_outputs
    network = own("network", network) or q_learner.q_network(config, observation_space, space.n, num_outputs)
    rule = _DQN(config, network, observation_space)
    algo = q_learner.algorithm("dqn", venv, config, Hyper, rule, replay=replay, optimizer=optimizer)
    q_learner.check_network(algo, network, space.n, num_outputs)
    return algo


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
