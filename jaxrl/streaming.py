"""The shell of streaming algorithms: one update of a network for each step, without storing steps.

Elsayed, Vasan & Mahmood (2024), "Streaming deep reinforcement learning finally works" (arXiv:2410.14606): eligibility
traces, a step size that is bounded (`nn.streaming.obgd`), and observations and rewards scaled by running statistics. No
replay, no batch, no target network.

An algorithm's file writes a `Rule`; `make` turns it into an `Algorithm` of one environment. At every step, in order:

    x = the observation as a vector, standardised by the statistics of all observations so far, this one included
    action = rule.act(weights, hyper, step, key, x, obs, greedy=False)
    weights, trace, report = rule.gradient_step(weights, trace, hyper, transition)   # of that step, rewards scaled

Parallel streams are a `vmap` over keys. As the policy changes with every step, `collect` both acts and learns for
`num_steps` steps and returns the learned fields in the rollout; `learn` puts them into the state. A state after
`collect` alone has the new environment state and the old weights.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from jaxrl.algorithm import Algorithm, algorithm_of, as_vector_env, environment_of, restarted, starting_values
from jaxrl.environment import Environment, pytree, split_observation
from jaxrl.nn import normalize
from jaxrl.nn.networks import encode, encoded_size
from jaxrl.rollout import Ends, ends_of, step_keys, ticked
from jaxrl.spaces import Dict, Space
from jaxrl.vector_env import VectorEnv

LEARNED = ("weights", "trace", "start", "normalizer", "reward_scaler")
"""Fields of the state that `collect` computes and `learn` puts into the state."""


@dataclasses.dataclass(frozen=True)
class Config:
    """Static settings of all streaming algorithms: each value compiles its own program."""

    num_steps: int = 100  # steps an update, after which metrics are reported
    hidden: tuple[int, ...] = (32, 32)
    sparsity: float = 0.9  # share of the inputs of a unit whose initial weights are zero
    layer_norm: bool = True
    bounded: bool = True  # ObGD; False: a constant learning rate
    normalize_obs: bool = True
    normalize_reward: bool = True  # by the standard deviation of the discounted return

    def __post_init__(self) -> None:
        if self.num_steps < 1:
            raise ValueError(f"num_steps={self.num_steps}: it must be at least 1.")
        if not 0 <= self.sparsity < 1:
            raise ValueError(f"sparsity={self.sparsity}: it must be from 0 (dense) to less than 1.")
        # The input layer may start at zero, but no gradient passes two layers of zeros.
        dead = [width for width in self.hidden if math.ceil(self.sparsity * width) == width]
        if dead:
            least = math.ceil(1 / (1 - self.sparsity) - 1e-9)
            raise ValueError(
                f"hidden={self.hidden}: at sparsity={self.sparsity} a unit with {dead[0]} inputs starts without any "
                f"and no gradient passes; use widths of at least {least}."
            )


class Transition(NamedTuple):
    """One step. Observations are standardised vectors, whose last entries are the privileged part."""

    obs: Array  # (F,)
    action_mask: Array | None
    action: Array  # as `Rule.act` gave it
    reward: Array  # scaled
    next_obs: Array  # (F,), of the true successor, before a reset
    next_mask: Array | None
    terminated: Array
    first: Array  # whether `obs` is the first of its episode, where traces are reset


@runtime_checkable
class Rule(Protocol):
    """The learning rule of an algorithm, which its file defines."""

    privileged: ClassVar[bool]  # whether it uses the privileged part of observations for learning
    deployed: ClassVar[str]  # as `Algorithm.deployed`

    def init(self, key: Array) -> PyTree:
        """The initial weights."""
        ...

    def act(self, weights: Any, hyper: Any, step: Array, key: Array, x: Array, obs: Any, greedy: bool) -> Array:
        """The action at environment step `step`; x (*batch, V) is the visible vector of the observations `obs`."""
        ...

    def to_env(self, action: Array) -> Array:
        """The environment's action for an action of `act`."""
        ...

    def gradient_step(self, weights: Any, trace: Any, hyper: Any, x: Transition) -> tuple[Any, Any, dict[str, Array]]:
        """`(weights, trace, metrics)` after a step; the trace is a pytree like the weights."""
        ...


@pytree
class StreamState:
    key: jax.Array
    hyper: Any
    env_params: Any
    env_state: Any
    obs: Any  # (1, ...)
    step: jax.Array  # int32, environment steps done
    weights: Any
    trace: Any  # of gradients, like the weights
    start: jax.Array  # whether `obs` is the first of an episode
    normalizer: Any  # running statistics of observations; None without Config.normalize_obs
    reward_scaler: Any  # None without Config.normalize_reward


class Rollout(NamedTuple):
    """`num_steps` steps of the stream, and the fields of the state that were learned from them."""

    learned: dict[str, Any]  # the fields `LEARNED` after the last step
    report: dict[str, Array]  # (T,)
    ends: Ends  # (T, 1)


class Policy(NamedTuple):
    """The policy, as it is evaluated and exported: it no longer learns."""

    weights: Any
    normalizer: Any  # statistics of observations without the privileged part
    hyper: Any
    step: Array


def features(space: Space, obs: Any, privileged: bool = False) -> Float[Array, "..."]:
    """A vector (..., F) of an observation: the visible part, then with `privileged` the privileged one."""
    x = encode(space, obs)
    if privileged and isinstance(space, Dict) and "privileged" in space.spaces:
        x = jnp.concatenate([x, encode(space.spaces["privileged"], obs["privileged"])], -1)
    return x


def _one(tree: Any) -> Any:
    """`tree` of the only environment, without the leading axis."""
    return jax.tree.map(lambda x: x[0], tree)


@dataclasses.dataclass(frozen=True)
class _Stream:
    """The static settings of the learner; its methods are the Algorithm's functions."""

    slots: ClassVar = ("trace", "start", "reward_scaler.returns")
    config: Config
    Hyper: type
    venv: VectorEnv
    rule: Rule
    space: Space  # of observations

    def features(self, obs: Any) -> Array:
        return features(self.space, obs, self.rule.privileged)

    def init(self, key: Array, hyper: Any = None, env_params: Any = None) -> StreamState:
        hyper, env_params = starting_values(self.Hyper, self.venv, hyper, env_params)
        key, weights_key, reset_key = jax.random.split(key, 3)
        obs, env_state = self.venv.reset(reset_key, env_params)
        weights = self.rule.init(weights_key)
        weights = jax.tree.map(lambda x: x.astype(jnp.result_type(float)), weights)
        return StreamState(
            key=key,
            hyper=hyper,
            env_params=env_params,
            env_state=env_state,
            obs=obs,
            step=jnp.int32(0),
            weights=weights,
            trace=jax.tree.map(jnp.zeros_like, weights),
            start=jnp.bool_(True),
            normalizer=normalize.init(self.features(_one(obs))) if self.config.normalize_obs else None,
            reward_scaler=normalize.ReturnScale.init() if self.config.normalize_reward else None,
        )

    def restart(self, state: StreamState, key: Array, env_params: Any, mask: Bool[Array, "1"]) -> StreamState:
        """Starts a new episode where `mask`, which resets traces and the running return."""
        state = restarted(self.venv, state, key, env_params, mask)
        return state.replace(start=state.start | mask[0])

    def step(self, state: StreamState, key: Array) -> tuple[StreamState, tuple]:
        """Takes one step and learns from it."""
        act_key, env_key = jax.random.split(key)
        hyper, obs, first = state.hyper, _one(state.obs), state.start
        now = self.features(obs)
        # An episode's first observation enters the statistics here; others did so as successors.
        before = state.normalizer
        stats = jax.tree.map(functools.partial(jnp.where, first), normalize.seen(before, now), before)
        x = normalize.standardized(stats, now)
        visible = x[: encoded_size(self.space)]
        action = self.rule.act(state.weights, hyper, state.step, act_key, visible, obs, False)
        ts = self.venv.step(env_key, state.env_state, self.rule.to_env(action)[None], state.env_params)
        reward, scaler = ts.reward[0], state.reward_scaler
        if scaler is not None:
            scaler = scaler.update(reward, first, hyper.gamma)
            reward = reward / scaler.scale
        next_obs = _one(ts.info["final_obs"])
        after = self.features(next_obs)
        stats = normalize.seen(stats, after)
        transition = Transition(
            obs=x,
            action_mask=split_observation(obs, self.space)[2],
            action=action,
            reward=reward,
            next_obs=normalize.standardized(stats, after),
            next_mask=split_observation(next_obs, self.space)[2],
            terminated=ts.terminated[0],
            first=first,
        )
        weights, trace, report = self.rule.gradient_step(state.weights, state.trace, hyper, transition)
        ends = ends_of(ts)
        learned = dict(weights=weights, trace=trace, start=ends.done[0], normalizer=stats, reward_scaler=scaler)
        state = state.replace(env_state=ts.state, obs=ts.obs, step=ticked(state.step, 1), **learned)
        return state, (report, ends)

    def collect(self, state: StreamState) -> tuple[StreamState, Rollout]:
        key, step_key = jax.random.split(state.key)
        keys = step_keys(step_key, self.config.num_steps)
        after, steps = jax.lax.scan(self.step, state.replace(key=key), keys)
        rollout = Rollout({name: getattr(after, name) for name in LEARNED}, *steps)
        return after.replace(**{name: getattr(state, name) for name in LEARNED}), rollout

    def learn(self, state: StreamState, rollout: Rollout) -> tuple[StreamState, dict[str, Array]]:
        metrics = {**rollout.ends.metrics(), **jax.tree.map(jnp.mean, rollout.report)}
        return state.replace(**rollout.learned), metrics

    def policy(self, state: StreamState) -> Policy:
        stats, visible = state.normalizer, encoded_size(self.space)
        if stats is not None:
            stats = stats.replace(moments=jax.tree.map(lambda x: x[..., :visible], stats.moments))
        return Policy(state.weights, stats, state.hyper, state.step)

    @property
    def deployed(self) -> str:
        return self.rule.deployed

    def initial_carry(self, batch_shape: tuple[int, ...] = ()) -> tuple:
        return ()

    def act(self, policy: Policy, key: Array, obs: Any, carry: Any = (), greedy: bool = False) -> tuple[Array, Any]:
        x = normalize.standardized(policy.normalizer, encode(self.space, obs))
        action = self.rule.act(policy.weights, policy.hyper, policy.step, key, x, obs, greedy)
        return self.rule.to_env(action), carry


def make(name: str, rule: Rule, config: Config, Hyper: type, env: Environment | VectorEnv) -> Algorithm:
    """The `Algorithm` that follows a stream of `env` by this rule. `Hyper` needs a field `gamma`.

    Raises ValueError for a VectorEnv of several environments: a stream is one.
    """
    if isinstance(env, VectorEnv) and env.num_envs != 1:
        raise ValueError(
            f"The VectorEnv has num_envs={env.num_envs}, but {name} learns from one environment; "
            "vmap over keys for many streams."
        )
    inner = environment_of(env)
    stream = _Stream(config, Hyper, as_vector_env(env, 1), rule, inner.observation_space(inner.default_params))
    return algorithm_of(name, stream, Hyper, config.num_steps)


def check_outputs(name: str, network: Any, inputs: int, outputs: int, of: str) -> None:
    """Raise ValueError for a network that does not give (outputs,) numbers for (inputs,) ones, which `of` needs."""
    args = jax.random.key(0), jnp.zeros(inputs)
    shape = jax.eval_shape(lambda key, x: network.init_with_output(key, x)[0], *args).shape
    if shape != (outputs,):
        raise ValueError(f"{name} gives outputs {shape} for an observation; {of} needs {(outputs,)}.")
