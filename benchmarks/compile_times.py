"""How long each algorithm takes to trace and compile at its default settings, on CartPole-v1 or Pendulum-v1.

One jitted program trains for a while, `jaxrl.train`, as `experiments/results/run.py` does: `init`, and a scan of
`update`. Without the compilation cache; seconds of the clock, in one process after the other.

Run: `python benchmarks/compile_times.py [--only ppo sac] --out compile_times.json`.
"""

from __future__ import annotations

import argparse
import json
import sys
import time

from common import print_table, run_driver, save


def own(name: str) -> dict[str, float]:
    """Seconds to trace and to compile, in this process, after a first program of another kind."""
    import jax
    import jax.numpy as jnp

    import jaxrl
    from jaxrl.registry import algo_actions

    jax.jit(lambda key: jax.random.normal(key, (8,)) @ jnp.ones(8))(jax.random.key(0)).block_until_ready()
    module = jaxrl.get_algo(name)
    env, _ = jaxrl.make("CartPole-v1" if "Discrete" in algo_actions(name) else "Pendulum-v1")
    begin = time.perf_counter()
    algo = module.make(env)
    lowered = jax.jit(lambda key: jaxrl.train(algo, key, 100 * algo.steps_per_update)).lower(jax.random.key(0))
    traced = time.perf_counter()
    lowered.compile()
    return {"trace_s": traced - begin, "compile_s": time.perf_counter() - traced}


def main() -> None:
    from jaxrl import list_algos
    from jaxrl.registry import algo_actions

    every = [name for name in list_algos() if algo_actions(name)]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=every, choices=every)
    parser.add_argument("--out", default="compile_times.json")
    parser.add_argument("--own", help="internal")
    args = parser.parse_args()
    if args.own:
        print(json.dumps(own(args.own)))
        return
    times = {name: run_driver(sys.executable, "compile_times.py", "--own", name) for name in args.only}
    rows = [
        [name, f"{t['trace_s']:.1f}", f"{t['compile_s']:.1f}", f"{t['trace_s'] + t['compile_s']:.1f}"]
        for name, t in times.items()
    ]
    print_table("Default settings", ["algorithm", "trace s", "compile s", "together"], rows)
    save(args.out, times)


if __name__ == "__main__":
    main()
