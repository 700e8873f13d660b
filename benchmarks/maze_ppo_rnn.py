"""Recurrent PPO on random mazes with jaxued's sizes, against jaxued's `maze_dr.py` or `maze_plr.py`, alternating.

32 environments x 256 steps, 5 epochs of 1 minibatch, 25 walls, a 3x3 convolution with 16 features and an LSTM of 256
that actor and critic share. `--method plr`: robust level replay, 4,000 levels, replay with probability 0.8 as soon as
32 are in the buffer, MaxMC.

Run: `python benchmarks/maze_ppo_rnn.py --peer-python VENV/bin/python --jaxued CHECKOUT`.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from common import alternate, print_table, run_driver, save, time_program

import jaxrl
from jaxrl.algos import ppo_rnn
from jaxrl.algos.curricula import plr
from jaxrl.curriculum.attachment import attach

sys.path.append(str(Path(__file__).parents[1] / "experiments" / "mazes"))
from student import MazeActorCritic  # noqa: E402


def own_side(num_envs: int, num_steps: int, updates: int, repeats: int, method: str, min_fill: float) -> dict[str, Any]:
    """Time `updates` updates in this process."""
    env, params = jaxrl.make("Maze-v0")
    config = ppo_rnn.Config(num_envs=num_envs, num_steps=num_steps, num_epochs=5, num_minibatches=1)
    if method == "dr":
        algo = ppo_rnn.make(env, config, network=MazeActorCritic())
    else:
        venv = jaxrl.vectorize(env.as_levels(), num_envs, batched_params=True)
        level_replay = plr.make(env.generate, hyper=plr.Hyper(replay_prob=0.8, min_fill=min_fill))
        algo = attach(ppo_rnn.make(venv, config, network=MazeActorCritic()), level_replay)
    hyper = ppo_rnn.Hyper(learning_rate=1e-4, gamma=0.995, gae_lambda=0.98, ent_coef=1e-3)

    def run(key):
        state, metrics = jaxrl.train(algo, key, updates * algo.steps_per_update, hyper, params)
        return state.weights, jnp.nanmean(metrics["episode_return"])

    return time_program(run, jax.random.key(0), repeats=repeats)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer-python", help="python of a venv with jax, flax, gymnax, six, distrax, orbax-checkpoint")
    parser.add_argument("--jaxued", help="checkout of DramaCow/jaxued")
    parser.add_argument("--num-envs", type=int, default=32)
    parser.add_argument("--num-steps", type=int, default=256)
    parser.add_argument("--updates", type=int, default=10, help="updates a timed run")
    parser.add_argument("--repeats", type=int, default=3, help="timed runs a process")
    parser.add_argument("--rounds", type=int, default=3, help="processes of each side, alternating")
    parser.add_argument("--method", choices=["dr", "plr"], default="dr")
    parser.add_argument("--min-fill", type=float, default=32 / 4000, help="share of the buffer before any replay")
    parser.add_argument("--out", help="default: maze_ppo_rnn_METHOD.json")
    parser.add_argument("--own", action="store_true", help="time our side here, print JSON (internal)")
    args = parser.parse_args()
    if args.own:
        print(
            json.dumps(own_side(args.num_envs, args.num_steps, args.updates, args.repeats, args.method, args.min_fill))
        )
        return
    if not (args.peer_python and args.jaxued):
        parser.error("--peer-python and --jaxued are needed; README.md here says how to make them")
    names = ("num_envs", "num_steps", "updates", "repeats", "method", "min_fill")
    common = [word for name in names for word in (f"--{name.replace('_', '-')}", str(getattr(args, name)))]
    times = alternate(
        {
            "jaxued": lambda: run_driver(args.peer_python, "peer_jaxued.py", "--jaxued", args.jaxued, *common),
            "jaxrl": lambda: run_driver(sys.executable, "maze_ppo_rnn.py", "--own", *common),
        },
        args.rounds,
    )
    steps = args.num_envs * args.num_steps * args.updates
    rates = {name: steps / times[name]["run_s"] for name in times}
    rows = [["steps per second", *(f"{rates[n]:,.0f}" for n in rates), f"{rates['jaxrl'] / rates['jaxued']:.2f}"]]
    compiles = {name: times[name]["compile_s"] for name in times}
    ratio = compiles["jaxrl"] / compiles["jaxued"]
    rows.append(["seconds to compile", *(f"{compiles[n]:.1f}" for n in compiles), f"{ratio:.2f}"])
    title = f"Recurrent PPO, {args.method}, on 13 x 13 mazes, {args.num_envs} environments x {args.num_steps} steps"
    print_table(title, ["", "jaxued", "jaxrl", "jaxrl / jaxued"], rows)
    save(args.out or f"maze_ppo_rnn_{args.method}.json", {"steps": steps, "times": times, "steps_per_second": rates})


if __name__ == "__main__":
    main()
