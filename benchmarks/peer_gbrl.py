"""Times gbrl in its own process; run by `trees.py` with the Python of its environment.

Prints one JSON line: seconds to predict with an ensemble of that many trees, and to fit one more tree.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time

import numpy as np
from gbrl.models.actor_critic import ActorCritic  # pyright: ignore[reportMissingImports]


def median_of(call, repeats):
    seconds = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds[1:])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--trees", type=int, default=5000)
    parser.add_argument("--repeats", type=int, default=21)
    parser.add_argument("--rows", nargs="+", type=int, required=True)
    parser.add_argument("--fits", nargs="+", type=int, required=True)
    args = parser.parse_args()
    rng = np.random.default_rng(0)

    def batch(rows):
        x = rng.normal(size=(rows, 4)).astype(np.float32)
        return x, rng.normal(size=(rows, 2)).astype(np.float32), rng.normal(size=rows).astype(np.float32)

    def model(num_bins):
        return ActorCritic(
            tree_struct=dict(max_depth=4, grow_policy="oblivious", n_bins=num_bins, min_data_in_leaf=0, par_th=2),
            input_dim=4,
            output_dim=3,
            policy_optimizer=dict(policy_algo="SGD", policy_lr=0.03, start_idx=0, stop_idx=2),
            value_optimizer=dict(value_algo="SGD", value_lr=0.01, start_idx=2, stop_idx=3),
            shared_tree_struct=True,
            params=dict(control_variates=False, split_score_func="cosine", generator_type="Quantile"),
            device="cpu",
        )

    # How trees were chosen does not matter to prediction, nor how many there are to fitting.
    full, fitted, result = model(4), model(250), {}
    for _ in range(args.trees):
        full.step(*batch(16))
    for rows in args.rows:
        x = batch(rows)[0]
        result[f"predict {rows}"] = median_of(lambda x=x: full(x, requires_grad=False, tensor=False), args.repeats)
    for rows in args.fits:
        whole = batch(rows)
        result[f"fit {rows}"] = median_of(lambda whole=whole: fitted.step(*whole), args.repeats)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
