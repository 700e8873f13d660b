"""What do resets cost? Microseconds a vectorised step without them, with `dense` ones, and with `sparse` ones.

1,024 environments at times drawn uniformly below the time limit, random actions, 128 steps of which all is kept.
Without: an episode that ends goes on. Repeats alternate; medians.

Run: `python benchmarks/reset_profile.py --out reset_profile.json`.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import jax
from common import batched_action, print_table, save

import jaxrl
from jaxrl.vector_env import vectorize

IDS = [
    "MiniGrid-DoorKey-8x8-v0",
    "MiniGrid-FourRooms-v0",
    "MiniGrid-MultiRoom-N6-v0",
    "MiniGrid-KeyCorridorS3R3-v0",
    "Maze-v0",
]


def program(id: str, strategy: str, num_envs: int, steps: int) -> Any:
    env, params = jaxrl.make(id)
    venv = vectorize(env, num_envs, "sparse" if strategy == "none" else strategy)

    def step(vstate, key):
        action_key, step_key = jax.random.split(key)
        action = batched_action(action_key, env.action_space(params), num_envs)
        if strategy == "none":
            keys = jax.random.split(step_key, num_envs)
            ts = jax.vmap(env.step, (0, 0, 0, None))(keys, vstate.env, action, params)
            vstate = vstate.replace(env=ts.state, episode_return=vstate.episode_return + ts.reward)
            return vstate, (ts.obs, ts.reward, ts.terminated, ts.truncated, vstate.episode_return)
        ts = venv.step(step_key, vstate, action, params)
        return ts.state, (ts.obs, ts.reward, ts.terminated, ts.truncated, ts.info["episode_return"])

    run = jax.jit(lambda vstate, key: jax.lax.scan(step, vstate, jax.random.split(key, steps)))
    vstate = jax.jit(venv.reset)(jax.random.key(0), params)[1]
    clock = jax.random.randint(jax.random.key(1), (num_envs,), 0, params.max_steps)
    vstate = vstate.replace(env=vstate.env.replace(time=clock))
    compiled = run.lower(vstate, jax.random.key(0)).compile()
    jax.block_until_ready(compiled(vstate, jax.random.key(0)))
    return lambda i: compiled(vstate, jax.random.key(i))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ids", nargs="*", default=IDS)
    parser.add_argument("--num-envs", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", default="reset_profile.json")
    args = parser.parse_args()
    results, rows = {}, []
    for id in args.ids:
        runs = {s: program(id, s, args.num_envs, args.steps) for s in ("none", "dense", "sparse")}
        seconds: dict[str, list[float]] = {name: [] for name in runs}
        for i in range(args.repeats):
            for name, run in runs.items():
                begin = time.perf_counter()
                jax.block_until_ready(run(i))
                seconds[name].append((time.perf_counter() - begin) / args.steps)
        cost = {name: 1e6 * statistics.median(x) for name, x in seconds.items()}
        results[id] = cost
        share = [100 * (1 - cost["none"] / cost[name]) for name in ("dense", "sparse")]
        rows.append([id, *(f"{x:.0f}" for x in cost.values()), *(f"{max(x, 0):.0f} %" for x in share)])
        print(rows[-1], flush=True)
    head = ["id", "no reset, us", "dense", "sparse", "resets' share, dense", "sparse"]
    print_table(f"{args.num_envs} environments, microseconds a step of all", head, rows)
    save(args.out, results)


if __name__ == "__main__":
    main()
