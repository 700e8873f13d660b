"""Does recurrent PPO solve MiniGrid? Success rate, environment steps and seconds, ten seeds a task.

    python experiments/minigrid/run.py [--only MiniGrid-DoorKey-8x8-v0] [--seeds 10]

Settings: `jaxrl/tuned.toml`. While training, the n-th visit of a cell in an episode pays BONUS / sqrt(n)
(`wrappers.VisitBonus`; `--bonus 0` goes without); the success rates are those of the task itself. Writes results.json,
curves.npz and results.png beside this file, a task at a time, and prints the table of README.md.
"""

import argparse
import json
import math
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import jaxrl
from jaxrl.algos import ppo_rnn
from jaxrl.evaluation import evaluate
from jaxrl.host.plotting import curves_by_task
from jaxrl.host.run_folder import environment_of_run
from jaxrl.host.statistics import bootstrap_interval, iqm
from jaxrl.registry import tuned
from jaxrl.wrappers import VisitBonus

HERE = Path(__file__).parent
TASKS = (
    "MiniGrid-DoorKey-8x8-v0",
    "MiniGrid-MultiRoom-N4-S5-v1",
    "MiniGrid-KeyCorridorS3R2-v0",
    "MiniGrid-MemoryS11-v0",
)
BONUS = 0.005
EPISODES = 256
POINTS = 25  # of a curve of success rates, of a quarter as many episodes


def measure(id: str, seeds: int, bonus: float) -> tuple[dict, np.ndarray]:
    """Train and evaluate every seed, one after the other: `(result, success rates (seeds, POINTS))`."""
    settings = tuned("ppo_rnn", id)
    env, params = jaxrl.make(id)
    trained = VisitBonus(env, "position", math.prod(env.shape), bonus) if bonus else env
    algo = ppo_rnn.make(trained, ppo_rnn.Config(**settings.config))
    hyper = ppo_rnn.Hyper(**settings.hyper)

    updates = math.ceil(settings.total_steps / algo.steps_per_update / POINTS)  # between points

    def returns_of(state, key, episodes):
        return evaluate(algo, algo.policy(state), env, params, key, episodes).returns

    def run(key):
        train_key, eval_key, last_key = jax.random.split(key, 3)

        def part(state, key):
            state, _ = jax.lax.scan(lambda state, _: (algo.update(state)[0], None), state, None, updates)
            return state, jnp.mean(returns_of(state, key, EPISODES // 4) > 0)

        state = algo.init(train_key, hyper, params)
        state, curve = jax.lax.scan(part, state, jax.random.split(eval_key, POINTS))
        returns = returns_of(state, last_key, EPISODES)
        return jnp.mean(returns > 0), jnp.mean(returns), curve

    keys = jax.random.split(jax.random.key(0), seeds)
    begin = time.perf_counter()
    program = jax.jit(lambda keys: jax.lax.map(run, keys)).lower(keys).compile()
    compiled = time.perf_counter()
    success, returns, curves = (np.asarray(x, float) for x in program(keys))
    seconds = (time.perf_counter() - compiled) / seeds
    steps = np.arange(1, POINTS + 1) * updates * algo.steps_per_update
    first = [int(steps[np.argmax(row >= 0.9)]) if (row >= 0.9).any() else None for row in curves]
    return {
        "bonus": bonus,
        "success": success.round(4).tolist(),
        "returns": returns.round(4).tolist(),
        "steps_to_90_percent": first,
        "total_steps": int(steps[-1]),
        "seconds_a_seed": round(seconds, 1),
        "compile_seconds": round(compiled - begin, 1),
        "where": environment_of_run(),
    }, curves


def row(id: str, result: dict) -> str:
    success, returns = np.array(result["success"]), np.array(result["returns"])
    steps = np.median([n or np.inf for n in result["steps_to_90_percent"]]) / 1e6
    low, high = bootstrap_interval(success)
    cells = [id, f"{result['total_steps'] / 1e6:.2f}M", len(success), f"{success.mean():.3f}"]
    cells += [f"{iqm(success):.3f} ({low:.3f} to {high:.3f})", f"{success.min():.3f}", f"{returns.mean():.3f}"]
    cells += [
        f"{steps:.2f}M" if np.isfinite(steps) else "-",
        f"{result['seconds_a_seed']:.0f}",
        f"{result['compile_seconds']:.0f}",
    ]
    return "| " + " | ".join(map(str, cells)) + " |"


def kept() -> tuple[dict, dict]:
    """The results and curves so far."""
    results, curves = HERE / "results.json", HERE / "curves.npz"
    return (
        json.loads(results.read_text()) if results.exists() else {},
        dict(np.load(curves)) if curves.exists() else {},
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--bonus", type=float, default=BONUS)
    args = parser.parse_args()
    for id in args.only:
        result, curve = measure(id, args.seeds, args.bonus)
        results, curves = kept()  # read again: another process may have added to it
        results[id], curves[id] = result, curve
        (HERE / "results.json").write_text(json.dumps({k: results[k] for k in TASKS if k in results}, indent=1) + "\n")
        np.savez_compressed(HERE / "curves.npz", **{k: np.float32(curves[k]) for k in TASKS if k in curves})
        print(row(id, result), flush=True)
    results, curves = kept()
    print("\n| task | steps | seeds | success | IQM (95 %) | lowest | return | steps to 90 % | s/seed | compile s |")
    print("|" + "---|" * 10)
    for id, result in results.items():
        print(row(id, result))
    tasks = {}
    for id, result in results.items():
        steps = np.linspace(0, result["total_steps"], POINTS + 1)[1:]
        tasks[id] = {"ppo_rnn": (steps, curves[id])}
    curves_by_task(tasks, HERE / "results.png", "success rate")


if __name__ == "__main__":
    main()
