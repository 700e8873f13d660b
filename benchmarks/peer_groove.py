"""Times GROOVE's own meta-training in its own process; run by `meta_learning.py` with its Python.

Prints one JSON line: seconds to trace and compile, seconds of `--updates` meta-updates, bytes of temporary memory. Its
`make_train` is jitted whole, as its own script does it. Its code is of 2023: what JAX, flax and evosax have renamed
since is given back under the old name, and wandb is a stand-in; no line that computes is changed.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
import types
from typing import Any
from unittest import mock

import flax.linen as nn
import jax


def old_names(units: int) -> None:
    """What its imports expect."""
    modern: Any = jax
    modern.tree_map = jax.tree.map
    sys.modules["jax.config"] = types.SimpleNamespace(config=jax.config)  # type: ignore[assignment]
    for name in ("wandb", "evosax", "evosax.utils", "evosax.core"):
        sys.modules[name] = mock.MagicMock()
    cell = nn.GRUCell
    nn.GRUCell = lambda: cell(features=units)  # type: ignore[assignment, misc]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--groove", required=True, help="checkout of EmptyJackson/groove")
    parser.add_argument("--mode", default="all_shortlife")
    parser.add_argument("--num-agents", type=int, default=16)
    parser.add_argument("--groups", type=int, default=2, help="its mini-batches")
    parser.add_argument("--units", type=int, default=256)
    parser.add_argument("--updates", type=int, default=3, help="meta-updates a timed run")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--curriculum", choices=["dr", "groove"], default="dr")
    args = parser.parse_args()

    old_names(args.units)
    sys.path.insert(0, args.groove)
    settings = importlib.import_module("experiments.parse_args").parse_args(
        [
            *("--env_mode", args.mode, "--num_agents", str(args.num_agents), "--num_mini_batches", str(args.groups)),
            *("--train_steps", str(args.updates), "--lpg_gru_width", str(args.units)),
            *("--score_function", {"dr": "random", "groove": "alg_regret"}[args.curriculum]),
        ]
    )
    train = importlib.import_module("train").make_train(settings)
    key = jax.random.PRNGKey(0)
    begin = time.perf_counter()
    program = jax.jit(train).lower(key).compile()
    compiled = time.perf_counter() - begin
    analysis = program.memory_analysis()
    times = []
    for _ in range(args.repeats):
        begin = time.perf_counter()
        jax.block_until_ready(program(key))
        times.append(time.perf_counter() - begin)
    temporary = None if analysis is None else analysis.temp_size_in_bytes
    print(json.dumps({"compile_s": compiled, "run_s": min(times), "temporary_bytes": temporary}))


if __name__ == "__main__":
    main()
