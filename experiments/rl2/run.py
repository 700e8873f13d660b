"""Does a recurrent policy learn to learn? RL^2 on Bernoulli bandits, against Thompson sampling and UCB1.

    python experiments/rl2/run.py [--arms 5 10] [--rounds 100] [--steps 12000000] [--seeds 1]

Writes results.json and results.png beside this file.
"""

import argparse
import json
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np

import jaxrl
from jaxrl.algos.bandits import thompson, ucb
from jaxrl.algos.meta import rl2
from jaxrl.envs.bandits.stochastic import BernoulliBandit
from jaxrl.host.run.run_folder import environment_of_run
from jaxrl.host.statistics import bootstrap_interval
from jaxrl.wrappers import TrialParams

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

HERE = Path(__file__).parent
RESULTS = HERE / "results.json"


def row(values: np.ndarray) -> list[float]:
    """Mean and 95 % interval."""
    return [float(values.mean()), *map(float, bootstrap_interval(values, np.mean))]


def means(task):
    """What the critic is told of a problem."""
    return task.mean


def regret_of(module, hyper, env, params, tasks: int):
    """Regret of a bandit algorithm on each of so many problems, after all rounds of each."""
    algo = module.make(env, module.Config())

    def one(key):
        task_key, key = jax.random.split(key)
        state = algo.init(key, hyper, env.generate(task_key, params))
        return jax.lax.fori_loop(0, params.max_steps, lambda _, s: algo.update(s)[0], state).regret

    return np.asarray(jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(1), tasks)))


def bandits(args: argparse.Namespace) -> dict:
    """Regret at the horizon that RL^2 was trained for, on problems that it never saw, against algorithms that know."""
    found = {"rounds": args.rounds, "steps": args.steps, "tasks": args.tasks, "arms": {}}
    for arms in args.arms:
        env = BernoulliBandit(arms=arms)
        params = env.default_params.replace(max_steps=jnp.int32(args.rounds))
        config = rl2.Config(
            num_envs=128,
            num_steps=args.rounds,
            num_epochs=4,
            num_minibatches=4,
            hidden=(),
            rnn_size=48,
            episodes=1,
        )
        algo = rl2.make(env, config, reveal=means if args.reveal else None)
        hyper = rl2.Hyper(learning_rate=3e-3, anneal_steps=args.steps, gamma=0.99, gae_lambda=0.3, ent_coef=0.003)
        trials = TrialParams(params, jnp.int32(1))
        train = jax.jit(lambda key, a=algo, h=hyper, p=trials: jaxrl.train(a, key, args.steps, h, p))
        judge = jax.jit(
            lambda policy, key, a=algo, p=trials: rl2.play(a, policy, key, p, args.tasks, 1, args.rounds).regret
        )
        learned, seconds = [], []
        for seed in range(args.seeds):
            begin = time.perf_counter()
            state, metrics = jax.block_until_ready(train(jax.random.key(seed)))
            seconds.append(time.perf_counter() - begin)
            learned.append(np.asarray(judge(algo.policy(state), jax.random.key(100 + seed))))
            print(arms, seed, learned[-1].mean(), f"{seconds[-1]:.0f} s", flush=True)
        others = {
            "Thompson": regret_of(thompson, thompson.Hyper(), env, params, args.tasks),
            "UCB1": regret_of(ucb, ucb.Hyper(), env, params, args.tasks),
        }
        sampling = others["Thompson"]
        rng = np.random.default_rng(0)
        draws = [
            rng.choice(np.concatenate(learned), args.tasks).mean() / rng.choice(sampling, args.tasks).mean()
            for _ in range(1000)
        ]
        found["arms"][str(arms)] = {
            "RL^2": row(np.concatenate(learned)),
            **{name: row(x) for name, x in others.items()},
            "each seed": [float(x.mean()) for x in learned],
            "ratio": [float(np.concatenate(learned).mean() / sampling.mean()), *np.quantile(draws, (0.025, 0.975))],
            "curve": np.asarray(metrics["episode_return"]).round(3).tolist(),
            "seconds": seconds,
        }
        print(arms, {k: v for k, v in found["arms"][str(arms)].items() if k != "curve"}, flush=True)
    return found


def draw(found: dict) -> None:
    """Returns of a trial while training, and where Thompson sampling's lies."""
    figure, axes = plt.subplots(1, len(found["arms"]), figsize=(4.5 * len(found["arms"]), 3.2), squeeze=False)
    for ax, (arms, rows) in zip(axes[0], found["arms"].items(), strict=True):
        best = found["rounds"] * int(arms) / (int(arms) + 1)  # the expected maximum of so many uniform means
        curve = best - np.asarray(rows["curve"])
        ax.plot(np.linspace(0, found["steps"] / 1e6, len(curve)), curve, lw=0.6, label="RL^2, while training")
        for name, style in (("Thompson", "k--"), ("UCB1", "k:")):
            ax.plot([0, found["steps"] / 1e6], [rows[name][0]] * 2, style, label=name)
        ax.set(title=f"{arms} arms", xlabel="pulls [million]", ylabel=f"regret after {found['rounds']} pulls")
        ax.set_ylim(0, None)
    axes[0, 0].legend(frameon=False)
    figure.tight_layout()
    figure.savefig(HERE / "results.png", dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arms", type=int, nargs="+", default=[5, 10])
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--tasks", type=int, default=4096, help="bandits: problems judged on")
    parser.add_argument("--steps", type=int, default=12_000_000)
    parser.add_argument("--reveal", action=argparse.BooleanOptionalAction, default=True, help="tasks to the critic")
    parser.add_argument("--seeds", type=int, default=1)
    args = parser.parse_args()
    found = bandits(args)
    where = {"date": time.strftime("%Y-%m-%d"), "where": environment_of_run()}
    before = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}  # what worlds.py found stays
    RESULTS.write_text(json.dumps({**before, **found, **where}, indent=1) + "\n")
    draw(found)


if __name__ == "__main__":
    main()
