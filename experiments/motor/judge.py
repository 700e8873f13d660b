"""How well does something control a drive? Rewards, errors and passed limits of learners and controllers alike."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

import jaxrl
from jaxrl.envs.motor import controllers


def judge(env: Any, env_params: Any, act: Callable, carry: Any, key: Any, num_envs: int, steps: int) -> dict[str, Any]:
    """Means over `num_envs` drives of `steps` control steps each, which start anew where a limit is passed.

    `act(key, params, state, obs, carry) -> (action, carry)` of one drive; `env_params` has a leading axis `num_envs`.
    `reward` and `error`, the distance from the references in units of the limits, are a step's; `passed` counts
    episodes that ended by a limit, in 1000 steps. Pure: jit it. Each is (num_envs,).
    """
    venv = jaxrl.vectorize(env, num_envs, batched_params=True)
    drive = getattr(env, "env", env)  # under a stack of observations, of which the last counts
    names = drive.observation_names
    own = jnp.asarray([names.index(name) for name in drive.referenced])
    wanted = jnp.asarray([names.index(f"{name}*") for name in drive.referenced])

    def step(carried, key):
        obs, vstate, carry = carried
        act_key, step_key = jax.random.split(key)
        keys = jax.random.split(act_key, num_envs)
        action, carry = jax.vmap(act)(keys, env_params, vstate.env, obs, carry)
        ts = venv.step(step_key, vstate, action, env_params)
        before, after = obs[:, -len(names) :], ts.info["final_obs"][:, -len(names) :]
        error = jnp.abs(after[:, own] - before[:, wanted]).mean(-1)
        return (ts.obs, ts.state, carry), (ts.reward, error, ts.terminated)

    reset_key, key = jax.random.split(key)
    obs, vstate = venv.reset(reset_key, env_params)
    carry = jax.tree.map(lambda x: jnp.broadcast_to(x, (num_envs, *jnp.shape(x))), carry)
    _, (reward, error, passed) = jax.lax.scan(step, (obs, vstate, carry), jax.random.split(key, steps))
    return {"reward": reward.mean(0), "error": error.mean(0), "passed": 1000 * passed.mean(0)}


def classical(env: Any, method: str | None = None, gains: Any = None) -> tuple[Callable, Any]:
    """`(act, carry)` of a controller of controllers.py."""
    controller = controllers.make(env, method)

    def act(key, params, state, obs, carry):
        return controller.act(params, state, carry, gains)

    return act, controller.init()


def learnt(algo: Any, policy: Any) -> tuple[Callable, Any]:
    """`(act, carry)` of a trained policy, greedy."""

    def act(key, params, state, obs, carry):
        return algo.act(policy, key, obs, carry, greedy=True)

    return act, algo.initial_carry(())
