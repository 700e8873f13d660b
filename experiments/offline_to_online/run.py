"""From a dataset into the environment: who loses at the switch, and who learns most from it?

    python experiments/offline_to_online/run.py [--seeds 10] [--only WSRL RLPD] [--picture]

Writes results.json and results.png beside this file and prints the table of README.md; `--picture` makes only these.
"""

import argparse
import json
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from arms import ARMS, OFFLINE
from data import SCALES, TASKS, made
from picture import report
from reptile import by_turns, reptile

from jaxrl.data import datasets
from jaxrl.evaluation import evaluate
from jaxrl.host.run.run_folder import environment_of_run
from jaxrl.replay.ring import uniform

HERE = Path(__file__).parent
GRADIENT_STEPS, ONLINE_STEPS, EVERY, EPISODES = 3_000, 2_400, 100, 8


def trained(algo, hyper, params, key):
    """The state after the gradient steps on the dataset."""
    length = GRADIENT_STEPS // algo.steps_per_update
    return jax.lax.scan(lambda s, _: algo.update(s), algo.init(key, hyper, params), length=length)[0]


def measure(arm, env, params, dataset, seeds, scale):
    """Returns of the greedy policy at the switch and after every `EVERY` steps, (seeds, points), and seconds."""
    memory = datasets.stored(dataset, env.action_space(params), gamma=arm.online.settings().gamma)
    own = uniform(ONLINE_STEPS)
    both = by_turns if arm.reptile else datasets.mixed
    algo = arm.online.make(env, both(memory, own) if arm.retained else own)
    algo = reptile(algo) if arm.reptile else algo
    if arm.offline is not None:
        offline = arm.offline.make(env, memory, arm.given(dataset), **OFFLINE)
    rest = ONLINE_STEPS - arm.warm_up

    def run(key):
        offline_key, key, eval_key = jax.random.split(key, 3)

        def score(state, episodes=EPISODES):
            return evaluate(
                algo, algo.policy(state), eval_key, env, params, num_episodes=episodes, greedy=True
            ).returns.mean()

        if arm.offline is None:  # as it is published: from new weights, at random before it learns
            state = algo.init(key, arm.online.settings(learning_starts=200), params)
        else:
            state = trained(offline, arm.offline.settings(), params, offline_key)
            state = arm.start(algo, state, key, arm.online.settings(), params, arm.warm_up)
        first = score(state)

        def chunk(state, _):
            state, metrics = jax.lax.scan(lambda s, _: algo.update(s), state, length=EVERY // algo.steps_per_update)
            return state, (score(state), jnp.nanmean(metrics.get("q_value", jnp.nan)))

        _, (scores, values) = jax.lax.scan(chunk, state, length=rest // EVERY)
        return jnp.concatenate([jnp.full(1 + arm.warm_up // EVERY, first), scores]), values

    keys = jax.random.split(jax.random.key(0), seeds)
    begin = time.perf_counter()
    program = jax.jit(lambda keys: jax.lax.map(run, keys)).lower(keys).compile()
    middle = time.perf_counter()
    returns, values = map(np.asarray, program(keys))
    seconds = round(middle - begin, 1), round(time.perf_counter() - middle, 1)
    return {
        "returns": (returns / scale).round(2).tolist(),
        "q_value": values.mean(0).round(1).tolist(),
        "seconds": seconds,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--only", nargs="+", default=list(ARMS), choices=list(ARMS))
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--picture", action="store_true")
    args = parser.parse_args()
    path = HERE / "results.json"
    found: dict = json.loads(path.read_text()) if path.exists() else {"tasks": {}}
    for task in () if args.picture else args.tasks:
        env, params, dataset = made(task)
        rows = dict(found["tasks"].get(task, {}))
        rows["dataset"] = {"mean return": float(datasets.Episodes(dataset).total.mean() / SCALES[task])}
        for name in args.only:
            rows[name] = measure(ARMS[name], env, params, dataset, args.seeds, SCALES[task])
            returns = np.array(rows[name]["returns"])
            print(task, name, returns.mean(0).round()[::3], rows[name]["seconds"], flush=True)
            found |= {"every": EVERY, "gradient_steps": GRADIENT_STEPS, **environment_of_run()}
            found["tasks"][task] = {name: rows[name] for name in ("dataset", *ARMS) if name in rows}
            path.write_text(json.dumps(found) + "\n")
    report(found, HERE)


if __name__ == "__main__":
    main()
