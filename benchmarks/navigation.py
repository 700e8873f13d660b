"""Steps a CPU-second of JaxNav on one core, beside JaxMARL's.

    taskset -c 0 python benchmarks/navigation.py [--jaxmarl CHECKOUT] [--num-envs 1024]

Random actions; ours with auto-reset, theirs without (what has ended stays as it is, at the same cost). Reward and the
sum of observations are read at each step. CPU-seconds, as others may use the core; the median of five.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxrl

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "golden"))


def measured(step: Any, state: Any, num_envs: int, steps: int) -> float:
    """Steps a CPU-second of `step(key, state, action (N, 2)) -> (state, what is read)`."""

    @jax.jit
    def run(key, state):
        def body(state, key):
            act_key, key = jax.random.split(key)
            action = jax.random.uniform(act_key, (num_envs, 2), minval=jnp.array([0, -0.5]), maxval=jnp.array([1, 0.5]))
            return step(key, state, action)

        return jax.lax.scan(body, state, jax.random.split(key, steps))

    keys = jax.random.split(jax.random.key(1), 6)
    state, _ = jax.block_until_ready(run(keys[0], state))
    rates = []
    for key in keys[1:]:
        start = time.process_time()
        state, _ = jax.block_until_ready(run(key, state))
        rates.append(num_envs * steps / (time.process_time() - start))
    return float(np.median(rates))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--jaxmarl", type=Path)
    parser.add_argument("--num-envs", type=int, default=1024)
    flags = parser.parse_args()
    n = flags.num_envs
    env, params = jaxrl.make("JaxNav-v0")
    venv = jaxrl.vectorize(env, n)

    def ours(key, state, action):
        ts = venv.step(key, state, action, params)
        return ts.state, (ts.obs.sum(), ts.reward.sum())

    state = jax.jit(venv.reset)(jax.random.key(0), params)[1]
    print(f"jaxrl    {measured(ours, state, n, 100):12,.0f}", flush=True)
    if flags.jaxmarl:
        from make_jaxnav import jaxnav  # pyright: ignore[reportMissingImports]

        maps = {"map_size": (11, 11), "fill": 0.6, "sample_test_case_type": "grid"}
        peer = jaxnav(flags.jaxmarl).JaxNav(num_agents=1, goal_radius=0.3, map_params=maps)

        def theirs(key, state, action):
            act = {"agent_0": action}
            obs, state, reward, *_ = jax.vmap(peer.step_env, (None, 0, 0))(key, state, act)
            return state, (obs["agent_0"].sum(), reward["agent_0"].sum())

        state = jax.vmap(peer.reset)(jax.random.split(jax.random.key(0), n))[1]
        print(f"JaxMARL  {measured(theirs, state, n, 3):12,.0f}", flush=True)


if __name__ == "__main__":
    main()
