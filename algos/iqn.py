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
import functools
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxrl.algorithm import (
    Algorithm,
    as_vector_env,
    check_at_least_one,
    spaces_of,
)
from jaxrl.algos import dqn
from jaxrl.environment import Environment, pytree, visible
from jaxrl.nn.networks import MLP, active_units, encode
from jaxrl.nn.value_heads import fractions, quantile_huber
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
    hidden: tuple[int, ...] = (120, 84)  # all but the last before the fraction comes in, that one after it
    activation: str = "relu"

    def __post_init__(self) -> None:
        dqn.check_sizes(self)
        check_at_least_one(self, "num_quantiles", "num_target_quantiles", "num_policy_quantiles", "num_cosines")
        if not self.hidden:
            raise ValueError("hidden=(): IQN needs a hidden layer after which the fraction comes in.")


@pytree
class Hyper:
    """Dynamic settings: leaves, so vmap over any of them. Steps are environment steps. As in `dqn.Hyper`."""

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
    batch: dqn.Batch,
    next_action: Int[Array, " B"],
    next_quantiles: Float[Array, "B n j"],
) -> Float[Array, " B"]:
    """The quantile Huber loss of each transition (eq. 3)."""
    targets = batch.reward[:, None] + batch.discount[:, None] * dqn.outputs_of(next_quantiles, next_action)
    return quantile_huber(dqn.outputs_of(quantiles, batch.action), fraction, targets)


@dataclasses.dataclass(frozen=True)
class _IQN(dqn.Learner):
    """DQN's learner with another network and loss."""

    @property
    def noisy(self) -> bool:
        return True

    def weights(self, key: Array, obs: Any) -> Any:
        return self.network.init(key, obs, fractions(self.config.num_quantiles))

    def policy(self, state: dqn.DQNState) -> dqn.Policy:
        return dqn.Policy(state.weights, dqn.epsilon_at(state.step, state.hyper))

    def values(self, policy: dqn.Policy, obs: Any, key: Array | None) -> Float[Array, "..."]:
        """Means over K draws, without a key over K equidistant fractions."""
        num = self.config.num_policy_quantiles
        fraction = fractions(num) if key is None else jax.random.uniform(key, (num,))
        quantiles: Any = self.network.apply(policy.weights, obs, fraction)
        return jnp.mean(quantiles, -1)

    def drawn(self, weights: Any, obs: Any, num: int, key: Array) -> tuple[Any, Array, Any]:
        """Quantiles (B, n, num) at fractions drawn for each transition, these fractions, and what layers report."""
        fraction = jax.random.uniform(key, (self.config.batch_size, num))
        quantiles, sown = self.network.apply(weights, obs, fraction, mutable="intermediates")
        return quantiles, fraction, sown

    def targets(self, weights: Any, obs: Any, key: Array) -> Any:
        """`(values, quantiles)` of the target network: of K draws to choose by, and the N' of the loss."""
        value_key, key = jax.random.split(key)
        quantiles = self.drawn(weights, obs, self.config.num_target_quantiles, key)[0]
        if self.config.double:
            return None, quantiles
        return jnp.mean(self.drawn(weights, obs, self.config.num_policy_quantiles, value_key)[0], -1), quantiles

    def loss(
        self, weights: Any, batch: dqn.Batch, targets: Any, hyper: Any, key: Array
    ) -> tuple[Array, dict[str, Array]]:
        key, value_key = jax.random.split(key)
        values, next_quantiles = targets
        if self.config.double:
            fixed = jax.lax.stop_gradient(weights)
            values = jnp.mean(self.drawn(fixed, batch.next_obs, self.config.num_policy_quantiles, value_key)[0], -1)
        next_action = dqn.best_action(values, self.allowed(batch.next_obs))
        quantiles, fraction, sown = self.drawn(weights, batch.obs, self.config.num_quantiles, key)
        each = loss(quantiles, fraction, batch, next_action, next_quantiles)
        total = jnp.mean(each if batch.weight is None else batch.weight * each)
        q_value = jnp.mean(dqn.outputs_of(quantiles, batch.action))
        seen = {"active_units": active_units(sown)} if jax.tree.leaves(sown) else {}
        return total, {"loss": total, "q_value": q_value, "priority": each, **seen}


@functools.cache
def make(env: Environment | VectorEnv, config: Config = Config(), network: nn.Module | None = None) -> Algorithm:
    """IQN on `env`. Equal arguments give the same functions, so they share one jit cache.

    Args:
        network: a flax module as `QuantileNetwork`; a dict observation keeps its `action_mask`.

    Raises ValueError for an action space that is not Discrete, several agents, or a network whose outputs do not fit.
    """
    venv = as_vector_env(env, config.num_envs)
    observation_space, action_space = spaces_of("iqn", venv, Discrete)
    if network is None:
        network = QuantileNetwork(
            observation_space, action_space.n, config.num_cosines, config.hidden, config.activation
        )
    learner = _IQN(config, venv, network, observation_space, dqn.memory(config), Hyper)
    state = jax.eval_shape(learner.init, jax.random.key(0))
    policy = jax.eval_shape(learner.policy, state)
    shape = jax.eval_shape(lambda p, s: learner.values(p, visible(s.obs), None), policy, state).shape
    if shape != (config.num_envs, action_space.n):
        raise ValueError(
            f"network gives values {shape} for {config.num_envs} observations; "
            f"{action_space} needs {(config.num_envs, action_space.n)}."
        )
    return dqn.algorithm("iqn", learner)


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
