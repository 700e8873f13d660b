"""Which cell crosses a corridor of 200 steps, if shorter ones come first? Recurrent PPO, ten seeds each.

    python experiments/memory/corridors.py [--cells s5 lru] [--seeds 10]

Each seed trains on corridors of 10, 50 and 200 steps, one after the other, and goes on with its weights. Goes on where
it was stopped: writes corridors.json beside this file after each seed, and prints the table of README.md.
"""

import argparse
import json
import time
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxrl
from jaxrl.algos import ppo_rnn
from jaxrl.evaluation import evaluate
from jaxrl.host.run.run_folder import environment_of_run
from jaxrl.nn.cells import CELLS
from jaxrl.wrappers import PreviousActionReward

FILE = Path(__file__).with_suffix(".json")


class Stage(NamedTuple):
    id: str
    steps: int  # environment steps
    num_steps: int  # of a rollout, so of what gradients pass through
    ent_coef: float


STAGES = (
    Stage("TMazePassive-v0", 300_000, 22, 0.05),
    Stage("TMazePassive50-v0", 500_000, 102, 0.01),
    Stage("TMazePassive200-v0", 1_000_000, 201, 0.01),
)


def program(cell: str):
    """Of a key, the share of 256 episodes in which the greedy policy finds the goal, after each stage on its task."""

    def run(key):
        train_key, eval_key = jax.random.split(key)
        weights, found = None, []
        for i, stage in enumerate(STAGES):
            env, params = jaxrl.make(stage.id)
            env = PreviousActionReward(env)
            config = ppo_rnn.Config(num_envs=32, num_steps=stage.num_steps, rnn=cell, shared=True)
            hyper = ppo_rnn.Hyper(gamma=0.999, ent_coef=stage.ent_coef, anneal_steps=stage.steps)
            algo = ppo_rnn.make(env, config)
            state = algo.init(jax.random.fold_in(train_key, i), hyper, params)
            state = state if weights is None else state.replace(weights=weights)
            updates = stage.steps // algo.steps_per_update
            state, _ = jax.lax.scan(lambda state, _, algo=algo: (algo.update(state)[0], None), state, None, updates)
            weights = state.weights
            how = {"num_episodes": 256, "max_steps": 202, "greedy": True}
            returns = evaluate(algo, algo.policy(state), eval_key, env, params, **how).returns
            found.append(jnp.mean(returns > 0.99))
        return jnp.stack(found)

    return jax.jit(run).lower(jax.random.key(0)).compile()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--cells",
        nargs="+",
        default=["s5", "lru", "gru", "min_gru"],
        choices=sorted(set(CELLS) - {"attention", "frames"}),
    )
    parser.add_argument("--seeds", type=int, default=10)
    args = parser.parse_args()
    found = json.loads(FILE.read_text()) if FILE.exists() else {}
    settings = json.loads(json.dumps(STAGES))
    for cell in args.cells:
        row = found.get(cell, {})
        row = row if row.get("settings") == settings else {"settings": settings, "success": [], "cpu_seconds": []}
        run = program(cell) if len(row["success"]) < args.seeds else None
        for seed in range(len(row["success"]), args.seeds):
            begin = time.process_time()
            row["success"].append(np.asarray(run(jax.random.key(seed)), float).round(4).tolist())
            row["cpu_seconds"].append(round(time.process_time() - begin, 1))
            found = json.loads(FILE.read_text()) if FILE.exists() else {}  # another process may have added to it
            found[cell] = {**row, "where": environment_of_run()}
            FILE.write_text(json.dumps(found, indent=1) + "\n")
            print(cell, seed, row["success"][-1], row["cpu_seconds"][-1], flush=True)
    print("| cell | 10 steps | 50 | 200 | CPU s/seed |\n|---|---|---|---|---|")
    for cell in [cell for cell in CELLS if cell in found]:
        success = np.array(found[cell]["success"])
        each = [f"{np.sum(x >= 0.99)} of {len(x)} ({x.mean():.2f})" for x in success.T]
        print(f"| `{cell}` | {' | '.join(each)} | {np.median(found[cell]['cpu_seconds']):.0f} |")


if __name__ == "__main__":
    main()
