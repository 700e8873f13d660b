"""Times jaxued's `maze_dr.py` or `maze_plr.py` in its own process; run by `maze_ppo_rnn.py` with its Python.

Prints one JSON line: seconds to trace and compile, seconds of `--updates` updates. Its `main` is run as it is: a
stand-in for wandb notes when it logs, which is when an iteration has ended. Its evaluation, which is part of an
iteration, is made as small as its settings allow: one attempt on one level; nothing is drawn, no checkpoints.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import statistics
import sys
import time
import types
from typing import Any
from unittest import mock

import numpy as np


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--jaxued", required=True, help="checkout of DramaCow/jaxued")
    parser.add_argument("--num-envs", type=int, default=32)
    parser.add_argument("--num-steps", type=int, default=256)
    parser.add_argument("--updates", type=int, default=10, help="updates a timed run")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--method", choices=["dr", "plr"], default="dr")
    parser.add_argument("--min-fill", type=float, default=0.5, help="of the level buffer before any replay")
    args = parser.parse_args()

    logged: list[float] = []
    wandb = mock.MagicMock()
    wandb.log.side_effect = lambda _: logged.append(time.perf_counter())
    sys.modules["wandb"] = wandb
    sys.path[:0] = [f"{args.jaxued}/src", f"{args.jaxued}/examples"]
    script: Any = importlib.import_module(f"maze_{args.method}")
    blank = types.SimpleNamespace(**dict.fromkeys(("render_state", "render_level"), lambda *_: np.zeros((1, 1, 3))))
    script.MazeRenderer = lambda *_, **__: blank

    config = {  # the scripts' own, but for the first five and the buffer's filling
        "num_updates": args.updates * (args.repeats + 1),
        "eval_freq": args.updates,
        "eval_num_attempts": 1,
        "eval_levels": ["SixteenRooms"],
        "checkpoint_save_interval": 0,
        "num_train_envs": args.num_envs,
        "num_steps": args.num_steps,
        "mode": "train",
        "group_name": "",
        "run_name": "",
        "project": "",
        "checkpoint_directory": None,
        "seed": 0,
        "lr": 1e-4,
        "max_grad_norm": 0.5,
        "num_minibatches": 1,
        "gamma": 0.995,
        "epoch_ppo": 5,
        "clip_eps": 0.2,
        "gae_lambda": 0.98,
        "entropy_coeff": 1e-3,
        "critic_coeff": 0.5,
        "agent_view_size": 5,
        "n_walls": 25,
        # of maze_plr.py alone
        "score_function": "MaxMC",
        "exploratory_grad_updates": False,
        "level_buffer_capacity": 4000,
        "replay_prob": 0.8,
        "staleness_coeff": 0.3,
        "temperature": 0.3,
        "topk_k": 4,
        "minimum_fill_ratio": args.min_fill,
        "prioritization": "rank",
        "buffer_duplicate_check": True,
        "use_accel": False,
        "num_edits": 5,
    }
    wandb.config = config
    start = time.perf_counter()
    with contextlib.redirect_stdout(sys.stderr):
        script.main(config)
    run_s = statistics.median(after - before for before, after in zip(logged, logged[1:], strict=False))
    print(json.dumps({"compile_s": logged[0] - start - run_s, "run_s": run_s}))


if __name__ == "__main__":
    main()
