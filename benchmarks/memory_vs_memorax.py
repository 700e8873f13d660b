"""Recurrent PPO and R2D2 by cell, against memorax in alternating processes: seconds and returns.

Networks: a dense layer of 64, a cell of 64 and a head, of PPO's actor and critic each; learning rate 1e-3.
PPO: 32 environments of 128 steps, 4 epochs of 4 minibatches. R2D2: 16 environments, a gradient step every 16 steps on
32 sequences of 20 steps after a burn-in of 10, 3-step double Q-learning, prioritised replay of 51,200 steps.
Returns: means of 128 episodes of the last policy, greedy. memorax is pip's, on gymnax; `README.md` says what differs.

Run: `python benchmarks/memory_vs_memorax.py --peer-python VENV/bin/python`. Rounds that `--out` has already are kept.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import statistics
import sys
from typing import Any

from common import print_table, run_driver, save, time_seeds

RUNS = {
    "ppo CartPole-v1": 131_072,
    "ppo MemoryLength-bsuite": 65_536,
    "r2d2 CartPole-v1": 32_768,
    "r2d2 MemoryLength-bsuite": 16_384,
    "r2d2_flashbax CartPole-v1": 32_768,
}
"""Environment steps of each training run. r2d2_flashbax: memorax's learner has flashbax's replay, ours is the same."""

PEER_TASKS = {"MemoryLength-bsuite": "MemoryChain-bsuite"}
"""gymnax's names; both tasks remember one bit for ten steps."""

CELLS = "gru", "min_gru", "lru"


def own_side(algo: str, task: str, cell: str, total_steps: int, seeds: list[int]) -> dict[str, Any]:
    """Time our training run in this process."""
    import jax
    import jax.numpy as jnp

    import jaxrl
    from jaxrl.algos import ppo_rnn, r2d2

    env, _ = jaxrl.make(task)
    network: Any = {"hidden": (64,), "activation": "relu", "rnn": cell, "rnn_size": 64, "adam_eps": 1e-5}
    if algo == "ppo":
        learner = ppo_rnn.make(env, ppo_rnn.Config(num_envs=32, num_steps=128, **network))
        hyper = ppo_rnn.Hyper(learning_rate=1e-3)
    else:
        # Memorax has neither a dueling head nor h(x); its priorities are mean errors.
        config = r2d2.Config(
            num_envs=16,
            num_steps=20,
            burn_in=10,
            num_updates=20,
            batch_size=32,
            buffer_size=51_200 // 20,
            n_step=3,
            rescaled=False,
            dueling=False,
            **network,
        )
        learner = r2d2.make(env, config)
        hyper = r2d2.Hyper(
            learning_rate=1e-3,
            exploration_steps=total_steps // 2,
            learning_starts=2048,
            target_period=100,
            max_grad_norm=40.0,
            priority_eta=0.0,
        )

    def train(key):
        state, metrics = jaxrl.train(learner, key, total_steps, hyper)
        return learner.policy(state), jnp.nanmean(metrics["episode_return"])

    def evaluate(trained):
        return jaxrl.evaluate(learner, trained[0], jax.random.key(1), num_episodes=128, greedy=True).returns.mean()

    return time_seeds(train, evaluate, seeds)


def summary(processes: list[dict[str, Any]]) -> dict[str, Any]:
    """Medians of the times of processes, and all their returns."""
    times = {k: statistics.median(p[k] for p in processes) for k in processes[0] if k != "returns"}
    return {**times, "returns": [x for p in processes for x in p["returns"]]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer-python", help="python of a venv with memorax")
    parser.add_argument("--rounds", type=int, default=3, help="processes of each side, alternating")
    parser.add_argument("--seeds", type=int, default=2, help="training runs a process")
    parser.add_argument("--only", nargs="+", default=list(RUNS), choices=list(RUNS), metavar="'ALGO TASK'")
    parser.add_argument("--cells", nargs="+", default=CELLS, choices=CELLS)
    parser.add_argument("--out", default="memory_vs_memorax.json")
    parser.add_argument("--own", nargs="+", metavar="ALGO TASK CELL SEEDS", help="time our side here (internal)")
    args = parser.parse_args()
    if args.own:
        algo, task, cell, *seeds = args.own
        print(json.dumps(own_side(algo, task, cell, RUNS[f"{algo} {task}"], [int(seed) for seed in seeds])))
        return
    if not args.peer_python:
        parser.error("--peer-python is needed; README.md here says how to make it")
    out = pathlib.Path(args.out)
    results = json.loads(out.read_text()).get("results", {}) if out.exists() else {}
    for r in range(args.rounds):
        for run in args.only:
            for cell in args.cells:
                algo, task = run.split()
                sides = results.setdefault(f"{run} {cell}", {"memorax": [], "jaxrl": []})
                if len(sides["jaxrl"]) > r:
                    continue
                first = sum(len(process["returns"]) for process in sides["jaxrl"])
                seeds = [str(first + i) for i in range(args.seeds)]
                peer = ["--algo", algo, "--task", PEER_TASKS.get(task, task), "--cell", cell]
                peer += ["--total-steps", str(RUNS[run]), "--seeds", *seeds]
                theirs = run_driver(args.peer_python, "peer_memorax.py", *peer)
                ours = run_driver(sys.executable, "memory_vs_memorax.py", "--own", algo, task, cell, *seeds)
                sides["memorax"].append(theirs)
                sides["jaxrl"].append(ours)
                save(args.out, {"total_steps": RUNS, "results": results})
    rows = []
    for name, sides in results.items():
        theirs, ours = summary(sides["memorax"]), summary(sides["jaxrl"])
        row = [name]
        for key in ("run_s", "run_cpu_s", "compile_s", "compile_cpu_s"):
            row.append(f"{theirs[key]:.2f} / {ours[key]:.2f} = {theirs[key] / ours[key]:.2f}")
        for returns in (theirs["returns"], ours["returns"]):
            row.append(f"{statistics.fmean(returns):.2f} ({min(returns):.2f} to {max(returns):.2f})")
        rows.append(row)
    times = "run, s", "run, CPU s", "compile, s", "compile, CPU s"
    print_table("memorax / jaxrl", ["", *times, "return, memorax", "return, jaxrl"], rows)


if __name__ == "__main__":
    main()
