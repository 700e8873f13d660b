"""MinAtar: steps per second with random actions and auto-reset, and compile times, against gymnax 1.0.1.

Both sides run in this process, draw actions with the same code, scan the same number of steps and sum the same things
(observations, rewards, ends), so nothing is dead code on one side only. Repeats alternate; the tables show medians and
their ratio. Ours draws sticky actions, which gymnax leaves out. Compile: reset and step of one environment, from trace
to executable, without a compilation cache.

Run: `python benchmarks/minatar.py --out minatar.json`; without gymnax installed, `--alone`. gymnax's
Seaquest is slow: `--envs Seaquest-MinAtar --steps 10 --repeats 3`.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("JAX_ENABLE_COMPILATION_CACHE", "false")

import jax
import jax.numpy as jnp
from common import geometric_mean, print_table, save

import jaxrl
from jaxrl.math import fast_key

IDS = ("Asterix-MinAtar", "Breakout-MinAtar", "Freeway-MinAtar", "SpaceInvaders-MinAtar", "Seaquest-MinAtar")


def gymnax_side(id: str, n: int) -> tuple[int, Callable, Callable, Callable]:
    """`(number of actions, reset and step of n environments, reset and step of one)`, as gymnax documents it."""
    import gymnax

    env, params = gymnax.make(id)

    def reset(key):
        return jax.vmap(env.reset, (0, None))(jax.random.split(key, n), params)

    def step(key, state, action):
        return jax.vmap(env.step, (0, 0, 0, None))(jax.random.split(key, n), state, action, params)

    def both(key):
        _, state = env.reset(key, params)
        return env.step(key, state, jnp.int32(0), params)

    return env.action_space(params).n, reset, step, both


def jaxrl_side(id: str, n: int) -> tuple[int, Callable, Callable, Callable]:
    """The same of this library, with default settings."""
    env, params = jaxrl.make(id)
    venv = jaxrl.vectorize(env, n)

    def both(key):
        _, state = env.reset(key, params)
        return env.step(key, state, jnp.int32(0), params)

    return (
        env.action_space(params).n,
        lambda key: venv.reset(key, params),
        lambda key, state, action: venv.step(key, state, action, params),
        both,
    )


def program(side: Callable, id: str, n: int, steps: int) -> tuple[Callable, Any]:
    """A compiled `(key, state) -> (state, sums)` of `steps` steps of `n` environments, and its first state."""
    actions, reset, step, _ = side(id, n)

    def run(key, state):
        def body(carry, key):
            state, total = carry
            act_key, step_key = jax.random.split(key)
            # Bias below 6 / 2**16, and half the random words of `randint`.
            action = (jax.random.bits(fast_key(act_key), (n,), jnp.uint16) % actions).astype(jnp.int32)
            obs, state, reward, terminated, truncated, _ = step(step_key, state, action)
            seen = obs.sum() + reward.sum() + (terminated | truncated).sum()
            return (state, total + seen), None

        return jax.lax.scan(body, (state, jnp.float32(0)), jax.random.split(key, steps))[0]

    _, state = jax.jit(reset)(jax.random.key(0))
    # gymnax starts with weakly typed leaves, which would compile the scan twice.
    state = jax.tree.map(lambda x: jnp.asarray(x, x.dtype), state)
    compiled = jax.jit(run)
    # States that many random episodes have been through, not all at their start.
    return compiled, jax.block_until_ready(compiled(jax.random.key(1), state))[0]


def throughput(sides: dict[str, Callable], id: str, n: int, steps: int, repeats: int) -> dict[str, Any]:
    """Median environment steps per second of each side, repeats alternating."""
    programs = {name: program(side, id, n, steps) for name, side in sides.items()}
    rates: dict[str, list[float]] = {name: [] for name in sides}
    for repeat in range(repeats):
        for name, (run, state) in programs.items():
            start = time.perf_counter()
            jax.block_until_ready(run(jax.random.key(repeat), state))
            rates[name].append(n * steps / (time.perf_counter() - start))
    return {"env": id, "num_envs": n, **{name: statistics.median(r) for name, r in rates.items()}}


def compile_seconds(side: Callable, id: str) -> float:
    """Trace and compile reset and step of one environment."""
    both = side(id, 1)[-1]
    start = time.perf_counter()
    jax.jit(both).lower(jax.random.key(0)).compile()
    return time.perf_counter() - start


def report(title: str, rows: list[dict[str, Any]], unit: float, inverse: bool) -> None:
    """A table of both sides, their ratio and its geometric mean."""
    table, ratios = [], []
    for row in rows:
        cells = [row["env"], *(f"{row[name] / unit:.3g}" if name in row else "" for name in ("gymnax", "jaxrl"))]
        if "gymnax" in row:
            ratio = row["jaxrl"] / row["gymnax"]
            ratios.append(1 / ratio if inverse else ratio)
            cells.append(f"{ratios[-1]:.2f}")
        table.append(cells if len(cells) == 4 else [*cells, ""])
    if len(ratios) > 1:
        table.append(["geometric mean", "", "", f"{geometric_mean(ratios):.2f}"])
    print_table(title, ["", "gymnax", "jaxrl", "ratio"], table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--envs", nargs="+", default=IDS[:4])
    parser.add_argument("--num-envs", nargs="+", type=int, default=[1024, 2048])
    parser.add_argument("--steps", type=int, default=200, help="steps of all environments in one timed call")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--alone", action="store_true", help="without gymnax")
    parser.add_argument("--no-compile", action="store_true", help="throughput only")
    parser.add_argument("--no-throughput", action="store_true", help="compile times only")
    parser.add_argument("--out", default="minatar.json")
    args = parser.parse_args()
    sides = {"jaxrl": jaxrl_side} if args.alone else {"gymnax": gymnax_side, "jaxrl": jaxrl_side}
    results: dict[str, Any] = {}
    for n in () if args.no_throughput else args.num_envs:
        results[str(n)] = [throughput(sides, id, n, args.steps, args.repeats) for id in args.envs]
        report(f"{n:,} environments, M steps/s", results[str(n)], 1e6, inverse=False)
    if not args.no_compile:
        rows = [{"env": id, **{name: compile_seconds(side, id) for name, side in sides.items()}} for id in IDS]
        results["compile"] = rows
        report("Compile reset and step, seconds", rows, 1.0, inverse=True)
    save(args.out, {"results": results})


if __name__ == "__main__":
    main()
