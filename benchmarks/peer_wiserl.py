"""Times gradient steps of WiseRL's learners from preferences in its own process; run by `preferences.py`.

`--wiserl` is a checkout of typoverflow/WiseRL, whose imports of simulators are stood in for. Data are standard normal,
drawn by its own datasets. Prints one JSON line: milliseconds a gradient step, its batch's draw included.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import types
from typing import Any

import numpy as np


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--wiserl", required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--hidden", type=int, required=True)
    parser.add_argument("--pairs", type=int, required=True, help="of a batch")
    parser.add_argument("--rows", type=int, required=True, help="of a batch of IQL")
    parser.add_argument("--length", type=int, required=True, help="of a segment")
    args = parser.parse_args()
    for missing in ("d4rl", "metaworld", "robomimic"):
        sys.modules[missing] = types.ModuleType(missing)
    sys.path.insert(0, args.wiserl)
    from gym.spaces import Box  # pyright: ignore[reportMissingImports]
    from wiserl.algorithm.bt.bt_iql import BTIQL  # pyright: ignore[reportMissingImports]
    from wiserl.algorithm.cpl import CPL  # pyright: ignore[reportMissingImports]
    from wiserl.dataset.d4rl_dataset import D4RLOfflineDataset  # pyright: ignore[reportMissingImports]
    from wiserl.dataset.ipl_dataset import IPLComparisonOfflineDataset  # pyright: ignore[reportMissingImports]

    rng, size, pairs = np.random.default_rng(0), 100_000, 1_000

    def normal(*shape: int) -> np.ndarray:
        return rng.normal(size=shape).astype(np.float32)

    def uniform(*shape: int) -> np.ndarray:
        return rng.uniform(-0.99, 0.99, shape).astype(np.float32)

    compared: Any = object.__new__(IPLComparisonOfflineDataset)  # whose constructor reads a file
    compared.batch_size, compared.segment_length = args.pairs, None
    compared.data_size, compared.data_segment_length = pairs, args.length
    compared.data = {f"obs_{i}": normal(pairs, args.length, 17) for i in (1, 2)}
    compared.data |= {f"action_{i}": uniform(pairs, args.length, 6) for i in (1, 2)}
    compared.data["label"] = (rng.random(pairs) < 0.5).astype(np.float32)
    rows: Any = object.__new__(D4RLOfflineDataset)
    rows.mode, rows.batch_size, rows.data_size = "transition", args.rows, size
    rows.data = {"obs": normal(size, 17), "action": uniform(size, 6), "next_obs": normal(size, 17)}
    rows.data |= {"reward": normal(size, 1), "terminal": np.zeros((size, 1), np.float32)}
    rows.data["mask"] = np.ones((size, 1), np.float32)

    spaces = Box(-np.inf, np.inf, (17,)), Box(-1, 1, (6,))
    wide, adam = {"hidden_dims": [args.hidden] * 2}, {"default": {"class": "Adam", "lr": 3e-4}}
    actor = {"class": "SquashedDeterministicActor", **wide}
    cpl = CPL(*spaces, {"actor": actor}, adam, {}, {}, None, alpha=0.1, bias=0.5, device="cpu")
    networks = {
        "reward": {"class": "EnsembleMLP", "ensemble_size": 1, "reward_act": "identity", **wide},
        "actor": {"class": "SquashedGaussianActor", "reparameterize": False, "conditioned_logstd": False, **wide},
        "critic": {"class": "Critic", "ensemble_size": 2, **wide},
        "value": {"class": "Critic", "ensemble_size": 1, **wide},
    }
    iql = BTIQL(*spaces, networks, adam, {}, {}, None, device="cpu")

    def timed(algorithm: Any, dataset: Any, step: Any) -> float:
        algorithm.train()
        draws, begin = iter(dataset), 0.0
        for i in range(args.steps + 20):
            if i == 20:
                begin = time.perf_counter()
            step(algorithm.format_batch([next(draws)]), step=i + 1, total_steps=args.steps)
        return (time.perf_counter() - begin) / args.steps * 1e3

    result = {
        "cpl": timed(cpl, compared, cpl.train_step),
        "reward": timed(iql, compared, iql.pretrain_step),
        "p_iql": timed(iql, rows, iql.train_step),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
