"""Transfer matrices: for each task the policies of all 100 contexts, and one of all contexts, on all 100 contexts.

    python experiments/mbtl/train.py [--only cartpole_masscart ...] [--trials 3]

Writes <task>.npz beside this file: `transfer` (trials, 100, 100) and `multi_task` (trials, 100), mean returns in
float16, and `seconds` (trials + 1,): wall time of each trial, compilation in the first, and of all multi-task policies.
Trials that are there already are kept.
"""

import argparse
import functools
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from tasks import TASKS, students

import jaxrl
from jaxrl.algos.curricula import mbtl

HERE = Path(__file__).parent
EPISODES = 16
MULTI_TASK = 10  # times the steps of one context's policy


def programs(task):
    """`(key -> transfer matrix, keys -> rows of multi-task policies)`."""
    one, every, hyper, params, levels = students(task)
    common = {"num_episodes": EPISODES, "greedy": True}

    def matrix(key):
        return mbtl.transfer_matrix(one, key, levels, task.steps, hyper.replace(anneal_steps=task.steps), **common)

    def multi_task(key):
        train_key, key = jax.random.split(key)
        steps = MULTI_TASK * task.steps
        state, _ = jaxrl.train(every, train_key, steps, hyper.replace(anneal_steps=steps), params)
        return mbtl.performances(every, every.policy(state), key, levels, **common)

    return jax.jit(matrix), jax.jit(jax.vmap(multi_task))


def timed(program, *args):
    """What it gives, and wall seconds."""
    begin = time.perf_counter()
    return np.asarray(program(*args)), round(time.perf_counter() - begin, 1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="*", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--trials", type=int, default=3)
    args = parser.parse_args()
    for name in args.only:
        task, file = TASKS[name], HERE / f"{name}.npz"
        score = functools.partial(mbtl.normalised, low=task.low, high=task.high)
        matrix, multi_task = programs(task)
        found = dict(np.load(file)) if file.exists() else {"transfer": np.zeros((0, 100, 100)), "seconds": np.zeros(1)}
        for trial in range(len(found["transfer"]), args.trials):
            new, seconds = timed(matrix, jax.random.key(trial))
            found["transfer"] = np.concatenate([found["transfer"], new[None]]).astype(np.float16)
            found["seconds"] = np.insert(found["seconds"], trial, seconds)
            np.savez_compressed(file, **found)
            own, best = score(np.diag(new)).mean(), score(new.max(0)).mean()
            print(f"{name} {trial}: {seconds:.0f} s, independent {own:.3f}, best of all {best:.3f}", flush=True)
        if len(found.get("multi_task", ())) < args.trials:
            keys = jnp.stack([jax.random.key(1000 + trial) for trial in range(args.trials)])
            rows, found["seconds"][-1] = timed(multi_task, keys)
            found["multi_task"] = rows.astype(np.float16)
            np.savez_compressed(file, **found)
            print(f"{name} multi-task: {found['seconds'][-1]:.0f} s, {score(rows).mean():.3f}", flush=True)


if __name__ == "__main__":
    main()
