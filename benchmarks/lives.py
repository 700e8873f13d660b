"""Whole lives a second of an evolution strategy over update rules, whose lives are of different lengths.

Lives of 10 to 250 updates, log-uniform, of tabular agents on small grids: all pairs at once, where each life takes as
long as the longest, beside groups of lives of like length (`StrategyConfig.at_once`). Seconds of the clock, in turns.

Run: `python benchmarks/lives.py --out results/lives.json`.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time

from common import print_table, save


def main() -> None:
    import jax
    import jax.numpy as jnp

    import jaxrl
    from jaxrl.algos.curricula import dr
    from jaxrl.algos.meta import lpg
    from jaxrl.meta.strategies import StrategyConfig, strategy

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num-pairs", type=int, default=64)
    parser.add_argument("--at-once", type=int, nargs="+", default=[64, 32, 16, 8, 4])
    parser.add_argument("--lengths", type=int, nargs=2, default=[10, 250])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", default="lives.json")
    args = parser.parse_args()
    low, high = args.lengths

    def lifetime(key: jax.Array, level: object) -> jax.Array:
        share = jax.random.uniform(key)
        return jnp.exp(math.log(low) + share * math.log(high / low)).astype(jnp.int32)

    env, params = jaxrl.make("GridWorld-small-v0", observation="index")
    programs = {}
    for at_once in args.at_once:
        config = StrategyConfig(num_pairs=args.num_pairs, at_once=at_once)
        meta = strategy(
            lpg.rule(lpg.RuleConfig(features=16, temporal=True)),
            env,
            dr.make(env.levels.generate),
            config,
            lifetime_fn=lifetime,
        )
        state = jax.jit(meta.init)(jax.random.key(0), None, params)
        start = time.perf_counter()
        update = jax.jit(meta.update).lower(state).compile()
        compiled = time.perf_counter() - start
        _, metrics = jax.block_until_ready(update(state))
        programs[at_once] = update, state, compiled, float(metrics["final_return"])
    seconds: dict[int, list[float]] = {at_once: [] for at_once in programs}
    for _ in range(args.repeats):
        for at_once, (update, state, *_) in programs.items():
            start = time.perf_counter()
            jax.block_until_ready(update(state))
            seconds[at_once].append(time.perf_counter() - start)
    rows, rates = [], {}
    for at_once, times in seconds.items():
        rates[at_once] = 2 * args.num_pairs / statistics.median(times)
        ratio = rates[at_once] / rates[args.at_once[0]]
        compiled, returned = programs[at_once][2:]
        rows.append([str(at_once), f"{rates[at_once]:.1f}", f"{ratio:.2f}", f"{compiled:.1f}", f"{returned:.4f}"])
    print_table("Lives", ["pairs at once", "lives a second", "of the first", "compile, s", "final return"], rows)
    save(args.out, {"settings": vars(args), "lives_per_second": rates})


if __name__ == "__main__":
    main()
