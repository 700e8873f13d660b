"""Does a learned model generalise better than replay? DQN against Dyna-DQN on tasks made of few, repeated parts.

    python experiments/model_generalization/run.py [--seeds 10] [--task PanFlute] [--arm latent]

Writes results.json and results.png beside this file and prints the table of README.md.
"""

import argparse
import json
import time
from pathlib import Path

import dyna
import jax
import models
import numpy as np

import jaxrl
from jaxrl.algos import dqn
from jaxrl.evaluation import evaluate
from jaxrl.host.plotting import curves_by_task
from jaxrl.host.run_folder import environment_of_run
from jaxrl.host.statistics import bootstrap_interval, iqm

HERE = Path(__file__).parent
TASKS = {  # id, its size, steps of training, steps of an evaluation's episode
    "PanFlute": (dict(num_pipes=6), 3600, 80),
    "ButtonGrid": (dict(size=4, num_buttons=2), 4800, 80),
    "ProcMaze": (dict(size=3), 4800, 30),
}
ARMS = ("replay", "bernoulli", "latent", "perfect")
POINTS = 6  # evaluations in training
CONFIG = dqn.Config(num_envs=8, num_updates=16, batch_size=64, buffer_size=8000, hidden=(64, 64), activation="elu")
HYPER = dict(learning_rate=1e-3, gamma=0.9, epsilon_end=0.1, learning_starts=200, target_period=16)


def measure(task: str, arm: str, seeds: int) -> dict:
    settings, steps, cap = TASKS[task]
    env, params = jaxrl.make(f"{task}-v0", **settings)
    num_actions = env.action_space(params).n
    learned = {"bernoulli": models.bernoulli, "latent": models.latent}
    if arm == "replay":
        algo = dqn.make(env, CONFIG)
    else:
        model = learned[arm](num_actions) if arm in learned else models.perfect(env, params)
        algo = dyna.make(env, CONFIG, model)
    hyper = dqn.Hyper(**HYPER, exploration_steps=steps // 2)
    if task == "ProcMaze":
        params = params.replace(max_steps=np.int32(cap))

    def run(key):
        key, eval_key = jax.random.split(key)

        def point(state, _):
            state, metrics = jax.lax.scan(lambda s, _: algo.update(s), state, length=steps // 8 // POINTS)
            stats = evaluate(algo, algo.policy(state), env, params, eval_key, 64, cap, greedy=True)
            return state, (stats.returns.mean(), metrics.get("model_loss", metrics["loss"])[-1])

        return jax.lax.scan(point, algo.init(key, hyper, params), length=POINTS)[1]

    keys = jax.random.split(jax.random.key(0), seeds)
    begin = time.perf_counter()
    program = jax.jit(jax.vmap(run)).lower(keys).compile()
    compiled = time.perf_counter()
    returns, losses = jax.block_until_ready(program(keys))
    return {
        "returns": np.asarray(returns, float).round(3).tolist(),  # (seeds, points)
        "model_loss": np.asarray(losses, float).round(4).tolist() if arm in learned else None,
        "compile_seconds": round(compiled - begin, 1),
        "run_seconds": round(time.perf_counter() - compiled, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--task", choices=TASKS, help="only this one; writes nothing")
    parser.add_argument("--arm", choices=ARMS)
    args = parser.parse_args()
    results = {"where": environment_of_run(), "tasks": {}}
    print("| task | samples from | return, IQM | 95 % interval | s |\n" + "|---" * 5 + "|")
    for task in [args.task] if args.task else TASKS:
        rows = results["tasks"][task] = {"steps": TASKS[task][1]}
        for arm in [args.arm] if args.arm else ARMS:
            rows[arm] = measure(task, arm, args.seeds)
            last = np.asarray(rows[arm]["returns"])[:, -1]
            low, high = bootstrap_interval(last)
            seconds = rows[arm]["run_seconds"], rows[arm]["compile_seconds"]
            print(f"| {task} | {arm} | {iqm(last):.2f} | {low:.2f} to {high:.2f} | {seconds} |", flush=True)
            if not args.task:
                (HERE / "results.json").write_text(json.dumps(results) + "\n")
    if not args.task:
        curves = {
            task: {
                arm: (np.arange(1, POINTS + 1) * rows["steps"] // POINTS, np.array(rows[arm]["returns"]))
                for arm in ARMS
            }
            for task, rows in results["tasks"].items()
        }
        curves_by_task(curves, HERE / "results.png", "return of the greedy policy")


if __name__ == "__main__":
    main()
