"""Does R2D2 remember as recurrent PQN does? MemoryLength-bsuite, as in run.py, with an epsilon that falls sooner.

    python experiments/memory/off_policy.py [--seeds 3] [--repeats 9]

Writes off_policy.json and prints the table of docs/algos/r2d2.md.
"""

import argparse
import json
import time
from pathlib import Path

import jax
import numpy as np
from run import GRU

import jaxrl
from jaxrl.algos import pqn_rnn, r2d2
from jaxrl.evaluation import evaluate
from jaxrl.host.run.run_folder import environment_of_run

STEPS = 60_000
SHAPE = {"num_envs": 32, "num_steps": 22} | GRU
REPLAY = SHAPE | {"num_updates": 8, "batch_size": 32, "buffer_size": 2048}
DRQN = {"prioritised": False, "n_step": 1, "rescaled": False, "double": False, "dueling": False}
HYPER = {"learning_rate": 1e-3, "exploration_steps": 4000}
AGENTS = {
    "r2d2": (r2d2, REPLAY),
    "r2d2 as DRQN": (r2d2, REPLAY | DRQN),
    "pqn_rnn": (pqn_rnn, SHAPE | {"num_minibatches": 4}),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=9, help="timed runs of each agent, in turns")
    args = parser.parse_args()
    env, params = jaxrl.make("MemoryLength-bsuite")
    keys = jax.random.split(jax.random.key(0), args.seeds)
    programs, found = {}, {}
    for name, (module, config) in AGENTS.items():
        algo = module.make(env, module.Config(**config))

        def run(key, algo=algo, module=module):
            train_key, eval_key = jax.random.split(key)
            state, metrics = jaxrl.train(algo, train_key, STEPS, module.Hyper(**HYPER), params)
            how = {"num_episodes": 1024, "max_steps": 32, "greedy": True}
            stats = evaluate(algo, algo.policy(state), eval_key, env, params, **how)
            return stats.returns.mean(), metrics["episode_return"]

        programs[name] = jax.jit(run)
        found[name] = {"returns": [], "steps_to_0.9": [], "seconds": []}
        for key in keys:
            final, curve = map(np.asarray, programs[name](key))
            solved = np.flatnonzero(curve > 0.9)
            found[name]["returns"].append(round(float(final), 3))
            found[name]["steps_to_0.9"].append(int(solved[0] + 1) * algo.steps_per_update if len(solved) else None)
    for i in range(args.repeats):
        for name, program in programs.items():
            began = time.perf_counter()
            jax.block_until_ready(program(keys[i % args.seeds]))
            found[name]["seconds"].append(round(time.perf_counter() - began, 3))
    for name, row in found.items():
        rate = STEPS / np.median(row["seconds"]) if row["seconds"] else np.nan
        print(f"| `{name}` | {row['returns']} | {row['steps_to_0.9']} | {rate:,.0f} |")
    out = {"agents": found, "where": environment_of_run()}
    (Path(__file__).parent / "off_policy.json").write_text(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__":
    main()
