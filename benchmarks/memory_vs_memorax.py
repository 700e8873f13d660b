"""Recurrent PPO on CartPole-v1 by cell, against memorax in alternating processes.

32 environments of 128 steps, 4 epochs of 4 minibatches, actor and critic each a dense layer of 64, a cell of 64 and a
head; learning rate 1e-3. memorax is pip's, on gymnax. Its LRU is the recurrence and a dense layer, ours has the gated
unit of the paper, too. Both sides reduce their statistics inside the program.

Run: `python benchmarks/memory_vs_memorax.py --peer-python VENV/bin/python`.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from common import alternate, print_table, run_driver, save, time_program

CELLS = "gru", "min_gru", "lru"


def own_side(cell: str, total_steps: int, repeats: int) -> dict[str, Any]:
    """Time our training run in this process."""
    import jax
    import jax.numpy as jnp

    import jaxrl
    from jaxrl.algos import ppo_rnn

    env, _ = jaxrl.make("CartPole-v1")
    config = ppo_rnn.Config(num_envs=32, num_steps=128, hidden=(64,), activation="relu", rnn=cell, rnn_size=64)
    algo = ppo_rnn.make(env, config)

    def run(key):
        state, metrics = jaxrl.train(algo, key, total_steps, ppo_rnn.Hyper(learning_rate=1e-3))
        returns = metrics["episode_return"]
        return state.weights, jnp.nanmean(returns[int(0.9 * len(returns)) :])

    return time_program(run, jax.random.key(0), repeats=repeats)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer-python", help="python of a venv with memorax")
    parser.add_argument("--total-steps", type=int, default=524_288)
    parser.add_argument("--rounds", type=int, default=3, help="processes of each side, alternating")
    parser.add_argument("--repeats", type=int, default=3, help="timed runs a process")
    parser.add_argument("--cells", nargs="+", default=CELLS, choices=CELLS)
    parser.add_argument("--out", default="memory_vs_memorax.json")
    parser.add_argument("--own", metavar="CELL", help="time our side here (internal)")
    args = parser.parse_args()
    common = ("--total-steps", str(args.total_steps), "--repeats", str(args.repeats))
    if args.own:
        print(json.dumps(own_side(args.own, args.total_steps, args.repeats)))
        return
    if not args.peer_python:
        parser.error("--peer-python is needed; README.md here says how to make it")
    results, rows = {}, []
    for cell in args.cells:
        results[cell] = times = alternate(
            {
                "memorax": lambda cell=cell: run_driver(args.peer_python, "peer_memorax.py", "--cell", cell, *common),
                "jaxrl": lambda cell=cell: run_driver(sys.executable, "memory_vs_memorax.py", "--own", cell, *common),
            },
            args.rounds,
        )
        for name, key in (("run", "run_s"), ("compile", "compile_s")):
            theirs, ours = times["memorax"][key], times["jaxrl"][key]
            rows.append([f"{cell}, {name}", f"{theirs:.2f}", f"{ours:.2f}", f"{theirs / ours:.2f}"])
    title = f"Recurrent PPO, CartPole-v1, {args.total_steps:,} steps"
    print_table(title, ["seconds", "memorax", "jaxrl", "memorax / jaxrl"], rows)
    save(args.out, {"total_steps": args.total_steps, "times": results})


if __name__ == "__main__":
    main()
