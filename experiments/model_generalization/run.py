"""Does a learned model generalise better than replay? DQN against Dyna-DQN on tasks made of few, repeated parts.

    python experiments/model_generalization/run.py [--seeds 10] [--task PanFlute] [--arm latent]

Writes results.json and results.png beside this file and prints the table of README.md. What results.json already has of
the same settings is not measured again: delete it to measure everything anew.
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
from jaxrl.host.run.run_folder import environment_of_run
from jaxrl.host.statistics import told

HERE = Path(__file__).parent
FILE = HERE / "results.json"
TASKS = {  # the environment's settings, steps of training, steps of an evaluation's episode, gradient steps an update
    "PanFlute": dict(size=dict(num_pipes=6), steps=3600, cap=80, num_updates=16),
    "ButtonGrid": dict(size=dict(size=4, num_buttons=2), steps=4800, cap=80, num_updates=16),
    "ProcMaze": dict(size=dict(size=3), steps=4800, cap=30, num_updates=16),
    "PanFlute, longer": dict(size=dict(num_pipes=6), steps=6000, cap=80, num_updates=16),
    "ProcMaze, few steps": dict(size=dict(size=3), steps=2400, cap=30, num_updates=64),
}
ARMS = ("replay", "bernoulli", "latent", "perfect")
POINTS = 6  # evaluations in training
CONFIG = dict(num_envs=8, batch_size=64, buffer_size=8000, hidden=(64, 64), activation="elu")
HYPER = dict(learning_rate=1e-3, gamma=0.9, epsilon_end=0.1, learning_starts=200, target_period=16)


def measure(arm: str, seeds: int, name: str, size: dict, steps: int, cap: int, num_updates: int) -> dict:
    env, params = jaxrl.make(f"{name}-v0", **size)
    config = dqn.Config(**CONFIG, num_updates=num_updates)
    num_actions = env.action_space(params).n
    learned = {"bernoulli": models.bernoulli, "latent": models.latent}
    if arm == "replay":
        algo = dqn.make(env, config)
    else:
        model = learned[arm](num_actions) if arm in learned else models.perfect(env, params)
        algo = dyna.make(env, config, model)
    hyper = dqn.Hyper(**HYPER, exploration_steps=steps // 2)
    if name == "ProcMaze":
        params = params.replace(max_steps=np.int32(cap))

    def run(key):
        key, eval_key = jax.random.split(key)

        def point(state, _):
            state, metrics = jax.lax.scan(lambda s, _: algo.update(s), state, length=steps // 8 // POINTS)
            stats = evaluate(
                algo, algo.policy(state), eval_key, env, params, num_episodes=64, max_steps=cap, greedy=True
            )
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
        "where": environment_of_run(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--task", choices=TASKS, help="only this one")
    parser.add_argument("--arm", choices=ARMS, help="only this one")
    args = parser.parse_args()
    results = json.loads(FILE.read_text()) if FILE.exists() else {}
    print("| task | samples from | half way | 95 % interval | at the end | 95 % interval |\n" + "|---" * 6 + "|")
    for task in [args.task] if args.task else TASKS:
        settings = {**TASKS[task], "seeds": args.seeds}
        if results.get(task, {}).get("settings") != settings:
            results[task] = {"settings": settings, "arms": {}}
        arms = results[task]["arms"]
        for arm in [args.arm] if args.arm else ARMS:
            if arm not in arms:
                arms[arm] = measure(arm, args.seeds, task.split(",")[0], **TASKS[task])
                if args.seeds == 10:  # a try with fewer is only printed
                    FILE.write_text(json.dumps(results) + "\n")
            cells = []
            for returns in np.array(arms[arm]["returns"]).T[[POINTS // 2 - 1, -1]]:
                cells.append(told(returns, cells=True))
            print(f"| {task} | {arm} | {' | '.join(cells)} |", flush=True)
    if not (args.task or args.arm) and args.seeds == 10:
        curves = {
            task: {
                arm: (np.arange(1, POINTS + 1) * rows["settings"]["steps"] // POINTS, np.array(row["returns"]))
                for arm, row in rows["arms"].items()
            }
            for task, rows in results.items()
        }
        curves_by_task(curves, HERE / "results.png", "return of the greedy policy")


if __name__ == "__main__":
    main()
