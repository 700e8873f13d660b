"""One process of crazyflow's simulator, timed: steps of its first-principles physics from rotor speed commands.

Run by `quadcopter.py` in crazyflow's own environment. The scan over steps is crazyflow's (`Sim.step(n_steps)`), one
call of it is timed; commands are rotor speeds, so that none of its controllers runs. Prints JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", nargs="+", type=int, required=True)
    parser.add_argument("--steps", nargs="+", type=int, required=True, help="of one timed call, for each of --worlds")
    parser.add_argument("--integrators", nargs="+", default=["euler", "rk4"])
    parser.add_argument("--control", default="rotor_vel", choices=["rotor_vel", "attitude"])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--platform", default="cpu")
    args = parser.parse_args()

    import jax
    import jax.numpy as jnp
    from crazyflow.sim import Sim

    result = {}
    for worlds, steps in zip(args.worlds, args.steps, strict=True):
        for integrator in args.integrators:
            sim = Sim(n_worlds=worlds, control=args.control, integrator=integrator, freq=500, device=args.platform)
            sim.reset()
            command = jnp.full((worlds, 1, 4), 15_000.0, device=sim.device)
            if args.control == "rotor_vel":
                sim.rotor_vel_control(command)
            else:
                sim.attitude_control(command * jnp.array([0, 0, 0, 0.4 / 15_000]))
            start = time.process_time()
            sim.step(steps)
            jax.block_until_ready(sim.data)
            first = time.process_time() - start
            seconds, processor = [], []
            for _ in range(args.repeats):
                start, before = time.perf_counter(), time.process_time()
                sim.step(steps)
                jax.block_until_ready(sim.data)
                seconds.append(time.perf_counter() - start)
                processor.append(time.process_time() - before)
            run = statistics.median(seconds)
            name = f"{integrator} {worlds}"
            result[f"{name} steps"] = worlds * steps / run
            result[f"{name} per core"] = worlds * steps / min(processor)
            result[f"{name} compile_s"] = first - min(processor)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
