"""The shell of algorithms that learn from every step before they take the next: bandit and tabular algorithms.

An algorithm's file writes a `Rule`; `make` turns it into an `Algorithm` whose update is one step:

    weights = rule.init(key, hyper, env_params)                   # once; for bandits at the begin of each problem
    action = rule.act(weights, hyper, key, obs, greedy=False)     # collect: in each environment
    weights, loss = rule.learn(weights, hyper, key, experience)   # learn: from each environment's step in turn

Parallel runs are a `vmap` over keys: a thousand learners are a thousand keys, with separate weights and environments.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxrl import registry
from jaxrl.algorithm import Algorithm, algorithm_of, as_vector_env, environment_of, restarted, starting_values
from jaxrl.environment import NO_LIMIT, Environment, pytree
from jaxrl.math import fast_key, fast_split, precise
from jaxrl.rollout import Ends, ends_of, ticked
from jaxrl.spaces import Box, Discrete, Space
from jaxrl.vector_env import VectorEnv


class Experience(NamedTuple):
    """One step of one environment; `next_obs` is the observation before any reset."""

    obs: Any
    action: Any
    reward: Array
    next_obs: Any
    terminated: Array
    truncated: Array


def _kept(weights: Any) -> Any:
    return weights


class Rule(NamedTuple):
    """The learning rule of an algorithm: pure functions of its weights and of a single observation or step.

    The weights are all that was learned, a pytree of constant shapes: counts, tables, estimates.
    """

    init: Callable[..., Any]  # (key, hyper, env_params) -> weights before the first step
    act: Callable[..., Array]  # (weights, hyper, key, obs, greedy) -> action; greedy: without exploration
    learn: Callable[..., tuple[Any, Array]]  # (weights, hyper, key, Experience) -> (weights, loss, a scalar)
    at: Callable[[Any, Array], Any] | None = None  # (weights, t) -> weights at step t of an episode
    restart: Callable[[Any], Any] = _kept  # weights -> weights after an episode was cut, before another begins


@pytree
class OnlineState:
    """The state of a learner of single steps."""

    key: jax.Array
    hyper: Any
    env_params: Any
    env_state: Any
    obs: Any  # (N, ...)
    step: jax.Array  # int32, environment steps done
    weights: Any
    ended: jax.Array  # whether the last step ended an episode; with `forget` new weights follow
    regret: jax.Array  # sum of info["regret"] over the whole run; 0 where `info` has none


class Rollout(NamedTuple):
    """One step of N environments."""

    key: Array  # for the rule's `learn`
    weights: Any  # the weights that acted
    experience: Experience  # leaves (N, ...)
    ends: Ends  # (1, N)
    regret: Array  # (N,)


class Policy(NamedTuple):
    """The policy, as it is evaluated and exported: it no longer learns."""

    weights: Any
    hyper: Any


@dataclasses.dataclass(frozen=True)
class _Online:
    """The static settings of the learner; its methods are the Algorithm's functions."""

    rule: Rule
    config: Any
    Hyper: type
    venv: VectorEnv
    forget: bool
    deployed = "greedy"

    def init(self, key: Array, hyper: Any = None, env_params: Any = None) -> OnlineState:
        hyper, env_params = starting_values(self.Hyper, self.venv, hyper, env_params)
        key, weights_key, reset_key = jax.random.split(key, 3)
        obs, env_state = self.venv.reset(reset_key, env_params)
        return OnlineState(
            key=key,
            hyper=hyper,
            env_params=env_params,
            env_state=env_state,
            obs=obs,
            step=jnp.int32(0),
            weights=self.rule.init(weights_key, hyper, env_params),
            ended=jnp.bool_(False),
            regret=jnp.zeros(()),
        )

    @property
    def slots(self) -> tuple[str, ...]:
        """With `forget` the weights belong to a slot, as they were learned from the problem in it."""
        return ("ended", "weights") if self.forget else ("ended",)

    def restart(self, state: OnlineState, key: Array, env_params: Any, mask: Bool[Array, " N"]) -> OnlineState:
        """Starts a new episode in the slots of `mask`; rules with a `restart` have one environment."""
        state = restarted(self.venv, state, key, env_params, mask)
        begun = self.rule.restart(state.weights)
        weights = jax.tree.map(functools.partial(jnp.where, mask[0]), begun, state.weights)
        return state.replace(weights=weights, ended=state.ended | mask[0])

    @precise
    def collect(self, state: OnlineState) -> tuple[OnlineState, Rollout]:
        """One step of every environment, with new weights where a problem begins."""
        key, act_key, env_key, learn_key, forget_key = fast_split(state.key, 5)
        weights = state.weights
        if self.forget:
            fresh = self.rule.init(forget_key, state.hyper, state.env_params)
            weights = jax.tree.map(lambda new, old: jnp.where(state.ended, new, old), fresh, weights)
        act = functools.partial(self.rule.act, weights, state.hyper, greedy=False)
        action = jax.vmap(lambda key, obs: act(key, obs))(jax.random.split(act_key, self.venv.num_envs), state.obs)
        ts = self.venv.step(env_key, state.env_state, action, state.env_params)
        experience = Experience(state.obs, action, ts.reward, ts.info["final_obs"], ts.terminated, ts.truncated)
        regret = ts.info.get("regret", jnp.zeros_like(ts.reward))
        ends = jax.tree.map(lambda x: x[None], ends_of(ts))
        rollout = Rollout(learn_key, weights, experience, ends, regret)
        step = ticked(state.step, self.venv.num_envs)
        return state.replace(key=key, env_state=ts.state, obs=ts.obs, step=step), rollout

    @precise
    def learn(self, state: OnlineState, rollout: Rollout) -> tuple[OnlineState, dict[str, Array]]:
        """Learns from the step of each environment, one after the other."""
        key, experience, N = fast_key(rollout.key), rollout.experience, self.venv.num_envs
        if N == 1:
            one = jax.tree.map(lambda x: x[0], experience)
            weights, loss = self.rule.learn(rollout.weights, state.hyper, key, one)
        else:

            def step(weights, inputs):
                return self.rule.learn(weights, state.hyper, *inputs)

            weights, loss = jax.lax.scan(step, rollout.weights, (jax.random.split(key, N), experience))
            loss = jnp.mean(loss)
        done = experience.terminated | experience.truncated
        regret = state.regret + jnp.mean(rollout.regret)
        state = state.replace(weights=weights, ended=done[0], regret=regret)
        return state, {
            **rollout.ends.metrics(),
            "loss": loss,
            "reward": jnp.mean(experience.reward),
            "regret": jnp.mean(rollout.regret),
            "cumulative_regret": state.regret,
        }

    def policy(self, state: OnlineState) -> Policy:
        return Policy(state.weights, state.hyper)

    def initial_carry(self, batch_shape: tuple[int, ...] = ()) -> Any:
        """The time step within an episode, for rules that depend on it; else ()."""
        return () if self.rule.at is None else jnp.zeros(batch_shape, jnp.int32)

    @precise
    def act(self, policy: Policy, key: Array, obs: Any, carry: Any = (), greedy: bool = False) -> tuple[Array, Any]:
        env, rule = self.venv.env, self.rule
        single = jax.tree.leaves(jax.eval_shape(env.reset, jax.random.key(0), env.default_params)[0])[0].shape
        leaf = jax.tree.leaves(obs)[0]
        batch = leaf.shape[: leaf.ndim - len(single)]
        size = math.prod(batch)

        def flat(tree: Any) -> Any:
            return jax.tree.map(lambda x: x.reshape(size, *x.shape[len(batch) :]), tree)

        def one(key, obs, t):
            weights = policy.weights if rule.at is None else rule.at(policy.weights, t)
            return rule.act(weights, policy.hyper, key, obs, greedy)

        action = jax.vmap(one)(jax.random.split(fast_key(key), size), flat(obs), flat(carry))
        return action.reshape(*batch, *action.shape[1:]), carry if rule.at is None else carry + 1


def make(
    name: str, rule: Rule, config: Any, Hyper: type, env: Environment | VectorEnv, *, forget: bool = False
) -> Algorithm:
    """The `Algorithm` that learns on `env` by this rule; `config` needs a field `num_envs`.

    With several environments one learner learns from all their steps, one after the other. With `forget` an episode is
    a whole problem, as in bandits: each begins with new weights.

    Raises ValueError for several agents, or several environments with `forget`.
    """
    venv = as_vector_env(env, config.num_envs)
    if venv.env.num_agents > 1:
        raise ValueError(f"{venv.env.id} has {venv.env.num_agents} agents; {name} is one: vmap it over the agents.")
    if forget and venv.num_envs != 1:
        raise ValueError(
            f"num_envs={venv.num_envs}: each episode of {venv.env.id} is a problem of its own, so {name} takes one "
            "environment; vmap over keys for many runs."
        )
    online = _Online(rule, config, Hyper, venv, forget)
    return algorithm_of(name, online, Hyper, venv.num_envs)


def discrete_sizes(name: str, env: Environment | VectorEnv) -> tuple[int, int]:
    """`(states, actions)` of an environment with Discrete spaces. Raises ValueError for any other."""
    env = environment_of(env)
    params = env.default_params
    obs, action = env.observation_space(params), env.action_space(params)
    if not isinstance(obs, Discrete) or not isinstance(action, Discrete):
        raise ValueError(
            f"{name} keeps tables: it needs Discrete observations and actions, {env.id} has {obs}, {action}."
        )
    return obs.n, action.n


def num_arms(name: str, env: Environment | VectorEnv) -> int:
    """The number of arms of a bandit, a task whose dynamics no action changes. Raises ValueError for another task, or
    actions that are not Discrete.
    """
    env = environment_of(env)
    space = env.action_space(env.default_params)
    if not isinstance(space, Discrete):
        raise ValueError(f"{name} chooses among Discrete arms, {env.id} has {space}.")
    if not _of_bandit(env.observation_space(env.default_params), space.n):
        hint = ", ".join(registry.algos_for(space))
        raise ValueError(
            f"{name} plays bandits (`jaxrl envs bandit`), whose observation says nothing or has a row of features for "
            f"each arm; {env.id} has states. These act there: {hint}."
        )
    return space.n


def _of_bandit(obs: Space, arms: int) -> bool:
    if isinstance(obs, Discrete):
        return obs.n == 1
    if not isinstance(obs, Box):
        return False
    return bool(np.all(obs.low == obs.high)) or (len(obs.shape) == 2 and obs.shape[0] == arms)


def random_argmax(x: Float[Array, " n"], key: Array) -> Int[Array, ""]:
    """The index of the largest entry; ties are broken uniformly, with a single random number."""
    tied = x >= jnp.max(x)
    count = jnp.cumsum(tied)
    rank = jnp.floor(jax.random.uniform(key) * count[-1])
    return jnp.argmax(count > rank).astype(jnp.int32)


def planning_horizon(name: str, env: Environment | VectorEnv, horizon: int | None) -> int:
    """`horizon`, or the environment's time limit. Raises ValueError where there is neither."""
    env = environment_of(env)
    limit = int(env.default_params.max_steps)
    if horizon is None and limit == NO_LIMIT:
        raise ValueError(f"{name} plans for a fixed number of steps and {env.id} has no time limit: give it a horizon.")
    return limit if horizon is None else horizon
