"""How much do bandit algorithms lose? A thousand runs of each as one program, against bounds and published values.

    python experiments/regret/run.py [--runs 1000]

Writes results.json beside this file; `picture.py` makes the figure and the table of it.
"""

import argparse
import json
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.algos.bandits import epsilon_greedy, exp3, nonstationary_ucb, successive_elimination, thompson, ucb
from jaxrl.envs.bandits.nonstationary import PiecewiseBandit
from jaxrl.envs.bandits.stochastic import BernoulliBandit
from jaxrl.host.run.run_folder import environment_of_run

HERE = Path(__file__).parent
POINTS = 100
T = 10_000
SW = {"forgetting": "window", "window": 429}  # 2 sqrt(T log T / C), C = 2 changes
ALGOS = {  # module, config, hyper
    "UCB1": (ucb, {}, {}),
    "UCB, exploration 1/2": (ucb, {}, {"exploration": 0.5}),
    "UCB, exploration 1/4": (ucb, {}, {"exploration": 0.25}),
    "KL-UCB": (ucb, {"bound": "kl"}, {}),
    "MOSS": (ucb, {"bound": "moss"}, {"horizon": T}),
    "Thompson, beta": (thompson, {}, {}),
    "Thompson, normal": (thompson, {"posterior": "gaussian"}, {"noise_scale": 0.5}),
    "epsilon-greedy, 0.1": (epsilon_greedy, {}, {}),
    "epsilon-greedy, c / t": (epsilon_greedy, {"decreasing": True}, {"c": 0.1}),
    "EXP3": (exp3, {}, {"horizon": T}),
    "EXP3-IX": (exp3, {"estimator": "ix"}, {"horizon": T}),
    "successive elimination": (successive_elimination, {}, {}),
    "D-UCB": (nonstationary_ucb, {}, {"discount": 1 - (2 / T) ** 0.5 / 4, "xi": 0.5}),
    "SW-UCB": (nonstationary_ucb, SW, {"xi": 0.5}),
}
STATIONARY = list(ALGOS)[:12]
EASY, GROUPS = np.arange(1, 10) / 10, [0.01, 0.02, 0.3, 0.4, 0.5, 0.6, 0.795, 0.8, 0.805]
LOW = [0.01, 0.01, 0.01, 0.02, 0.02, 0.02, 0.05, 0.05, 0.1]
# SMPyBandits 0.9.4, notebooks Do_we_even_need_UCB (100 runs) and Example_of_a_small_Single-Player_Simulation (10 runs)
HUNDRED, TEN = ["UCB1", "UCB, exploration 1/4"], ["UCB, exploration 1/2", "KL-UCB", "Thompson, beta"]
SETTINGS = {  # name: (environment, means, rounds, algorithms, published with 100 runs, with 10 runs)
    "0.1 ... 0.9": (BernoulliBandit, EASY, T, STATIONARY, (330.67, 51.64), (98.04, 51.36, 33.2)),
    "three groups": (BernoulliBandit, GROUPS, T, HUNDRED + TEN, (236.89, 72.97), (96.17, 84.51, 83.19)),
    "low means": (BernoulliBandit, LOW, T, HUNDRED + TEN, (484.38, 162.84), (282.57, 94.7, 69.23)),
    "0.9, 0.8": (BernoulliBandit, [0.9, 0.8], 5000, ["UCB1", "KL-UCB", "MOSS", "Thompson, beta"], (), ()),
    "switching": (PiecewiseBandit, None, T, ["UCB1", "UCB, exploration 1/2", "KL-UCB", "D-UCB", "SW-UCB"], (), ()),
}


def curves(cls, mean, rounds, name, runs):
    """Cumulative regret of every run at `POINTS` times, (runs, points)."""
    env = cls(arms=3 if mean is None else len(mean))
    params = env.default_params.replace(max_steps=jnp.int32(rounds))
    params = params if mean is None else params.replace(mean=jnp.asarray(mean, jnp.float32))
    module, config, hyper = ALGOS[name]
    algo = module.make(env, module.Config(**config))
    hyper = module.Hyper(**{k: float(v) for k, v in hyper.items()})

    def run(key):
        def block(state, _):
            state = jax.lax.fori_loop(0, rounds // POINTS, lambda _, s: algo.update(s)[0], state)
            return state, state.regret

        return jax.lax.scan(block, algo.init(key, hyper, params), length=POINTS)[1]

    return np.asarray(jax.jit(jax.vmap(run))(jax.random.split(jax.random.key(0), runs)), float)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    args = parser.parse_args()
    results = {}
    for setting, (cls, mean, rounds, names, hundred, ten) in SETTINGS.items():
        published = dict(zip(HUNDRED + TEN, [f"{x} (100)" for x in hundred] + [f"{x} (10)" for x in ten], strict=False))
        for name in names:
            begin = time.process_time()
            regret = curves(cls, mean, rounds, name, args.runs)
            final = regret[:, -1]
            results.setdefault(setting, {})[name] = {
                "final": float(final.mean()),
                "interval": float(1.96 * final.std() / args.runs**0.5),
                "published": published.get(name, ""),
                "cpu_seconds": round(time.process_time() - begin, 1),
                "curve": regret.mean(0).round(2).tolist(),
            }
            print(setting, name, final.mean(), published.get(name, ""), flush=True)
    where = environment_of_run()
    (HERE / "results.json").write_text(json.dumps({"runs": args.runs, "where": where, "results": results}) + "\n")


if __name__ == "__main__":
    main()
