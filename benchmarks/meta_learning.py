"""Learning LPG by gradients through its agents' updates, against GROOVE's own code, alternating processes.

Agents of 64 environments x 20 steps on GROOVE's levels, K = 5 updates of each a meta-update, tables. Levels as drawn
(`--curriculum dr`) or by algorithmic regret (`groove`), where GROOVE's code lets A2C live a whole life beside every
agent in every meta-update, and this library beside those whose life is over.

Run: `python benchmarks/meta_learning.py --peer-python VENV/bin/python --groove CHECKOUT`.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

import jax
from common import alternate, print_table, run_driver, save

import jaxrl
from jaxrl.algos.rule_learners import gradients

LIVES = {"small": (250, 250), "all_shortlife": (250, 250)}
"""Updates that GROOVE's modes give an agent."""


def own_side(args: argparse.Namespace) -> dict[str, Any]:
    """Time the same number of meta-updates in this process."""
    env_id = f"GridWorld-{args.mode.removesuffix('_shortlife')}-v0"
    env, params = jaxrl.make(env_id, observation="index")
    config = gradients.Config(
        num_agents=args.num_agents,
        at_once=args.num_agents // args.groups,
        features=args.units,
        curriculum=args.curriculum,
        lifetimes=LIVES[args.mode],
        remat=not args.no_remat,
    )
    algo = gradients.make(env, config)

    def run(key):
        state, metrics = jaxrl.train(algo, key, args.updates, env_params=params)
        return state.weights, metrics["loss"]

    key = jax.random.key(0)
    begin = time.perf_counter()
    program = jax.jit(run).lower(key).compile()
    compiled = time.perf_counter() - begin
    analysis: Any = program.memory_analysis()
    times = []
    for _ in range(args.repeats):
        begin = time.perf_counter()
        jax.block_until_ready(program(key))
        times.append(time.perf_counter() - begin)
    return {"compile_s": compiled, "run_s": min(times), "temporary_bytes": analysis.temp_size_in_bytes}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer-python", help="python of a venv with what README.md here says")
    parser.add_argument("--groove", help="checkout of EmptyJackson/groove")
    parser.add_argument("--mode", choices=list(LIVES), default="all_shortlife", help="GROOVE's name of the levels")
    parser.add_argument("--num-agents", type=int, default=16)
    parser.add_argument("--groups", type=int, default=2, help="agents' gradients are computed in so many groups")
    parser.add_argument("--units", type=int, default=256, help="of the rule's recurrent cell")
    parser.add_argument("--updates", type=int, default=3, help="meta-updates a timed run")
    parser.add_argument("--repeats", type=int, default=2, help="timed runs a process, of which the faster counts")
    parser.add_argument("--rounds", type=int, default=3, help="processes of each side, alternating")
    parser.add_argument("--curriculum", choices=["dr", "groove"], default="dr")
    parser.add_argument("--no-remat", action="store_true", help="keep what GROOVE's code keeps")
    parser.add_argument("--out", default="meta_learning.json")
    parser.add_argument("--own", action="store_true", help="time our side here, print JSON (internal)")
    args = parser.parse_args()
    if args.own:
        print(json.dumps(own_side(args)))
        return
    if not (args.peer_python and args.groove):
        parser.error("--peer-python and --groove are needed; README.md here says how to make them")
    names = ("mode", "num_agents", "groups", "units", "updates", "repeats", "curriculum")
    common = [word for name in names for word in (f"--{name.replace('_', '-')}", str(getattr(args, name)))]
    own = ["--no-remat"] if args.no_remat else []
    times = alternate(
        {
            "GROOVE": lambda: run_driver(args.peer_python, "peer_groove.py", "--groove", args.groove, *common),
            "jaxrl": lambda: run_driver(sys.executable, "meta_learning.py", "--own", *own, *common),
        },
        args.rounds,
    )
    updates = args.num_agents * 5 * args.updates
    rates = {name: updates / times[name]["run_s"] for name in times}
    peer, ours = "GROOVE", "jaxrl"
    compared = {"agents' updates per second": rates}
    compared["seconds to compile"] = {name: times[name]["compile_s"] for name in times}
    compared["MiB of temporary memory"] = {name: times[name]["temporary_bytes"] / 2**20 for name in times}
    rows = [[what, f"{x[peer]:,.1f}", f"{x[ours]:,.1f}", f"{x[ours] / x[peer]:.2f}"] for what, x in compared.items()]
    size = f"{args.num_agents} agents in {args.groups} groups, {args.units} units"
    print_table(f"LPG on {args.mode}, {args.curriculum}: {size}", ["", peer, ours, f"{ours} / {peer}"], rows)
    save(args.out, {"settings": {name: getattr(args, name) for name in names}, "times": times, "rates": rates})


if __name__ == "__main__":
    main()
