"""What is a combinatorial arg-max worth on coupled restless bandits, and does an open solver find it?

    python experiments/sequoia/run.py [--only path/8 ...] [--instances 1] [--rounds 3] [--samples 400]

Writes results.json beside this file (a case at a time) and prints the table of README.md.
"""

import argparse
import json
import time
from pathlib import Path

import jax
import learner
import numpy as np

from jaxrl.envs.bandits import coupled
from jaxrl.host.statistics import bootstrap_interval

HERE = Path(__file__).parent
KINDS = {"path": coupled.Path, "matching": coupled.Matching, "capacity": coupled.Capacity}
CASES = {f"{name}/{n}": kind(num_arms=n, budget=b) for n, b in ((8, 3), (20, 5)) for name, kind in KINDS.items()}
CASES["interventions/8"] = coupled.Interventions(num_arms=8, budget=3, interventions=6)
CASES["interventions/20"] = coupled.Interventions()
POLICIES = ["null", "random", "myopic", "whittle", "DQN, enumerator", "DQN, MILP", "optimum"]


def measure(env: coupled.CoupledRestless, instance: int, options: argparse.Namespace) -> tuple[dict, dict]:
    """Expected reward a step of every policy in each episode, and facts about the instance and the solver."""
    params = jax.jit(env.generate)(jax.random.key(instance), env.default_params)
    enumerator = learner.Enumerator(env, params)
    policies = learner.baselines(env, params, enumerator)
    key = jax.random.key(100 + instance)
    start = time.time()
    weights = learner.learn(key, env, params, enumerator, options.rounds, options.samples, options.fit_steps)
    facts = {"feasible": len(enumerator.actions), "enumerator_training_s": time.time() - start}
    policies["DQN, enumerator"] = lambda _, arms: enumerator.best(weights, arms)
    solver = learner.Solver(env, params)
    states = np.random.default_rng(instance).integers(0, 4, (options.compare, env.num_arms)).astype(np.int32)
    start = time.time()
    found = solver.best(weights, states)
    facts["solve_s"] = (time.time() - start) / max(solver.solved, 1)
    best = enumerator.best(weights, states)
    gap = learner.q_value(weights, states, best) - learner.q_value(weights, states, found)
    facts["solver_gap"] = float(np.max(np.asarray(gap)))  # in standard deviations of the targets
    if env.num_arms <= 8:
        start = time.time()
        few = (options.rounds, options.milp_samples, options.fit_steps)
        by_solver = learner.learn(key, env, params, solver, *few)
        facts["milp_training_s"] = time.time() - start
        # Learnt with the solver; evaluated with the enumerator, which finds the same actions (solver_gap) sooner.
        policies["DQN, MILP"] = lambda _, arms: enumerator.best(by_solver, arms)
        policies["optimum"] = learner.optimum(env, params, enumerator)
    rewards = {name: learner.evaluate(env, params, policy, options.episodes) for name, policy in policies.items()}
    return rewards, facts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=list(CASES), choices=list(CASES))
    parser.add_argument("--instances", type=int, default=1)
    parser.add_argument("--episodes", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--samples", type=int, default=400)
    parser.add_argument("--milp-samples", type=int, default=160)
    parser.add_argument("--fit-steps", type=int, default=3000)
    parser.add_argument("--compare", type=int, default=3, help="states in which solver and enumerator are compared")
    options = parser.parse_args()
    path = HERE / "results.json"
    results = json.loads(path.read_text()) if path.exists() else {}
    for case in options.only:
        runs = [measure(CASES[case], i, options) for i in range(options.instances)]
        table = {}
        for name in runs[0][0]:
            episodes = np.concatenate([rewards[name] for rewards, _ in runs])
            low, high = bootstrap_interval(episodes, np.mean)
            table[name] = {"mean": float(episodes.mean()), "low": float(low), "high": float(high)}
        facts = {name: [facts[name] for _, facts in runs] for name in runs[0][1]}
        results[case] = {
            "reward_per_step": table,
            **facts,
            "settings": {k: v for k, v in vars(options).items() if k != "only"},
        }
        path.write_text(json.dumps(results, indent=1) + "\n")
    print("| case | feasible actions | " + " | ".join(POLICIES) + " |\n" + "|---" * (2 + len(POLICIES)) + "|")
    for case, row in results.items():
        cells = [row["reward_per_step"].get(name) for name in POLICIES]
        text = [f"{c['mean']:.2f} [{c['low']:.2f}, {c['high']:.2f}]" if c else "-" for c in cells]
        print(f"| {case} | {', '.join(map(str, row['feasible']))} | " + " | ".join(text) + " |")


if __name__ == "__main__":
    main()
