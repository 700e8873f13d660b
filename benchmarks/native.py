"""Against native code: EnvPool 1.2.5, and a loop of C compiled here as the roofline of a core.

EnvPool: alternating fresh processes on all cores, steps a second of wall clock, each side at the better of its numbers
of environments; its actions are drawn beforehand, its observations are in memory for the caller; ours draw actions and
sum observations, rewards and ends in the program.

C: `cartpole_loop.c` (an environment after another, or 64 abreast) against ours, one thread on one core, steps a second
of processor time; ours also with "given" actions, and "bare": no draws, no resets, no observations.

Run: `python benchmarks/native.py --envpool PYTHON --out native.json`. MuJoCo's tasks, without the loop
of C: `... --envpool PYTHON --physics --out results/native_physics.json`.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

from common import alternate, batched_action, geometric_mean, print_table, run_driver, save

CLASSIC = ("CartPole-v1", "Acrobot-v1", "Pendulum-v1", "MountainCar-v0")
IDS = {  # ours: theirs
    **{id: id for id in CLASSIC},
    **{f"MiniGrid-{name}-v0": f"MiniGrid-{name}-v0" for name in ("Empty-8x8", "DoorKey-8x8", "FourRooms")},
    "Snake-v0": "Snake-v1",
    "Game2048-v0": "Game2048-v1",
    "Sokoban-v0": "Sokoban-v0",
    "Minesweeper-v0": "Minesweeper-v0",
}
PHYSICS = (
    "InvertedPendulum-v5",
    "InvertedDoublePendulum-v5",
    "Reacher-v5",
    "Hopper-v5",
    "HalfCheetah-v5",
    "Walker2d-v5",
)
"""MuJoCo's, of the same names."""
HERE = pathlib.Path(__file__)


def own(id: str, num_envs: int, steps: int, what: str = "whole") -> dict[str, float]:
    """Ours in this process; `what`: "whole", with actions "given", or "bare", without resets too, rewards summed."""
    import jax
    import jax.numpy as jnp

    import jaxrl
    from jaxrl.math import light_key

    env, params = jaxrl.make(id)
    venv, space = jaxrl.vectorize(env, num_envs), env.action_space(params)
    given = jax.tree.map(lambda x: jnp.zeros((num_envs, *x.shape), x.dtype), space.sample(jax.random.key(0)))

    def run(key, state):
        def body(carry, key):
            state, total = carry
            act_key, step_key = jax.random.split(light_key(key))  # as `jaxrl.rollout` does
            if what == "bare":
                ts = jax.vmap(env.step, (None, 0, 0, None))(step_key, state.env, given, params)
                return (state.replace(env=ts.state), total + ts.reward.sum()), None
            action = given if what == "given" else batched_action(act_key, space, num_envs)
            ts = venv.step(step_key, state, action, params)
            seen = sum(jnp.sum(x, dtype=jnp.float32) for x in jax.tree.leaves(ts.obs))
            return (ts.state, total + seen + ts.reward.sum() + (ts.terminated | ts.truncated).sum()), None

        return jax.lax.scan(body, (state, jnp.float32(0)), jax.random.split(key, steps))[0]

    _, state = jax.jit(venv.reset)(jax.random.key(0), params)
    jitted = jax.jit(run)
    state, _ = jax.block_until_ready(jitted(jax.random.key(1), state))
    found = []
    for repeat in range(5):
        wall, cpu = time.perf_counter(), time.process_time()
        jax.block_until_ready(jitted(jax.random.key(repeat), state))
        found.append((time.perf_counter() - wall, time.process_time() - cpu))
    wall, cpu = (num_envs * steps / statistics.median(x) for x in zip(*found, strict=True))
    return {"wall": wall, "cpu": cpu, "num_envs": num_envs}


def against_envpool(python: str, ids: list[str], sizes: list[int], repeats: int) -> dict[str, Any]:
    """Both sides of each id."""

    def ours(id: str) -> dict[str, Any]:
        steps = "200" if id not in CLASSIC else "2000"
        tried = [run_driver(sys.executable, HERE.name, "--own", id, str(n), steps) for n in sizes]
        return max(tried, key=lambda found: found["wall"])

    def theirs(id: str) -> dict[str, Any]:
        return run_driver(python, "peer_envpool.py", "--id", IDS.get(id, id), "--threads", str(os.cpu_count()))

    rows = {}
    for id in ids:
        sides = {"EnvPool": functools.partial(theirs, id), "jaxrl": functools.partial(ours, id)}
        rows[id] = alternate(sides, repeats)
        print(id, {name: f"{row['wall'] / 1e6:.3f}" for name, row in rows[id].items()}, flush=True)
    return rows


def roofline(repeats: int) -> dict[str, Any]:
    """CartPole on one core: C, and ours with what is beside the dynamics taken away."""
    with tempfile.TemporaryDirectory() as folder:
        program = f"{folder}/cartpole"
        flags = ["-O3", "-march=native", "-ffast-math"]
        subprocess.run(["cc", *flags, "-o", program, str(HERE.with_name("cartpole_loop.c"))], check=True)

        def pinned(*words: str) -> dict[str, float]:
            done = subprocess.run(["taskset", "-c", "0", *words], check=True, capture_output=True, text=True)
            return json.loads(done.stdout.splitlines()[-1])

        def ours(num_envs: int, what: str) -> dict[str, float]:
            words = [sys.executable, str(HERE), "--own", "CartPole-v1", str(num_envs), str(2**24 // num_envs), what]
            return {"cpu": pinned(*words)["cpu"]}

        sides = {"C": functools.partial(pinned, program, "1000000")}
        for num_envs in (256, 2048, 16384):
            for what in ("whole", "given", "bare"):
                sides[f"{num_envs} {what}"] = functools.partial(ours, num_envs, what)
        return alternate(sides, repeats)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--envpool", help="a Python that has EnvPool; without it only the roofline is measured")
    parser.add_argument("--ids", nargs="*", default=list(IDS))
    parser.add_argument("--physics", action="store_true", help="MuJoCo's tasks, of 256 environments, alone")
    parser.add_argument("--num-envs", type=int, nargs="+", default=[256, 2048])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", default="native.json")
    parser.add_argument("--own", nargs="+", help="internal")
    args = parser.parse_args()
    if args.own:
        id, num_envs, steps, *without = args.own
        print(json.dumps(own(id, int(num_envs), int(steps), *without)))
        return
    if args.physics:
        args.ids, args.num_envs = list(PHYSICS), [256]
    results: dict[str, Any] = {}
    if args.envpool:
        rows = results["envpool"] = against_envpool(args.envpool, args.ids, args.num_envs, args.repeats)
        ratios = [row["jaxrl"]["wall"] / row["EnvPool"]["wall"] for row in rows.values()]
        table = [
            [id, *(f"{row[name]['wall'] / 1e6:.3g}" for name in ("EnvPool", "jaxrl")), f"{ratio:.2g}"]
            for (id, row), ratio in zip(rows.items(), ratios, strict=True)
        ]
        table.append(["**geometric mean**", "", "", f"**{geometric_mean(ratios):.0f}**"])
        print_table("EnvPool 1.2.5, all cores, M steps/s", ["id", "EnvPool", "jaxrl", "ratio"], table)
    if args.physics:
        save(args.out, results)
        return
    rows = results["roofline"] = roofline(args.repeats)
    table = [[f"C, {name}", f"{rows['C'][name] / 1e6:.0f}", ""] for name in ("one", "abreast")]
    for name, row in rows.items():
        if name != "C":
            table.append([f"jaxrl, {name}", f"{row['cpu'] / 1e6:.1f}", f"{row['cpu'] / rows['C']['one']:.2f}"])
    print_table("CartPole-v1 on one core, M steps a CPU-second", ["", "rate", "of C's, one after another"], table)
    save(args.out, results)


if __name__ == "__main__":
    main()
