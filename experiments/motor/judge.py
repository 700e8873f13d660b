"""How well does something control a drive? Rewards, errors and passed limits of learners and controllers alike."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

import jaxrl
from jaxrl.envs.motor.control import controllers


def judge(env: Any, env_params: Any, act: Callable, carry: Any, key: Any, steps: int) -> dict[str, Any]:
    """Means over `steps` control steps of each of n drives, (n,), which start anew where a limit is passed.

    `act(key, params, state, obs, carry) -> (action, carry)` of one drive; `env_params` and `carry` have a leading axis
    n. `reward` and `error`, the mean distance from the references in units of the limits, are a step's; `passed` is how
    many episodes ended by a limit in 1000 steps; `wanted` is the mean of the references, equal where those were the
    same. Pure: jit it.
    """
    num_envs = len(jax.tree.leaves(env_params)[0])
    venv = jaxrl.vectorize(env, num_envs, batched_params=True)
    drive = getattr(env, "env", env)  # under a stack of observations, of which the last counts
    names = drive.observation_names
    own = jnp.asarray([names.index(name) for name in drive.referenced])
    goal = jnp.asarray([names.index(f"{name}*") for name in drive.referenced])

    def step(carried, key):
        obs, vstate, carry = carried
        act_key, step_key = jax.random.split(key)
        keys = jax.random.split(act_key, num_envs)
        action, carry = jax.vmap(act)(keys, env_params, vstate.env, obs, carry)
        ts = venv.step(step_key, vstate, action, env_params)
        before, after = obs[:, -len(names) :], ts.info["final_obs"][:, -len(names) :]
        wanted = before[:, goal]
        error = jnp.abs(after[:, own] - wanted).mean(-1)
        return (ts.obs, ts.state, carry), (ts.reward, error, ts.terminated, wanted.mean(-1))

    reset_key, key = jax.random.split(key)
    obs, vstate = venv.reset(reset_key, env_params)
    _, seen = jax.lax.scan(step, (obs, vstate, carry), jax.random.split(key, steps))
    reward, error, passed, wanted = (x.mean(0) for x in seen)
    return {"reward": reward, "error": error, "passed": 1000 * passed, "wanted": wanted}


def several(tree: Any, n: int) -> Any:
    """`tree` n times, along a leading axis."""
    return jax.tree.map(lambda x: jnp.broadcast_to(x, (n, *jnp.shape(x))), tree)


def classical(env: Any, method: str | None, n: int, scales: Any = None) -> tuple[Callable, Any]:
    """`(act, carry)` of a controller of `envs/motor/control/controllers.py` for n drives.

    `scales` (n, 4): logarithms of factors of its gains, proportional and integral of two currents, of each drive.
    """
    controller = controllers.make(env, method)

    def act(key, params, state, obs, carry):
        own, x = carry
        gains = controller.tune(params)
        if scales is not None:
            p, i = gains.current_p, gains.current_i
            p, i = (p[0] * jnp.exp(x[0]), p[1] * jnp.exp(x[1])), (i[0] * jnp.exp(x[2]), i[1] * jnp.exp(x[3]))
            gains = gains.replace(current_p=p, current_i=i)
        action, own = controller.act(params, state, own, gains)
        return action, (own, x)

    return act, (several(controller.init(), n), jnp.zeros((n, 4)) if scales is None else scales)


def learnt(algo: Any, policy: Any, n: int) -> tuple[Callable, Any]:
    """`(act, carry)` of a trained policy without memory, greedy, for n drives."""
    assert algo.initial_carry(()) == (), "its memory would have to begin anew where a drive does"

    def act(key, params, state, obs, carry):
        return algo.act(policy, key, obs, carry, greedy=True)

    return act, ()
