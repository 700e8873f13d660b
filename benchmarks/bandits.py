"""Bandits: steps per second against gymnax 1.0.1 in one process, and a hundred thousand learning agents in one call.

The first table is made as in env_throughput.py, random actions from one batched draw on both sides. gymnax draws the
problem anew in every episode (100 rounds of the Bernoulli bandit, one of the simple one); so does this side with a
`level_fn`, and in the rows "fixed" it does not, as in bsuite's own task. gymnax's Bernoulli bandit observes the last
action, reward and time; here those are a wrapper's.

The second runs each algorithm in a fresh process: seconds, agent steps per second and the peak of resident memory.

Run: `python benchmarks/bandits.py [--agents 100000 --rounds 10000] --out bandits.json`.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import resource
import statistics
import sys
import time
from typing import Any

import jax
import jax.numpy as jnp
from common import print_table, run_driver, save

import jaxrl
from jaxrl.algos.bandits import epsilon_greedy, thompson, ucb

# name: (gymnax id, our id, static settings, episode limit, auto-reset where problems are drawn anew, else None)
PAIRS = {
    "BernoulliBandit": ("BernoulliBandit-misc", "BernoulliBandit-v0", {"arms": 2}, 100, "sparse"),
    "BernoulliBandit, fixed": ("BernoulliBandit-misc", "BernoulliBandit-v0", {"arms": 2}, 100, None),
    "SimpleBandit": ("SimpleBandit-bsuite", "Bandit-bsuite", {}, None, "dense"),
    "SimpleBandit, fixed": ("SimpleBandit-bsuite", "Bandit-bsuite", {}, None, None),
}
ALGORITHMS = {
    "ucb": (ucb, {}),
    "epsilon_greedy": (epsilon_greedy, {}),
    "thompson, normal": (thompson, {"posterior": "gaussian"}),
    "thompson, beta": (thompson, {}),
}


def our_side(pair: str):
    """A maker of `(action space, reset, step)` as `env_throughput.program` takes it."""
    from jaxrl.envs.bsuite.bandit import shuffled_rewards

    _, id, settings, limit, reset = PAIRS[pair]
    env, params = jaxrl.make(id, **settings)
    params = params if limit is None else params.replace(max_steps=jnp.int32(limit))
    draw = (env.levels.generate if env.levels else shuffled_rewards) if reset else None

    def side(_: str, n: int, vmapped: bool):
        venv = jaxrl.vectorize(env, n, reset, level_fn=draw)
        space = env.action_space(params)
        return space, lambda key: venv.reset(key, params), lambda key, s, a: venv.step(key, s, a, params)

    return side


def throughput(n: int, steps: int, repeats: int) -> list[dict[str, Any]]:
    """Median environment steps per second of both sides, repeats alternating."""
    from env_throughput import batched_action, gymnax_side, program

    rows = []
    for pair, (peer, *_) in PAIRS.items():
        programs = {
            "gymnax": program(gymnax_side, peer, n, steps, batched_action, True),
            "jaxrl": program(our_side(pair), peer, n, steps, batched_action, True),
        }
        rates: dict[str, list[float]] = {name: [] for name in programs}
        for repeat in range(repeats):
            for name, (run, state) in programs.items():
                start = time.perf_counter()
                jax.block_until_ready(run(jax.random.key(repeat), state))
                rates[name].append(n * steps / (time.perf_counter() - start))
        medians = {name: statistics.median(r) for name, r in rates.items()}
        rows.append({"env": pair, "num_envs": n, **medians, "ratio": medians["jaxrl"] / medians["gymnax"]})
    return rows


def learn(name: str, agents: int, rounds: int) -> dict[str, Any]:
    """One jitted call: `agents` runs of `rounds` steps on 10 Bernoulli arms; groups of agents that fit into a cache."""
    module, settings = ALGORITHMS[name]
    env, params = jaxrl.make("BernoulliBandit-v0")
    algo = module.make(env, module.Config(**settings))
    params = params.replace(max_steps=jnp.int32(rounds))

    def run(key):
        state = algo.init(key, None, params)
        return jax.lax.fori_loop(0, rounds, lambda _, state: algo.update(state)[0], state).regret

    keys = jax.random.split(jax.random.key(0), agents)
    program = jax.jit(lambda keys: jnp.mean(jax.lax.map(run, keys, batch_size=min(agents, 1000))))
    compiled = program.lower(keys).compile()
    start, busy = time.perf_counter(), time.process_time()
    regret = float(compiled(keys))
    seconds = time.perf_counter() - start
    return {
        "algorithm": name,
        "agents": agents,
        "rounds": rounds,
        "seconds": seconds,
        "cpu_seconds": time.process_time() - busy,
        "steps_per_second": agents * rounds / seconds,
        "peak_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
        "mean_regret": regret,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=2000, help="steps of 2,048 environments in one timed call")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--agents", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=10_000)
    parser.add_argument("--algorithms", nargs="*", default=list(ALGORITHMS), choices=list(ALGORITHMS))
    parser.add_argument("--learn", help=argparse.SUPPRESS)  # this process measures one algorithm
    parser.add_argument("--out", default="bandits.json")
    args = parser.parse_args()
    if args.learn:
        print(json.dumps(learn(args.learn, args.agents, args.rounds)))
        return
    results: dict[str, Any] = {}
    if args.steps:
        rows = results["throughput"] = throughput(2048, args.steps, args.repeats)
        table = [[r["env"], f"{r['gymnax'] / 1e6:.2f}", f"{r['jaxrl'] / 1e6:.2f}", f"{r['ratio']:.2f}"] for r in rows]
        print_table("2,048 environments", ["", "gymnax M/s", "jaxrl M/s", "ratio"], table)
        results["gymnax"] = importlib.metadata.version("gymnax")
    sizes = ("--agents", str(args.agents), "--rounds", str(args.rounds))
    rows = results["agents"] = [
        run_driver(sys.executable, "bandits.py", "--learn", name, *sizes) for name in args.algorithms
    ]
    columns = ["algorithm", "agents", "rounds", "seconds", "cpu_seconds", "steps_per_second", "peak_gb", "mean_regret"]
    table = [[f"{r[c]:,.4g}" if isinstance(r[c], float) else str(r[c]) for c in columns] for r in rows]
    print_table("learning agents, one jitted call", columns, table)
    save(args.out, results)


if __name__ == "__main__":
    main()
