"""How long an environment's reset and step take to trace and compile: alone, and vectorised with auto-reset.

One id a class (`--ids 'BabyAI*'`: all that match). Without the compilation cache, seconds of the clock, one process.

Run: `python benchmarks/env_compile.py --out env_compile.json`.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

from common import print_table, save


def seconds(function: Any, *args: Any) -> float:
    """To trace and compile `function(*args)`, from nothing."""
    import jax

    jax.clear_caches()
    begin = time.perf_counter()
    jax.jit(function).lower(*args).compile()
    return time.perf_counter() - begin


def measure(id: str, num_envs: int) -> dict[str, float]:
    import jax

    import jaxrl
    from jaxrl.vector_env import vectorize

    env, params = jaxrl.make(id)
    venv, key = vectorize(env, num_envs), jax.random.key(0)
    _, state = jax.eval_shape(env.reset, key, params)
    _, states = jax.eval_shape(venv.reset, key, params)
    action = jax.eval_shape(lambda key: env.action_space(params).sample(key), key)
    actions = jax.tree.map(lambda x: jax.ShapeDtypeStruct((num_envs, *x.shape), x.dtype), action)
    return {
        "reset": seconds(env.reset, key, params),
        "step": seconds(env.step, key, state, action, params),
        "vectorised reset": seconds(venv.reset, key, params),
        "vectorised step": seconds(venv.step, key, states, actions, params),
    }


def one_id_a_class() -> list[str]:
    from jaxrl.registry import environments

    return sorted({str(entry.target): id for id, entry in environments().items()}.values())


def main() -> None:
    import jax

    from jaxrl import list_envs

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ids", nargs="*", help="shell patterns; default: one id a class")
    parser.add_argument("--num-envs", type=int, default=1024)
    parser.add_argument("--out", default="env_compile.json")
    args = parser.parse_args()
    jax.config.update("jax_enable_compilation_cache", False)
    ids = one_id_a_class() if args.ids is None else sorted({id for p in args.ids for id in list_envs(p)})
    times = {}
    for id in ids:
        times[id] = measure(id, args.num_envs)
        print(id, {name: round(value, 2) for name, value in times[id].items()}, flush=True)
    worst = sorted(times, key=lambda id: -(times[id]["reset"] + times[id]["step"]))
    rows = [[id, *(f"{value:.1f}" for value in times[id].values())] for id in worst]
    print_table("Seconds to trace and compile", ["id", *times[worst[0]]], rows)
    save(args.out, times)


if __name__ == "__main__":
    main()
