"""f-DVL beside IQL and XQL over temperatures, and ReCOIL from one demonstration.

    python experiments/dual_rl/run.py [--seeds 10] [--only temperatures|imitation] [--picture]

Writes results.json and results.png beside this file and prints the tables of README.md (`--picture`: only these).
"""

import argparse
import json
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from report import report

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "trajectory_weighting"))
from mixed import data_of, memory, mixed, task  # noqa: E402, what makes data is there

from jaxrl.algos import bc, dvl, iql, recoil  # noqa: E402
from jaxrl.data import datasets  # noqa: E402
from jaxrl.evaluation import evaluate  # noqa: E402
from jaxrl.host.run.run_folder import environment_of_run  # noqa: E402

SIZES = dict(batch_size=64, hidden=(32, 32), num_updates=100)
RATES = dict(learning_rate=1e-3, tau=0.01)
TASKS = ("PointMass-v0",)
NUM_STEPS, SHARE = 20_000, 0.1
STEPS = {"temperatures": 1_500, "imitation": 6_000}  # of gradients
COSTS = (2.0, 0.2)  # of ReCOIL, the authors' and ours
LAMBDAS = [{"temperature": x} for x in (0.3, 0.6, 0.8, 1.0)]
GUMBEL = [{"temperature": x, "max_clip": clip} for clip in (7.0, np.inf) for x in (0.03, 0.3, 3.0, 30.0)]
GRID = {  # learner: module, config, settings
    "f-DVL chi2": (dvl, dict(divergence="chi2"), LAMBDAS),
    "f-DVL total variation": (dvl, dict(divergence="total_variation"), LAMBDAS),
    "XQL": (dvl, dict(divergence="gumbel"), GUMBEL),
    "IQL": (iql, {}, [{"expectile": x} for x in (0.5, 0.7, 0.9, 0.99)]),
}


def trained(algo, on, hyper, data, key, steps):
    """`(return, largest mean value of a batch over the training, all finite)`."""
    init_key, eval_key = jax.random.split(key)
    state = algo.init(init_key, hyper, on.params).replace(replay=data)
    state, metrics = jax.lax.scan(lambda s, _: algo.update(s), state, length=steps // algo.config.num_updates)
    stats = evaluate(algo, algo.policy(state), eval_key, on.env, on.params, num_episodes=16, greedy=True)
    finite = jnp.stack([jnp.isfinite(x).all() for x in jax.tree.leaves(state.weights)]).all()
    values = metrics.get("q_value", metrics.get("other_q_value", jnp.zeros(1)))
    return stats.returns.mean(), jnp.abs(values).max(), finite


def score(returns, on):
    return (100 * (np.asarray(returns) - on.worst) / (on.best - on.worst)).round(2).tolist()


def temperatures(on, seeds, steps, rows):
    dataset = mixed(on, SHARE, NUM_STEPS)
    data = data_of(on, dataset, np.ones(len(datasets.Episodes(dataset))), NUM_STEPS + 1000)
    possible = float(jnp.abs(data.items.reward).max()) / (1 - 0.99)
    keys = jax.random.split(jax.random.key(1), seeds)
    for name, (module, config, settings) in GRID.items():
        algo = module.make(on.env, module.Config(**SIZES, **config), replay=memory)

        def run(setting, key, module=module, algo=algo):
            return trained(algo, on, module.Hyper(**RATES, **setting), data, key, steps)

        stacked = jax.tree.map(lambda *x: jnp.asarray(x, jnp.float32), *settings)
        grid = jax.vmap(jax.vmap(run, (None, 0)), (0, None))
        returns, largest, finite = map(np.asarray, jax.jit(grid)(stacked, keys))
        for i, setting in enumerate(settings):
            diverged = ~finite[i] | ~(largest[i] <= 10 * possible)
            label = name + (", no clip" if setting.get("max_clip") == np.inf else "")
            row = {"learner": label, "setting": next(iter(setting.values())), "scores": score(returns[i], on)}
            rows.append(row | {"diverged": int(diverged.sum()), "largest": (largest[i] / possible).round(4).tolist()})
            print(label, row["setting"], np.mean(row["scores"]), rows[-1]["diverged"], rows[-1]["largest"], flush=True)
        yield


def imitation(on, seeds, steps):
    first = datasets.Episodes(on.expert)
    demonstration = datasets.chosen(on.expert, np.arange(len(first)) == len(first) - 1)  # not among the data's
    stored = datasets.stored(demonstration, on.env.action_space(on.params))
    mixture, size = mixed(on, SHARE, NUM_STEPS), NUM_STEPS + 1000
    even = lambda dataset: np.ones(len(datasets.Episodes(dataset)))  # noqa: E731
    known = {
        "demonstration": demonstration,
        "random + 10 % expert": mixture,
        "random": datasets.chosen(on.random, np.cumsum(datasets.Episodes(on.random).length) <= NUM_STEPS),
    }
    clone = bc.make(on.env, bc.Config(**SIZES), replay=memory)
    coil = recoil.make(on.env, recoil.Config(**SIZES), replay=recoil.demonstrated(stored, memory))
    learners = {"BC": (clone, bc.Hyper(learning_rate=1e-3))}
    learners |= {f"ReCOIL, cost {cost}": (coil, recoil.Hyper(**RATES, cost=cost)) for cost in COSTS}
    rows, keys = [], jax.random.split(jax.random.key(1), seeds)
    for name, (algo, hyper) in learners.items():
        program = jax.jit(jax.vmap(lambda key, data, a=algo, h=hyper: trained(a, on, h, data, key, steps), (0, None)))
        for data_name, dataset in known.items():
            if name == "BC" or data_name != "demonstration":
                returns = program(keys, data_of(on, dataset, even(dataset), size))[0]
                rows.append({"learner": name, "data": data_name, "scores": score(returns, on)})
                print(on.env.id, name, data_name, np.mean(rows[-1]["scores"]), flush=True)
    return rows


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--only", choices=tuple(STEPS), help="one part, measured again")
    parser.add_argument("--picture", action="store_true")
    args = parser.parse_args()
    file = HERE / "results.json"
    if args.picture:
        return report(json.loads(file.read_text()), HERE)
    where = {key: environment_of_run()[key] for key in ("started", "device", "processors", "versions")}
    results = json.loads(file.read_text()) if args.only else {"temperatures": {}, "imitation": {}, "tasks": {}}
    results |= {"where": where, "gradient_steps": STEPS}
    for name in TASKS:
        on = task(name, int(1.5 * SHARE * NUM_STEPS), NUM_STEPS)
        results["tasks"][name] = {"random": on.worst, "expert": on.best}
        if args.only != "temperatures":
            results["imitation"][name] = imitation(on, args.seeds, STEPS["imitation"])
            file.write_text(json.dumps(results) + "\n")
        if args.only != "imitation":
            rows = results["temperatures"][name] = []
            for _ in temperatures(on, args.seeds, STEPS["temperatures"], rows):
                file.write_text(json.dumps(results) + "\n")
    report(results, HERE)


if __name__ == "__main__":
    main()
