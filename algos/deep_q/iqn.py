"""IQN: implicit quantile networks.

Dabney, Ostrovski, Silver and Munos (2018), "Implicit quantile networks for distributional reinforcement learning"
(arXiv:1806.06923). The network is a function of the fraction tau as well: Z(s, a; tau) is the quantile of the return at
tau, and the mean over tau ~ U[0, 1] is Q(s, a). With psi(s) the features of the observation,

    Z(s, .; tau) = f(psi(s) * phi(tau)),    phi(tau) = relu(W cos(pi i tau) + b), i = 0 .. num_cosines - 1   (eq. 4)

The loss draws N fractions tau for the online and N' fractions tau' for the target network; the errors are u[i, j] =
reward + discount * Z_target(s', a'; tau'[j]) - Z(s, a; tau[i]), with a' of the largest mean over K further draws, and

    sum over i of the mean over j of |tau[i] - [u[i, j] < 0]| L(u[i, j])    (eq. 3, L: Huber's loss, kappa = 1)

The rest is as in `dqn.py`: n-step targets, double Q-learning, prioritised replay, target network, epsilon.

Deviations: those of `dqn.py`; N = N' = 16, where the paper has 64 on Atari and finds 8 nearly as good; greedy actions
take the mean over K equidistant fractions, so that they are deterministic, and exploring ones over K fractions drawn
for each environment; values are risk-neutral (no distortion of the fractions).
"""

from __future__ import annotations

import dataclasses
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxrl.algorithm import Algorithm, as_vector_env, check_at_least_one, shared, spaces_of
from jaxrl.data.datasets import Dataset
from jaxrl.environment import Environment, pytree, split_observation, visible
from jaxrl.nn.action_values import best_action, check_shape, outputs_of
from jaxrl.nn.nets import Net
from jaxrl.nn.networks import MLP, Network, active_units, encode, own
from jaxrl.nn.optim import OptimizerLike
from jaxrl.nn.value_heads import fractions, quantile_huber
from jaxrl.off_policy import q_learner
from jaxrl.off_policy.q_learner import Batch, weighted_mean
from jaxrl.replay.ring import Replay
from jaxrl.spaces import Discrete, Space
from jaxrl.vector_env import VectorEnv


@dataclasses.dataclass(frozen=True)
class Config(q_learner.Config):
    """Static settings: each value compiles its own program."""

    double: bool = False  # double Q-learning: the online network picks the action that the target network evaluates
    num_quantiles: int = 16  # N, drawn for the online network
    num_target_quantiles: int = 16  # N', drawn for the target network
    num_policy_quantiles: int = 32  # K, over which an action's value is the mean
    num_cosines: int = 64  # features of the embedding of a fraction
    # The embedded fraction is multiplied in before the last hidden layer. With a single layer it multiplies the
    # observation itself, and where that is 0 all quantiles are equal.
    hidden: tuple[int, ...] = (120, 84)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least_one(self, "num_quantiles", "num_target_quantiles", "num_policy_quantiles", "num_cosines")
        if not self.hidden:
            raise ValueError("hidden=(): IQN needs a hidden layer after which the fraction comes in.")


@pytree
class Hyper(q_learner.Hyper):
    """Dynamic settings: leaves, so vmap over any of them. Steps are environment steps; on a dataset, gradient steps."""


class QuantileNetwork(nn.Module):
    """The default network: from observations (..., *) and fractions (k,) or (..., k) to quantiles (..., n, k)."""

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
    network: Network, weights: Any, obs: Any, shape: tuple[int, int], key: Array
) -> tuple[Any, Float[Array, "B k"], Any]:
    """`(quantiles (B, n, k), fractions, metrics)` at k fractions drawn for each of B observations."""
    fraction = jax.random.uniform(key, shape)
    quantiles, sown = network.apply(weights, obs, fraction, mutable="intermediates")
    return quantiles, fraction, sown


@dataclasses.dataclass(frozen=True)
class _IQN:
    """The learning rule, a `q_learner.Rule`.

    After an update, every `target_period` steps, the learner moves the target network to the online one by `tau`.
    """

    config: Config
    network: Any  # a flax module as `QuantileNetwork`
    observation_space: Space
    draws = True  # it draws fractions

    def init(self, key: Array, obs: Any) -> Any:
        return self.network.init(key, obs, fractions(self.config.num_quantiles))

    def support(self, hyper: Hyper) -> tuple:
        return ()

    def values(self, weights: Any, obs: Any, support: Any, key: Array | None) -> Float[Array, "..."]:
        """The means over K fractions: drawn ones or, without a key (greedy actions), equidistant ones."""
        num = self.config.num_policy_quantiles
        fraction = fractions(num) if key is None else jax.random.uniform(key, (num,))
        return jnp.mean(self.network.apply(weights, obs, fraction), -1)

    def next_action(self, weights: Any, batch: Batch, key: Array) -> Int[Array, " B"]:
        """The actions with the largest mean over drawn fractions, at next_obs."""
        shape = self.config.batch_size, self.config.num_policy_quantiles
        next_values = jnp.mean(drawn(self.network, weights, batch.next_obs, shape, key)[0], -1)
        return best_action(next_values, split_observation(batch.next_obs, self.observation_space)[2])

    def ahead(self, target_weights: Any, batch: Batch, hyper: Hyper, key: Array) -> tuple[Any, Float[Array, "B n j"]]:
        """`(next action, quantiles)` of the target network at drawn fractions; the action is () with `double`."""
        choice_key, target_key = jax.random.split(key)
        next_action = () if self.config.double else self.next_action(target_weights, batch, choice_key)
        shape = self.config.batch_size, self.config.num_target_quantiles
        return next_action, drawn(self.network, target_weights, batch.next_obs, shape, target_key)[0]

    def gradient_step(
        self, net: Net, batch: Batch, ahead: Any, key: Array, hyper: Hyper, learning_rate: Array
    ) -> tuple[Net, dict[str, Array]]:
        """The next action, quantiles at drawn fractions, the quantile Huber loss (Dabney et al. 2018, algorithm 1)."""
        online_key, choice_key = jax.random.split(key)
        shape = self.config.batch_size, self.config.num_quantiles

        def objective(weights: Any) -> tuple[Array, dict[str, Array]]:
            next_action, next_quantiles = ahead
            if self.config.double:
                next_action = self.next_action(jax.lax.stop_gradient(weights), batch, choice_key)
            quantiles, fraction, sown = drawn(self.network, weights, batch.obs, shape, online_key)
            each = loss(quantiles, fraction, batch, next_action, next_quantiles)
            report = {"priority": each, "q_value": jnp.mean(outputs_of(quantiles, batch.action))}
            if jax.tree.leaves(sown):
                report["active_units"] = active_units(sown)
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
    """IQN on `env`. Equal arguments give the same functions, so they share one jit cache.

    `q_learner.algorithm` explains `replay`, `optimizer` and the errors. `network` is a flax module as
    `QuantileNetwork`; a dict observation keeps its `action_mask`.
    """
    venv = as_vector_env(env, config.num_envs)
    observation_space, space = spaces_of("iqn", venv, Discrete)
    if own("network", network) is None:
        sizes = config.num_cosines, config.hidden, config.activation
        network = QuantileNetwork(observation_space, space.n, *sizes)
    rule = _IQN(config, network, observation_space)
    algo = q_learner.algorithm("iqn", venv, config, Hyper, rule, replay=replay, optimizer=optimizer)
    state = jax.eval_shape(algo.init, jax.random.key(0))
    q = jax.eval_shape(lambda state: rule.values(state.weights, visible(state.obs), (), None), state)
    check_shape(q.shape, (config.num_envs, space.n))
    return algo


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
