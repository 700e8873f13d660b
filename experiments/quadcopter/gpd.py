"""Does PPO solve the tasks of gym-pybullet-drones? Returns of the greedy policy, ten seeds a task.

    python experiments/quadcopter/gpd.py [--only MultiHover] [--seeds 10]

The tasks are deterministic, so one episode says all. MultiHover is learnt with the end of an episode that leaves its
box counted as a termination, and judged as it is. Writes gpd.json and prints the table of README.md.
"""

import argparse
import dataclasses
import json
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import jaxrl
from jaxrl.algos import ppo
from jaxrl.environment import strongly_typed
from jaxrl.envs.quadcopter.swarms.multi_hover import MultiHover
from jaxrl.evaluation import evaluate
from jaxrl.host.run.run_folder import environment_of_run
from jaxrl.host.statistics import bootstrap_interval

HERE = Path(__file__).parent
CONFIG = ppo.Config(num_envs=64, num_steps=64, num_minibatches=8, normalize_obs=True)
MULTI = dataclasses.replace(CONFIG, normalize_reward=True, clip_value=False)
TASKS = {  # id, static settings, environment steps, the return at which upstream stops training
    "Hover, one-D RPM": ("Quadcopter-GpdHover-v0", {"action": "one_d_rpm"}, 3_000_000, 474),
    "Hover, RPM": ("Quadcopter-GpdHover-v0", {}, 3_000_000, 467),
    "MultiHover, RPM": ("Quadcopter-MultiHover-v0", {}, 2_000_000, 920),
}


@dataclasses.dataclass(frozen=True)
class Bounded(MultiHover):
    """What leaves its box has lost the rest.

    The task cuts the episode there, and PPO takes the critic's word for what would have followed: of states that were
    never seen. Where that is too much, policies learn to leave.
    """

    def judge(self, *given):
        now = super().judge(*given)
        return now._replace(terminated=now.terminated | now.truncated, truncated=jnp.bool_(False))


LEARNT = {"Quadcopter-MultiHover-v0": (Bounded(), MULTI)}  # in the place of the task, and with what


def measure(id, settings, total_steps, seeds):
    env, params = jaxrl.make(id, **settings)
    algo = ppo.make(*LEARNT.get(id, (env, CONFIG)))
    hyper = strongly_typed(ppo.Hyper(learning_rate=1e-3, anneal_steps=total_steps, ent_coef=0.0))

    def run(key):
        train_key, eval_key = jax.random.split(key)
        state, _ = jaxrl.train(algo, train_key, total_steps, hyper, params)
        return evaluate(algo, algo.policy(state), eval_key, env, params, num_episodes=1, greedy=True).returns[0]

    begin = time.process_time()
    program = jax.jit(run).lower(jax.random.key(0)).compile()
    compiled = time.process_time()
    returns = [float(program(jax.random.key(seed))) for seed in range(seeds)]
    seconds = (time.process_time() - compiled) / seeds
    return {
        "returns": np.round(returns, 2).tolist(),
        "steps": total_steps,
        "compile_seconds": round(compiled - begin, 1),  # of CPU, as the next
        "seconds_a_seed": round(seconds, 1),
        "where": environment_of_run(),
    }


def table(results):
    lines = [
        "| task | upstream stops at | ours, mean and 95 % | lowest | seeds there | steps | s a seed |",
        "|" + "---|" * 7,
    ]
    for name, row in results.items():
        r, bar = np.array(row["returns"]), TASKS[name][3]
        low, high = bootstrap_interval(r, np.mean)
        cells = [
            name,
            bar,
            f"{r.mean():.1f} [{low:.1f}, {high:.1f}]",
            f"{r.min():.1f}",
            f"{(r >= bar).sum()} of {len(r)}",
        ]
        lines.append("| " + " | ".join(map(str, [*cells, f"{row['steps']:,}", row["seconds_a_seed"]])) + " |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="+", default=list(TASKS), choices=TASKS)
    parser.add_argument("--seeds", type=int, default=10)
    args = parser.parse_args()
    path = HERE / "gpd.json"
    results = json.loads(path.read_text()) if path.exists() else {}
    for name in args.only:
        results[name] = measure(*TASKS[name][:3], args.seeds)
        path.write_text(json.dumps({k: results[k] for k in TASKS if k in results}, indent=1))
    print(table(results))


if __name__ == "__main__":
    main()
