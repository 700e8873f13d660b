"""Random-action throughput with auto-reset, against gymnax 1.0.1 in the same process.

Both sides draw actions with the same code, scan the same number of steps and sum the same things (observations,
rewards, ends), so nothing is dead code on one side only. Repeats alternate; the table shows medians and their ratio.

Run: `python benchmarks/env_throughput.py --out env_throughput.json`.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import statistics
import time
from collections.abc import Callable
from typing import Any

import gymnax
import jax
import jax.numpy as jnp
from common import batched_action, geometric_mean, print_table, save

import jaxrl

IDS = ("CartPole-v1", "Pendulum-v1", "Acrobot-v1", "MountainCar-v0")
BSUITE = ("Catch-bsuite", "DeepSea-bsuite", "DiscountingChain-bsuite")  # `--envs bsuite`; sizes are gymnax's
SETTINGS = {"DeepSea-bsuite": {"size": 8}}


def stock_action(key: jax.Array, space: Any, n: int) -> jax.Array:
    """What a user writes first: every environment samples its library's own space with its own key."""
    return jax.vmap(space.sample)(jax.random.split(key, n))


def gymnax_side(id: str, n: int, vmapped: bool) -> tuple[Any, Callable, Callable]:
    """`(action space, reset, step)` as gymnax documents it: one key an environment, split every step."""
    env, params = gymnax.make(id)

    def reset(key):
        return jax.vmap(env.reset, (0, None))(jax.random.split(key, n), params) if vmapped else env.reset(key, params)

    def step(key, state, action):
        if vmapped:
            return jax.vmap(env.step, (0, 0, 0, None))(jax.random.split(key, n), state, action, params)
        return env.step(key, state, action[0], params)

    return env.action_space(params), reset, step


def jaxrl_side(id: str, n: int, vmapped: bool) -> tuple[Any, Callable, Callable]:
    """The same of this library, with default settings; auto-reset lives in `vectorize`, also for one environment."""
    env, params = jaxrl.make(id, **SETTINGS.get(id, {}))
    venv = jaxrl.vectorize(env, n)
    return env.action_space(params), lambda key: venv.reset(key, params), lambda key, s, a: venv.step(key, s, a, params)


def program(side: Callable, id: str, n: int, steps: int, act: Callable, vmapped: bool) -> tuple[Callable, Any]:
    """A compiled `(key, state) -> (state, sums)` of `steps` steps of `n` environments, and its first state."""
    space, reset, step = side(id, n, vmapped)

    def run(key, state):
        def body(carry, key):
            state, total = carry
            act_key, step_key = jax.random.split(key)
            obs, state, reward, terminated, truncated, _ = step(step_key, state, act(act_key, space, n))
            seen = obs.sum() + reward.sum() + (terminated | truncated).sum()
            return (state, total + seen), None

        return jax.lax.scan(body, (state, jnp.float32(0)), jax.random.split(key, steps))[0]

    _, state = jax.jit(reset)(jax.random.key(0))
    # gymnax starts with weakly typed leaves, which would compile the scan twice.
    state = jax.tree.map(lambda x: jnp.asarray(x, x.dtype), state)
    compiled = jax.jit(run)
    return compiled, jax.block_until_ready(compiled(jax.random.key(1), state))[0]


def measure(id: str, n: int, steps: int, act: Callable, vmapped: bool, repeats: int) -> dict[str, Any]:
    """Median environment steps per second of both sides, repeats alternating."""
    sides = {"gymnax": gymnax_side, "jaxrl": jaxrl_side}
    programs = {name: program(side, id, n, steps, act, vmapped) for name, side in sides.items()}
    rates: dict[str, list[float]] = {name: [] for name in sides}
    for repeat in range(repeats):
        for name, (run, state) in programs.items():
            start = time.perf_counter()
            jax.block_until_ready(run(jax.random.key(repeat), state))
            rates[name].append(n * steps / (time.perf_counter() - start))
    medians = {name: statistics.median(r) for name, r in rates.items()}
    return {"env": id, "num_envs": n, "vmap": vmapped, **medians, "ratio": medians["jaxrl"] / medians["gymnax"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--envs", nargs="+", default=IDS)
    parser.add_argument("--steps", type=int, default=1000, help="steps of 2,048 environments in one timed call")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--cases", nargs="+", default=["2048", "stock", "1", "65536"], help="subset of the default")
    parser.add_argument("--out", default="env_throughput.json")
    args = parser.parse_args()
    cases = {  # title: (environments, steps, action draw, vmap)
        "2048": ("2,048 environments", 2048, args.steps, batched_action, True),
        "stock": ("2,048 environments, stock action draws", 2048, args.steps, stock_action, True),
        "1": ("1 environment, no vmap", 1, 20 * args.steps, batched_action, False),
        "65536": ("65,536 environments", 65536, -(-args.steps // 20), batched_action, True),
    }
    ids = BSUITE if args.envs == ["bsuite"] else args.envs
    results = {}
    for case in args.cases:
        title, n, steps, act, vmapped = cases[case]
        rows = [measure(id, n, steps, act, vmapped, args.repeats) for id in ids]
        results[case] = rows
        mean = geometric_mean([r["ratio"] for r in rows])
        table = [[r["env"], f"{r['gymnax'] / 1e6:.2f}", f"{r['jaxrl'] / 1e6:.2f}", f"{r['ratio']:.2f}"] for r in rows]
        table.append(["geometric mean", "", "", f"{mean:.2f}"])
        print_table(title, ["", "gymnax M/s", "jaxrl M/s", "ratio"], table)
    save(args.out, {"gymnax": importlib.metadata.version("gymnax"), "results": results})


if __name__ == "__main__":
    main()
