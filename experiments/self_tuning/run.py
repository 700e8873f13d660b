"""Does an agent that tunes itself mend bad settings? A2C and STAC from the same starts, under two outer losses.

    python experiments/self_tuning/run.py

A2C is STAC with a meta learning rate of 0, which a test holds it to. All starts, methods and 10 seeds of a task are one
program. Judged by the return of training's last tenth. Writes results.json and results.png beside this file and prints
the tables of README.md.
"""

import json
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np

import jaxrl
from jaxrl.algos.meta import stac
from jaxrl.host.run.run_folder import environment_of_run
from jaxrl.host.statistics import bootstrap_interval

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

HERE = Path(__file__).parent
SEEDS = 10
CONFIG = stac.Config(num_envs=16, num_steps=8, hidden=(32,))
TASKS = {"Catch-bsuite": 60_000, "CartPole-v1": 60_000}
GOOD = {"gamma": 0.99, "gae_lambda": 0.95, "ent_coef": 0.01, "vf_coef": 0.5}
STARTS = {
    "good": {},
    "gamma 0.5": {"gamma": 0.5},
    "gamma 0": {"gamma": 0.0},
    "lambda 0": {"gae_lambda": 0.0},
    "entropy 1": {"ent_coef": 1.0},
    "value 0.005": {"vf_coef": 0.005},
}
METHODS = {  # meta learning rate, and whether the outer loss has the good settings or those of the start
    "A2C": (0.0, True),
    "STAC, good outer": (0.02, True),
    "STAC, own outer": (0.02, False),
}
TUNED = (*stac.SHARES, *stac.COEFFICIENTS)


def hypers():
    """Of every start and method, in this order."""
    for start in STARTS.values():
        own = {**GOOD, **start}
        for rate, good in METHODS.values():
            outer = {f"outer_{name}": x for name, x in (GOOD if good else own).items()}
            yield stac.Hyper(learning_rate=3e-3, meta_learning_rate=rate, **own, **outer)


def draw(found):
    figure, axes = plt.subplots(2, len(found), figsize=(5 * len(found), 6), squeeze=False)
    for (task, row), (top, bottom) in zip(found.items(), axes.T, strict=True):
        for i, method in enumerate(METHODS):
            cells = [row[start][method] for start in STARTS]
            mean = np.array([x["mean"] for x in cells])
            low, high = np.array([x["interval"] for x in cells]).T
            place = np.arange(len(STARTS)) + 0.25 * (i - 1)
            top.errorbar(place, mean, [mean - low, high - mean], fmt="o", label=method)
        top.set(title=task, ylabel="return at the end")
        top.set_xticks(range(len(STARTS)), list(STARTS), rotation=20, fontsize=8)
        for start in ("good", "gamma 0.5", "gamma 0"):
            gamma = row[start]["STAC, good outer"]["gamma"]
            bottom.plot(np.linspace(0, 1, len(gamma)), gamma, label=start)
        bottom.set(xlabel="share of training", ylabel="gamma of STAC, good outer")
    axes[0, 0].legend(frameon=False, fontsize=8)
    axes[1, 0].legend(frameon=False, fontsize=8)
    figure.tight_layout()
    figure.savefig(HERE / "results.png", dpi=90)


def main() -> None:
    found = {}
    batch = jax.tree.map(lambda *x: jnp.stack([jnp.asarray(y, jnp.result_type(float)) for y in x]), *hypers())
    names = [(start, method) for start in STARTS for method in METHODS]
    for task, steps in TASKS.items():
        env, _ = jaxrl.make(task)
        algo = stac.make(env, CONFIG)

        def run(hyper, key, algo=algo, steps=steps):
            hyper = hyper.replace(anneal_steps=jnp.int32(0))
            return jaxrl.train(algo, key, steps, hyper)[1]

        keys = jax.random.split(jax.random.key(0), SEEDS)
        begin = time.perf_counter()
        metrics = jax.jit(jax.vmap(jax.vmap(run, (None, 0)), (0, None)))(batch, keys)
        metrics = {name: np.asarray(metrics[name]) for name in ("episode_return", *TUNED)}
        seconds = time.perf_counter() - begin
        found[task] = {"steps": steps, "seconds": round(seconds), **{start: {} for start in STARTS}}
        last = metrics["episode_return"].shape[-1] // 10
        for i, (start, method) in enumerate(names):
            returns = np.nanmean(metrics["episode_return"][i, :, -last:], -1)
            found[task][start][method] = {
                "returns": returns.round(3).tolist(),
                "mean": float(returns.mean()),
                "interval": bootstrap_interval(returns, np.mean),
                "last": {name: float(metrics[name][i, :, -1].mean()) for name in TUNED},
                "gamma": metrics["gamma"][i].mean(0)[:: max(last // 10, 1)].round(4).tolist(),
            }
        print(f"\n{task}, {steps} steps, {seconds:.0f} s")
        for start in STARTS:
            cells = (found[task][start][m] for m in METHODS)
            cells = " | ".join("{:.2f} ({:.2f} to {:.2f})".format(x["mean"], *x["interval"]) for x in cells)
            ends = found[task][start]["STAC, good outer"]["last"]
            print(f"| {start} | {cells} | {', '.join(f'{ends[n]:.3g}' for n in TUNED)} |", flush=True)
        where = {"date": time.strftime("%Y-%m-%d"), "where": environment_of_run()}
        (HERE / "results.json").write_text(json.dumps({**where, "results": found}, indent=1) + "\n")
    draw(found)


if __name__ == "__main__":
    main()
