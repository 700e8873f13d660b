"""Deep Q-networks.

Mnih et al. (2015), "Human-level control through deep reinforcement learning" (Nature 518), with, as static choices,
double Q-learning (van Hasselt et al. 2016), the dueling head (Wang et al. 2016), n-step targets (as in Hessel et al.
2018), prioritised replay (Schaul et al. 2016) and noisy networks (Fortunato et al. 2018). Where a transition's window
holds k rewards, k <= n and smaller only where the episode ends, its target is

    y = r[0] + gamma r[1] + ... + gamma^(k-1) r[k-1] + gamma^k Q_target(s[k], argmax_a Q(s[k], a))

without the last term if the episode terminated. `Config.critic` says how outputs stand for Q and what they learn:

    mse, huber          Q itself                 half the squared error of y, linear beyond 1
    two_hot, hl_gauss   logits over bins         cross entropy with y on two bins, or with a Gaussian around y

(two_hot, hl_gauss: Farebrother et al. 2024, "Stop Regressing". Distributions of returns are files of their own: c51.py,
qr_dqn.py, iqn.py, and rainbow.py, which has everything of this one switched on.) The loop, its windows and the target
network are `replay/deep_q.py`, layers of the network `nn/action_values.py`.

Deviations: episodes cut by a time limit bootstrap from their final observation; Adam instead of RMSprop; several
environments step together; the target network moves and priorities change after the gradient steps of an update, not
between them; epsilon stays as it is during a rollout; the loss is half the squared error, so that `huber` is the same
near zero; priorities of mse and huber are absolute errors, of bins the divergence KL(target || prediction). Results:
`docs/results.md`.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxrl.algorithm import Algorithm, shared
from jaxrl.environment import Environment, pytree
from jaxrl.nn.optim import OptimizerLike
from jaxrl.nn.value_heads import cross_entropy, entropy, expected_value, hl_gauss, midpoints, padded_edges, two_hot
from jaxrl.replay.deep_q import algorithm_of_outputs, check_num_outputs, check_sizes
from jaxrl.replay.ring import Replay
from jaxrl.vectorize import VectorEnv


@dataclasses.dataclass(frozen=True)
class Config:
    """Static settings: each value compiles its own program."""

    num_envs: int = 10  # environments stepped together
    num_steps: int = 1  # steps of each between updates
    num_updates: int = 1  # gradient steps an update, at most: see Hyper.replay_ratio
    batch_size: int = 128
    buffer_size: int = 10_000  # transitions kept; a multiple of num_envs
    n_step: int = 1  # rewards before the bootstrap
    double: bool = True  # the online network picks the action that the target network values
    critic: str = "mse"  # one of CRITICS: what the outputs of an action mean, and their loss
    num_outputs: int = 101  # of an action: bins; mse and huber have 1
    prioritised: bool = False  # replay by the priorities of Hyper, not uniformly
    dueling: bool = False  # the default network's head: a state value plus centred advantages
    noisy: bool = False  # the default network explores by noise on its weights, and not at random
    conv: tuple[int, ...] = ()  # features of 3x3 convolutions over images, before the hidden layers
    hidden: tuple[int, ...] = (120, 84)
    activation: str = "relu"
    optimizer: str = "adam"  # a name of optim.OPTIMIZERS
    adam_eps: float = 1e-8  # added to the denominator of Adam and its kin

    def __post_init__(self) -> None:
        check_sizes(self)
        if self.critic not in CRITICS:
            others = "; c51, qr_dqn and iqn learn distributions of returns"
            raise ValueError(f"critic={self.critic!r} is unknown; use one of {', '.join(CRITICS)}{others}.")
        if self.critic not in SCALAR:
            check_num_outputs(self.num_outputs, 5 if self.critic == "hl_gauss" else 2, self.critic)


@pytree
class Hyper:
    """Dynamic settings: leaves, so vmap over any of them. Steps are environment steps."""

    learning_rate: jax.Array = 2.5e-4
    anneal_steps: jax.Array = 0  # steps over which the learning rate goes to zero; 0: constant
    gamma: jax.Array = 0.99  # discount
    epsilon_start: jax.Array = 1.0  # probability of a random action, at first
    epsilon_end: jax.Array = 0.05  # and after exploration_steps, linear between
    exploration_steps: jax.Array = 250_000
    learning_starts: jax.Array = 10_000  # steps before the first gradient step
    target_period: jax.Array = 500  # steps between updates of the target network; at most once an update
    tau: jax.Array = 1.0  # how far it then moves to the online one; 1: a copy
    max_grad_norm: jax.Array = 10.0
    replay_ratio: jax.Array = float("inf")  # gradient steps per environment step; inf: num_updates an update
    v_min: jax.Array = -100.0  # two_hot, hl_gauss: the smallest return that they can represent
    v_max: jax.Array = 100.0  # and the largest
    priority_alpha: jax.Array = 0.5  # prioritised: 0 is uniform
    priority_beta: jax.Array = 0.4  # how far its bias is corrected, at first
    priority_steps: jax.Array = 0  # steps until the correction is full; 0: it stays as it is


def td_target(
    reward: Float[Array, " B"], discount: Float[Array, " B"], next_value: Float[Array, " B"]
) -> Float[Array, " B"]:
    """y above: `reward` is the window's discounted sum, `discount` gamma^k, 0 if the episode terminated."""
    return reward + discount * next_value


def half_square(error: Float[Array, "*batch"], huber: bool) -> Float[Array, "*batch"]:
    """Half the squared error; with `huber` up to 1, and linear beyond (Mnih et al. 2015, error clipping)."""
    error = jnp.abs(error)
    near = jnp.minimum(error, 1) if huber else error
    return 0.5 * near**2 + (error - near)


def scalar_values(q: Float[Array, "..."], support: Any = ()) -> Float[Array, "..."]:
    """Outputs that are values."""
    return q


def scalar_loss(
    q: Float[Array, " B"],
    reward: Float[Array, " B"],
    discount: Float[Array, " B"],
    next_q: Float[Array, " B"],
    support: Any = (),
    huber: bool = False,
) -> tuple[Float[Array, " B"], Float[Array, " B"]]:
    """`(loss, priority)` of each transition: half the squared error, or Huber's loss of it, and its size."""
    error = q - td_target(reward, discount, next_q)
    return half_square(error, huber), jnp.abs(error)


def two_hot_values(logits: Float[Array, "*batch m"], support: tuple[Any, Any]) -> Float[Array, "*batch"]:
    """The means over bins whose centres go from v_min to v_max: `support` is both."""
    return expected_value(logits, jnp.linspace(*support, logits.shape[-1]))


def two_hot_loss(
    logits: Float[Array, "B m"],
    reward: Float[Array, " B"],
    discount: Float[Array, " B"],
    next_logits: Float[Array, "B m"],
    support: tuple[Any, Any],
) -> tuple[Float[Array, " B"], Float[Array, " B"]]:
    """`(loss, priority)` of each transition: cross entropy with y on the two bins around it, and the divergence."""
    target = td_target(reward, discount, two_hot_values(next_logits, support))
    probability = two_hot(target, jnp.linspace(*support, logits.shape[-1]))
    each = cross_entropy(logits, probability)
    return each, each - entropy(probability)


def hl_gauss_values(logits: Float[Array, "*batch m"], support: tuple[Any, Any]) -> Float[Array, "*batch"]:
    """The means over bins between which v_min and v_max lie inside, as far as the Gaussian reaches."""
    return expected_value(logits, midpoints(padded_edges(*support, logits.shape[-1])))


def hl_gauss_loss(
    logits: Float[Array, "B m"],
    reward: Float[Array, " B"],
    discount: Float[Array, " B"],
    next_logits: Float[Array, "B m"],
    support: tuple[Any, Any],
) -> tuple[Float[Array, " B"], Float[Array, " B"]]:
    """`(loss, priority)` of each transition: cross entropy with a Gaussian around y, and the divergence."""
    target = td_target(reward, discount, hl_gauss_values(next_logits, support))
    probability = hl_gauss(target, padded_edges(*support, logits.shape[-1]))
    each = cross_entropy(logits, probability)
    return each, each - entropy(probability)


CRITICS = {
    "mse": (scalar_values, scalar_loss),
    "huber": (scalar_values, functools.partial(scalar_loss, huber=True)),
    "two_hot": (two_hot_values, two_hot_loss),
    "hl_gauss": (hl_gauss_values, hl_gauss_loss),
}
"""The values that outputs stand for, and what they learn."""

SCALAR = ("mse", "huber")  # those with one output an action


@shared
def make(
    env: Environment | VectorEnv,
    config: Config = Config(),
    network: nn.Module | None = None,
    optimizer: OptimizerLike | None = None,
    memory: Replay | None = None,
) -> Algorithm:
    """DQN on `env`. Equal arguments give the same functions, so they share one jit cache.

    Args:
        network: a flax module from an observation (a dict keeps its `action_mask`) to values of the n actions (..., n),
            or to their outputs (..., n, num_outputs) if the critic has several.
        optimizer: an optax transformation or a function of the learning rate that makes one, for `config.optimizer`;
            see `optim.optimizer_of`.
        memory: a dataset, `datasets.stored(dataset, env.action_space(params))`; None: it acts and fills its own.

    Raises ValueError for an action space that is not Discrete, several agents, or a network whose outputs do not fit.
    """
    values, loss = CRITICS[config.critic]
    scalar = config.critic in SCALAR
    num_outputs = 1 if scalar else config.num_outputs
    return algorithm_of_outputs(
        "dqn", env, config, Hyper, network, values, loss, num_outputs, not scalar, optimizer, memory
    )


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
