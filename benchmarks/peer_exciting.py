"""One process of exciting-environments' permanent-magnet machine, timed in a scan, with what its step returns stored.

Run by `motor.py` in an environment with exciting-environments. Random actions on turning axes, its default solver
(Euler); observation, reward, truncation and termination of every step are the program's output. It has no auto-reset
and its references do not move. Prints JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--envs", type=int, default=2048)
    parser.add_argument("--steps", type=int, default=100, help="of one timed call")
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()

    import jax
    import jax.numpy as jnp
    import jax_dataclasses as jdc
    from exciting_environments import EnvironmentRegistry

    env = EnvironmentRegistry.PMSM.make(batch_size=args.envs, control_state=["i_d", "i_q"])
    properties, axes = env.env_properties, env.in_axes_env_properties

    @jax.jit
    def run(key, state):
        def body(state, key):
            action = jax.random.uniform(key, (args.envs, 2), minval=-1.0, maxval=1.0)
            obs, state = env.vmap_step(state, action)
            reward = jax.vmap(env.generate_reward, (0, 0, axes))(state, action, properties)
            truncated = jax.vmap(env.generate_truncated, (0, axes))(state, properties)
            terminated = jax.vmap(env.generate_terminated, (0, 0, axes))(state, reward, properties)
            return state, (obs, reward, truncated, terminated)

        return jax.lax.scan(body, state, jax.random.split(key, args.steps))

    _, state = env.vmap_reset(jax.random.split(jax.random.key(0), args.envs).reshape(args.envs))
    with jdc.copy_and_mutate(state, validate=False) as state:  # a point within the currents' limits
        state.reference.i_d, state.reference.i_q = jnp.full(args.envs, -100.0), jnp.full(args.envs, 50.0)
    key = jax.random.key(1)
    start = time.process_time()
    compiled = run.lower(key, state).compile()
    compile_s = time.process_time() - start
    jax.block_until_ready(compiled(key, state))
    rates = []
    for _ in range(args.repeats):
        start = time.perf_counter()
        out = jax.block_until_ready(compiled(key, state))
        rates.append(args.envs * args.steps / (time.perf_counter() - start))
        del out
    print(json.dumps({"stored steps": statistics.median(rates), "compile_s": compile_s}))


if __name__ == "__main__":
    main()
