"""Gradient steps of learners from preferences against WiseRL, which is of PyTorch, in alternating processes.

CPL, and P-IQL's two phases: the reward by Bradley and Terry, then IQL on it. 1,000 pairs of segments of 16 steps of
HalfCheetah's shapes (17 numbers and 6 actions), standard normal; batches of 96 pairs, and of 256 steps for IQL; two
hidden layers; the reward is one network. Milliseconds a gradient step of one seed, the batch's draw included, and of
five seeds: ours in one program, theirs one after the other.

Run: `python benchmarks/preferences.py --torch VENV/bin/python --wiserl CHECKOUT`.
"""

from __future__ import annotations

import argparse
import json
import sys
import time

from common import alternate, print_table, run_driver, save

PAIRS, ROWS, LENGTH, SEEDS, UPDATES = 96, 256, 16, 5, 50
PHASES = ("cpl", "reward", "p_iql")


def own_side(hidden: int, seeds: int, steps: int) -> dict[str, float]:
    """Ours in this process: milliseconds a gradient step of all seeds, for each phase."""
    import jax
    import numpy as np

    import jaxrl
    from jaxrl.algos import cpl, p_iql
    from jaxrl.data import datasets, preferences

    rng, size = np.random.default_rng(0), 100_000
    obs, next_obs = rng.normal(size=(2, size, 17)).astype(np.float32)
    last = np.arange(size) % 1000 == 999
    action, reward = rng.uniform(-0.99, 0.99, (size, 6)).astype(np.float32), np.zeros(size, np.float32)
    steps_of = datasets.Dataset(obs, action, reward, last & False, last, next_obs)
    env, params = jaxrl.make("HalfCheetah-v5")
    first = preferences.uniform_queries(rng, steps_of, 1_000, LENGTH)
    labels = (rng.random(1_000) < 0.5).astype(np.float32)
    memory = preferences.stored(preferences.Preferences(steps_of, first, labels, LENGTH), env.action_space(params))
    wide = (hidden, hidden)
    of_pairs = {"num_updates": UPDATES, "batch_size": PAIRS, "hidden": wide}
    made = {
        "cpl": (cpl.make(env, cpl.Config(**of_pairs), replay=memory), cpl.Hyper(cloning_steps=0)),
        "reward": (p_iql.make(env, p_iql.Config(**of_pairs), replay=memory), p_iql.Hyper(reward_steps=10**9)),
        "p_iql": (
            p_iql.make(env, p_iql.Config(**{**of_pairs, "batch_size": ROWS}), replay=memory),
            p_iql.Hyper(reward_steps=0),
        ),
    }
    result = {}
    for name, (algo, hyper) in made.items():

        def run(state, algo=algo):
            return jax.lax.scan(lambda s, _: (algo.update(s)[0], None), state, None, steps // UPDATES)[0]

        init = jax.jit(jax.vmap(lambda key, algo=algo, hyper=hyper: algo.init(key, hyper)))
        state = init(jax.random.split(jax.random.key(0), seeds))
        begin = time.perf_counter()
        compiled = jax.jit(jax.vmap(run)).lower(state).compile()
        result[f"compile {name}"] = time.perf_counter() - begin
        state = jax.block_until_ready(compiled(state))
        begin = time.perf_counter()
        jax.block_until_ready(compiled(state))
        result[name] = (time.perf_counter() - begin) / steps * 1e3
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch", help="python of a venv with torch and WiseRL's requirements")
    parser.add_argument("--wiserl", help="a checkout of typoverflow/WiseRL")
    parser.add_argument("--hidden", nargs="*", type=int, default=[64, 256])
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=3, help="processes of each side, alternating")
    parser.add_argument("--out", default="preferences.json")
    parser.add_argument("--own", nargs=3, metavar=("HIDDEN", "SEEDS", "STEPS"), help="internal")
    args = parser.parse_args()
    if args.own:
        print(json.dumps(own_side(*map(int, args.own))))
        return
    if not (args.torch and args.wiserl):
        parser.error("--torch and --wiserl are needed; README.md here says how to make them")
    if args.steps % UPDATES:
        parser.error(f"--steps {args.steps}: a multiple of {UPDATES}, the gradient steps of an update here")
    sizes = ("--pairs", str(PAIRS), "--rows", str(ROWS), "--length", str(LENGTH), "--steps", str(args.steps))

    def own(hidden: int, seeds: int):
        return lambda: run_driver(sys.executable, "preferences.py", "--own", str(hidden), str(seeds), str(args.steps))

    def peer(hidden: int):
        options = ("--wiserl", args.wiserl, "--hidden", str(hidden), *sizes)
        return lambda: run_driver(args.torch, "peer_wiserl.py", *options)

    results, rows = {}, []
    for hidden in args.hidden:
        sides = {"WiseRL": peer(hidden), "one": own(hidden, 1), "five": own(hidden, SEEDS)}
        results[str(hidden)] = times = alternate(sides, args.rounds)
        for name in PHASES:
            theirs, one, five = (times[side][name] for side in sides)
            compile_s = f"{times['five'][f'compile {name}']:.1f}"
            cells = [f"{x:.2f}" for x in (theirs, one, theirs / one, SEEDS * theirs, five, SEEDS * theirs / five)]
            rows.append([f"{name}, {hidden} x {hidden}", *cells, compile_s])
    head = ("ms a gradient step", "WiseRL", "jaxrl", "ratio", "WiseRL, 5 seeds", "jaxrl, 5 seeds", "ratio", "compile s")
    print_table(f"batches of {PAIRS} pairs of {LENGTH} steps, IQL's of {ROWS}", head, rows)
    save(args.out, {"steps": args.steps, "times": results})


if __name__ == "__main__":
    main()
