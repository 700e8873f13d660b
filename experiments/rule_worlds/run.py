"""A million different rulesets for each benchmark: which draws to skip, how deep they are, whether they can be solved.

    python experiments/rule_worlds/run.py

Draws the candidates of each benchmark and finds those that were drawn before; the gaps between their numbers are
`envs/grid/rule_world/benchmarks.npz`. Then every ruleset of each benchmark is made anew through `benchmark(name)`, to
see that all 64-bit fingerprints differ, and counted by depth; a sample is searched for plans. Writes `results.json`.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.envs.grid.rule_world import benchmarks, rulesets, search

BATCH = 10_000


def over(function: Callable[[jax.Array], jax.Array], count: int) -> np.ndarray:
    """`function` of 0 .. count - 1, in batches."""
    batched = jax.jit(jax.vmap(function))
    return np.concatenate([np.asarray(batched(jnp.arange(i, i + BATCH))) for i in range(0, count, BATCH)])[:count]


def single(fingerprints: np.ndarray) -> np.ndarray:
    """Two words as one number."""
    return fingerprints[:, 0].astype(np.uint64) << np.uint64(32) | fingerprints[:, 1]


def find(name: str) -> np.ndarray:
    """The numbers of candidates that repeat an earlier one, below the one that makes it a million."""
    drawn = single(over(lambda i: benchmarks.fingerprint(benchmarks.candidate(name, i)), benchmarks.SIZE + 5 * BATCH))
    first = np.zeros(drawn.size, bool)
    first[np.unique(drawn, return_index=True)[1]] = True
    last = np.flatnonzero(first)[benchmarks.SIZE - 1]
    return np.flatnonzero(~first[:last])


def examine(name: str, sample: int) -> dict:
    """Make all of them, and look at each."""
    bench = benchmarks.benchmark(name)

    def look(index: jax.Array) -> jax.Array:
        ruleset = bench.ruleset(index)
        numbers = (rulesets.depth(ruleset), jnp.sum(ruleset.rules[:, 0] > 0), jnp.sum(ruleset.objects[:, 0] > 0))
        task = ruleset.replace(objects=jnp.zeros_like(ruleset.objects))
        prints = [benchmarks.fingerprint(x) for x in (ruleset, task)]
        return jnp.concatenate([jnp.stack(numbers).astype(jnp.uint32), *prints])

    start = time.perf_counter()
    rows = over(look, len(bench))
    seconds = time.perf_counter() - start
    assert np.unique(single(rows[:, 3:5])).size == len(bench), f"{name}: two rulesets are the same"
    picked = np.random.default_rng(0).integers(len(bench), size=sample)
    chosen = jax.device_get(jax.jit(jax.vmap(bench.ruleset))(jnp.asarray(picked, jnp.int32)))
    plans = [search.solve(jax.tree.map(lambda x, i=i: x[i], chosen)) for i in range(sample)]
    lengths = [len(plan.steps) for plan in plans if plan]
    return {
        "rulesets": len(bench),
        "skipped": int(bench.skipped.size),
        "goals_and_rules": int(np.unique(single(rows[:, 5:])).size),
        "depth": np.bincount(rows[:, 0], minlength=5).tolist(),
        "rules": np.bincount(rows[:, 1]).tolist(),
        "objects": np.bincount(rows[:, 2]).tolist(),
        "solved": [len(lengths), sample],
        "plan_steps": [float(np.mean(lengths)), int(np.max(lengths))],
        "seconds": round(seconds, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, default=500, help="rulesets of each benchmark to solve")
    sample = parser.parse_args().sample
    names = [f"{config}-1m" for config in rulesets.CONFIGS]
    gaps = {name: np.diff(find(name), prepend=0).astype(np.uint32) for name in names}
    np.savez_compressed(benchmarks.SKIPPED, **gaps)
    results = {}
    for name in names:
        results[name] = examine(name, sample)
        print(name, json.dumps(results[name]), flush=True)
    Path(__file__).with_name("results.json").write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
