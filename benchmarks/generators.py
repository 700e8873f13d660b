"""What the generator inside a vectorised step and the way of starting episodes cost: threefry and the hash, in turns.

Random actions of 2,048 environments, everything summed, on one core (`taskset`); microseconds of the processor a step,
and its seconds to compile a scan of 200 of them; where there is an accelerator, of the clock. "threefry" is with the
starts of `auto`: `sparse` ones on a CPU, `dense` ones elsewhere.

Run: `taskset -c 0 python benchmarks/generators.py --out results/generators.json`.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

from common import batched_action, print_table, save


def clock() -> float:
    import jax

    return time.process_time() if jax.default_backend() == "cpu" else time.perf_counter()


CASES = {"threefry": ("auto", "threefry"), "hash, sparse": ("auto", "hash"), "hash, dense": ("dense", "hash")}
IDS = (
    "CartPole-v1",
    "CartPoleSwingUp-v0",
    "Acrobot-v1",
    "MountainCar-v0",
    "MountainCarContinuous-v0",
    "Pendulum-v1",
    "PointMass-v0",
    "Breakout-MinAtar",
    "Asterix-MinAtar",
    "Freeway-MinAtar",
    "SpaceInvaders-MinAtar",
    "MiniGrid-DoorKey-8x8-v0",
    "Quadcopter-Hover-v0",
)


def program(id: str, num_envs: int, steps: int, reset: str, generator: str) -> tuple[Any, Any, float]:
    """A compiled `(key, vstate) -> (vstate, sum)`, a state after 600 steps, and the seconds to compile."""
    import jax
    import jax.numpy as jnp

    import jaxrl

    env, params = jaxrl.make(id)
    venv = jaxrl.vectorize(env, num_envs, reset, generator=generator)
    space = env.action_space(params)

    def body(carry, key):
        vstate, total = carry
        act_key, step_key = jax.random.split(key)
        ts = venv.step(step_key, vstate, batched_action(act_key, space, num_envs), params)
        seen = sum(jnp.sum(x, dtype=jnp.float32) for x in jax.tree.leaves(ts.obs))
        return (ts.state, total + seen + ts.reward.sum() + (ts.terminated | ts.truncated).sum()), None

    def run(key, vstate):
        return jax.lax.scan(body, (vstate, jnp.float32(0)), jax.random.split(key, steps))[0]

    _, vstate = jax.jit(venv.reset)(jax.random.key(0), params)
    begin = clock()
    compiled = jax.jit(run).lower(jax.random.key(1), vstate).compile()
    seconds = clock() - begin
    for i in range(-(-600 // steps)):
        vstate, _ = jax.block_until_ready(compiled(jax.random.key(100 + i), vstate))
    return compiled, vstate, seconds


def main() -> None:
    import jax

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ids", nargs="+", default=IDS)
    parser.add_argument("--num-envs", type=int, default=2048)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--out", default="generators.json")
    args = parser.parse_args()
    jax.config.update("jax_enable_compilation_cache", False)
    results, rows = {}, []
    for id in args.ids:
        programs = {name: program(id, args.num_envs, args.steps, *case) for name, case in CASES.items()}
        times: dict[str, list[float]] = {name: [] for name in CASES}
        for repeat in range(args.repeats):
            for name, (compiled, vstate, _) in programs.items():
                begin = clock()
                jax.block_until_ready(compiled(jax.random.key(repeat), vstate))
                times[name].append((clock() - begin) / args.steps * 1e6)
        row = results[id] = {
            name: {"us": statistics.median(times[name]), "compile_s": programs[name][2]} for name in CASES
        }
        rows.append([id, *(f"{x['us']:.1f} ({x['compile_s']:.1f})" for x in row.values())])
        print(*rows[-1], flush=True)
    print_table("Microseconds a step (seconds to compile)", ["id", *CASES], rows)
    save(args.out, results)


if __name__ == "__main__":
    main()
