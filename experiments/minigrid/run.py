"""Does recurrent PPO solve MiniGrid? Success rate, environment steps and seconds, ten seeds a task.

    python experiments/minigrid/run.py [--only MiniGrid-DoorKey-8x8-v0] [--seeds 10]

Settings: `jaxrl/tuned.toml`. A task of LESSONS is trained on after these, with their weights, and judged on those of
JUDGED. While training, the n-th visit of a cell in an episode pays BONUS / sqrt(n) (`wrappers.VisitBonus`; `--bonus 0`
goes without); the success rates are those of the task itself. Writes results.json, curves.npz and results.png beside
this file, a seed at a time, and prints the table of README.md.
"""

import argparse
import json
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxrl
from jaxrl.algos import ppo_rnn
from jaxrl.evaluation import evaluate
from jaxrl.host.plotting import curves_by_task
from jaxrl.host.run.run_folder import environment_of_run
from jaxrl.host.statistics import told
from jaxrl.registry import tuned
from jaxrl.wrappers import VisitBonus

HERE = Path(__file__).parent
TASKS = (
    "MiniGrid-DoorKey-8x8-v0",
    "MiniGrid-MultiRoom-N4-S5-v1",
    "MiniGrid-KeyCorridorS3R2-v0",
    "MiniGrid-MemoryS13Random-v0",  # a hallway of any length: S7 has none, S11 four cells, S13 six
)
LESSONS = {"MiniGrid-MemoryS13Random-v0": ("MiniGrid-MemoryS7-v0",)}  # trained on before
JUDGED = {"MiniGrid-MemoryS13Random-v0": ("MiniGrid-MemoryS11-v0", "MiniGrid-MemoryS13-v0")}
BONUS = 0.005
EPISODES = 256
POINTS = 25  # of a curve of success rates, of a quarter as many episodes


class Stage(NamedTuple):
    """A task to train on."""

    id: str
    env: dict[str, Any]
    config: ppo_rnn.Config
    hyper: ppo_rnn.Hyper
    points: int  # of the curve
    updates: int  # between them


def stages_of(id: str) -> list[Stage]:
    """The lessons before a task, and the task."""
    names = (*LESSONS.get(id, ()), id)
    settings = [tuned("ppo_rnn", name) for name in names]
    total, stages = sum(each.total_steps for each in settings), []
    for name, each in zip(names, settings, strict=True):
        config, points = ppo_rnn.Config(**each.config), round(POINTS * each.total_steps / total)
        updates = math.ceil(each.total_steps / (config.num_envs * config.num_steps) / points)
        stages.append(Stage(name, each.env, config, ppo_rnn.Hyper(**each.hyper), points, updates))
    return stages


def steps_of(stages: list[Stage]) -> np.ndarray:
    """The environment steps before each point of the curve, lessons included."""
    each = [np.full(s.points, s.updates * s.config.num_envs * s.config.num_steps) for s in stages]
    return np.cumsum(np.concatenate(each))


def measure(trained: str, seeds: int, bonus: float) -> Iterator[tuple[str, dict, np.ndarray]]:
    """Train and evaluate one seed after the other: of each task that it is judged on the id, the result and success
    rates (seeds, POINTS) of those so far.
    """
    stages = stages_of(trained)
    judged = JUDGED.get(trained, (trained,))
    tasks = [jaxrl.make(id, **stages[-1].env) for id in judged]
    steps = steps_of(stages)

    def student(stage):
        env, params = jaxrl.make(stage.id, **stage.env)
        trained = VisitBonus(env, "position", math.prod(env.shape), bonus) if bonus else env
        return ppo_rnn.make(trained, stage.config), params

    def returns_of(algo, state, key, episodes):
        policy = algo.policy(state)
        return jnp.stack([evaluate(algo, policy, key, *task, num_episodes=episodes).returns for task in tasks])

    def run(key):
        train_key, eval_key, last_key = jax.random.split(key, 3)
        eval_keys, algo, state, curves = jax.random.split(eval_key, len(steps)), None, None, []
        for i, stage in enumerate(stages):
            algo, level = student(stage)

            def part(state, key, algo=algo, updates=stage.updates):
                state, _ = jax.lax.scan(lambda state, _: (algo.update(state)[0], None), state, None, updates)
                return state, jnp.mean(returns_of(algo, state, key, EPISODES // 4) > 0, 1)

            start = algo.init(jax.random.fold_in(train_key, i) if i else train_key, stage.hyper, level)
            state = start.replace(weights=state.weights) if state else start
            now, eval_keys = eval_keys[: stage.points], eval_keys[stage.points :]
            state, curve = jax.lax.scan(part, state, now)
            curves.append(curve)
        returns = returns_of(algo, state, last_key, EPISODES)
        return jnp.mean(returns > 0, 1), jnp.mean(returns, 1), jnp.concatenate(curves).T

    keys = jax.random.split(jax.random.key(0), seeds)
    begin = time.perf_counter()
    program = jax.jit(run).lower(keys[0]).compile()
    compiled, done = time.perf_counter(), []
    for key in keys:
        done.append([np.asarray(x, float) for x in program(key)])
        seconds = round((time.perf_counter() - compiled) / len(done), 1)
        of_tasks = zip(judged, *(np.stack(x, 1) for x in zip(*done, strict=True)), strict=True)
        for id, success, returns, curves in of_tasks:
            first = [int(steps[np.argmax(row >= 0.9)]) if (row >= 0.9).any() else None for row in curves]
            result = {
                "bonus": bonus,
                "success": success.round(4).tolist(),
                "returns": returns.round(4).tolist(),
                "steps_to_90_percent": first,
                "total_steps": int(steps[-1]),
                "seconds_a_seed": seconds,
                "compile_seconds": round(compiled - begin, 1),
                "where": environment_of_run(),
            }
            yield id, result, curves


def row(id: str, result: dict) -> str:
    success, returns = np.array(result["success"]), np.array(result["returns"])
    steps = np.median([n or np.inf for n in result["steps_to_90_percent"]]) / 1e6
    cells = [id, f"{result['total_steps'] / 1e6:.2f}M", len(success), f"{success.mean():.3f}"]
    cells += [told(success, ".3f"), f"{success.min():.3f}", f"{returns.mean():.3f}"]
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
    of_task = {id: task for task in TASKS for id in JUDGED.get(task, (task,))}
    for id, result, curve in (done for task in args.only for done in measure(task, args.seeds, args.bonus)):
        results, curves = kept()  # read again: another process may have added to it
        results[id], curves[id] = result, curve
        ids = [id for id in of_task if id in results]
        (HERE / "results.json").write_text(json.dumps({k: results[k] for k in ids}, indent=1) + "\n")
        np.savez_compressed(HERE / "curves.npz", **{k: np.float32(curves[k]) for k in ids})
        print(row(id, result), flush=True)
    results, curves = kept()
    print("\n| task | steps | seeds | success | IQM (95 %) | lowest | return | steps to 90 % | s/seed | compile s |")
    print("|" + "---|" * 10)
    for id, result in results.items():
        print(row(id, result))
    tasks = {}
    for id in results:
        tasks[id] = {"ppo_rnn": (steps_of(stages_of(of_task[id])), curves[id])}
    curves_by_task(tasks, HERE / "results.png", "success rate")


if __name__ == "__main__":
    main()
