"""IQN: implicit quantile networks.

Dabney, Ostrovski, Silver and Munos (2018), "Implicit quantile networks for distributional reinforcement learning"
(arXiv:1806.06923). The network is a function of the fraction tau as well: Z(s, a; tau) is the quantile of the return at
tau, and the mean over tau ~ U[0, 1] is Q(s, a). With psi the layers of the observation,

    Z(s, .; tau) = f(psi(s) * phi(tau)),    phi(tau) = relu(W cos(pi i tau) + b), i = 0 .. num_cosines - 1   (eq. 4)

The loss draws N fractions tau for the online and N' fractions tau' for the target network; the errors are u[i, j] =
reward + discount * Z_target(s', a'; tau'[j]) - Z(s, a; tau[i]), with a' of the largest mean over K further draws, and

    sum over i of the mean over j of |tau[i] - [u[i, j] < 0]| L(u[i, j])    (eq. 3, L: Huber's loss, kappa = 1)

The rest is DQN's (`dqn.py`): n-step targets, double choice of a', prioritised replay, target network, epsilon.

Deviations: those of `dqn.py`; N = N' = 16, where the paper has 64 on Atari and finds 8 nearly as good; greedy actions
take the mean over K equidistant fractions, so that they are deterministic, exploring ones over K draws, for each
environment its own; values are risk-neutral (no distortion of the fractions).
"""

from __future__ import annotations

import dataclasses
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxrl.algorithm import Algorithm, as_vector_env, check_at_least_one, shared, spaces_of
from jaxrl.algos.deep_q.qr_dqn import fractions, quantile_huber
from jaxrl.environment import Environment, pytree, split_observation, visible
from jaxrl.nn.action_values import best_action, check_shape, outputs_of
from jaxrl.nn.networks import MLP, active_units, encode
from jaxrl.nn.optim import OptimizerLike
from jaxrl.replay.deep_q import Batch, Critic, algorithm, check_sizes
from jaxrl.replay.ring import Replay
from jaxrl.spaces import Discrete, Space
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
    double: bool = False  # the online network picks the action that the target network values
    prioritised: bool = False  # replay by the priorities of Hyper, not uniformly
    num_quantiles: int = 16  # N, drawn for the online network
    num_target_quantiles: int = 16  # N', drawn for the target network
    num_policy_quantiles: int = 32  # K, over which an action's value is the mean
    num_cosines: int = 64  # of the embedding of a fraction
    # All but the last before the fraction comes in, that one after it. With one only, the embedded fraction multiplies
    # the observation itself, and where that is 0 all quantiles are alike.
    hidden: tuple[int, ...] = (120, 84)
    activation: str = "relu"
    optimizer: str = "adam"  # a name of optim.OPTIMIZERS
    adam_eps: float = 1e-8  # added to the denominator of Adam and its kin

    def __post_init__(self) -> None:
        check_sizes(self)
        check_at_least_one(self, "num_quantiles", "num_target_quantiles", "num_policy_quantiles", "num_cosines")
        if not self.hidden:
            raise ValueError("hidden=(): IQN needs a hidden layer after which the fraction comes in.")


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
    priority_alpha: jax.Array = 0.5  # prioritised: 0 is uniform
    priority_beta: jax.Array = 0.4  # how far its bias is corrected, at first
    priority_steps: jax.Array = 0  # steps until the correction is full; 0: it stays as it is


class QuantileNetwork(nn.Module):
    """The default network. Bring your own with the same call.

    Of observations (..., *) and fractions (k,) or (..., k) it gives quantiles (..., n, k).
    """

    observation_space: Space
    num_actions: int
    num_cosines: int
    hidden: tuple[int, ...]
    activation: str

    @nn.compact
    def __call__(self, obs: Any, fraction: Float[Array, "... k"]) -> Float[Array, "... n k"]:
        *before, after = self.hidden
        x = MLP(tuple(before), None, self.activation, name="observation")(encode(self.observation_space, obs))
        phi = nn.relu(nn.Dense(x.shape[-1], name="fraction")(cosines(fraction, self.num_cosines)))
        out = MLP((after,), self.num_actions, self.activation, name="head")(x[..., None, :] * phi)
        return jnp.swapaxes(out, -1, -2)


def cosines(fraction: Float[Array, "*batch k"], num: int) -> Float[Array, "*batch k num"]:
    """cos(pi i fraction) for i = 0 .. num - 1 (eq. 4)."""
    return jnp.cos(jnp.pi * fraction[..., None] * jnp.arange(num))


def loss(
    quantiles: Float[Array, "B n k"],
    fraction: Float[Array, "B k"],
    batch: Batch,
    next_action: Int[Array, " B"],
    next_quantiles: Float[Array, "B n j"],
) -> Float[Array, " B"]:
    """The quantile Huber loss of each transition (eq. 3)."""
    targets = batch.reward[:, None] + batch.discount[:, None] * outputs_of(next_quantiles, next_action)
    return quantile_huber(outputs_of(quantiles, batch.action), fraction, targets)


def drawn(
    network: nn.Module, weights: Any, obs: Any, shape: tuple[int, int], key: Array
) -> tuple[Any, Float[Array, "B k"], Any]:
    """Quantiles (B, n, k) at fractions drawn for each of B observations, these fractions, and what layers report."""
    fraction = jax.random.uniform(key, shape)
    quantiles, sown = network.apply(weights, obs, fraction, mutable="intermediates")
    return quantiles, fraction, sown


def critic(config: Config, network: nn.Module, observation_space: Space) -> Critic:
    """Values of the mean over K fractions, and the loss of a batch with its draws."""
    online, target, choice = (
        (config.batch_size, num)
        for num in (config.num_quantiles, config.num_target_quantiles, config.num_policy_quantiles)
    )

    def values(weights, obs, support, key):
        # Without a key, for greedy actions, over equidistant fractions.
        num = config.num_policy_quantiles
        fraction = fractions(num) if key is None else jax.random.uniform(key, (num,))
        quantiles: Any = network.apply(weights, obs, fraction)
        return jnp.mean(quantiles, -1)

    def greedy(weights, batch, key):
        """The actions of the best mean over drawn fractions, at next_obs."""
        next_values = jnp.mean(drawn(network, weights, batch.next_obs, choice, key)[0], -1)
        return best_action(next_values, split_observation(batch.next_obs, observation_space)[2])

    def ahead(target_weights, batch, support, key):
        choice_key, target_key = jax.random.split(key)
        next_action = () if config.double else greedy(target_weights, batch, choice_key)
        return next_action, drawn(network, target_weights, batch.next_obs, target, target_key)[0]

    def loss_of(weights, batch, ahead, support, key):
        key, choice_key = jax.random.split(key)
        next_action, next_quantiles = ahead
        if config.double:
            next_action = greedy(jax.lax.stop_gradient(weights), batch, choice_key)
        quantiles, fraction, sown = drawn(network, weights, batch.obs, online, key)
        each = loss(quantiles, fraction, batch, next_action, next_quantiles)
        seen = {"active_units": active_units(sown)} if jax.tree.leaves(sown) else {}
        return each, each, {"q_value": jnp.mean(outputs_of(quantiles, batch.action)), **seen}

    return Critic(values, ahead, loss_of)


@shared
def make(
    env: Environment | VectorEnv,
    config: Config = Config(),
    network: nn.Module | None = None,
    optimizer: OptimizerLike | None = None,
    memory: Replay | None = None,
) -> Algorithm:
    """IQN on `env`. Equal arguments give the same functions, so they share one jit cache.

    Args:
        network: a flax module as `QuantileNetwork`; a dict observation keeps its `action_mask`.
        optimizer: an optax transformation or a function of the learning rate that makes one, for `config.optimizer`;
            see `optim.optimizer_of`.
        memory: a dataset, `datasets.stored(dataset, env.action_space(params))`; None: it acts and fills its own.

    Raises ValueError for an action space that is not Discrete, several agents, or a network whose outputs do not fit.
    """
    venv = as_vector_env(env, config.num_envs)
    observation_space, action_space = spaces_of("iqn", venv, Discrete)
    if network is None:
        network = QuantileNetwork(
            observation_space, action_space.n, config.num_cosines, config.hidden, config.activation
        )
    pair = critic(config, network, observation_space)

    def init(key, obs):
        return network.init(key, obs, fractions(config.num_quantiles))

    algo = algorithm(
        "iqn", venv, config, Hyper, observation_space, pair, init, draws=True, optimizer=optimizer, memory=memory
    )
    state = jax.eval_shape(algo.init, jax.random.key(0))
    q = jax.eval_shape(lambda state: pair.values(state.weights, visible(state.obs), (), None), state)
    check_shape(q.shape, (config.num_envs, action_space.n))
    return algo


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
