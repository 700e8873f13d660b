"""Is OPPO's context worth a decision transformer on learned rewards? Both on the Pendulum data of this study.

    python experiments/preference_control/oppo_beside_dt.py [--only ROW] [--seeds 3] [--table]

Goes on where it stopped: each row (labels, pairs, learner) is in oppo.json beside this file, a return a seed.
"""

import argparse
import dataclasses
import json
import re
import time
from pathlib import Path

import compared_learners as study
import jax
import numpy as np

import jaxrl
from jaxrl.algos import decision_transformer, oppo
from jaxrl.data import datasets, preferences, reward_models
from jaxrl.host.run.run_folder import environment_of_run
from jaxrl.wrappers import LearnedReward
from jaxrl.wrappers.base import Wrapper

HERE = Path(__file__).parent
TASK, UPDATES = "Pendulum", 4_000
ROWS = [
    f"{labels}/{pairs}/{name}"
    for labels in ("return", "regret")
    for pairs in (500, 1000)
    for name in ("oppo", "dt on learned rewards")
]
ROWS += ["none/0/dt on true rewards"]
OPPO = oppo.Config(num_updates=100, batch_size=32, context_size=8, width=32, layers=1, hidden=(64, 64))
DT = decision_transformer.Config(num_updates=100, batch_size=32, context=8, width=32, layers=2)
MODEL = reward_models.Config(num_members=3, hidden=(64, 64), num_checks=15, batch_size=32)


@dataclasses.dataclass(frozen=True)
class PaidByTask(Wrapper):
    """Around a `LearnedReward`, which the policy sees: pays what the task itself does."""

    def transition(self, key, state, action, params):
        out = self.env.transition(key, state, action, params)
        return out._replace(reward=out.info["task_reward"])


def of_oppo(found, env, params):
    algo = oppo.make(env, OPPO, replay=preferences.stored(found, env.action_space(params)))
    return algo, oppo.Hyper(learning_rate=1e-3), params, env


def of_dt(steps, env, params):
    algo = decision_transformer.make(env, DT, replay=datasets.windows(steps, env.action_space(params), DT.context))
    return algo, decision_transformer.Hyper(learning_rate=1e-3), params, algo.venv.env


def of_learned(key, found, env, params):
    """A decision transformer told the best return of the data, by rewards of a model, also of the way."""
    model, losses = reward_models.fit(key, found, env.observation_space(params), env.action_space(params), MODEL)
    task = LearnedReward(env, reward_models.reward_of)
    algo, hyper, params, inside = of_dt(reward_models.relabelled(model, found.steps), task, task.on(params, model))
    return algo, hyper, params, PaidByTask(inside)


def of_seed(key, name, found, env, params):
    """The mean return of 50 episodes of one seed's policy."""
    fit_key, train_key, eval_key = jax.random.split(key, 3)
    if name == "oppo":
        algo, hyper, on, judged = of_oppo(found, env, params)
    elif found is None:
        algo, hyper, on, judged = of_dt(study.oracle.data(TASK, study.STEPS, study.SHARES[TASK], 0)[0], env, params)
    else:
        algo, hyper, on, judged = of_learned(fit_key, found, env, params)
    state, _ = jax.jit(lambda key: jaxrl.train(algo, key, UPDATES, hyper, on))(train_key)
    result = jax.jit(lambda state: jaxrl.evaluate(algo, algo.policy(state), eval_key, judged, on, num_episodes=50))
    return float(result(state).returns.mean())


def measure(labels, pairs, name, row, seeds):
    """The row with the seeds that it has not yet."""
    env, params = study.judged_on(TASK)
    study.PAIRS = int(pairs)
    began = time.process_time()
    found = None if labels == "none" else study.compared(TASK, labels)
    keys = jax.random.split(jax.random.key(1), seeds)[len(row["returns"]) :]
    returns = [round(of_seed(key, name, found, env, params), 2) for key in keys]
    spent = row["cpu_seconds"] + time.process_time() - began
    return {"returns": row["returns"] + returns, "cpu_seconds": round(spent, 1)}


def table(rows):
    for name in ROWS:
        if name in rows:
            returns = rows[name]["returns"]
            told = f"{np.mean(returns):.0f} ({min(returns):.0f} to {max(returns):.0f})"
            print(f"| {name.replace('/', ' | ')} | {told} | {len(returns)} | {rows[name]['cpu_seconds']:.0f} |")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--table", action="store_true")
    args = parser.parse_args()
    file = HERE / "oppo.json"
    results = json.loads(file.read_text()) if file.exists() else {"rows": {}}
    for name in () if args.table else [x for x in ROWS if re.search(args.only, x)]:
        row = results["rows"].get(name, {"returns": [], "cpu_seconds": 0.0})
        if len(row["returns"]) >= args.seeds:
            continue
        results["rows"][name] = measure(*name.split("/"), row, args.seeds)
        file.write_text(json.dumps({**results, **environment_of_run()}, indent=1) + "\n")
        print(name, results["rows"][name], flush=True)
    table(results["rows"])


if __name__ == "__main__":
    main()
