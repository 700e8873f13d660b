"""Does a bonus count visits? The slope of log bonus against log count, for RDD and RND, trained to the end and online.

    python experiments/rdd_counts/run.py [--seeds 10]

Writes results.json and results.png beside this file and prints the table of README.md.
"""

import argparse
import functools
import json
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from picture import picture
from scipy.stats import t

from jaxrl.algos.on_policy.rnd import SQRT2, draw_targets, prediction_error
from jaxrl.host.run.run_folder import environment_of_run
from jaxrl.nn.networks import MLP
from jaxrl.nn.optim import optimizer_of

HERE = Path(__file__).parent
COUNTS = np.repeat(2 ** np.arange(11), 4)  # 44 states, four for each count 1, 2, 4 ... 1024; 8,188 visits
STATES, INPUTS, FEATURES, NOISE = len(COUNTS), 8, 64, 1.0
PREDICTORS = {"table": MLP((), FEATURES), "network": MLP((128,), FEATURES, "relu")}
WAYS = (("table", "to the end"), ("network", "to the end"), ("network", "online"))
STEPS, BATCH = 3000, 64


def run(key, bonus, predictor, online):
    """The bonus of every state after all visits, (STATES,), trained to the end or as the algorithm does."""
    keys = jax.random.split(key, 5)
    states = jnp.eye(STATES) if predictor == "table" else jax.random.normal(keys[0], (STATES, INPUTS))
    random_network = MLP((64,), FEATURES, "leaky_relu", out_scale=SQRT2)
    mean = random_network.apply(random_network.init(keys[1], states[0]), states)
    visit = jax.random.permutation(keys[2], np.repeat(np.arange(STATES), COUNTS))
    target = draw_targets(keys[3], mean[visit], NOISE if bonus == "rdd" else 0.0)
    network = PREDICTORS[predictor]
    flat, unravel = ravel_pytree(network.init(keys[4], states[0]))
    if online:  # as the algorithm: minibatches of single visits, four passes, Adam at a constant rate
        state, rows = visit, jnp.tile(jnp.arange(len(visit) // BATCH * BATCH).reshape(-1, BATCH), (4, 1))
        rates = jnp.full(len(rows), 1e-3)
    else:
        # All visits at once: the squared error to n draws is n times that to their mean, and a constant. Each state
        # counts once, which has the same minimum where the predictor can fit every mean, and is reached sooner.
        target = jnp.zeros_like(mean).at[visit].add(target) / COUNTS[:, None]
        state, rows = jnp.arange(STATES), jnp.broadcast_to(jnp.arange(STATES), (STEPS, STATES))
        rates = 1e-2 * (1 - jnp.arange(STEPS) / STEPS)

    adam = optimizer_of("adam")

    def loss(flat, row):
        return jnp.mean(prediction_error(network.apply(unravel(flat), states[state[row]]), target[row]))

    def step(carry, inputs):
        row, rate = inputs
        return adam.descend(*carry, jax.grad(loss)(carry[0], row), rate)[:2], None

    (flat, _), _ = jax.lax.scan(step, (flat, adam.init(flat, 0.0)), (rows, rates))
    return prediction_error(network.apply(unravel(flat), states), mean)


def fits(bonus, least=1):
    """Slope and R^2 of log bonus against log count over counts of at least `least`, one a seed."""
    x, y = np.log(COUNTS[COUNTS >= least]), np.log(np.maximum(bonus[:, COUNTS >= least], 1e-30))
    slope, _ = np.polynomial.polynomial.polyfit(x, y.T, 1)[::-1]
    return slope, np.array([np.corrcoef(x, row)[0, 1] ** 2 for row in y])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    seeds, begin, results, clouds = parser.parse_args().seeds, time.process_time(), {}, {}
    keys = jax.random.split(jax.random.key(0), seeds)
    print("| predictor | bonus | visits | slope (95 %) | lowest and highest seed | R^2 |\n|---|---|---|---|---|---|")
    for predictor, trained in WAYS:
        for name in ("rdd", "rnd"):
            one = functools.partial(run, bonus=name, predictor=predictor, online=trained == "online")
            bonus = np.asarray(jax.jit(jax.vmap(one))(keys))
            clouds.setdefault(f"{predictor}, {trained}", {})[name.upper()] = bonus
            for least in (1, 32):
                slope, r2 = fits(bonus, least)
                half = t.ppf(0.975, seeds - 1) * slope.std(ddof=1) / seeds**0.5
                r = {"slope": slope.mean(), "half": half, "low": slope.min(), "high": slope.max(), "r2": r2.mean()}
                r = results[f"{predictor}, {trained}, {name}, {least}"] = {k: float(v) for k, v in r.items()}
                cells = f"{r['slope']:.3f} ± {r['half']:.3f} | {r['low']:.2f}, {r['high']:.2f} | {r['r2']:.3f}"
                print(f"| {predictor}, {trained} | {name.upper()} | {least} to 1,024 | {cells} |", flush=True)
    picture(COUNTS, clouds, HERE / "results.png")
    seconds, where = round(time.process_time() - begin, 1), environment_of_run()
    report = {"seeds": seeds, "counts": COUNTS.tolist(), "cpu_seconds": seconds, "where": where, "results": results}
    (HERE / "results.json").write_text(json.dumps(report) + "\n")


if __name__ == "__main__":
    main()
