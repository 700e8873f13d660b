"""Random-action throughput with auto-reset of Snake, 2048, Minesweeper and Sokoban, against Jumanji in one process.

Both sides draw the same actions with the same code, scan the same number of steps and sum everything that they return.
Jumanji runs under both of its auto-resets, `vmap` of the one and the batched one; the faster counts. Its Sokoban reads
rooms from files; here it has a single one, so its reset costs nothing, where ours makes a new room (`Sokoban`) or has
one given (`SokobanLevel`).

Run, with `pip install jumanji==1.1.2`: `python benchmarks/combinatorial.py --out combinatorial.json`.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from common import geometric_mean, print_table, save
from jumanji.environments import Game2048, Minesweeper, Snake, Sokoban
from jumanji.environments.routing.sokoban.generator import SimpleSolveGenerator
from jumanji.wrappers import AutoResetWrapper, VmapAutoResetWrapper

from jaxrl.envs.grid.combinatorial import game_2048, minesweeper, snake
from jaxrl.envs.grid.sokoban import sokoban
from jaxrl.math import fast_key
from jaxrl.vector_env import vectorize

PAIRS: dict[str, tuple[Any, Callable[[], Any]]] = {
    "Snake": (snake.Snake(), Snake),
    "Game2048": (game_2048.Game2048(), Game2048),
    "Minesweeper": (minesweeper.Minesweeper(), Minesweeper),
    "Sokoban": (sokoban.Sokoban(), lambda: Sokoban(generator=SimpleSolveGenerator())),
    "SokobanLevel": (sokoban.SokobanLevel(), lambda: Sokoban(generator=SimpleSolveGenerator())),
}


def total(tree: Any) -> jax.Array:
    """The sum of everything in a tree but keys."""
    leaves = [x for x in jax.tree.leaves(tree) if not jnp.issubdtype(x.dtype, jax.dtypes.prng_key)]
    return sum((x.astype(jnp.float32).sum() for x in leaves), jnp.float32(0))


def ours(env: Any, n: int) -> tuple[Callable, Callable]:
    venv, params = vectorize(env, n), env.default_params

    def step(key, state, action):
        ts = venv.step(key, state, action, params)
        return ts.state, total((ts.obs, ts.reward, ts.terminated, ts.truncated))

    return lambda key: venv.reset(key, params)[1], step


def jumanji(make: Callable[[], Any], n: int, batched: bool) -> tuple[Callable, Callable]:
    plain = make()
    env = VmapAutoResetWrapper(plain) if batched else AutoResetWrapper(plain)

    def step(key, state, action):
        if isinstance(plain, Minesweeper):
            action = jnp.stack(jnp.divmod(action, plain.num_cols), -1)
        state, ts = env.step(state, action) if batched else jax.vmap(env.step)(state, action)
        return state, total((ts.observation, ts.reward, ts.discount, ts.step_type))

    def reset(key):
        keys = jax.random.split(key, n)
        return (env.reset(keys) if batched else jax.vmap(env.reset)(keys))[0]

    return reset, step


def program(side: tuple[Callable, Callable], num_actions: int, n: int, steps: int) -> tuple[Callable, Any, float]:
    """`(key, state) -> (state, sum)` of `steps` steps, a first state, and the seconds that compiling took."""
    reset, step = side

    def run(key, state):
        def body(carry, key):
            state, seen = carry
            act_key, step_key = jax.random.split(key)
            action = (jax.random.bits(fast_key(act_key), (n,), jnp.uint16) % num_actions).astype(jnp.int32)
            state, more = step(step_key, state, action)
            return (state, seen + more), None

        return jax.lax.scan(body, (state, jnp.float32(0)), jax.random.split(key, steps))[0]

    start = time.perf_counter()
    state = jax.jit(reset)(jax.random.PRNGKey(0))
    state = jax.tree.map(lambda x: jnp.asarray(x, x.dtype), state)  # strongly typed, or the scan compiles twice
    compiled = jax.jit(run).lower(jax.random.key(1), state).compile()
    return compiled, jax.block_until_ready(compiled(jax.random.key(1), state))[0], time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--envs", nargs="+", default=list(PAIRS))
    parser.add_argument("--num-envs", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", default="combinatorial.json")
    args = parser.parse_args()
    n, rows = args.num_envs, []
    for name in args.envs:
        env, make = PAIRS[name]
        num_actions = env.action_space(env.default_params).n
        sides = {"jaxrl": ours(env, n), "vmap": jumanji(make, n, False), "batched": jumanji(make, n, True)}
        programs = {side: program(fns, num_actions, n, args.steps) for side, fns in sides.items()}
        rates: dict[str, list[float]] = {side: [] for side in programs}
        for repeat in range(args.repeats):
            for side, (run, state, _) in programs.items():
                start = time.perf_counter()
                jax.block_until_ready(run(jax.random.key(repeat), state))
                rates[side].append(n * args.steps / (time.perf_counter() - start))
        row = {side: statistics.median(values) for side, values in rates.items()}
        row |= {f"{side} compile": seconds for side, (_, _, seconds) in programs.items()}
        rows.append({"env": name, **row, "ratio": row["jaxrl"] / max(row["vmap"], row["batched"])})
        print(rows[-1], flush=True)
    table = [
        [r["env"], *(f"{r[side] / 1e6:.2f}" for side in ("vmap", "batched", "jaxrl")), f"{r['ratio']:.2f}"]
        for r in rows
    ]
    table.append(["geometric mean", "", "", "", f"{geometric_mean([r['ratio'] for r in rows]):.2f}"])
    header = ["", "Jumanji, vmap M/s", "Jumanji, batched M/s", "jaxrl M/s", "ratio"]
    print_table(f"{n} environments", header, table)
    save(args.out, {"jumanji": importlib.metadata.version("jumanji"), "results": rows})


if __name__ == "__main__":
    main()
