"""What streaming deep reinforcement learning shares: one transition in, one update, nothing kept of it.

Elsayed, Vasan & Mahmood (2024), "Streaming deep reinforcement learning finally works" (arXiv:2410.14606): eligibility
traces with a step size that is bounded so that an update does not overshoot (ObGD), sparse initialisation, layer
normalisation, and observations and rewards scaled by running statistics. No replay, no batch, no target network.

A stream is one environment and one learner: an algorithm file writes a `Learner`, functions of one transition, and
`make` turns it into an `Algorithm` of one environment. Streams are made parallel as everywhere here, by `vmap` over
keys. A learner whose policy changes with every step cannot collect without learning, so `collect` follows the stream
for `num_steps` steps, learning from each, and hands over what it learned; `learn` adopts that. Without `learn` the
environment has moved on and the learner has not.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key, PyTree

from jaxrl.algorithm import Algorithm, algorithm_of, as_vector_env, restarted, starting_values
from jaxrl.environment import Environment, pytree, split_observation
from jaxrl.math import shuffled
from jaxrl.nn import normalize
from jaxrl.nn.networks import encode, encoded_size
from jaxrl.rollout import Ends, ends_of, step_keys, ticked
from jaxrl.spaces import Dict, Space
from jaxrl.vectorize import VectorEnv

# ---- the update


def td_error(
    value: Float[Array, ""],
    reward: Float[Array, ""],
    next_value: Float[Array, ""],
    terminated: Bool[Array, ""],
    gamma: Float[Array, ""] | float,
) -> Float[Array, ""]:
    """delta = r + gamma V(s') - V(s), without the bootstrap where the episode terminated."""
    return reward + gamma * jnp.where(terminated, 0, next_value) - value


def obgd(
    weights: PyTree,
    trace: PyTree,
    grads: PyTree,
    delta: Float[Array, ""],
    decay: Float[Array, ""] | float,
    learning_rate: Float[Array, ""] | float,
    kappa: Float[Array, ""] | float,
    bounded: bool = True,
) -> tuple[PyTree, PyTree, Float[Array, ""]]:
    """`(weights, trace, step size)` after one update by overshooting-bounded gradient descent (paper, algorithm 3).

        e <- decay e + grads,    M = learning_rate kappa max(|delta|, 1) |e|_1,
        w <- w + learning_rate / max(M, 1) delta e

    `grads` are those of the prediction (not of an error) and |e|_1 sums over all leaves; decay = gamma lambda, or 0 to
    start a trace. Without `bounded` the step size is the learning rate: plain TD(lambda).
    """
    trace = jax.tree.map(lambda e, g: decay * e + g, trace, grads)
    step_size = jnp.asarray(learning_rate, delta.dtype)
    if bounded:
        size = sum((jnp.sum(jnp.abs(e)) for e in jax.tree.leaves(trace)), jnp.zeros((), delta.dtype))
        step_size = step_size / jnp.maximum(step_size * kappa * jnp.maximum(jnp.abs(delta), 1) * size, 1)
    return jax.tree.map(lambda w, e: w + step_size * delta * e, weights, trace), trace, step_size


# ---- the network


def sparse(sparsity: float) -> Callable[..., Array]:
    """Initialiser: of each output unit's inputs, ceil(sparsity * fan_in) at random are zero, the others uniform.

    Those are in +-1 / sqrt(fan_in). The shape is (fan_in, fan_out). Fewer than ten inputs at sparsity 0.9 are all zero.
    """

    def init(key: Key[Array, ""], shape: tuple[int, ...], dtype: Any = jnp.float32) -> Array:
        fan_in = shape[0]
        value_key, order_key = jax.random.split(key)
        bound = 1 / math.sqrt(fan_in)
        value = jax.random.uniform(value_key, shape, dtype, -bound, bound)
        rank = shuffled(order_key, shape[::-1]).T
        return jnp.where(rank < math.ceil(sparsity * fan_in), 0, value)

    return init


def layer_norm(x: Float[Array, "*batch features"]) -> Float[Array, "*batch features"]:
    """Zero mean and unit variance over the last axis (Ba et al. 2016), without gain and bias; epsilon 1e-5."""
    centred = x - jnp.mean(x, -1, keepdims=True)
    return centred * jax.lax.rsqrt(jnp.mean(centred * centred, -1, keepdims=True) + 1e-5)


class StreamMLP(nn.Module):
    """Dense layers with sparse initial weights, each hidden one normalised before its leaky ReLU; zero biases."""

    hidden: tuple[int, ...]
    out: int
    sparsity: float = 0.9
    layer_norm: bool = True

    @nn.compact
    def __call__(self, x: Float[Array, "*batch features"]) -> Float[Array, "*batch out"]:
        for width in self.hidden:
            x = nn.Dense(width, kernel_init=sparse(self.sparsity))(x)
            x = nn.leaky_relu(layer_norm(x) if self.layer_norm else x)
        return nn.Dense(self.out, kernel_init=sparse(self.sparsity))(x)


# ---- running statistics


def deviation(stats: normalize.Statistics) -> Float[Array, "..."]:
    """The sample standard deviation (divided by n - 1) of what `stats` have seen; 1 before there are two of it."""
    n = stats.count
    var = stats.moments.var * n / jnp.maximum(n - 1, 1)
    return jnp.sqrt(jnp.where(n < 2, 1, var) + 1e-8)


def seen(stats: normalize.Statistics | None, x: Array) -> normalize.Statistics | None:
    """`stats` with one more sample."""
    return None if stats is None else normalize.update(stats, x[None])


def standardized(stats: normalize.Statistics | None, x: Float[Array, "*batch F"]) -> Float[Array, "*batch F"]:
    """Centred and divided by the deviation; unchanged without statistics."""
    if stats is None:
        return x
    return (((x - stats.moments.mean) - stats.moments.mean_rest) / deviation(stats)).astype(x.dtype)


# ---- the stream


def features(space: Space, obs: Any, privileged: bool = False) -> Float[Array, "..."]:
    """A vector (..., F) of an observation: what is visible, then, where asked for and there, what is privileged."""
    x = encode(space, obs)
    if privileged and isinstance(space, Dict) and "privileged" in space.spaces:
        x = jnp.concatenate([x, encode(space.spaces["privileged"], obs["privileged"])], -1)
    return x


@dataclasses.dataclass(frozen=True)
class Config:
    """Static settings that all have in common: each value compiles its own program."""

    num_steps: int = 100  # steps an update, each learned from at once: how often metrics are reported
    hidden: tuple[int, ...] = (32, 32)
    sparsity: float = 0.9  # share of the inputs of a unit whose initial weights are zero
    layer_norm: bool = True
    bounded: bool = True  # ObGD; False: the learning rate as it is
    normalize_obs: bool = True
    normalize_reward: bool = True  # by the standard deviation of the discounted return

    def __post_init__(self) -> None:
        if self.num_steps < 1:
            raise ValueError(f"num_steps={self.num_steps}: it must be at least 1.")
        if not 0 <= self.sparsity < 1:
            raise ValueError(f"sparsity={self.sparsity}: it must be from 0 (dense) to less than 1.")
        # The input layer may start at zero, but nothing passes two layers of zeros.
        dead = [width for width in self.hidden if math.ceil(self.sparsity * width) == width]
        if dead:
            least = math.ceil(1 / (1 - self.sparsity) - 1e-9)
            raise ValueError(
                f"hidden={self.hidden}: at sparsity={self.sparsity} a unit with {dead[0]} inputs starts without any "
                f"and no gradient passes; use widths of at least {least}."
            )


class Transition(NamedTuple):
    """What is learned from. Observations are vectors, standardised, what is privileged at their end."""

    obs: Array  # (F,)
    action_mask: Array | None
    action: Array  # as `Learner.act` gave it
    reward: Array  # scaled
    next_obs: Array  # (F,), of the true successor, before a reset
    next_mask: Array | None
    terminated: Array
    first: Array  # whether `obs` is the first of its episode: a trace starts there


class Learner(NamedTuple):
    """What an algorithm file writes."""

    init: Callable[..., Any]  # (key, F) -> weights
    # (weights, hyper, step, key, x, obs, greedy) -> action; x: the visible vector, standardised, of observation obs
    act: Callable[..., Array]
    # (weights, trace, hyper, Transition) -> (weights, trace, scalars to report)
    learn: Callable[..., tuple[Any, Any, dict[str, Array]]]
    to_env: Callable[[Array], Array] = lambda action: action  # from the learner's actions to the environment's
    deployed: str = "greedy"  # as `Algorithm.deployed`


@pytree
class Memory:
    """What a stream carries beside its weights."""

    trace: Any  # like the weights
    observations: Any  # statistics; None without Config.normalize_obs
    returns: jax.Array  # discounted sum of the episode's rewards so far
    start: jax.Array  # whether the next observation is the first of an episode
    rewards: Any  # statistics of `returns`; None without Config.normalize_reward


@pytree
class StreamState:
    key: jax.Array
    hyper: Any
    env_params: Any
    env_state: Any
    obs: Any  # (1, ...)
    step: jax.Array  # int32, environment steps done
    weights: Any
    memory: Memory


class Rollout(NamedTuple):
    """`num_steps` steps of the stream, and what was learned from them on the way."""

    weights: Any
    memory: Memory
    report: dict[str, Array]  # (T,)
    ends: Ends  # (T, 1)


class Policy(NamedTuple):
    """What is deployed: it no longer learns."""

    weights: Any
    observations: Any  # statistics of what is visible
    hyper: Any
    step: Array


@dataclasses.dataclass(frozen=True)
class _Stream:
    """The static half; its methods are the Algorithm's functions."""

    slots: ClassVar = ("memory.trace", "memory.returns", "memory.start")
    config: Config
    Hyper: type
    venv: VectorEnv
    learner: Learner
    space: Space  # of observations
    privileged: bool

    def init(self, key: Array, hyper: Any = None, env_params: Any = None) -> StreamState:
        hyper, env_params = starting_values(self.Hyper, self.venv, hyper, env_params)
        key, weights_key, reset_key = jax.random.split(key, 3)
        obs, env_state = self.venv.reset(reset_key, env_params)
        first = features(self.space, jax.tree.map(lambda x: x[0], obs), self.privileged)
        weights = self.learner.init(weights_key, first.shape[0])
        weights = jax.tree.map(lambda x: x.astype(jnp.result_type(float)), weights)
        zero = jnp.zeros((), jnp.result_type(float))
        memory = Memory(
            trace=jax.tree.map(jnp.zeros_like, weights),
            observations=normalize.init(first) if self.config.normalize_obs else None,
            returns=zero,
            start=jnp.bool_(True),
            rewards=normalize.init(zero) if self.config.normalize_reward else None,
        )
        return StreamState(key, hyper, env_params, env_state, obs, jnp.int32(0), weights, memory)

    def restart(self, state: StreamState, key: Array, env_params: Any, mask: Bool[Array, "1"]) -> StreamState:
        """A new episode, where `mask`: traces and the return begin again with its first observation."""
        state = restarted(self.venv, state, key, env_params, mask)
        return state.replace(memory=state.memory.replace(start=state.memory.start | mask[0]))

    def step(self, state: StreamState, key: Array) -> tuple[StreamState, tuple]:
        """Act, see what happens, learn from it."""
        act_key, env_key = jax.random.split(key)
        hyper, memory = state.hyper, state.memory
        obs, first = jax.tree.map(lambda x: x[0], state.obs), memory.start
        raw = features(self.space, obs, self.privileged)
        # The statistics know an episode's first observation from here on, the others since they were a successor.
        stats = memory.observations
        stats = jax.tree.map(functools.partial(jnp.where, first), seen(stats, raw), stats)
        x = standardized(stats, raw)
        visible = x[: encoded_size(self.space)]
        action = self.learner.act(state.weights, hyper, state.step, act_key, visible, obs, False)
        ts = self.venv.step(env_key, state.env_state, self.learner.to_env(action)[None], state.env_params)
        reward, terminated = ts.reward[0], ts.terminated[0]
        returns, ends = jnp.where(first, 0, hyper.gamma * memory.returns) + reward, ends_of(ts)
        rewards = seen(memory.rewards, returns)
        next_obs = jax.tree.map(lambda x: x[0], ts.info["final_obs"])
        raw = features(self.space, next_obs, self.privileged)
        stats = seen(stats, raw)
        transition = Transition(
            obs=x,
            action_mask=split_observation(obs, self.space)[2],
            action=action,
            reward=reward if rewards is None else reward / deviation(rewards),
            next_obs=standardized(stats, raw),
            next_mask=split_observation(next_obs, self.space)[2],
            terminated=terminated,
            first=first,
        )
        weights, trace, report = self.learner.learn(state.weights, memory.trace, hyper, transition)
        state = state.replace(
            env_state=ts.state,
            obs=ts.obs,
            step=ticked(state.step, 1),
            weights=weights,
            memory=Memory(trace, stats, returns, ends.done[0], rewards),
        )
        return state, (report, ends)

    def collect(self, state: StreamState) -> tuple[StreamState, Rollout]:
        key, step_key = jax.random.split(state.key)
        keys = step_keys(step_key, self.config.num_steps)
        after, steps = jax.lax.scan(self.step, state.replace(key=key), keys)
        rollout = Rollout(after.weights, after.memory, *steps)
        return after.replace(weights=state.weights, memory=state.memory), rollout

    def learn(self, state: StreamState, rollout: Rollout) -> tuple[StreamState, dict[str, Array]]:
        metrics = {
            **rollout.ends.metrics(),
            **jax.tree.map(jnp.mean, rollout.report),
        }
        return state.replace(weights=rollout.weights, memory=rollout.memory), metrics

    def policy(self, state: StreamState) -> Policy:
        stats, visible = state.memory.observations, encoded_size(self.space)
        if stats is not None:
            stats = stats.replace(moments=jax.tree.map(lambda x: x[..., :visible], stats.moments))
        return Policy(state.weights, stats, state.hyper, state.step)

    @property
    def deployed(self) -> str:
        return self.learner.deployed

    def initial_carry(self, batch_shape: tuple[int, ...] = ()) -> tuple:
        return ()

    def act(self, policy: Policy, key: Array, obs: Any, carry: Any = (), greedy: bool = False) -> tuple[Array, Any]:
        x = standardized(policy.observations, encode(self.space, obs))
        action = self.learner.act(policy.weights, policy.hyper, policy.step, key, x, obs, greedy)
        return self.learner.to_env(action), carry


def make(
    name: str,
    learner: Learner,
    config: Config,
    Hyper: type,
    env: Environment | VectorEnv,
    observation_space: Space,
    privileged: bool = False,
) -> Algorithm:
    """The `Algorithm` of a streaming learner on `env`; with `privileged` it learns from that part of observations too.

    Raises ValueError for a VectorEnv of several environments: a stream is one.
    """
    if isinstance(env, VectorEnv) and env.num_envs != 1:
        raise ValueError(
            f"The VectorEnv has num_envs={env.num_envs}, but {name} learns from one environment; "
            "vmap over keys for many streams."
        )
    venv = as_vector_env(env, 1)
    stream = _Stream(config, Hyper, venv, learner, observation_space, privileged)
    return algorithm_of(name, stream, Hyper, config.num_steps)
