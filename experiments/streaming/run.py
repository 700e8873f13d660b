"""Do streaming algorithms learn from single transitions, and what does each ingredient do?

    python experiments/streaming/run.py [--seeds 10] [--scale 1.0] [--only StreamAC]

Each row is one program: all seeds are streams of one vmap. Writes results.json beside this file; `picture.py` makes the
figures and the page of it. `--scale` shortens every run.
"""

import argparse
import json
import time
from pathlib import Path

import jax
import numpy as np

import jaxrl
from jaxrl.algos.streaming import stream_ac, stream_q
from jaxrl.evaluation import evaluate
from jaxrl.host.run.run_folder import environment_of_run
from jaxrl.host.statistics import bootstrap_interval, iqm

HERE = Path(__file__).parent
EPISODES = 64  # of the final greedy policy
POINTS = 50  # of a curve
SMALL = {"hidden": (32, 32)}  # the authors' for discrete actions
SLOW = {"exploration_steps": 200_000, "epsilon_end": 0.05}
LEARNING = {  # name: (module, environment, steps, config, hyper where they are not the paper's)
    "StreamQ, CartPole-v1": (stream_q, "CartPole-v1", 200_000, {}, {}),
    "StreamAC, CartPole-v1": (stream_ac, "CartPole-v1", 200_000, SMALL, {}),
    "StreamAC, Pendulum-v1": (stream_ac, "Pendulum-v1", 300_000, {}, {}),
    "StreamQ, Pendulum-v1": (stream_q, "Pendulum-v1", 800_000, {"num_bins": 3, "hidden": (64, 64)}, SLOW),
}
VARIANTS = {
    "all": ({}, {}),
    "without ObGD, rate 1": ({"bounded": False}, {}),
    "without ObGD, rate 1e-3": ({"bounded": False}, {"learning_rate": 1e-3}),
    "without LayerNorm": ({"layer_norm": False}, {}),
    "without sparse weights": ({"sparsity": 0.0}, {}),
    "without scaled observations": ({"normalize_obs": False}, {}),
    "without scaled rewards": ({"normalize_reward": False}, {}),
}
ABLATIONS = {
    f"{name}, {variant}": (module, "CartPole-v1", 100_000, {**SMALL, **config}, hyper)
    for name, module in (("StreamQ", stream_q), ("StreamAC", stream_ac))
    for variant, (config, hyper) in VARIANTS.items()
}


def row(module, env_id, steps, config, hyper, seeds, scale):
    """Returns of the final policies (seeds,), learning curves (seeds, points), and seconds with compilation."""
    start = time.perf_counter()
    env, params = jaxrl.make(env_id)
    total = max(int(steps * scale), POINTS)
    algo = module.make(env, module.Config(**config, num_steps=total // POINTS))

    def run(key):
        train_key, key = jax.random.split(key)
        state, metrics = jaxrl.train(algo, train_key, total // POINTS * POINTS, module.Hyper(**hyper))
        returns = evaluate(algo, algo.policy(state), key, env, params, num_episodes=EPISODES, greedy=True).returns
        return returns.mean(), metrics["episode_return"]

    final, curve = jax.jit(jax.vmap(run))(jax.random.split(jax.random.key(0), seeds))
    final = np.asarray(final, float)
    low, high = bootstrap_interval(final)
    return {
        "env": env_id,
        "steps": total,
        "iqm": iqm(final),
        "interval": [low, high],
        "returns": final.tolist(),
        "curve": [[None if np.isnan(x) else float(x) for x in line] for line in np.asarray(curve)],
        "seconds": time.perf_counter() - start,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--only", default="", help="rows that begin so; the others are kept")
    args = parser.parse_args()
    file, every = HERE / "results.json", {**LEARNING, **ABLATIONS}
    rows = json.loads(file.read_text())["rows"] if args.only and file.exists() else {}
    for name, (module, env_id, steps, config, hyper) in every.items():
        if not name.startswith(args.only):
            continue
        rows[name] = r = row(module, env_id, steps, config, hyper, args.seeds, args.scale)
        print(
            f"| {name} | {r['steps']:,} | {r['iqm']:.1f} [{r['interval'][0]:.1f}, {r['interval'][1]:.1f}] |", flush=True
        )
    rows = {name: rows[name] for name in every if name in rows}
    results = {"seeds": args.seeds, "episodes": EPISODES, "machine": environment_of_run(), "rows": rows}
    file.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
