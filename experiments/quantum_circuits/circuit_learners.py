"""Who places gates: double DQN at a fixed threshold or under the moving one; and how an episode of theirs ends."""

import jax
import jax.numpy as jnp

import jaxrl
from jaxrl.algos import dqn
from jaxrl.algos.curricula import moving_threshold
from jaxrl.curriculum import attach
from jaxrl.curriculum.teaching import ranges
from jaxrl.envs.quantum.circuit_design import CHEMICAL_ACCURACY

CONFIG = dqn.Config(num_envs=8, batch_size=64, buffer_size=20_000, hidden=(128, 128))


def learner(env, params, arm):
    """Double DQN at the fixed threshold or under the moving one, from 0.5 Ha to chemical accuracy."""
    student = dqn.make(jaxrl.vectorize(env, CONFIG.num_envs, batched_params=arm == "moving"), CONFIG)
    bar = ranges(params, {"threshold": (CHEMICAL_ACCURACY, 0.5)})
    return attach(student, moving_threshold.make(bar)) if arm == "moving" else student


def episode(env, params, act, key):
    """`(whether the circuit is accurate, its gates)` of an episode, `act(key, obs) -> action`."""
    reset_key, run_key = jax.random.split(key)
    obs, state = env.reset(reset_key, params)

    def step(carry, key):
        obs, state, on, found = carry
        act_key, step_key = jax.random.split(key)
        ts = env.step(step_key, state, act(act_key, obs), params)
        now = ts.info["success"], ts.info["num_gates"]
        found = jax.tree.map(lambda new, old: jnp.where(on, new, old), now, found)
        return (ts.obs, ts.state, on & ~ts.terminated, found), None

    keys = jax.random.split(run_key, env.max_gates)
    start = obs, state, jnp.bool_(True), (jnp.bool_(False), jnp.int32(0))
    return jax.lax.scan(step, start, keys)[0][3]


def at_random(key, obs):
    """Any gate that is allowed."""
    return jax.random.categorical(key, jnp.where(obs["action_mask"], 0.0, -jnp.inf))
