"""Which returns do the algorithms reach? Ten seeds of each tuned pair, full episodes of the final policy.

    python experiments/results/run.py [--only ppo/CartPole-v1 ...] [--seeds 10]

Writes results.json and curves.npz beside this file (a pair at a time, so that an interrupted run loses nothing), the
figures, the table of docs/results.md and its rows on the algorithms' pages; `--only` and no pair: these alone.
"""

import argparse
import dataclasses
import json
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from page import PAGE, ROWS, draw, page

import jaxrl
from jaxrl.environment import strongly_typed
from jaxrl.evaluation import evaluate
from jaxrl.host.run.run_folder import environment_of_run
from jaxrl.registry import tuned
from tools import pages

HERE = Path(__file__).parent
EPISODES = 128
POINTS = 100  # of a curve, each the mean return of the episodes that ended in that part of the training


def measure(pair: str, seeds: int) -> tuple[dict, np.ndarray]:
    """Train and evaluate every seed of one row in one program; `(result, curves (seeds, POINTS))`."""
    row = ROWS[pair]
    module, settings = jaxrl.get_algo(row.algo), tuned(row.tuned or row.algo, row.env)
    env, params = jaxrl.make(row.env, **settings.env)
    params = strongly_typed(params.replace(**row.params))
    config = dataclasses.replace(module.Config(**settings.config), **row.config)
    algo, hyper = module.make(env, config), module.Hyper(**{**settings.hyper, **row.hyper})

    def run(key):
        train_key, eval_key = jax.random.split(key)
        state, metrics = jaxrl.train(algo, train_key, settings.total_steps, hyper, params)
        stats = evaluate(algo, algo.policy(state), eval_key, env, params, num_episodes=EPISODES, greedy=row.greedy)
        part = jnp.arange(len(metrics["loss"])) * POINTS // len(metrics["loss"])
        episodes = metrics["episodes"]
        total = jnp.where(episodes > 0, metrics["episode_return"] * episodes, 0)
        curve = jax.ops.segment_sum(total, part, POINTS) / jax.ops.segment_sum(episodes, part, POINTS)
        return stats.returns.mean(), curve

    # One seed after the other on a CPU, where a batch of small matrix products gains nothing; together elsewhere.
    every = jax.vmap(run) if jax.default_backend() != "cpu" else lambda keys: jax.lax.map(run, keys)
    keys = jax.random.split(jax.random.key(0), seeds)
    begin = time.perf_counter()
    program = jax.jit(every).lower(keys).compile()
    compiled = time.perf_counter()
    returns, curves = (np.asarray(x, float) for x in program(keys))
    where = environment_of_run()
    return {
        "returns": returns.round(2).tolist(),
        "total_steps": settings.total_steps,
        "compile_seconds": round(compiled - begin, 1),
        "run_seconds_a_seed": round((time.perf_counter() - compiled) / seeds, 1),
        "date": where["started"][:10],
        "device": f"{where['device']}, {where['processors']} cores",
        "versions": ", ".join(f"{k} {where['versions'][k]}" for k in ("python", "jax", "jaxlib")),
    }, curves


def kept() -> tuple[dict, dict]:
    """The results and curves so far."""
    results, curves = HERE / "results.json", HERE / "curves.npz"
    return (
        json.loads(results.read_text()) if results.exists() else {},
        dict(np.load(curves)) if curves.exists() else {},
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=list(ROWS), choices=list(ROWS), metavar="ALGO/ENV")
    parser.add_argument("--seeds", type=int, default=10)
    args = parser.parse_args()
    for pair in args.only:
        result, curve = measure(pair, args.seeds)
        results, curves = kept()  # read again: another process may have added to it
        results[pair], curves[pair] = result, curve
        (HERE / "results.json").write_text(json.dumps({p: results[p] for p in ROWS if p in results}, indent=1) + "\n")
        np.savez_compressed(HERE / "curves.npz", **{p: np.float32(curves[p]) for p in ROWS if p in curves})
        print(pair, np.mean(result["returns"]).round(2), result, flush=True)
    results, curves = kept()
    page(results, EPISODES)
    draw(results, curves)
    for path, text in pages.all_filled(PAGE.parent).items():
        path.write_text(text)


if __name__ == "__main__":
    main()
