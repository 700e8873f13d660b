"""PPO on CartPole-v1 with the public CleanRL settings, against purejaxrl in alternating processes.

4 environments, 512 environments, and 8 vmapped seeds of 4 environments; everything else is equal (128 steps, 4 epochs,
4 minibatches, 2x64 tanh, annealed learning rate). Both sides reduce their episode statistics inside the program. In the
last case ours spreads the seeds over a device for each core, as `jaxrl train --seeds 8 --mesh seeds=2` does.

Run: `python benchmarks/ppo_vs_purejaxrl.py --peer-python VENV/bin/python --purejaxrl CHECKOUT`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any

from common import alternate, print_table, run_driver, save, time_program

CORES = max(n for n in (1, 2, 4, 8) if n <= len(os.sched_getaffinity(0)))  # which divide the seeds
CASES = {
    "4 environments": (4, 1, 1),
    "512 environments": (512, 1, 1),
    "8 seeds of 4 environments": (4, 8, 1),
    "8 seeds of 4 environments, ours on a device a core": (4, 8, CORES),
}
"""Environments, seeds, devices of our side."""


def own_side(num_envs: int, seeds: int, devices: int, total_steps: int, repeats: int) -> dict[str, Any]:
    """Time our training run in this process."""
    import jax
    import jax.numpy as jnp

    import jaxrl
    from jaxrl.algos import ppo

    env, _ = jaxrl.make("CartPole-v1")
    algo = ppo.make(env, ppo.Config(num_envs=num_envs, num_steps=128, num_epochs=4, num_minibatches=4, hidden=(64, 64)))
    # purejaxrl drops the last, incomplete update; so that both do the same number, so do we.
    total_steps -= total_steps % algo.steps_per_update
    hyper = ppo.Hyper(learning_rate=2.5e-4, anneal_steps=total_steps)

    def run(key):
        state, metrics = jaxrl.train(algo, key, total_steps, hyper)
        returns = metrics["episode_return"]
        return state.weights, jnp.nanmean(returns[int(0.9 * len(returns)) :])

    key = jax.random.key(0)
    function, key = (run, key) if seeds == 1 else (jax.vmap(run), jax.random.split(key, seeds))
    if devices > 1:
        mesh, part = jax.make_mesh((devices,), ("seeds",)), jax.sharding.PartitionSpec("seeds")
        function = jax.shard_map(function, mesh=mesh, in_specs=part, out_specs=part, check_vma=False)
        key = jax.device_put(key, jax.sharding.NamedSharding(mesh, part))
    return time_program(function, key, repeats=repeats)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer-python", help="python of a venv with gymnax==0.0.9, distrax and flax")
    parser.add_argument("--purejaxrl", help="checkout of luchris429/purejaxrl")
    parser.add_argument("--total-steps", type=int, default=500_000)
    parser.add_argument("--rounds", type=int, default=3, help="processes of each side, alternating")
    parser.add_argument("--repeats", type=int, default=3, help="timed runs a process")
    parser.add_argument("--cases", nargs="+", type=int, default=range(len(CASES)), help="numbers of cases, from 0")
    parser.add_argument("--out", default="ppo_vs_purejaxrl.json")
    parser.add_argument(
        "--own", nargs=3, type=int, metavar=("NUM_ENVS", "SEEDS", "DEVICES"), help="time our side here (internal)"
    )
    args = parser.parse_args()
    common = ("--total-steps", str(args.total_steps), "--repeats", str(args.repeats))
    if args.own:
        print(json.dumps(own_side(*args.own, args.total_steps, args.repeats)))
        return
    if not (args.peer_python and args.purejaxrl):
        parser.error("--peer-python and --purejaxrl are needed; README.md here says how to make them")
    results, rows = {}, []
    for title in [list(CASES)[i] for i in args.cases]:
        num_envs, seeds, devices = (str(x) for x in CASES[title])
        flags = {"XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}"}
        peer = ("--purejaxrl", args.purejaxrl, "--num-envs", num_envs, "--seeds", seeds)
        results[title] = times = alternate(
            {
                "purejaxrl": lambda peer=peer: run_driver(args.peer_python, "peer_purejaxrl.py", *peer, *common),
                "jaxrl": lambda own=(num_envs, seeds, devices), flags=flags: run_driver(
                    sys.executable, "ppo_vs_purejaxrl.py", "--own", *own, *common, env=flags
                ),
            },
            args.rounds,
        )
        for name, key in (("run", "run_s"), ("compile", "compile_s")):
            theirs, ours = times["purejaxrl"][key], times["jaxrl"][key]
            rows.append([f"{title}, {name}", f"{theirs:.2f}", f"{ours:.2f}", f"{ours / theirs:.2f}"])
    title = f"PPO CartPole-v1, {args.total_steps:,} steps"
    print_table(title, ["seconds", "purejaxrl", "jaxrl", "jaxrl / purejaxrl"], rows)
    save(args.out, {"total_steps": args.total_steps, "times": results})


if __name__ == "__main__":
    main()
