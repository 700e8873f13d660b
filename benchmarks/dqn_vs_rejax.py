"""DQN on CartPole-v1, 100k steps at rejax's own settings, against rejax 0.1.3 in alternating processes.

Run: `python benchmarks/dqn_vs_rejax.py --peer-python VENV/bin/python --out dqn_vs_rejax.json`.
"""

from __future__ import annotations

import argparse
import json
import sys

from common import alternate, print_table, run_driver, save, time_program


def own_side(total_steps: int, repeats: int) -> dict[str, float]:
    """Time our training run in this process."""
    import jax

    import jaxrl
    from jaxrl.algos import dqn

    env, _ = jaxrl.make("CartPole-v1")
    algo = dqn.make(
        env,
        dqn.Config(
            num_envs=10,
            num_steps=1,
            num_updates=5,
            batch_size=100,
            buffer_size=50_000,
            double=True,
            dueling=True,
            hidden=(64, 64),
            activation="silu",
        ),
    )
    hyper = dqn.Hyper(
        learning_rate=1e-3,
        gamma=0.99,
        epsilon_start=1.0,
        epsilon_end=0.05,
        exploration_steps=total_steps // 2,
        learning_starts=5_000,
        target_period=10,
        tau=0.02,
        max_grad_norm=10.0,
    )

    def run(key):
        state, metrics = jaxrl.train(algo, key, total_steps, hyper)
        return state.weights, metrics["episode_return"]

    return time_program(run, jax.random.key(0), repeats=repeats)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer-python", help="python of a venv with rejax==0.1.3 and gymnax==0.0.9")
    parser.add_argument("--total-steps", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3, help="processes of each side, alternating")
    parser.add_argument("--repeats", type=int, default=1, help="timed runs a process")
    parser.add_argument("--out", default="dqn_vs_rejax.json")
    parser.add_argument("--own", action="store_true", help="time our side in this process and print JSON (internal)")
    args = parser.parse_args()
    options = ("--total-steps", str(args.total_steps), "--repeats", str(args.repeats))
    if args.own:
        print(json.dumps(own_side(args.total_steps, args.repeats)))
        return
    if not args.peer_python:
        parser.error("--peer-python is needed; README.md here says how to make that venv")
    sides = {
        "rejax": lambda: run_driver(args.peer_python, "peer_rejax.py", *options),
        "jaxrl": lambda: run_driver(sys.executable, "dqn_vs_rejax.py", "--own", *options),
    }
    times = alternate(sides, args.rounds)
    rows = []
    for name, key in (("run", "run_s"), ("compile", "compile_s")):
        theirs, ours = times["rejax"][key], times["jaxrl"][key]
        rows.append([name, f"{theirs:.2f}", f"{ours:.2f}", f"{theirs / ours:.2f}"])
    print_table(f"DQN CartPole-v1, {args.total_steps:,} steps", ["seconds", "rejax", "jaxrl", "rejax / jaxrl"], rows)
    save(args.out, {"total_steps": args.total_steps, "times": times})


if __name__ == "__main__":
    main()
