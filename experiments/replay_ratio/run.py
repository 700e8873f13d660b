"""How many gradient steps a step? TD3 at fixed replay ratios against one that adapts to the critics' active units.

    python experiments/replay_ratio/run.py [--seeds 5] [--total-steps 20000]

Writes results.json and results.png beside this file and prints the table of README.md.
"""

import argparse
import json
import time
from pathlib import Path

import jax
import numpy as np

import jaxrl
from jaxrl.algos import td3
from jaxrl.evaluation import evaluate
from jaxrl.host.plotting import bars
from jaxrl.host.run.run_folder import environment_of_run
from jaxrl.host.statistics import told
from jaxrl.off_policy import replay_ratio

HERE = Path(__file__).parent
FIXED = (0.5, 2.0, 8.0)
# The paper's window of 50 episodes of 1,000 steps would be longer than a run here.
ADAPTIVE = replay_ratio.Ratio(low=0.5, high=2.0, gap=0.01, window=10)
VARIANTS = [*(f"{ratio:g}" for ratio in FIXED), "adaptive"]


def mean(share):
    """Over the updates that took a gradient step; in others it is zero."""
    return share.sum() / (share > 0).sum()


def measure(variant: str, layer_norm: bool, seeds: int, total_steps: int) -> dict:
    """Train and evaluate every seed of one variant in one program."""
    env, params = jaxrl.make("Pendulum-v1")
    most = 2 if variant == "adaptive" else max(1, int(float(variant)))
    config = td3.Config(
        num_updates=most, batch_size=128, buffer_size=total_steps, hidden=(64, 64), layer_norm=layer_norm
    )
    algo = td3.make(env, config)
    hyper = td3.Hyper(learning_rate=1e-3, replay_ratio=float("inf") if variant == "adaptive" else float(variant))
    if variant == "adaptive":
        algo = replay_ratio.adapt(algo)
        hyper = algo.hyper(learning_rate=1e-3, ratio=ADAPTIVE)

    def run(key):
        train_key, eval_key = jax.random.split(key)
        state, metrics = jaxrl.train(algo, train_key, total_steps, hyper, params)
        returns = evaluate(algo, algo.policy(state), eval_key, env, params, num_episodes=64, greedy=True).returns.mean()
        share = metrics["active_units"]
        switched = (metrics["replay_ratio"] > ADAPTIVE.low).argmax() if variant == "adaptive" else 0
        fifth = total_steps // 5
        return returns, mean(share[:fifth]), mean(share[-fifth:]), metrics["gradient_steps"].sum(), switched

    keys = jax.random.split(jax.random.key(0), seeds)
    program = jax.jit(lambda keys: jax.lax.map(run, keys)).lower(keys).compile()
    begin = time.perf_counter()
    columns = [np.asarray(column, float).round(3).tolist() for column in program(keys)]
    names = ("returns", "active_units_early", "active_units_late", "gradient_steps", "switched_at")
    return dict(zip(names, columns, strict=True)) | {
        "run_seconds_a_seed": round((time.perf_counter() - begin) / seeds, 1)
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--total-steps", type=int, default=20_000)
    args = parser.parse_args()
    where = environment_of_run()
    keep = {key: where[key] for key in ("started", "device", "processors", "versions")}
    results = {"total_steps": args.total_steps, "where": keep, "variants": {}}
    print(
        "| replay ratio | critics | return, IQM | 95 % interval | active units early, late | gradient steps | s/seed |"
    )
    print("|" + "---|" * 7)
    for layer_norm in (False, True):
        for variant in VARIANTS:
            row = measure(variant, layer_norm, args.seeds, args.total_steps)
            name = "LayerNorm" if layer_norm else "plain"
            results["variants"][f"{variant}, {name}"] = row
            (HERE / "results.json").write_text(json.dumps(results, indent=1) + "\n")
            early, late = np.mean(row["active_units_early"]), np.mean(row["active_units_late"])
            cells = [
                variant,
                name,
                told(row["returns"], ".1f", cells=True),
                f"{early:.3f}, {late:.3f}",
            ]
            cells += [f"{np.mean(row['gradient_steps']):,.0f}", row["run_seconds_a_seed"]]
            print("| " + " | ".join(map(str, cells)) + " |", flush=True)
    bars({n: r["returns"] for n, r in results["variants"].items()}, HERE / "results.png", "return of Pendulum-v1")


if __name__ == "__main__":
    main()
