"""SQIRL: shallow Q-iteration via reinforcement learning.

Laidlaw, Zhu, Russell and Dragan (2024), "The effective horizon explains deep RL performance in stochastic
environments", algorithm 1. Phase t = 1, ..., T plays m episodes: before time t the policies found so far act, from t on
actions are uniformly random. Regression on the steps from t on, of this and the earlier phases, learns k action values,

    Q^1(s, a) ~ the rest of the episode's return,    Q^{j+1}(s, a) ~ r + gamma max_a' Q^j(s', a'),

and the policy of time t is greedy in Q^k. The regression is a network with k heads, trained by Adam on the mean squared
error of all heads; with one-hot states and `hidden=()` its optimum is a table of averages.

One update is one phase: m episodes of T steps from a reset. Times after t use the newest network; updates after phase T
add episodes and train the network of time T again. The policy counts the steps of an episode in its carry. Episodes
longer than T count as ended there, without a bootstrap. Results: `experiments/effective_horizon`.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Integer

from jaxrl.algorithm import (
    Algorithm,
    State,
    algorithm_of,
    as_vector_env,
    check_at_least_one,
    shared,
    spaces_of,
    starting_values,
)
from jaxrl.environment import Environment, pytree
from jaxrl.nn import nets
from jaxrl.nn.networks import MLP, Network, encode, own
from jaxrl.nn.optim import Optimizer, OptimizerLike, OptimizerState, optimizer_of
from jaxrl.rollout import Ends, ends_of, step_keys, ticked
from jaxrl.spaces import Discrete, Space
from jaxrl.vector_env import VectorEnv


@dataclasses.dataclass(frozen=True)
class Config:
    """Static settings: each value compiles its own program."""

    num_envs: int = 64  # m: episodes of a phase, one in each environment
    horizon: int = 20  # T: the environment's time limit
    depth: int = 1  # k: heads, steps of value iteration
    num_gradient_steps: int = 200  # gradient steps of a phase
    batch_size: int = 256
    hidden: tuple[int, ...] = (64, 64)
    activation: str = "relu"
    optimizer: str = "adam"  # a name of optim.OPTIMIZERS
    adam_eps: float = 1e-8  # added to the denominator of Adam and its kin

    def __post_init__(self) -> None:
        check_at_least_one(self, "num_envs", "horizon", "depth", "num_gradient_steps", "batch_size")


@pytree
class Hyper:
    """Dynamic settings: leaves."""

    learning_rate: jax.Array = 1e-3
    gamma: jax.Array = 1.0
    max_grad_norm: jax.Array = 10.0


class QNetwork(nn.Module):
    """The default network: from observations to values (..., k, n)."""

    observation_space: Space
    num_actions: int
    depth: int
    hidden: tuple[int, ...]
    activation: str

    @nn.compact
    def __call__(self, obs: Any) -> Float[Array, "... k n"]:
        out = MLP(self.hidden, self.depth * self.num_actions, self.activation)(encode(self.observation_space, obs))
        return out.reshape(*out.shape[:-1], self.depth, self.num_actions)


class Policy(NamedTuple):
    """The policy, as it is evaluated and exported."""

    weights: Any  # a network for each time step, (T, ...)
    phase: Array  # int32, policies found; from this time on actions are random, unless greedy


class Step(NamedTuple):
    """Steps of one phase, (T, N, ...); the replay buffer has one more leading axis, of T phases."""

    obs: Any
    action: Array
    reward: Array
    next_obs: Any
    terminated: Array
    value: Array  # the discounted sum of this and all later rewards of the episode
    usable: Array  # bool: in the first episode, at or after time t


class Rollout(NamedTuple):
    step: Step
    ends: Ends


@pytree
class SQIRLState(State):
    phase: jax.Array  # int32, policies found
    weights: Any  # the networks of all times, (T, ...); the last one learns
    optimizer: OptimizerState
    replay: Step  # (T, T, N, ...)


def returns_to_go(
    reward: Float[Array, "T N"], done: Bool[Array, "T N"], gamma: Float[Array, ""] | float
) -> Float[Array, "T N"]:
    """The discounted sum of the rewards from each step to the end of its episode."""

    def step(after, inputs):
        reward, done = inputs
        after = reward + gamma * jnp.where(done, 0, after)
        return after, after

    return jax.lax.scan(step, jnp.zeros_like(reward[0]), (reward, done), reverse=True)[1]


def targets(
    value: Float[Array, " B"],
    reward: Float[Array, " B"],
    terminated: Bool[Array, " B"],
    next_q: Float[Array, "B k n"],
    gamma: Float[Array, ""] | float,
) -> Float[Array, "B k"]:
    """The target of each head: the return for the first, r + gamma max of the previous head for the others."""
    ahead = jnp.where(terminated[:, None], 0, jnp.max(next_q, -1)[:, :-1])
    return jnp.concatenate([value[:, None], reward[:, None] + gamma * ahead], -1)


@dataclasses.dataclass(frozen=True)
class _SQIRL:
    """The static settings of the learner; its methods are the Algorithm's functions."""

    config: Config
    venv: VectorEnv
    network: Network
    num_actions: int
    optimizer: Optimizer
    deployed = "greedy"

    def init(self, key: Array, hyper: Any = None, env_params: Any = None) -> SQIRLState:
        T, N = self.config.horizon, self.config.num_envs
        hyper, env_params = starting_values(Hyper, self.venv, hyper, env_params)
        key, weights_key, reset_key = jax.random.split(key, 3)
        obs, env_state = self.venv.reset(reset_key, env_params)
        weights = self.network.init(weights_key, jax.tree.map(lambda x: x[0], obs))
        weights = jax.tree.map(lambda x: x.astype(jnp.result_type(float)), weights)
        rows = jax.tree.map(lambda x: jnp.zeros((T, T, *x.shape), x.dtype), obs)
        zeros, flags = jnp.zeros((T, T, N)), jnp.zeros((T, T, N), bool)
        return SQIRLState(
            key=key,
            hyper=hyper,
            env_params=env_params,
            env_state=env_state,
            obs=obs,
            step=jnp.int32(0),
            phase=jnp.int32(0),
            weights=jax.tree.map(lambda x: jnp.broadcast_to(x, (T, *x.shape)), weights),
            optimizer=self.optimizer.init(weights, hyper.learning_rate),
            replay=Step(rows, jnp.zeros((T, T, N), jnp.int32), zeros, rows, flags, zeros, flags),
        )

    def greedy(self, weights: Any, obs: Any) -> Array:
        """The best actions by the last head."""
        q: Any = self.network.apply(weights, obs)
        return jnp.argmax(q[..., -1, :], -1).astype(jnp.int32)

    def collect(self, state: SQIRLState) -> tuple[SQIRLState, Rollout]:
        T, N = self.config.horizon, self.config.num_envs
        key, reset_key, action_key, env_key = jax.random.split(state.key, 4)
        random = jax.random.randint(action_key, (T, N), 0, self.num_actions, jnp.int32)

        def step(carry, inputs):
            obs, env_state, first = carry
            key, t, weights, random = inputs
            action = jnp.where(t < state.phase, self.greedy(weights, obs), random)
            ts = self.venv.step(key, env_state, action, state.env_params)
            done = ts.terminated | ts.truncated
            usable = first & (t >= jnp.minimum(state.phase, T - 1))
            stored = Step(obs, action, ts.reward, ts.info["final_obs"], ts.terminated, ts.reward, usable)
            return (ts.obs, ts.state, first & ~done), Rollout(stored, ends_of(ts))

        obs, env_state = self.venv.reset(reset_key, state.env_params)
        keys = step_keys(env_key, T)
        inputs = keys, jnp.arange(T), state.weights, random
        (obs, env_state, _), rollout = jax.lax.scan(step, (obs, env_state, jnp.ones(N, bool)), inputs)
        value = returns_to_go(rollout.step.reward, rollout.ends.done, state.hyper.gamma)
        rollout = rollout._replace(step=rollout.step._replace(value=value))
        return state.replace(key=key, obs=obs, env_state=env_state, step=ticked(state.step, T * N)), rollout

    def learn(self, state: SQIRLState, rollout: Rollout) -> tuple[SQIRLState, dict[str, Array]]:
        """Regression on the steps of all phases from time t on; the network is then used at time t and later."""
        config, T = self.config, self.config.horizon
        key, sample_key = jax.random.split(state.key)
        t = jnp.minimum(state.phase, T - 1)
        replay = jax.tree.map(lambda rows, new: rows.at[t].set(new), state.replay, rollout.step)
        # Only steps from t on, as earlier phases have random steps before t.
        usable = replay.usable & (jnp.arange(T)[:, None] >= t)
        upto = jnp.cumsum(usable.reshape(-1))
        steps = jax.tree.map(lambda x: x.reshape(-1, *x.shape[3:]), replay)
        gradient_step = functools.partial(self.gradient_step, steps=steps, upto=upto, hyper=state.hyper)
        uniform = jax.random.uniform(sample_key, (config.num_gradient_steps, config.batch_size))
        net = nets.net(jax.tree.map(lambda x: x[-1], state.weights), state.optimizer, self.optimizer)
        net, losses = jax.lax.scan(gradient_step, net, uniform)
        later = jnp.arange(T) >= t
        weights = jax.tree.map(
            lambda old, new: jnp.where(later.reshape(T, *(1,) * new.ndim), new, old), state.weights, net.weights
        )
        phase = jnp.minimum(state.phase + 1, T)
        state = state.replace(key=key, phase=phase, weights=weights, optimizer=net.state, replay=replay)
        return state, {**rollout.ends.metrics(), "loss": jnp.mean(losses)}

    def gradient_step(
        self, net: nets.Net, uniform: Array, steps: Step, upto: Array, hyper: Hyper
    ) -> tuple[nets.Net, Array]:
        """One step of regression on steps drawn uniformly from the usable ones, whose running count is `upto`."""
        index = jnp.searchsorted(upto, jnp.floor(uniform * upto[-1]).astype(upto.dtype), side="right")
        batch = jax.tree.map(lambda x: x[jnp.minimum(index, len(upto) - 1)], steps)
        next_q: Any = self.network.apply(net.weights, batch.next_obs)
        target = targets(batch.value, batch.reward, batch.terminated, next_q, hyper.gamma)

        def loss(weights):
            q: Any = self.network.apply(weights, batch.obs)
            taken = jnp.sum(jnp.where(jnp.arange(self.num_actions) == batch.action[:, None, None], q, 0), -1)
            return jnp.mean((taken - target) ** 2), {}

        new, report = net.descend(loss, hyper.learning_rate, hyper.max_grad_norm)
        # Where every episode has ended before t there is no step to learn from.
        return new.replace(flat=jnp.where(upto[-1] > 0, new.flat, net.flat)), report["loss"]

    def policy(self, state: SQIRLState) -> Policy:
        return Policy(state.weights, state.phase)

    def initial_carry(self, batch_shape: tuple[int, ...] = ()) -> Integer[Array, "*batch"]:
        return jnp.zeros(batch_shape, jnp.int32)

    def act(self, policy: Policy, key: Array, obs: Any, carry: Any, greedy: bool = False) -> tuple[Array, Any]:
        def best(obs, time):
            return self.greedy(jax.tree.map(lambda x: x[jnp.minimum(time, len(x) - 1)], policy.weights), obs)

        for _ in range(carry.ndim):
            best = jax.vmap(best)
        action = best(obs, carry)
        if not greedy:
            random = jax.random.randint(key, carry.shape, 0, self.num_actions, jnp.int32)
            action = jnp.where(carry < policy.phase, action, random)
        return action, carry + 1


@shared
def make(
    env: Environment | VectorEnv,
    config: Config = Config(),
    *,
    network: Network | None = None,
    optimizer: OptimizerLike | None = None,
) -> Algorithm:
    """SQIRL on `env`. Equal arguments give the same functions, so they share one jit cache.

    Args:
        network: a flax module from an observation to values (..., k, n) of the n actions.
        optimizer: in place of `config.optimizer`; see `optim.optimizer_of`.

    Raises ValueError for an action space that is not Discrete or several agents.
    """
    venv = as_vector_env(env, config.num_envs)
    observations, space = spaces_of("sqirl", venv, Discrete)
    if own("network", network) is None:
        network = QNetwork(observations, space.n, config.depth, config.hidden, config.activation)
    sqirl = _SQIRL(config, venv, network, space.n, optimizer_of(optimizer or config.optimizer, eps=config.adam_eps))
    return algorithm_of("sqirl", sqirl, Hyper, config.num_envs * config.horizon)


if __name__ == "__main__":
    from jaxrl.host.cli import train_file

    train_file(__file__)
