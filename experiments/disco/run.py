"""What a discovered rule teaches: agents on Catch, MinAtar and a grid by Disco103, against PPO and A2C at equal steps.

    python experiments/disco/run.py disco_103.npz [--tasks Breakout-MinAtar ...] [--seeds 2]

The file is disco_rl/update_rules/weights/disco_103.npz of github.com/google-deepmind/disco_rl. Each method takes the
learning rate of `RATES` that did best on another seed in the first quarter of the steps (Catch: no choice). Writes its
tasks into results.json, draws all that are there as results.png and prints the table of README.md.
"""

import argparse
import functools
import json
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np

import jaxrl
from jaxrl.algos import a2c, ppo
from jaxrl.algos.meta import disco, disco_rule
from jaxrl.host.run.run_folder import environment_of_run
from jaxrl.host.statistics import told

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

HERE = Path(__file__).parent
PARTS, PROBED, PROBE_SEED = 20, 5, 100
SMALL = disco.Config(num_envs=16, batch_size=16, hidden=(128, 128), model_size=32, model_hidden=(32,))
UPDATES = {"Catch-bsuite": 400, "Breakout-MinAtar": 300, "MiniGrid-Empty-Random-5x5-v0": 200}
RATES = {"Disco103": (1e-2, 3e-3), "PPO": (3e-3, 1e-3), "A2C": (1e-2, 3e-3)}
"""Of the small networks. Those of the authors' evaluation, on Catch, have 512 units and the rates of `methods`."""


def methods(task: str, env, rule):
    """Name, algorithm, settings, rates to choose of and the rule to learn by, if any."""
    catch = task == "Catch-bsuite"
    config = disco.Config() if catch else SMALL
    n, hidden = (4, (64, 64)) if catch else (SMALL.num_envs, SMALL.hidden)
    rates = {"Disco103": (1e-2,), "PPO": (1e-3,), "A2C": (3e-3,)} if catch else RATES
    yield "Disco103", disco.make(env, config), disco.Hyper, rates["Disco103"], rule
    yield "untrained rule", disco.make(env, config), disco.Hyper, None, None
    peer = ppo.Config(num_envs=n, num_steps=29, hidden=hidden)
    yield "PPO", ppo.make(env, peer), ppo.Hyper, rates["PPO"], None
    yield "A2C", a2c.make(env, a2c.Config(num_envs=n, num_steps=5, hidden=hidden)), a2c.Hyper, rates["A2C"], None


@functools.cache
def programs(algo, updates: int):
    """`init`, and a function that makes so many updates and says what the episodes were worth that ended in them."""

    def part(state):
        state, metrics = jax.lax.scan(lambda state, _: algo.update(state), state, length=updates)
        episodes = metrics["episodes"]
        total = jnp.where(episodes > 0, metrics["episode_return"] * episodes, 0).sum()
        return state, total / jnp.maximum(1, episodes.sum())

    return jax.jit(algo.init), jax.jit(part)


def curve(algo, hyper, rule, params, steps: int, seed: int, parts: int = PARTS):
    """`(steps, mean return of the episodes that ended)` in twentieths of a run, and its seconds."""
    updates = max(1, round(steps / PARTS / algo.steps_per_update))
    init, part = programs(algo, updates)
    state = init(jax.random.key(seed), hyper, params)
    state = state if rule is None else state.replace(hyper=state.hyper.replace(rule=rule))
    part.lower(state).compile()  # so that it is not in the seconds
    begin, returns = time.process_time(), []
    for _ in range(parts):
        state, mean = part(state)
        returns.append(float(mean))
    return [updates * algo.steps_per_update * (i + 1.0) for i in range(parts)], returns, time.process_time() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weights", help="disco_103.npz")
    parser.add_argument("--tasks", nargs="+", default=list(UPDATES), choices=list(UPDATES))
    parser.add_argument("--seeds", type=int, default=2)
    args = parser.parse_args()
    rule, kept, learning_rate = disco_rule.load(args.weights), HERE / "results.json", 0.0
    for task in args.tasks:
        env, params = jaxrl.make(task)
        block = (disco.Config() if task == "Catch-bsuite" else SMALL).num_envs * 29
        steps, found = UPDATES[task] * block, {}
        for name, algo, hyper, rates, weights in methods(task, env, rule):
            if rates is not None:
                learning_rate = rates[0]
            if rates is not None and len(rates) > 1:  # an untrained rule has the learned one's
                probes = [
                    curve(algo, hyper(learning_rate=x), weights, params, steps, PROBE_SEED, PROBED)[1][-1]
                    for x in rates
                ]
                learning_rate = rates[int(np.argmax(probes))]
            chosen = hyper(learning_rate=learning_rate)
            runs = [curve(algo, chosen, weights, params, steps, seed) for seed in range(args.seeds)]
            last = np.array([returns[-1] for _, returns, _ in runs])
            found[name] = {
                "learning_rate": learning_rate,
                "steps": runs[0][0],
                "returns": [returns for _, returns, _ in runs],
                "seconds": [seconds for *_, seconds in runs],
            }
            cost = np.mean([s for *_, s in runs])
            print(f"| {task} | {name} | {learning_rate:g} | {told(last, cells=True)} | {cost:.0f} |", flush=True)
            where = {"updates": UPDATES[task], "date": time.strftime("%Y-%m-%d"), "where": environment_of_run()}
            results = json.loads(kept.read_text()) if kept.exists() else {}
            kept.write_text(json.dumps(results | {task: {**where, "methods": found}}, indent=1) + "\n")
    draw(json.loads(kept.read_text()))


def draw(results) -> None:
    figure, axes = plt.subplots(1, len(results), figsize=(4 * len(results), 3.5), squeeze=False)
    for ax, (task, kept) in zip(axes[0], results.items(), strict=True):
        for name, row in kept["methods"].items():
            returns = np.array(row["returns"])
            ax.plot(row["steps"], returns.mean(0), label=name)
            ax.fill_between(row["steps"], returns.min(0), returns.max(0), alpha=0.15)
        ax.set(title=task, xlabel="environment steps", ylabel="return")
    axes[0, 0].legend(frameon=False)
    figure.tight_layout()
    figure.savefig(HERE / "results.png", dpi=110)


if __name__ == "__main__":
    main()
