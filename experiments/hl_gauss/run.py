"""Does a critic trained by classification stand noisy rewards better than one trained by regression?

    python experiments/hl_gauss/run.py [--seeds 8] [--steps 50000] [--noise 0 4 16]

Writes results.json, table.md and results.png beside this file.
"""

import argparse
import json
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from task import NoisyReward

import jaxrl
from jaxrl.algos import c51, dqn
from jaxrl.evaluation import evaluate
from jaxrl.host.run.run_folder import environment_of_run
from jaxrl.host.statistics import bootstrap_interval, iqm, told

HERE = Path(__file__).parent
CRITICS = ("mse", "two_hot", "c51", "hl_gauss")
CONFIG = dict(num_envs=10, hidden=(64, 64), buffer_size=20_000, n_step=3, num_outputs=51)
HYPER = dict(learning_rate=1e-3, learning_starts=1000, epsilon_end=0.1, v_min=-20.0, v_max=120.0)


def measure(critic, noise, seeds, steps):
    """Returns without noise, (levels, seeds), of greedy final policies: one program for all levels and seeds."""
    env, clean = jaxrl.make("CartPole-v1")
    noisy = NoisyReward(env)
    module, setting = (c51, {"double": True}) if critic == "c51" else (dqn, {"critic": critic})
    algo = module.make(noisy, module.Config(**CONFIG, **setting))
    hyper = module.Hyper(anneal_steps=steps, exploration_steps=steps // 5, **HYPER)

    def run(eta, key):
        train_key, key = jax.random.split(key)
        params = noisy.default_params.replace(eta=eta)
        state, _ = jaxrl.train(algo, train_key, steps, hyper, params)
        return evaluate(algo, algo.policy(state), key, env, clean, num_episodes=64, greedy=True).returns.mean()

    grid = jax.jit(jax.vmap(jax.vmap(run, (None, 0)), (0, None)))
    return np.asarray(grid(jnp.array(noise, float), jax.random.split(jax.random.key(0), seeds)))


def picture(results):
    """IQM and 95 % interval of each critic against the noise."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 3.5), layout="constrained")
    for i, (critic, levels) in enumerate(results["returns"].items()):
        middle = np.array([iqm(r) for r in levels])
        ends = np.array([bootstrap_interval(r) for r in levels]).T
        axes.errorbar(
            np.arange(len(middle)) + 0.05 * i, middle, np.abs(ends - middle), fmt="o-", capsize=3, label=critic
        )
    axes.set_xticks(range(len(results["noise"])), [f"{eta:g}" for eta in results["noise"]])
    axes.set(xlabel="width of the reward noise", ylabel="return without noise (IQM, 95 %)")
    axes.legend()
    figure.savefig(HERE / "results.png", dpi=150)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--steps", type=int, default=50_000)
    parser.add_argument("--noise", type=float, nargs="+", default=[0.0, 4.0, 16.0])
    args = parser.parse_args()
    results: dict = {**vars(args), **environment_of_run(), "returns": {}, "seconds": {}}
    rows = ["| critic |" + "".join(f" eta {eta:g} |" for eta in args.noise), "|---" * (1 + len(args.noise)) + "|"]
    for critic in CRITICS:
        begin = time.perf_counter()
        levels = measure(critic, args.noise, args.seeds, args.steps)
        results["returns"][critic] = levels.round(1).tolist()
        results["seconds"][critic] = round(time.perf_counter() - begin, 1)
        cells = [told(r, ".0f") for r in levels]
        rows.append(f"| {critic} | " + " | ".join(cells) + " |")
        print(rows[-1], flush=True)
    (HERE / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    (HERE / "table.md").write_text("\n".join(rows) + "\n")
    picture(results)


if __name__ == "__main__":
    main()
