"""Which curriculum makes the maze student that solves most mazes it never saw?

    python experiments/mazes/run.py [--only dr plr ...] [--seeds 10] [--updates 300] [--published]

Writes results.json beside this file, method by method, then README.md's table and results.png (`picture.py`). All seeds
of a method are one program. The student is recurrent PPO as in minimax and JaxUED, small enough for a CPU (`STUDENT`);
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
from methods import METHODS, PUBLISHED, STUDENT, algorithm

import jaxrl
from jaxrl.environment import strongly_typed
from jaxrl.envs.grid.maze import levels as maze_levels
from jaxrl.evaluation import evaluate
from jaxrl.host.run_folder import environment_of_run

FILE = Path(__file__).with_name("results.json")
ENV = jaxrl.make("Maze-v0")[0]
POINTS, ATTEMPTS, RANDOM = 20, 10, 1000


def random_levels(n):
    """Solvable mazes of 25 wall cells drawn, the same for all."""
    solvable = jaxrl.make("Maze-v0", solvable=True)
    keys = jax.random.split(jax.random.key(123), n)
    return jax.jit(jax.vmap(solvable[0].generate, (0, None)))(keys, solvable[1])


def solved(algo, policy, key, levels, episodes):
    """Share of the episodes on each level that find the goal."""
    env = ENV.as_levels()

    def one(level, key):
        return (evaluate(algo, policy, env, level, key, episodes).returns > 0).mean()

    return jax.vmap(one)(levels, jax.random.split(key, jax.tree.leaves(levels)[0].shape[0]))


def train(method, setting, updates, seeds):
    """Shares solved: of the hold-outs along the way (seeds, POINTS, 8), of them and of random mazes at the end."""
    algo, hyper, params = algorithm(method, setting, updates)
    hyper, levels, unseen = strongly_typed(hyper), maze_levels.holdouts(), random_levels(RANDOM)

    def block(state, key):
        state, metrics = jax.lax.scan(lambda s, _: algo.update(s), state, length=updates // POINTS)
        looked = metrics.get("refresh_steps", jnp.zeros(1)).astype(float).sum()
        curve = solved(algo, algo.policy(state), key, levels, 2)
        return state, (curve, jnp.nanmean(metrics["episode_return"]), looked)

    def run(key):
        init_key, key, last_key, random_key = jax.random.split(key, 4)
        start = algo.init(init_key, hyper, params)
        state, (curve, returns, looked) = jax.lax.scan(block, start, jax.random.split(key, POINTS))
        policy = algo.policy(state)
        last = solved(algo, policy, last_key, levels, ATTEMPTS), solved(algo, policy, random_key, unseen, 1)
        return curve, *last, returns, state.step.astype(float) + looked.sum()

    keys, begin = jax.random.split(jax.random.key(0), seeds), time.perf_counter()
    program = jax.jit(jax.vmap(run)).lower(keys).compile()
    compiled, cpu = time.perf_counter(), time.process_time()
    results = [np.asarray(x, float) for x in jax.block_until_ready(program(keys))]
    seconds = {"compile": compiled - begin, "run": time.perf_counter() - compiled, "cpu": time.process_time() - cpu}
    return *results, seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--updates", type=int)
    parser.add_argument("--published", action="store_true")
    args = parser.parse_args()
    setting, budget = (PUBLISHED, 30_000) if args.published else (STUDENT, 300)
    if (args.updates or budget) % POINTS:
        parser.error(f"--updates {args.updates}: a multiple of {POINTS}, as so many times the hold-outs are tried.")
    for method in args.only:
        curve, holdouts, unseen, returns, steps, seconds = train(method, setting, args.updates or budget, args.seeds)
        report = json.loads(FILE.read_text()) if FILE.exists() else {}
        report[f"{method}/published" if args.published else method] = {
            "steps": int(steps[0]),
            "curve": np.round(curve.mean(-1), 3).tolist(),  # seeds, points
            "holdouts": np.round(holdouts, 3).tolist(),  # seeds, mazes
            "random": np.packbits(unseen.astype(bool), axis=1).tobytes().hex(),  # seeds x 1,000 solved or not
            "returns": np.round(returns, 3).tolist(),
            "seconds": {k: round(v, 1) for k, v in seconds.items()},
            "where": environment_of_run(),
        }
        FILE.write_text(json.dumps(report) + "\n")
    picture.main()


if __name__ == "__main__":
    main()
