"""An episode under a planner."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Key, PyTree

from jaxrl.environment import Environment
from jaxrl.exact.planning.planner import Planner, select


class Trajectory(NamedTuple):
    """One episode, leading axis T. After its end the state stays and rewards are zero: the return is their sum."""

    obs: Any  # acted on
    state: Any  # acted on
    action: Any
    reward: Array
    terminated: Array
    truncated: Array
    valid: Array  # False after the end


def control(
    env: Environment,
    planner: Planner,
    key: Key[Array, ""],
    params: PyTree,
    num_steps: int,
    hyper: Any = None,
    state: Any = None,
    model_params: PyTree = None,
) -> Trajectory:
    """An episode of at most `num_steps` steps of `env` with `params` under a planner: a scan of plan and step.

    Args:
        state: where it starts; by default where `env.reset` does.
        model_params: what the planner believes the params to be, if that is not the truth.
    """
    reset_key, observe_key, run_key = jax.random.split(key, 3)
    if state is None:
        obs, state = env.reset(reset_key, params)
    else:
        obs = env.observe(observe_key, state, params)
    model_params = params if model_params is None else model_params

    def step(carried, key):
        obs, state, on, carry = carried
        plan_key, env_key = jax.random.split(key)
        action, carry = planner.plan(plan_key, carry, state, model_params)
        ts = env.step(env_key, state, action, params)
        reward = jnp.where(on, ts.reward, 0)
        out = Trajectory(obs, state, action, reward, on & ts.terminated, on & ts.truncated, on)
        obs, state = select(on, (ts.obs, ts.state), (obs, state))
        return (obs, state, on & ~(ts.terminated | ts.truncated), carry), out

    start = (obs, state, jnp.bool_(True), planner.init(hyper))
    return jax.lax.scan(step, start, jax.random.split(run_key, num_steps))[1]
