"""Does learning from histories stitch? Offline CQL and IQL on present looks, on histories, and with bisimulation.

    python experiments/histories/run.py [--seeds 10] [--steps 3000] [--only CQL/300]

Writes results.json and results.png beside this file and prints the tables of README.md.
"""

import argparse
import functools
import json
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import report
import room
from learner import Arm, Settings, train

from jaxrl.host.run.run_folder import environment_of_run
from jaxrl.host.statistics import bootstrap_interval, iqm

HERE = Path(__file__).parent
SIZES = (100, 300, 1000)  # episodes
ARMS = {  # Arm's numbers
    "present look": (0, 0.0, 0.0),
    "history": (1, 0.0, 0.0),
    "history, 0.003": (1, 0.003, 0.0),
    "history, 0.03": (1, 0.03, 0.0),
}
CONTROLS = {f"shrunk, {weight}": (1, 0.0, weight) for weight in (0.001, 0.003)}  # of the longer run
RUNS = {f"{learner}/{size}": 1 for learner in ("CQL", "IQL") for size in SIZES} | {"CQL/300, longer": 3}  # times steps
CHUNKS = 12
HELD_OUT = 10_000  # the seed of the episodes on which merging is measured


@functools.cache
def program(learner: str, steps: int):
    """One for all sizes."""
    return jax.jit(functools.partial(train, Settings(learner), steps=steps, chunks=CHUNKS))


def summary(found: dict[str, np.ndarray]) -> dict:
    """Of one arm's reports (S, chunks): every seed's last, and curves of IQM, low and high."""
    curve = {}
    for name in ("success", "bisimulation"):
        points = [(iqm(x), *bootstrap_interval(x)) for x in found[name].T]
        curve[name] = np.round(np.transpose(points), 4).tolist()
    return {name: np.asarray(x[:, -1], float).round(4).tolist() for name, x in found.items()} | {"curve": curve}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--only", choices=RUNS, help="one row, measured again")
    args = parser.parse_args()
    where = environment_of_run()
    results = {"where": {k: where[k] for k in ("started", "device", "processors", "versions")}, "data": {}, "runs": {}}
    if args.only:
        results = json.loads((HERE / "results.json").read_text())
    recorded = [room.record(np.random.default_rng(seed), max(SIZES)) for seed in range(args.seeds)]
    for size in SIZES:
        each = [room.known(room.Data(*(x[:size] for x in data))) for data in recorded]
        results["data"][str(size)] = {k: round(float(np.mean([row[k] for row in each])), 3) for k in each[0]}
    print(report.data_table(results), "\n", report.HEAD, sep="\n")
    data = jax.tree.map(lambda *x: jnp.asarray(np.stack(x)), *recorded)
    test = jax.tree.map(jnp.asarray, room.record(np.random.default_rng(HELD_OUT), 100))
    for name in [args.only] if args.only else RUNS:
        learner, size = name.removesuffix(", longer").split("/")
        steps = args.steps * RUNS[name]
        names = ARMS | (CONTROLS if steps > args.steps else {})
        arms = Arm(*(jnp.asarray(x) for x in zip(*names.values(), strict=True)))
        begin = time.perf_counter()
        of_arms = program(learner, steps)(data, jnp.int32(size), arms, test, jax.random.key(0))
        found = jax.tree.map(np.asarray, of_arms)
        row = {"steps": steps, "seconds": round(time.perf_counter() - begin, 1), "arms": {}}
        for i, arm in enumerate(names):
            row["arms"][arm] = summary({k: x[i] for k, x in found.items()})
        results["runs"][name] = row
        (HERE / "results.json").write_text(json.dumps(results, indent=1) + "\n")
        print("\n".join(report.rows_of(name, row)), flush=True)
    print("\nGains of a seed:\n" + report.gains(results))
    print("\nRank correlations with success:\n" + report.correlations(results))
    report.picture(results, HERE / "results.png")


if __name__ == "__main__":
    main()
