"""Which memory for which task? Recurrent PPO with each cell on tasks that need memory, ten seeds each.

    python experiments/memory/cells.py [--only "TMaze*"] [--cells gru s5] [--seeds 10]

Goes on where it was stopped: a row of cells.json is measured once for its settings. Prints the table of README.md.
"""

import argparse
import dataclasses
import fnmatch
import json
from pathlib import Path
from typing import NamedTuple

import jax

import jaxrl
from jaxrl.algos import ppo_rnn
from jaxrl.evaluation import evaluate
from jaxrl.host.run.run_folder import environment_of_run
from jaxrl.host.statistics import iqm
from jaxrl.nn.cells import CELLS
from jaxrl.wrappers import PreviousActionReward
from jaxrl.wrappers.base import Wrapper

HERE = Path(__file__).parent
WINDOWS = {"attention": 64, "frames": 3}
"""Steps before the present one: of attention, and of frame stacking, whose four frames are what is usual."""


class Task(NamedTuple):
    steps: int  # environment steps of a seed
    num_steps: int  # of a rollout, so of what gradients pass through
    best: float  # return
    cap: int  # steps after which an evaluated episode is cut
    gamma: float = 0.99
    ent_coef: float = 0.05
    hyper: dict = {}  # where it differs otherwise


EXPLORES = {"ent_anneal_steps": 3_000_000, "vf_coef": 0.01, "max_grad_norm": 10.0}
TASKS = {
    "TMaze-v0": Task(300_000, 64, 4, 100),
    "TMazePassive-v0": Task(300_000, 22, 1, 12),
    "TMazePassive50-v0": Task(1_000_000, 102, 1, 52, 0.999, 0.01),
    "TMazePassive200-v0": Task(2_000_000, 201, 1, 202, 0.999, 0.01),
    "RepeatFirstEasy-v0": Task(500_000, 51, 1, 52),
    "RepeatPreviousEasy-v0": Task(1_000_000, 51, 1, 52, 0.9),
    "AutoencodeEasy-v0": Task(1_000_000, 103, 1, 104, 0.9),
    "CountRecallEasy-v0": Task(1_000_000, 51, 1, 52, 0.9),
    "RockSample-5-5-v0": Task(3_000_000, 64, 35, 200, 0.99, 0.5, EXPLORES),
    "CompassWorld-v0": Task(500_000, 64, 1, 200),
    "CartPole-P-v0": Task(500_000, 64, 500, 500),
    "CartPole-V-v0": Task(500_000, 64, 500, 500),
}


@dataclasses.dataclass(frozen=True)
class Discounted(Wrapper):
    """Pays gamma^t times the reward of step t."""

    gamma: float = 1.0

    def transition(self, key, state, action, params):
        out = self.env.transition(key, state, action, params)
        return out._replace(reward=self.gamma**state.time * out.reward)


def settings(task: Task, cell: str) -> tuple[dict, dict]:
    """Of recurrent PPO: static ones, and leaves."""
    window = {"window": WINDOWS[cell]} if cell in WINDOWS else {}
    config = {"num_envs": 32, "num_steps": task.num_steps, "rnn": cell, "shared": True, **window}
    return config, {"gamma": task.gamma, "ent_coef": task.ent_coef, "anneal_steps": task.steps, **task.hyper}


def measure(id: str, task: Task, cell: str, seeds: int) -> dict[str, list[float]]:
    """Returns of the final policies, greedy, 256 episodes a seed, and those discounted."""
    env, params = jaxrl.make(id)
    env = PreviousActionReward(env)
    config, hyper = settings(task, cell)
    algo = ppo_rnn.make(env, ppo_rnn.Config(**config))

    @jax.jit
    def run(key):
        train_key, eval_key = jax.random.split(key)
        state, _ = jaxrl.train(algo, train_key, task.steps, ppo_rnn.Hyper(**hyper), params)
        how = {"num_episodes": 256, "max_steps": task.cap, "greedy": True}
        policy, seen = algo.policy(state), (env, Discounted(env, gamma=task.gamma))
        return [evaluate(algo, policy, eval_key, x, params, **how).returns.mean() for x in seen]

    found = [[round(float(x), 3) for x in run(key)] for key in jax.random.split(jax.random.key(0), seeds)]
    return dict(zip(("returns", "discounted"), map(list, zip(*found, strict=True)), strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="*", help="a pattern of ids")
    parser.add_argument("--cells", nargs="+", default=list(CELLS), choices=CELLS)
    parser.add_argument("--seeds", type=int, default=10)
    args = parser.parse_args()
    path = HERE / "cells.json"
    found = json.loads(path.read_text()) if path.exists() else {}
    for id, task in TASKS.items():
        for cell in args.cells if fnmatch.fnmatch(id, args.only) else ():
            told = json.loads(json.dumps([task.steps, args.seeds, *settings(task, cell)]))
            if found.get(id, {}).get(cell, {}).get("settings") != told:
                scored = measure(id, task, cell, args.seeds)
                found = json.loads(path.read_text()) if path.exists() else {}
                row = {**scored, "settings": told, "where": environment_of_run()}
                found.setdefault(id, {})[cell] = row
                path.write_text(json.dumps(found, indent=1) + "\n")
                print(id, cell, scored, flush=True)
    print("| task | best | " + " | ".join(CELLS) + " |\n|" + "---|" * (len(CELLS) + 2))
    for id, task in TASKS.items():
        now = {cell: json.loads(json.dumps([task.steps, args.seeds, *settings(task, cell)])) for cell in CELLS}
        rows = [found.get(id, {}).get(cell) for cell in CELLS]
        rows = [r if r and r["settings"] == now[cell] else None for r, cell in zip(rows, CELLS, strict=True)]
        told = [f"{iqm(r['returns']):.2f} ({min(r['returns']):.2f})" if r else "" for r in rows]
        print(f"| `{id}` | {task.best:g} | " + " | ".join(told) + " |")


if __name__ == "__main__":
    main()
