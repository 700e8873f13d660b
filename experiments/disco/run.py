"""What a discovered rule teaches: agents on Catch and a grid by Disco103, against PPO and A2C at equal steps.

    python experiments/disco/run.py disco_103.npz [--seeds 3] [--updates 1000]

The file is disco_rl/update_rules/weights/disco_103.npz of github.com/google-deepmind/disco_rl. Writes results.json and
results.png beside this file and prints the table of README.md.
"""

import argparse
import json
import time
from pathlib import Path

import jax
import matplotlib
import numpy as np

import jaxrl
from jaxrl.algos import a2c, ppo
from jaxrl.algos.meta import disco
from jaxrl.host.run_folder import environment_of_run
from jaxrl.host.statistics import bootstrap_interval, iqm

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

HERE = Path(__file__).parent
TASKS = ("Catch-bsuite", "MiniGrid-Empty-5x5-v0")
BLOCK = 29 * 2  # steps of an update by the rule


def methods(path: str, env):
    """Name, algorithm and settings; the peers' are near their defaults."""
    yield "Disco103", disco.make(env, disco.Config(weights=path)), disco.Hyper(learning_rate=1e-2)
    yield "untrained rule", disco.make(env, disco.Config()), disco.Hyper(learning_rate=1e-2)
    yield "PPO", ppo.make(env, ppo.Config(num_envs=4, num_steps=29, hidden=(64, 64))), ppo.Hyper(learning_rate=1e-3)
    yield "A2C", a2c.make(env, a2c.Config(num_envs=4, num_steps=5, hidden=(64, 64))), a2c.Hyper(learning_rate=3e-3)


def curve(algo, hyper, params, steps: int, seed: int):
    """`(steps, mean return of the episodes that ended)` in twenty parts of a run, and its seconds."""

    def run(key):
        return jaxrl.train(algo, key, steps, hyper, params)[1]

    program = jax.jit(run).lower(jax.random.key(seed)).compile()
    begin = time.perf_counter()
    metrics = jax.tree.map(np.asarray, jax.block_until_ready(program(jax.random.key(seed))))
    seconds = time.perf_counter() - begin
    total = np.where(metrics["episodes"] > 0, metrics["episode_return"] * metrics["episodes"], 0)
    parts = np.array_split(np.arange(len(total)), 20)
    returns = [total[p].sum() / max(1, metrics["episodes"][p].sum()) for p in parts]
    return [float((p[-1] + 1) * algo.steps_per_update) for p in parts], [float(x) for x in returns], seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weights", help="disco_103.npz")
    parser.add_argument("--tasks", nargs="+", default=TASKS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--updates", type=int, default=1000, help="by the rule; the others get as many steps")
    args = parser.parse_args()
    steps, found = args.updates * BLOCK, {}
    for task in args.tasks:
        env, params = jaxrl.make(task)
        for name, algo, hyper in methods(args.weights, env):
            runs = [curve(algo, hyper, params, steps, seed) for seed in range(args.seeds)]
            last = np.array([returns[-1] for _, returns, _ in runs])
            low, high = bootstrap_interval(last, iqm)
            found.setdefault(task, {})[name] = {
                "steps": runs[0][0],
                "returns": [returns for _, returns, _ in runs],
                "seconds": [seconds for *_, seconds in runs],
            }
            mean = f"{iqm(last):.2f} | {low:.2f} to {high:.2f}"
            print(f"| {task} | {name} | {mean} | {np.mean([s for *_, s in runs]):.0f} |", flush=True)
        where = {"updates": args.updates, "date": time.strftime("%Y-%m-%d"), "where": environment_of_run()}
        (HERE / "results.json").write_text(json.dumps({**where, "results": found}, indent=1) + "\n")
    figure, axes = plt.subplots(1, len(found), figsize=(5 * len(found), 3.5), squeeze=False)
    for ax, (task, rows) in zip(axes[0], found.items(), strict=True):
        for name, row in rows.items():
            returns = np.array(row["returns"])
            ax.plot(row["steps"], returns.mean(0), label=name)
            ax.fill_between(row["steps"], returns.min(0), returns.max(0), alpha=0.15)
        ax.set(title=task, xlabel="environment steps", ylabel="return")
    axes[0, 0].legend(frameon=False)
    figure.tight_layout()
    figure.savefig(HERE / "results.png", dpi=110)


if __name__ == "__main__":
    main()
