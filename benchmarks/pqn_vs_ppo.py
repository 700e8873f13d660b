"""How long until CartPole-v1 is solved? PQN against PPO from the start of jax to a return of 475, compiling included.

Each run is a fresh process without a compilation cache. It makes the environment, the learner and one program, which
trains for `--chunk` environment steps and then plays 32 full episodes greedily, and calls that until their mean return
is at least `--target`. The clock starts before jax is imported. PPO has its tuned settings (`jaxrl/tuned.toml`); PQN
those, too. Every round is another seed for both; medians.

Run: `python benchmarks/pqn_vs_ppo.py`.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

from common import alternate, print_table, run_driver, save


def own_side(name: str, seed: int, target: float, chunk: int) -> dict[str, Any]:
    """Train in this process until the task is solved."""
    start = time.perf_counter()
    import jax

    import jaxrl
    from jaxrl.evaluation import evaluate
    from jaxrl.registry import tuned

    module, settings = jaxrl.get_algo(name), tuned(name, "CartPole-v1")
    assert settings is not None, f"jaxrl/tuned.toml has no {name} on CartPole-v1"
    env, params = jaxrl.make("CartPole-v1")
    algo = module.make(env, module.Config(**settings.config))
    updates = -(-chunk // algo.steps_per_update)

    def train_and_evaluate(state, key):
        state, _ = jax.lax.scan(lambda state, _: algo.update(state), state, length=updates)
        return state, evaluate(algo, algo.policy(state), key, env, params, num_episodes=32, greedy=True).returns.mean()

    init_key, key = jax.random.split(jax.random.key(seed))
    state = jax.jit(lambda key: algo.init(key, module.Hyper(**settings.hyper), params))(init_key)
    program = jax.jit(train_and_evaluate).lower(state, key).compile()
    compiled = time.perf_counter()
    score, step = 0.0, 0
    while score < target and step < 1_000_000:
        key, eval_key = jax.random.split(key)
        state, score = program(state, eval_key)
        step = int(state.step)
    end = time.perf_counter()
    return {"total_s": end - start, "compile_s": compiled - start, "run_s": end - compiled, "env_steps": step}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="processes of each side, alternating")
    parser.add_argument("--target", type=float, default=475.0)
    parser.add_argument("--chunk", type=int, default=8192, help="environment steps between evaluations")
    parser.add_argument("--out", default="pqn_vs_ppo.json")
    parser.add_argument("--own", nargs=2, metavar=("ALGO", "SEED"), help="run one side here, print JSON (internal)")
    args = parser.parse_args()
    if args.own:
        print(json.dumps(own_side(args.own[0], int(args.own[1]), args.target, args.chunk)))
        return
    common = ("--target", str(args.target), "--chunk", str(args.chunk))
    seeds = {"pqn": iter(range(args.rounds)), "ppo": iter(range(args.rounds))}

    def side(name: str) -> dict[str, Any]:
        return run_driver(sys.executable, "pqn_vs_ppo.py", "--own", name, str(next(seeds[name])), *common)

    times = alternate({name: lambda name=name: side(name) for name in seeds}, args.rounds)
    rows = [
        [name, *(f"{t[k]:.1f}" for k in ("total_s", "compile_s", "run_s")), f"{t['env_steps']:,.0f}"]
        for name, t in times.items()
    ]
    head = ["algorithm", "seconds to the target", "of them before the first update", "training", "environment steps"]
    print_table(f"CartPole-v1 to a greedy return of {args.target:g}, medians of {args.rounds}", head, rows)
    save(args.out, {"target": args.target, "rounds": args.rounds, "times": times})


if __name__ == "__main__":
    main()
