"""Which curriculum makes the maze student that solves most mazes it never saw, at equal steps and at equal updates?

    python experiments/mazes/run.py [--only dr plr ...] [--seeds 10] [--updates 300] [--published]

A run goes on until it has made `--updates` gradient updates. On the way, as soon as it has made as many environment
steps as domain randomisation makes in all, it is judged for the first time; at the end for the second. Steps are all
steps, also those only looked at, and those of both students of PAIRED; an update from a part of a batch is one.

Writes results.json beside this file, seed by seed (a seed that is there is not run again), then README.md's tables and
results.png (`picture.py`). The student is recurrent PPO as in minimax and JaxUED, small enough for a CPU (`STUDENT`);
`--published` has JaxUED's network and settings, its annealed learning rate, and 30,000 updates, for a GPU.
"""

import argparse
import json
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import picture
from methods import ENV, METHODS, PARAMS, PUBLISHED, STUDENT, algorithm

import jaxrl
from jaxrl.environment import strongly_typed
from jaxrl.envs.grid.maze import levels as maze_levels
from jaxrl.evaluation import evaluate
from jaxrl.host.run.run_folder import environment_of_run

FILE = Path(__file__).with_name("results.json")
POINTS, ATTEMPTS = 20, 10
RANDOM, RANDOM_ATTEMPTS, WORST = 1000, 5, 100
OTHERS = ("Maze-StandardMaze2-v0", "Maze-LargeCorridor-v0", "PerfectMaze19-v0")  # github.com/facebookresearch/dcd #3
NO_END = np.iinfo(np.int32).max


def random_levels(n):
    """Solvable mazes of the distribution that curricula draw from, the same for all."""
    solvable = jaxrl.make("Maze-v0", solvable=True)[0]
    keys = jax.random.split(jax.random.key(123), n)
    return jax.jit(jax.vmap(solvable.generate, (0, None)))(keys, PARAMS)


def solved(algo, policy, key, levels, episodes):
    """Share of the episodes on each level that find the goal."""
    env = ENV.as_levels()

    def one(level, key):
        return (evaluate(algo, policy, key, env, level, num_episodes=episodes).returns > 0).mean()

    return jax.vmap(one)(levels, jax.random.split(key, jax.tree.leaves(levels)[0].shape[0]))


def judge(algo, policy, key, unseen):
    """What the policy solves: each hold-out, random mazes, the worst tenth of them, each of `OTHERS`.

    The worst are those of one evaluation, judged by another one, as in Rutherford et al. (2024).
    """
    keys = jax.random.split(key, 3 + len(OTHERS))
    found = {"holdouts": solved(algo, policy, keys[0], maze_levels.holdouts(), ATTEMPTS)}
    first, second = (solved(algo, policy, k, unseen, RANDOM_ATTEMPTS) for k in keys[1:3])
    found["random"], found["worst"] = second.mean(), second[jnp.argsort(first)[:WORST]].mean()
    others = []
    for k, name in zip(keys[3:], OTHERS, strict=True):
        task, params = jaxrl.make(name)
        others.append((evaluate(algo, policy, k, task, params, num_episodes=100).returns > 0).mean())
    return {**found, "others": jnp.stack(others)}


def functions(method, setting, updates):
    """`(begin, advance, look, judge)` of a method, jitted: see `train`."""
    algo, hyper, params = algorithm(method, setting, updates)
    hyper, levels, unseen = strongly_typed(hyper), maze_levels.holdouts(), random_levels(RANDOM)

    def begin(key):
        unknown = jnp.float32(jnp.nan)
        return algo.init(key, hyper, params), jnp.int32(0), jnp.int32(0), {"walls": unknown, "success": unknown}

    def advance(run, steps, gradients):
        """Until so many steps or gradient updates were made. `run`: (state, steps looked at, gradient updates, log)."""

        def going(run):
            state, looked, done, _ = run
            return (state.step + looked < steps) & (done < gradients)

        def update(run):
            state, looked, done, _ = run
            state, metrics = algo.update(state)
            log = {
                name: metrics.get(f"level{at}", jnp.nan) for name, at in (("walls", "/walls"), ("success", "_success"))
            }
            looked += metrics.get("refresh_steps", 0)
            return state, looked, done + metrics.get("learned", 1), jax.tree.map(jnp.float32, log)

        return jax.lax.while_loop(going, update, run)

    def look(run, key):
        return solved(algo, algo.policy(run[0]), key, levels, 2).mean()

    return tuple(map(jax.jit, (begin, advance, look, lambda run, key: judge(algo, algo.policy(run[0]), key, unseen))))


def train(of_method, budget, updates, key):
    """One seed: what it solves after `budget` steps and after `updates` gradient updates, and the way there."""
    begin, advance, look, judged = of_method
    start = time.process_time(), time.perf_counter()
    key, init_key = jax.random.split(key)
    run, curve, found = begin(init_key), [], {}

    def made():
        return {"steps": int(run[0].step) + int(run[1]), "updates": int(run[2])}

    def verdict(key):
        return {**made(), **jax.tree.map(lambda x: np.round(np.asarray(x, float), 4).tolist(), judged(run, key))}

    for i, k in enumerate(jax.random.split(key, POINTS)):
        look_key, steps_key, end_key = jax.random.split(k, 3)
        target = updates * (i + 1) // POINTS
        if "steps" not in found:
            run = advance(run, budget, target)
            if made()["steps"] >= budget:
                found["steps"] = verdict(steps_key)
        run = advance(run, NO_END, target)
        log = {name: round(float(x), 3) for name, x in run[3].items()}
        curve.append({**made(), **log, "holdouts": round(float(look(run, look_key)), 3)})
    found["updates"] = verdict(end_key)
    seconds = {"cpu": round(time.process_time() - start[0]), "wall": round(time.perf_counter() - start[1])}
    return {**found, "curve": curve, "seconds": seconds, "where": environment_of_run()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--updates", type=int)
    parser.add_argument("--published", action="store_true")
    args = parser.parse_args()
    setting, updates = (PUBLISHED, 30_000) if args.published else (STUDENT, 300)
    updates = args.updates or updates
    budget = updates * setting.config.num_envs * setting.config.num_steps
    for method in args.only:
        name = f"{method}/{updates}" + "/published" * args.published
        of_method = functions(method, setting, updates)
        for seed in range(args.seeds):
            report = json.loads(FILE.read_text()) if FILE.exists() else {}
            if str(seed) in report.get(name, {}):
                continue
            row = train(of_method, budget, updates, jax.random.key(seed))
            report = json.loads(FILE.read_text()) if FILE.exists() else {}
            report.setdefault(name, {})[str(seed)] = row
            FILE.write_text(json.dumps(report) + "\n")
            print(name, seed, row["seconds"], row["updates"]["holdouts"], flush=True)
    picture.main(updates)


if __name__ == "__main__":
    main()
