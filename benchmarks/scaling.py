"""Steps per second against environments, seeds and forced CPU devices; on two cores, where the curves bend.

Random actions with auto-reset, then PPO's whole update by the program that `fit` runs. Devices are forced, so that more
of them than cores show what dividing costs, not what it gains. Each point is the median of `--repeats` timed calls.

Run: `python benchmarks/scaling.py --out scaling.json`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from common import batched_action, print_table, run_driver, save

import jaxrl
from jaxrl.algos import ppo
from jaxrl.host.run.sharding import make_mesh
from jaxrl.host.run.training_program import Program


def median_seconds(call: Callable[[], Any], repeats: int) -> float:
    """Of calls after one that is not counted."""
    seconds = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        jax.block_until_ready(call())
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds[1:])


def env_rate(id: str, num_envs: int, steps: int, repeats: int) -> float:
    """Environment steps per second of random actions with auto-reset."""
    env, params = jaxrl.make(id)
    venv, space = jaxrl.vectorize(env, num_envs), env.action_space(params)

    def step(carry, key):
        vstate, total = carry
        act_key, step_key = jax.random.split(key)
        ts = venv.step(step_key, vstate, batched_action(act_key, space, num_envs), params)
        seen = sum(x.sum(dtype=jnp.float32) for x in jax.tree.leaves(ts.obs)) + ts.reward.sum()  # nothing is dead code
        return (ts.state, total + seen + (ts.terminated | ts.truncated).sum()), None

    run = jax.jit(lambda key, state: jax.lax.scan(step, (state, jnp.float32(0)), jax.random.split(key, steps))[0])
    _, state = jax.jit(venv.reset)(jax.random.key(0), params)
    return num_envs * steps / median_seconds(lambda: run(jax.random.key(1), state), repeats)


def ppo_rate(
    id: str, num_envs: int, seeds: int | None, repeats: int, mesh: str | None = None, updates: int = 2, **config: Any
) -> float:
    """Environment steps per second of all seeds together, learning included."""
    algo = ppo.make(jaxrl.make(id)[0], ppo.Config(num_envs=num_envs, **config))
    program = Program(algo, jax.random.key(0), seeds, None, None, None if mesh is None else make_mesh(mesh))
    carry = program.start()
    program.compile(carry)

    def call():
        nonlocal carry
        carry, rows = program.call(carry, 0, updates)
        return rows

    return updates * algo.steps_per_update * (seeds or 1) / median_seconds(call, repeats)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--envs", type=int, nargs="*", default=[64, 512, 4096, 32768])
    parser.add_argument("--ppo-envs", type=int, nargs="*", default=[8, 64, 512])
    parser.add_argument("--seeds", type=int, nargs="*", default=[1, 8, 64, 512])
    parser.add_argument("--devices", type=int, nargs="*", default=[1, 2, 4, 8])
    parser.add_argument("--steps", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--on-mesh", help="one point, in a process with forced devices: prints JSON")
    parser.add_argument("--out")
    flags = parser.parse_args()
    small = dict(num_steps=32, num_epochs=2, num_minibatches=2)
    if flags.on_mesh is not None:
        print(json.dumps({"rate": ppo_rate("CartPole-v1", 64, 8, flags.repeats, flags.on_mesh, **small)}))
        return
    results: dict[str, dict[str, float]] = {
        "random actions, environments": {
            str(n): env_rate("CartPole-v1", n, flags.steps, flags.repeats) for n in flags.envs
        },
        "PPO of one seed, environments": {
            str(n): ppo_rate("CartPole-v1", n, None, flags.repeats, **small) for n in flags.ppo_envs
        },
        "PPO of 4 environments, seeds": {
            str(n): ppo_rate("CartPole-v1", 4, n, flags.repeats, **small) for n in flags.seeds
        },
    }
    for axis in ("seeds", "envs"):
        results[f"PPO of 8 seeds x 64 environments, devices on {axis}"] = {
            str(n): run_driver(
                sys.executable,
                "scaling.py",
                *("--on-mesh", f"{axis}={n}", "--repeats", str(flags.repeats)),
                env={"XLA_FLAGS": f"--xla_force_host_platform_device_count={n}", "JAX_PLATFORMS": "cpu"},
            )["rate"]
            for n in flags.devices
        }
    rows = []
    for what, rates in results.items():
        first = next(iter(rates.values()), 1.0)
        rows += [(what, n, f"{rate / 1e6:.3f}", f"{rate / first:.2f}") for n, rate in rates.items()]
    print_table("CartPole-v1", ("what", "number", "M steps/s", "of the first"), rows)
    if flags.out:
        save(flags.out, {"steps_per_second": results})


if __name__ == "__main__":
    main()
