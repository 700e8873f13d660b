"""How good a policy is: full episodes under a step cap. Statistics of them: `jaxrl.host.statistics`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxrl.algorithm import Algorithm, check_key, deployment
from jaxrl.environment import NO_LIMIT, Environment, is_concrete, strongly_typed
from jaxrl.math import fast_key, rarely


class EpisodeStats(NamedTuple):
    """One entry an episode, (E,)."""

    returns: Array  # undiscounted
    lengths: Array  # int32
    finished: Array  # False: cut by the step cap of the evaluation


def actor(algo: Algorithm, env: Environment, greedy: bool | None = None) -> Callable[..., tuple[Any, Any]]:
    """How policies of `algo` act in `env`: `(policy, key, env_state, obs, env_params, carry) -> (action, carry)`.

    Leaves have a leading axis B but for those of the params.

    Raises ValueError if a search is to act in another environment than the one it steps.
    """
    by = deployment(algo, greedy)
    if by != "search":
        return lambda policy, key, env_state, obs, env_params, carry: algo.act(
            policy, key, obs, carry, greedy=by == "greedy"
        )
    if env != algo.venv.env:
        raise ValueError(
            f"{algo.name} searches in {algo.venv.env.id} and cannot in {env.id}: with greedy=True or False its network "
            "acts alone."
        )
    search: Any = algo.search
    return lambda policy, key, env_state, obs, env_params, carry: (
        search(policy, key, env_state, obs, env_params, greedy=True).action,
        carry,
    )


def evaluate(
    algo: Algorithm,
    policy: Any,
    key: Array,
    env: Environment | None = None,
    env_params: Any = None,
    *,
    num_episodes: int = 128,
    max_steps: int | None = None,
    greedy: bool | None = None,
    hold: Any = None,
) -> EpisodeStats:
    """`num_episodes` episodes of `policy`, one a slot, so that short ones do not count for more. Pure: jit and vmap it.

    Args:
        env: default: the environment that `algo` was made for.
        env_params: default: those of `env`.
        max_steps: cap on the length, for tasks without a time limit or policies that never end. Default: the task's
            own.
        greedy: whether the policy acts by its mode or by its samples. Default: as the algorithm is deployed, which is
            `algo.deployed`; one that searches does so, without noise, by the environment's own states.
        hold: steps for which each action is held before the policy sees the next observation, as where decisions
            are slow; a policy that plans (`algo.slower`) does so many of its actions. It may be traced, so that one
            program serves several. Default: the policy acts as it is.

    Raises ValueError when neither the task nor the caller limits the length, a number is below 1, or a search is to act
    in another environment than the one it steps.
    """
    check_key(key)
    env = algo.venv.env if env is None else env
    env_params = env.default_params if env_params is None else env_params
    for name, value in (("num_episodes", num_episodes), ("max_steps", max_steps), ("hold", hold)):
        if value is not None and is_concrete(value) and value < 1:
            raise ValueError(f"{name}={value}: it must be at least 1.")
    if hold is not None and not jnp.issubdtype(jnp.result_type(hold), jnp.integer):
        raise ValueError(f"hold={hold}: steps are whole numbers.")
    if max_steps is None and is_concrete(env_params) and np.max(np.asarray(env_params.max_steps)) == NO_LIMIT:
        raise ValueError(f"{env.id} has no time limit: give evaluate a max_steps.")
    if hold is not None and algo.slower is not None:
        policy, hold = algo.slower(policy, hold), None
    act = functools.partial(actor(algo, env, greedy), policy)
    agents = (env.num_agents,) if env.num_agents > 1 else ()
    carry = algo.initial_carry((num_episodes, *agents))
    if hold is not None and not (is_concrete(hold) and hold == 1):
        keys = jax.random.split(fast_key(key), num_episodes)
        obs, state = jax.eval_shape(jax.vmap(env.reset, (0, None)), keys, strongly_typed(env_params))
        action, _ = jax.eval_shape(act, key, state, obs, strongly_typed(env_params), carry)
        act, carry = held(act, carry, hold, action)
    return episodes(act, carry, key, env, env_params, num_episodes=num_episodes, max_steps=max_steps)


def held(act: Callable[..., tuple[Any, Any]], carry: Any, hold: Any, action: Any) -> tuple[Callable[..., Any], Any]:
    """`(act, carry)` that asks `act` every `hold` steps from the first on and repeats its action, of the shape of
    `action`, in between."""

    def act_or_repeat(key, env_state, obs, env_params, past):
        steps, action, carry = past
        seen = key, env_state, obs, env_params, carry
        action, carry = rarely(steps % hold == 0, lambda: act(*seen), (action, carry))
        return action, (steps + 1, action, carry)

    return act_or_repeat, (jnp.int32(0), jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), action), carry)


def episodes(
    act: Callable[..., tuple[Any, Any]],
    carry: Any,
    key: Array,
    env: Environment,
    env_params: Any,
    *,
    num_episodes: int,
    max_steps: int | None,
) -> EpisodeStats:
    """`evaluate` of anything that acts: `act(key, env_state, obs, env_params, carry) -> (action, carry)`.

    Args:
        carry: what it remembers at first, leaves (E, ...).
        max_steps: None: the task's own limit, which there must be.
    """
    env_params = strongly_typed(env_params)
    cap = jnp.int32(NO_LIMIT if max_steps is None else max_steps)
    reset_key, run_key = jax.random.split(fast_key(key))
    obs, state = jax.vmap(env.reset, (0, None))(jax.random.split(reset_key, num_episodes), env_params)
    agents = (env.num_agents,) if env.num_agents > 1 else ()

    class Run(NamedTuple):
        obs: Any
        state: Any
        carry: Any
        key: Array
        stats: EpisodeStats

    def going(run):
        return jnp.any(~run.stats.finished) & (jnp.max(run.stats.lengths) < cap)

    def step(run):
        key, act_key, env_key = jax.random.split(run.key, 3)
        action, carry = act(act_key, run.state, run.obs, env_params, run.carry)
        env_keys = jax.random.split(env_key, num_episodes)
        ts = jax.vmap(env.step, (0, 0, 0, None))(env_keys, run.state, action, env_params)
        on = ~run.stats.finished
        stats = EpisodeStats(
            returns=run.stats.returns + jnp.where(on.reshape(-1, *[1] * len(agents)), ts.reward, 0),
            lengths=run.stats.lengths + on,
            finished=run.stats.finished | ts.terminated | ts.truncated,
        )
        return Run(ts.obs, ts.state, carry, key, stats)

    none = EpisodeStats(
        jnp.zeros((num_episodes, *agents)), jnp.zeros(num_episodes, jnp.int32), jnp.zeros(num_episodes, bool)
    )
    return jax.lax.while_loop(going, step, Run(obs, state, carry, run_key, none)).stats
