"""A small rule of DiscoRL's kind, learned on Catch: what does it teach agents that it never saw?

    python experiments/disco/learn.py [--meta-updates 600] [--tasks Catch-bsuite CartPole-v1]

Agents by the learned rule, by the one that it began as, and by A2C, each at the learning rate of four that did best on
two other seeds. Writes learned.npz (not where it is there already: delete it to learn anew), learned.json and
learned.png beside this file and prints the table of README.md.
"""

import argparse
import json
import time
from pathlib import Path

import disco_training
import jax
import jax.numpy as jnp
import matplotlib
import numpy as np

import jaxrl
from jaxrl.algos import a2c
from jaxrl.algos.meta import disco, disco_rule
from jaxrl.host.run.run_folder import environment_of_run
from jaxrl.host.statistics import told

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

HERE = Path(__file__).parent
SMALL = disco_training.SMALL
LIFE, PARTS, BLOCK = 100, 20, 20  # updates of an agent, parts of its curve, meta-updates between two lines of output
SEEDS, TUNING_SEEDS = range(8), (100, 101)
RATES = {"rule": (2e-2, 1e-2, 5e-3, 2.5e-3), "A2C": (3e-2, 1e-2, 3e-3, 1e-3)}


def learned(meta_updates: int, seed: int = 0):
    """`(weights of a rule, those that it began as, metrics of each meta-update, CPU seconds)`."""
    env, params = jaxrl.make("Catch-bsuite")
    algo = disco_training.make(env, disco_training.Config(remat=False))
    hyper = disco_training.Hyper(3e-3, lifetime=LIFE, agent=disco.Hyper(learning_rate=5e-3))
    state = jax.jit(algo.init)(jax.random.key(seed), hyper, params)
    some = jax.jit(lambda state: jax.lax.scan(lambda state, _: algo.update(state), state, length=BLOCK))
    first, rows, begin = state.weights, [], time.process_time()
    for i in range(meta_updates // BLOCK):
        state, metrics = some(state)
        rows.append({name: float(np.nanmean(x)) for name, x in metrics.items()})
        print(f"{(i + 1) * BLOCK}: {rows[-1]['episode_return']:.3f} {rows[-1]['final_return']:.3f}", flush=True)
        disco_rule.save(HERE / "learned.npz", state.weights)
    return state.weights, first, rows, time.process_time() - begin


def curves(algo, params):
    """A function of a method's settings: mean returns in twentieths of a life, (8 agents, PARTS), by one program."""
    updates = round(LIFE * SMALL.num_envs * SMALL.num_steps / PARTS / algo.steps_per_update)

    @jax.jit
    def part(state):
        state, metrics = jax.lax.scan(lambda state, _: jax.vmap(algo.update)(state), state, length=updates)
        episodes = metrics["episodes"]
        total = jnp.where(episodes > 0, metrics["episode_return"] * episodes, 0).sum(0)
        return state, total / jnp.maximum(1, episodes.sum(0))

    begin = jax.jit(jax.vmap(lambda seed, hyper: algo.init(jax.random.key(seed), hyper, params)))

    def of(make, seeds, rates):
        state, found = begin(jnp.array(seeds), jax.vmap(make)(jnp.array(rates))), []
        for _ in range(PARTS):
            state, mean = part(state)
            found.append(np.asarray(mean))
        return np.stack(found, 1)

    return of


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--meta-updates", type=int, default=600)
    parser.add_argument("--tasks", nargs="+", default=["Catch-bsuite", "CartPole-v1"])
    args = parser.parse_args()
    kept, path = HERE / "learned.json", HERE / "learned.npz"
    results = json.loads(kept.read_text()) if kept.exists() else {}
    untrained = None
    if not path.exists():
        _, untrained, rows, seconds = learned(args.meta_updates)
        disco_rule.save(HERE / "untrained.npz", untrained)
        results = {"date": time.strftime("%Y-%m-%d"), "where": environment_of_run(), "seconds": seconds, "rows": rows}
        kept.write_text(json.dumps({**results, "tasks": {}}, indent=1) + "\n")
    rule = disco_rule.load(path, SMALL.rule)
    untrained = disco_rule.load(HERE / "untrained.npz", SMALL.rule)
    tasks = results.setdefault("tasks", {})
    for task in args.tasks:
        env, params = jaxrl.make(task)
        of_rule = curves(disco.make(env, SMALL), params)
        peer = a2c.Config(num_envs=SMALL.num_envs, num_steps=5, hidden=SMALL.hidden)
        methods = {
            "learned rule": (of_rule, lambda rate: disco.Hyper(rule, rate), RATES["rule"]),
            "untrained rule": (of_rule, lambda rate: disco.Hyper(untrained, rate), RATES["rule"]),
            "A2C": (curves(a2c.make(env, peer), params), lambda rate: a2c.Hyper(learning_rate=rate), RATES["A2C"]),
        }
        tasks[task] = {}
        for name, (of, hyper, rates) in methods.items():
            tuned = of(hyper, TUNING_SEEDS * len(rates), np.repeat(rates, len(TUNING_SEEDS)))
            best = rates[int(np.argmax(tuned[:, -1].reshape(len(rates), -1).mean(1)))]
            returns = of(hyper, list(SEEDS), [best] * len(SEEDS))
            tasks[task][name] = {"learning_rate": best, "returns": returns.tolist(), "tuning": tuned[:, -1].tolist()}
            print(f"| {task} | {name} | {best:g} | {told(returns[:, -1], cells=True)} |", flush=True)
            kept.write_text(json.dumps(results, indent=1) + "\n")
    draw(results)


def draw(results) -> None:
    tasks = results["tasks"]
    figure, axes = plt.subplots(1, 1 + len(tasks), figsize=(4 * (1 + len(tasks)), 3.5))
    meta = [(i + 1) * BLOCK for i in range(len(results["rows"]))]
    for name, label in (("episode_return", "while they learn"), ("final_return", "at the end of their lives")):
        axes[0].plot(meta, [row[name] for row in results["rows"]], label=label)
    axes[0].set(title="agents on Catch, learning the rule", xlabel="meta-updates", ylabel="return")
    for ax, (task, rows) in zip(axes[1:], tasks.items(), strict=True):
        for name, row in rows.items():
            returns = np.array(row["returns"])
            steps = LIFE * SMALL.num_envs * SMALL.num_steps / PARTS * (np.arange(PARTS) + 1)
            ax.plot(steps, returns.mean(0), label=name)
            ax.fill_between(steps, returns.min(0), returns.max(0), alpha=0.15)
        ax.set(title=task, xlabel="environment steps", ylabel="return")
    for ax in axes:
        ax.legend(frameon=False)
    figure.tight_layout()
    figure.savefig(HERE / "learned.png", dpi=110)


if __name__ == "__main__":
    main()
