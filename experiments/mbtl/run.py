"""On how many contexts must one train, if one chooses them well? MBTL and others on the matrices of train.py.

    python experiments/mbtl/run.py

Writes results.json and results.png beside this file and prints the tables of README.md.
"""

import functools
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from picture import picture
from tasks import TASKS

from jaxrl.algos.curricula import mbtl
from jaxrl.environment import strongly_typed
from jaxrl.host.run.run_folder import environment_of_run
from jaxrl.host.statistics import bootstrap_interval

HERE = Path(__file__).parent
K, SOURCES, ORDERS, SHOWN = 100, 50, 100, 15
SLOPES = [0.001, 0.005, 0.01, 0.02, 0.05, 0.1]
CONFIG = mbtl.Config(num_sources=SOURCES)
WAYS = ("mbtl", "mbtl, slope estimated", "equidistant", "random", "greedy oracle")


@jax.jit
@jax.vmap
def curves(transfer, key):
    """Of one trial: performance after 1 to SOURCES policies, for each way to choose them, and its limits."""

    def at(slope):
        return mbtl.select(transfer, CONFIG, strongly_typed(mbtl.Hyper()).replace(slope=slope)).performance

    orders = jax.vmap(lambda key: mbtl.random_order(key, K, SOURCES))(jax.random.split(key, ORDERS))
    slopes = jax.lax.map(at, jnp.array(SLOPES))
    return {
        "slopes": slopes,
        "mbtl": slopes[SLOPES.index(0.005)],
        "mbtl, slope estimated": mbtl.select(transfer, mbtl.Config(SOURCES, estimate_slope=True)).performance,
        "equidistant": jnp.stack([transfer[mbtl.equidistant(K, n)].max(0).mean() for n in range(1, SOURCES + 1)]),
        "random": jax.vmap(functools.partial(mbtl.performance, transfer))(orders),
        "greedy oracle": mbtl.performance(transfer, mbtl.greedy_oracle(transfer, SOURCES)),
        "independent": mbtl.independent(transfer),
        "all": mbtl.oracle(transfer),
    }


def needed(curve, level):
    """Policies until `level` in each trial, the median of orders; None where SOURCES are not enough."""
    reached = curve.reshape(len(level), -1, SOURCES) >= level[:, None, None]
    number = np.median(np.where(reached.any(-1), reached.argmax(-1) + 1.0, np.inf), 1)
    return [None if np.isinf(x) else float(x) for x in number]


def summary(task, found):
    """All figures of a task."""
    transfer = mbtl.normalised(jnp.asarray(found["transfer"], jnp.float32), task.low, task.high)
    seen = jax.device_get(curves(transfer, jax.random.split(jax.random.key(0), len(transfer))))
    multi_task = (found["multi_task"].astype(float).mean() - task.low) / (task.high - task.low)
    result = {"trials": len(transfer), "seconds": found["seconds"].tolist(), "multi-task": float(multi_task)}
    result |= {name: float(seen[name].mean()) for name in ("independent", "all")}
    result["slopes"] = dict(zip(SLOPES, seen["slopes"][..., SHOWN - 1].mean(0).round(4).tolist(), strict=True))
    for way in WAYS:
        trials = seen[way].mean(1) if way == "random" else seen[way]
        result[way] = {
            "curve": trials.mean(0).round(4).tolist(),
            "interval": np.round([bootstrap_interval(x, np.mean) for x in trials.T], 4).T.tolist(),
            "as independent": needed(seen[way], seen["independent"]),
            "best within 0.01": needed(seen[way], seen["all"] - 0.01),
        }
    return result


def factor(values):
    """The median of trials, as `policies (how many times fewer than K)`."""
    middle = float(np.median([np.inf if x is None else x for x in values]))
    return f"> {SOURCES}" if np.isinf(middle) else f"{middle:g} ({K / middle:.0f}x)"


def table(head, rows):
    print("\n| " + " | ".join(map(str, head)) + " |\n|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(x if isinstance(x, str) else f"{x:.3f}" for x in row) + " |")


def main():
    files = {name: np.load(HERE / f"{name}.npz") for name in TASKS if (HERE / f"{name}.npz").exists()}
    results = {name: summary(TASKS[name], found) for name, found in files.items() if "multi_task" in found}
    (HERE / "results.json").write_text(json.dumps({"where": environment_of_run(), "tasks": results}, indent=1) + "\n")
    limits = ("independent", "multi-task", "all")
    rows = [[n, *(r[x] for x in limits), *(r[w]["curve"][SHOWN - 1] for w in WAYS)] for n, r in results.items()]
    table([f"after {SHOWN}", *limits, *WAYS], rows)
    for bar in ("as independent", "best within 0.01"):
        table([bar, *WAYS], [[n, *(factor(r[w][bar]) for w in WAYS)] for n, r in results.items()])
    table([f"MBTL after {SHOWN}, slope", *SLOPES], [[n, *r["slopes"].values()] for n, r in results.items()])
    picture(results, HERE / "results.png")


if __name__ == "__main__":
    main()
