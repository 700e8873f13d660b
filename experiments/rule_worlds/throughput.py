"""Random-action throughput with auto-reset beside xminigrid 0.9.1, in one process, on the same rulesets.

    python experiments/rule_worlds/throughput.py --out throughput.json       (where both libraries can be imported)

1,024 environments of XLand-MiniGrid-R4-13x13, each with a ruleset of its own from one of our benchmarks; the same
actions; observations, rewards and ends are summed. A trial ends with the goal or after 507 steps and everything is put
to new places: in xminigrid by its `GymAutoResetWrapper`, here inside the step (`meta=True`, an episode of 507 steps).
Repeats alternate; medians. Compile times (reset and a scan of steps) are CPU seconds of the process.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import xminigrid
from xminigrid.types import RuleSet
from xminigrid.wrappers import GymAutoResetWrapper

from jaxrl.envs.grid.rule_world import benchmarks, rules
from jaxrl.envs.grid.rule_world.rule_world import RuleWorld
from jaxrl.vector_env import vectorize


def ours(tasks: rules.Ruleset, n: int) -> tuple[Callable, Callable]:
    env = RuleWorld("R4", 13, params_are_level=True)
    level = jax.vmap(env.level)(tasks)
    venv = vectorize(env, n, batched_params=True)

    def step(key, state, action):
        ts = venv.step(key, state, action, level)
        seen = ts.obs["image"].sum(dtype=jnp.int32) + ts.reward.sum() + ts.info["trial_ended"].sum()
        return ts.state, seen

    return lambda key: venv.reset(key, level)[1], step


def theirs(tasks: rules.Ruleset, n: int) -> tuple[Callable, Callable]:
    env, params = xminigrid.make("XLand-MiniGrid-R4-13x13")
    env = GymAutoResetWrapper(env)
    params = params.replace(ruleset=RuleSet(tasks.goal, tasks.rules, tasks.objects))
    axes = jax.tree.map(lambda _: 0, params)

    def step(key, timestep, action):
        timestep = jax.vmap(env.step, (axes, 0, 0))(params, timestep, action)
        seen = timestep.observation.sum(dtype=jnp.int32) + timestep.reward.sum() + timestep.last().sum()
        return timestep, seen

    return lambda key: jax.vmap(env.reset, (axes, 0))(params, jax.random.split(key, n)), step


def program(side: Callable, tasks: rules.Ruleset, n: int, steps: int) -> tuple[Callable, Any, float]:
    """A compiled `(key, state) -> (state, sum)` of `steps` steps, its first state, and CPU seconds to compile both."""
    reset, step = side(tasks, n)

    def run(key, state):
        def body(carry, key):
            state, total = carry
            act_key, step_key = jax.random.split(key)
            state, seen = step(step_key, state, (jax.random.bits(act_key, (n,), jnp.uint16) % 6).astype(jnp.int32))
            return (state, total + seen), None

        return jax.lax.scan(body, (state, jnp.float32(0)), jax.random.split(key, steps))[0]

    start = time.process_time()
    state = jax.tree.map(lambda x: jnp.asarray(x, x.dtype), jax.jit(reset)(jax.random.key(0)))
    compiled = jax.jit(run).lower(jax.random.key(1), state).compile()
    seconds = time.process_time() - start
    return compiled, jax.block_until_ready(compiled(jax.random.key(1), state))[0], seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num-envs", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", default="throughput.json")
    args = parser.parse_args()
    rows = []
    for name in ("trivial-1m", "medium-1m", "high-1m"):
        tasks = jax.jit(jax.vmap(benchmarks.benchmark(name).ruleset))(jnp.arange(args.num_envs))
        sides = {"xminigrid": theirs, "jaxrl": ours}
        programs = {key: program(side, tasks, args.num_envs, args.steps) for key, side in sides.items()}
        rates: dict[str, list[float]] = {key: [] for key in sides}
        for repeat in range(args.repeats):
            for key, (run, state, _) in programs.items():
                start = time.perf_counter()
                jax.block_until_ready(run(jax.random.key(repeat), state))
                rates[key].append(args.num_envs * args.steps / (time.perf_counter() - start))
        row: dict[str, Any] = {"benchmark": name}
        for key in sides:
            row |= {f"{key}_rate": statistics.median(rates[key]), f"{key}_compile_cpu_s": programs[key][2]}
        row["ratio"] = row["jaxrl_rate"] / row["xminigrid_rate"]
        rows.append(row)
        print(json.dumps(row), flush=True)
    versions = {"jax": jax.__version__, "xminigrid": "0.9.1", "device": str(jax.devices()[0])}
    Path(args.out).write_text(json.dumps({"versions": versions, "results": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
