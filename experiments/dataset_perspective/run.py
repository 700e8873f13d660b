"""Which data suits which learner? Nine offline learners on five kinds of data of six tasks, by quality and coverage.

    python experiments/dataset_perspective/run.py [--seeds 10] [--steps 5000]

Writes results.json and results.png beside this file and prints the tables of README.md.
"""

import argparse
import json
import time
from pathlib import Path

import jax
import numpy as np
from data import GAMMA, KINDS, task
from report import picture, tables

import jaxrl.algos.deep_q.dqn as dqn
import jaxrl.algos.deep_q.qr_dqn as qr_dqn
from jaxrl.algos import bc, bcq_discrete, cql_discrete, crr_discrete, rem
from jaxrl.data import datasets
from jaxrl.evaluation import evaluate
from jaxrl.host.run.run_folder import environment_of_run

HERE = Path(__file__).parent
SIZE = 10_000
# id, settings, longest episode, environment steps of the training that the data comes from
TASKS = (
    ("CartPole-v1", {}, 200, 60_000),
    ("Acrobot-v1", {}, 200, 60_000),
    ("Catch-bsuite", {}, 20, 60_000),
    ("FrozenLake-v1", {}, 60, 60_000),
    ("MiniGrid-Dynamic-Obstacles-5x5-v0", {}, 100, 60_000),
    ("Breakout-MinAtar", {}, 500, 200_000),
)
AGENTS = {  # as the paper's code has them, but for fewer quantiles (50 there) and heads (200)
    "BC": (bc, {}, {}),
    "BVE": (cql_discrete, dict(target="data"), dict(min_q_weight=0.0)),
    "MCE": (cql_discrete, dict(target="returns"), dict(min_q_weight=0.0)),
    "DQN": (dqn, dict(critic="huber"), {}),
    "QR-DQN": (qr_dqn, dict(num_outputs=20, double=True), {}),
    "REM": (rem, dict(num_outputs=20, double=True), {}),
    "BCQ": (bcq_discrete, {}, dict(threshold=0.3)),
    "CQL": (cql_discrete, {}, dict(min_q_weight=0.1)),
    "CRR": (crr_discrete, {}, {}),
}
EACH = 100  # gradient steps between moves of the target network, as in the paper's code
EPISODES = 16


def scores(found, agent: str, seeds: int, steps: int) -> np.ndarray:
    """Returns (kinds, seeds) of the greedy policies, between a random policy's (0) and the best known one's (1)."""
    module, config, numbers = AGENTS[agent]
    algo = module.make(
        found.env, module.Config(num_updates=EACH, batch_size=64, hidden=(32, 32), **config), replay=datasets.carried
    )  # whose state the data is, so that its kinds are an axis of the program
    if module is not bc:
        numbers = dict(gamma=GAMMA, target_period=EACH, **numbers)
    hyper = module.Hyper(learning_rate=1e-3, **numbers)

    def run(key, items):
        init_key, eval_key = jax.random.split(key)
        state = algo.init(init_key, hyper, found.params).replace(replay=items)
        state = jax.lax.fori_loop(0, steps // EACH, lambda _, state: algo.update(state)[0], state)
        # The data is no part of what is evaluated.
        return evaluate(
            algo, algo.policy(state), eval_key, found.env, found.params, num_episodes=EPISODES, greedy=True
        ).returns.mean()

    of_kinds = jax.vmap(run, (None, 0))  # all kinds draw the same rows and begin with the same weights
    keys = jax.random.split(jax.random.key(1), seeds)
    returns = np.asarray(jax.jit(jax.vmap(of_kinds, (0, None)))(keys, found.items)).T
    return (returns - found.random) / (found.best - found.random)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=5000)
    names = [name for name, *_ in TASKS]
    parser.add_argument("--tasks", nargs="*", default=names, help="the others' results stay as they are")
    args = parser.parse_args()
    where = environment_of_run()
    keep = {key: where[key] for key in ("started", "device", "processors", "versions")}
    results = {"steps": args.steps, "size": SIZE, "kinds": KINDS, "where": keep, "tasks": {}}
    if set(args.tasks) != set(names):
        results = json.loads((HERE / "results.json").read_text())
    for name, settings, max_steps, train_steps in TASKS:
        if name not in args.tasks:
            continue
        begin = time.perf_counter()
        found = task(name, settings, max_steps, train_steps, SIZE)
        row = {"random": found.random, "best": found.best, "tq": found.tq, "saco": found.saco, "scores": {}}
        print(name, f"TQ {np.round(found.tq, 2)}, SACo {np.round(found.saco, 2)}", flush=True)
        for agent in AGENTS:
            row["scores"][agent] = scores(found, agent, args.seeds, args.steps).round(4).tolist()
            spent = time.perf_counter() - begin
            print(f"  {agent:8}", np.mean(row["scores"][agent], 1).round(2), f"{spent:.0f} s", flush=True)
        results["tasks"][name] = row
        row["seconds"] = round(time.perf_counter() - begin)
        (HERE / "results.json").write_text(json.dumps(results, indent=None, separators=(",", ": ")) + "\n")
    print(tables(results))
    picture(results, HERE / "results.png")


if __name__ == "__main__":
    main()
