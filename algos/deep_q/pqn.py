"""Parallelised Q-network: Q-learning without a replay buffer and without a target network.

Gallici et al. (2024), "Simplifying deep temporal difference learning" (arXiv:2407.04811): many environments act
epsilon-greedily for a few steps, the rollout's lambda-returns are computed once, and values are regressed on them in
minibatches for a few epochs. LayerNorm before every activation keeps this stable. The target is Peng's Q(lambda),

    G[t] = r[t] + gamma ((1 - lambda) max_a Q(s[t+1], a) + lambda G[t+1])

without the bracket if the episode terminated, and with max_a Q(s[t+1], a) in its place where the episode was truncated
or the rollout ends. The recurrent version is `pqn_rnn.py`.

Deviations from purejaxql: Adam instead of RAdam; episodes cut by a time limit bootstrap from their final observation;
orthogonal weights. Results: `docs/results.md`.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxrl import on_policy
from jaxrl.algorithm import (
    Algorithm,
    algorithm_of,
    as_vector_env,
    check_at_least_one,
    check_minibatches,
    shared,
    spaces_of,
)
from jaxrl.environment import Environment, pytree, split_observation, visible
from jaxrl.math import shuffled
from jaxrl.nn import nets
from jaxrl.nn.action_values import best_action, best_value, check_shape, epsilon_at, epsilon_greedy, value_of
from jaxrl.nn.networks import MLP, Dense, Encoder, Network, orthogonal, own
from jaxrl.nn.optim import Optimizer, OptimizerLike, annealed, optimizer_of
from jaxrl.on_policy import epochs, flattened
from jaxrl.returns import lambda_returns
from jaxrl.rollout import Ends, rollout, successor_values
from jaxrl.spaces import Discrete, Space
from jaxrl.vector_env import VectorEnv


@dataclasses.dataclass(frozen=True)
class Config:
    """Static settings: each value compiles its own program."""

    num_envs: int = 32  # environments stepped together
    num_steps: int = 64  # steps of each in a rollout
    num_epochs: int = 4  # passes over a rollout
    num_minibatches: int = 16  # gradient steps a pass; divides num_envs * num_steps
    conv: tuple[int, ...] = ()  # features of 3x3 convolutions over images, before the hidden layers
    hidden: tuple[int, ...] = (64, 64)
    activation: str = "relu"
    layer_norm: bool = True  # before every activation
    optimizer: str = "adam"  # a name of optim.OPTIMIZERS
    adam_eps: float = 1e-8  # added to the denominator of Adam and its kin

    def __post_init__(self) -> None:
        check_at_least_one(self, "num_envs", "num_steps", "num_epochs", "num_minibatches")
        check_minibatches(self.num_minibatches, self.num_envs * self.num_steps, "num_envs * num_steps")


@pytree
class Hyper:
    """Dynamic settings: leaves, so vmap over any of them. Steps are environment steps."""

    learning_rate: jax.Array = 1e-3
    anneal_steps: jax.Array = 0  # steps over which the learning rate goes to zero; 0: constant
    gamma: jax.Array = 0.99  # discount
    q_lambda: jax.Array = 0.95  # 0: one-step targets, 1: returns up to the end of the rollout
    epsilon_start: jax.Array = 1.0  # initial probability of a random action
    epsilon_end: jax.Array = 0.05  # and after exploration_steps; linear in between
    exploration_steps: jax.Array = 50_000
    reward_scale: jax.Array = 1.0  # rewards are multiplied by it
    max_grad_norm: jax.Array = 10.0


class QNetwork(nn.Module):
    """The default network: a module from observations (..., *) to values of n actions (..., n)."""

    observation_space: Space
    num_actions: int
    hidden: tuple[int, ...]
    activation: str
    layer_norm: bool
    conv: tuple[int, ...] = ()

    @nn.compact
    def __call__(self, obs: Any) -> Float[Array, "*batch n"]:
        x = Encoder(self.observation_space, self.conv, self.activation, layer_norm=self.layer_norm)(obs)
        x = MLP(self.hidden, None, self.activation, layer_norm=self.layer_norm)(x)
        return Dense(self.num_actions, kernel_init=orthogonal())(x)


class Policy(NamedTuple):
    """The policy, as it is evaluated and exported."""

    weights: Any
    epsilon: Array  # probability of a random action, where not greedy


@pytree
class PQNState(on_policy.State):
    """The state of every learner of rollouts, without further fields."""


class Rollout(NamedTuple):
    """Time-major, (T, N, ...)."""

    obs: Any
    action: Array
    value: Array  # the largest action value
    reward: Array
    terminated: Array
    truncated: Array
    next_value: Array  # of the true successor, final_obs where truncated
    ends: Ends


class Batch(NamedTuple):
    """A minibatch, leaves (B, ...)."""

    obs: Any
    action: Array
    target: Array


def td_loss(
    q: Float[Array, "*batch n"], action: Int[Array, "*batch"], target: Float[Array, "*batch"]
) -> Float[Array, ""]:
    """Half the mean squared error of the values of the actions taken."""
    return 0.5 * jnp.mean((value_of(q, action) - target) ** 2)


def loss(weights: Any, batch: Batch, network: nn.Module) -> tuple[Float[Array, ""], dict[str, Array]]:
    """`(loss, metrics)` of one minibatch (Gallici et al. 2024, algorithm 1)."""
    q: Any = network.apply(weights, batch.obs)
    total = td_loss(q, batch.action, batch.target)
    return total, {"loss": total, "q_value": jnp.mean(value_of(q, batch.action))}


@dataclasses.dataclass(frozen=True)
class _PQN:
    """The static settings of the learner; its methods are the Algorithm's functions."""

    config: Config
    venv: VectorEnv
    network: Any
    observation_space: Space
    optimizer: Optimizer
    deployed = "greedy"

    def action_mask(self, obs: Any) -> Bool[Array, "..."] | None:
        return split_observation(obs, self.observation_space)[2]

    def values(self, weights: Any, obs: Any) -> Any:
        return self.network.apply(weights, visible(obs))

    def init(self, key: Array, hyper: Any = None, env_params: Any = None) -> PQNState:
        def weights(key, obs):
            return self.network.init(key, visible(obs))

        return PQNState(**on_policy.begin(Hyper, self.venv, self.optimizer, weights, key, hyper, env_params))

    def collect(self, state: PQNState) -> tuple[PQNState, Rollout]:
        epsilon = epsilon_at(state.step, state.hyper)

        def act(key, obs, carry):
            q, mask = self.values(state.weights, obs), self.action_mask(obs)
            action = epsilon_greedy(q, epsilon, mask).sample(key)
            return action, (action, best_value(q, mask)), carry

        def value_of_best(obs):
            return best_value(self.values(state.weights, obs), self.action_mask(obs))

        new_state, _, steps = rollout(self.venv, state, self.config.num_steps, act)
        action, value = steps.output
        return new_state, Rollout(
            obs=visible(steps.obs),
            action=action,
            value=value,
            reward=steps.reward,
            terminated=steps.terminated,
            truncated=steps.truncated,
            next_value=successor_values(value_of_best, value, new_state.obs, steps.next_obs, steps.truncated),
            ends=steps.ends,
        )

    def learn(self, state: PQNState, rollout: Rollout) -> tuple[PQNState, dict[str, Array]]:
        """Lambda-returns, then epochs of regression on minibatches (Gallici et al. 2024, algorithm 1)."""
        config, hyper = self.config, state.hyper
        key, shuffle_key = jax.random.split(state.key)
        reward, ends = hyper.reward_scale * rollout.reward, (rollout.terminated, rollout.truncated)
        target = lambda_returns(reward, rollout.next_value, *ends, hyper.gamma, hyper.q_lambda)
        batch = flattened(Batch(rollout.obs, rollout.action, target))
        steps = config.num_steps * config.num_envs
        learning_rate = annealed(hyper.learning_rate, state.step - steps, hyper.anneal_steps)
        gradient_step = functools.partial(self.gradient_step, hyper=hyper, learning_rate=learning_rate)
        orders = shuffled(shuffle_key, (config.num_epochs, steps))
        net = nets.net(state.weights, state.optimizer, self.optimizer)
        net, report = epochs(gradient_step, net, batch, orders, config.num_minibatches)
        shown = {"epsilon": epsilon_at(state.step, hyper), "learning_rate": learning_rate}
        state = state.replace(key=key, weights=net.weights, optimizer=net.state)
        return state, {**rollout.ends.metrics(), **report, **shown}

    def gradient_step(self, net: nets.Net, batch: Batch, hyper: Hyper, learning_rate: Array) -> tuple[nets.Net, dict]:
        """One step of regression on a minibatch."""
        return net.descend(lambda weights: loss(weights, batch, self.network), learning_rate, hyper.max_grad_norm)

    def policy(self, state: PQNState) -> Policy:
        return Policy(state.weights, epsilon_at(state.step, state.hyper))

    def act(self, policy: Policy, key: Array, obs: Any, carry: Any = (), greedy: bool = False) -> tuple[Array, Any]:
        q = self.values(policy.weights, obs)
        if greedy:
            return best_action(q, self.action_mask(obs)), carry
        return epsilon_greedy(q, policy.epsilon, self.action_mask(obs)).sample(key), carry


@shared
def make(
    env: Environment | VectorEnv,
    config: Config = Config(),
    *,
    network: Network | None = None,
    optimizer: OptimizerLike | None = None,
) -> Algorithm:
    """PQN on `env`. Equal arguments give the same functions, so they share one jit cache.

    Args:
        network: a flax module from an observation (a dict keeps its `action_mask`) to values of the n actions (..., n).
        optimizer: in place of `config.optimizer`; see `optim.optimizer_of`.

    Raises ValueError for an action space that is not Discrete, several agents, or a network whose outputs do not fit.
    """
    venv = as_vector_env(env, config.num_envs)
    observation_space, action_space = spaces_of("pqn", venv, Discrete)
    if own("network", network) is None:
        body = config.hidden, config.activation, config.layer_norm, config.conv
        network = QNetwork(observation_space, action_space.n, *body)
    chosen = optimizer_of(optimizer or config.optimizer, eps=config.adam_eps)
    pqn = _PQN(config, venv, network, observation_space, chosen)
    state = jax.eval_shape(pqn.init, jax.random.key(0))
    shape = jax.eval_shape(lambda s: pqn.values(s.weights, s.obs), state).shape
    check_shape(shape, (config.num_envs, action_space.n))
    return algorithm_of("pqn", pqn, Hyper, config.num_envs * config.num_steps)


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
