"""A wrong simulator and a little real data: H2O against CQL on the data and SAC in the simulator, on Pendulum-v1.

    python experiments/wrong_simulator/run.py [--seeds 10]

Writes results.json and results.png beside this file and prints the table of README.md.
"""

import argparse
import json
import time
from pathlib import Path

import h2o
import jax
import jax.numpy as jnp
import numpy as np

import jaxrl
from jaxrl.algos import sac
from jaxrl.algos.offline import cql
from jaxrl.evaluation import evaluate
from jaxrl.host.plotting import bars
from jaxrl.host.run_folder import environment_of_run
from jaxrl.host.statistics import bootstrap_interval, iqm
from jaxrl.replay import datasets

HERE = Path(__file__).parent
STEPS, REAL_STEPS, GRAVITY = 4000, 1500, 5.0  # gradient steps of each learner; steps of data; the simulator's gravity
SIZES = dict(batch_size=64, hidden=(64, 64))
RATES = dict(learning_rate=1e-3, alpha_learning_rate=1e-3, tau=0.01)


def real_data(env, params):
    """The first steps of a SAC agent in the real pendulum: what its memory holds then."""
    algo = sac.make(env, sac.Config(buffer_size=REAL_STEPS, **SIZES))
    hyper = sac.Hyper(learning_starts=500, **RATES)
    state, _ = jax.jit(lambda key: jaxrl.train(algo, key, REAL_STEPS, hyper, params))(jax.random.key(7))
    items, last = state.replay.items, np.arange(1, REAL_STEPS + 1) % 200 == 0
    action = env.action_space(params).from_unit(items.action)
    return datasets.Dataset(items.obs, action, items.reward, items.terminated, last, items.next_obs)


def arms(env, params, memory):
    """Of each name: the algorithm, its settings, the params it acts under."""
    online = dict(num_updates=1, buffer_size=STEPS, **SIZES)
    wrong = params.replace(gravity=jnp.float32(GRAVITY))
    started = dict(learning_starts=500, **RATES)
    hybrid = h2o.make(env, cql.Config(**online), memory)
    return {
        "H2O, both": (hybrid, cql.Hyper(min_q_weight=0.01, **started), wrong),
        "SAC, simulator": (sac.make(env, sac.Config(**online)), sac.Hyper(**started), wrong),
        "CQL, data": (
            cql.make(env, cql.Config(num_updates=200, num_actions=4, **SIZES), memory),
            cql.Hyper(min_q_weight=1.0, **RATES),
            params,
        ),
    }


def measure(algo, hyper, trained_in, env, params, seeds):
    def run(key):
        key, test_key = jax.random.split(key)
        state, metrics = jaxrl.train(algo, key, STEPS, hyper, trained_in)
        policy = algo.policy(state)
        score = lambda where: evaluate(algo, policy, env, where, test_key, 64, greedy=True).returns.mean()  # noqa: E731
        trust = metrics["trust"][-1000:].mean() if "trust" in metrics else jnp.nan
        return score(params), score(trained_in), trust

    begin = time.perf_counter()
    found = jax.jit(jax.vmap(run))(jax.random.split(jax.random.key(0), seeds))
    real, own, trust = (np.asarray(x, float).round(2).tolist() for x in found)
    row = {"real": real, "where trained": own, "seconds": round(time.perf_counter() - begin, 1)}
    return row if np.isnan(trust).all() else row | {"trust": trust}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    args = parser.parse_args()
    where, rows = environment_of_run(), {}
    env, params = jaxrl.make("Pendulum-v1")
    dataset = real_data(env, params)
    memory = datasets.stored(dataset, env.action_space(params))
    of_data = datasets.Episodes(dataset).total.round(1).tolist()
    keep = {key: where[key] for key in ("started", "device", "processors", "versions")}
    keep |= {"returns of the data": of_data}
    print(f"returns of the data: {of_data}")
    print("| learner | return in the real pendulum, IQM | 95 % interval | where it was trained |\n" + "|---" * 4 + "|")
    for name, arm in arms(env, params, memory).items():
        rows[name] = row = measure(*arm, env, params, args.seeds)
        low, high = bootstrap_interval(row["real"])
        cells = f"{iqm(row['real']):.0f}", f"{low:.0f} to {high:.0f}", f"{iqm(row['where trained']):.0f}"
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)
        (HERE / "results.json").write_text(json.dumps(keep | {"arms": rows}, indent=1) + "\n")
    bars({name: row["real"] for name, row in rows.items()}, HERE / "results.png", "return in the real pendulum")


if __name__ == "__main__":
    main()
