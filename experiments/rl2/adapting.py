"""Does RL^2 do better in its last trial on a task than in its first? Ten seeds, or fewer, on some families.

    python experiments/rl2/adapting.py [--only "corridor, 2 ends" ...] [--methods RL^2] [--seeds 10] [--again]

Beside it learns PPO without memory, which sees the environment alone. The memory is a GRU, or by `--methods "RL^2, s5"`
another cell. `tasks.py` has the families. Writes adapting.json
and adapting.png beside this file and prints the table of README.md. What adapting.json has is not run but with --again.
"""

import argparse
import dataclasses
import json
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
from searches import best_pulls, best_search
from tasks import Task, Things, tasks

import jaxrl
from jaxrl.algos import ppo
from jaxrl.algos.meta import rl2
from jaxrl.environment import strongly_typed
from jaxrl.envs.bandits.stochastic import BernoulliBandit
from jaxrl.host.run.run_folder import environment_of_run
from jaxrl.host.statistics import bootstrap_interval
from jaxrl.spaces import Dict
from jaxrl.wrappers import TrialParams, Trials
from jaxrl.wrappers.base import Wrapper

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

FILE = Path(__file__).with_name("adapting.json")
TRIALS, TESTS = 4, 1024
SHAPE: Any = {"num_envs": 128, "num_epochs": 2, "num_minibatches": 4}
HYPER: Any = {"learning_rate": 2e-3, "gamma": 0.97, "gae_lambda": 0.9, "ent_coef": 0.01}
METHODS = ("RL^2", "no memory")
BY_CELL = tuple(f"RL^2, {cell}" for cell in ("lstm", "min_gru", "lru", "s5", "linear_attention"))
CONTROL_STEPS = 400_000  # at most, of the policy without memory
TOLD = ("previous_action", "previous_reward", "begins")


@dataclasses.dataclass(frozen=True)
class Plain(Wrapper):
    """Trials without what `Trials` adds to the observation of the policy: even a policy without memory could read its
    last action and reward at the begin of a trial, and learn from them where the goal was."""

    def observe(self, key, state, params):
        return {k: v for k, v in self.env.observe(key, state, params).items() if k not in TOLD}

    def observation_space(self, params):
        return Dict({k: v for k, v in self.env.observation_space(params).spaces.items() if k not in TOLD})


def learner(method: str, task: Task):
    """`(algorithm, hyper)`."""
    shape = {**SHAPE, "num_steps": min(TRIALS * task.limit, 100), **task.config}
    hyper = {**HYPER, **task.hyper}
    if method.startswith("RL^2"):
        cell = method.removeprefix("RL^2").removeprefix(", ") or "gru"
        shape = {"hidden": (), "rnn_size": 48, "shared": True, "rnn": cell, **shape}
        algo = rl2.make(task.env, rl2.Config(**shape, episodes=TRIALS), task_fn=task.draw)
        return algo, rl2.Hyper(**hyper)
    shape = {k: v for k, v in shape.items() if k not in ("rnn_size", "hidden", "shared")}
    return ppo.make(Plain(Trials(task.env, TRIALS, task.draw)), ppo.Config(**shape)), ppo.Hyper(**hyper)


def learnt(algo, key, task: Task, hyper, params):
    """`jaxrl.train`; where `task.begin` says so, trials of other params first."""
    if task.begin is None:
        return jaxrl.train(algo, key, task.steps, hyper, params)
    state, before = jaxrl.train(algo, key, task.steps // 2, hyper, params.replace(env=task.begin))
    state = algo.restart(state, jax.random.fold_in(key, 1), params, jnp.ones(algo.venv.num_envs, bool))
    updates = task.steps // 2 // algo.steps_per_update
    state, after = jax.lax.scan(lambda state, _: algo.update(state), state, length=updates)
    return state, jax.tree.map(lambda *x: jnp.concatenate(x), before, after)


def program(method: str, task: Task):
    """(key, params) -> returns (TESTS, TRIALS) on tasks drawn anew of a policy that has learnt, and while it learnt."""
    algo, hyper = learner(method, task)

    def run(key, params):
        train_key, test_key = jax.random.split(key)
        state, metrics = learnt(algo, train_key, task, hyper, params)
        played = rl2.play(algo, algo.policy(state), test_key, params, TESTS, TRIALS, TRIALS * task.limit)
        return played.returns / task.per, metrics["episode_return"] / TRIALS / task.per

    return jax.jit(run)


def best(task: Task) -> float | None:
    """What a trial is worth to who knows what is hidden: the mean over 10,000 tasks, or over 4,096 first states."""
    if isinstance(task.env, Things):
        return best_search(task.env, task.params, known=True)
    draw, worth = task.draw or task.env.generate, task.best
    if worth is None:
        return None
    keys = jax.random.split(jax.random.key(99), 10_000)
    value = jax.jit(lambda keys: jax.lax.map(lambda key: worth(draw(key, task.params)), keys, batch_size=1000))
    return float(value(keys).mean() / task.per)


def best_first(task: Task) -> float | None:
    """What the first trial is worth to the best search, if it is known."""
    if isinstance(task.env, Things):
        return best_search(task.env, task.params)
    if isinstance(task.env, BernoulliBandit):
        return best_pulls(task.env.arms, task.limit) / task.per
    return task.first


def row(values: Any) -> list[float]:
    """Mean and 95 % interval."""
    values = np.asarray(values, float)
    return [float(values.mean()), *map(float, bootstrap_interval(values, np.mean))]


def measure(name: str, method: str, seeds: int, first: int = 0) -> dict:
    task = tasks()[name]
    if method == "no memory":
        task = task._replace(steps=min(task.steps, CONTROL_STEPS))
    trials, curves, begin = [], [], time.process_time()
    params = strongly_typed(TrialParams(task.params, jnp.int32(TRIALS)))
    run = program(method, task).lower(jax.random.key(first), params).compile()
    ready = time.process_time()
    for seed in range(first, first + seeds):
        returns, curve = jax.block_until_ready(run(jax.random.key(seed), params))
        trials.append(np.asarray(returns, float).mean(0))
        curve = np.asarray(curve)
        curves.append([float(np.nanmean(part)) for part in np.array_split(curve, min(20, len(curve)))])
        print(
            name,
            method,
            seed,
            trials[-1].round(3),
            f"{ready - begin:.0f} {time.process_time() - ready:.0f} s",
            flush=True,
        )
    return {
        "trials": np.round(trials, 4).tolist(),  # (seeds, trials)
        "while learning": np.nanmean(curves, 0).round(4).tolist(),
        "steps": task.steps,
        "cpu_seconds": {"compile": round(ready - begin, 1), "run": round(time.process_time() - ready, 1)},
    }


def said(values: list[float], plus: str = "") -> str:
    return "{:{p}.3f} ({:{p}.3f} to {:{p}.3f})".format(*values, p=plus)


def table(report: dict) -> None:
    print("| tasks | policy | first trial | 2 | 3 | last trial | last - first | best search | best | M steps | CPU s |")
    print("|" + "---|" * 11)
    for name, found in report.items():
        for method in (METHODS[0], *BY_CELL, METHODS[1]):
            if method not in found:
                continue
            trials = np.array(found[method]["trials"])
            cells = [said(row(trials[:, 0])), *(f"{x:.3f}" for x in trials[:, 1:-1].mean(0)), said(row(trials[:, -1]))]
            bests = [f"{found[x]:.3f}" if found.get(x) is not None else "-" for x in ("best first", "best")]
            cells += [said(row(trials[:, -1] - trials[:, 0]), "+"), *bests, f"{found[method]['steps'] / 1e6:.1f}"]
            print(f"| {name} | {method} | " + " | ".join(cells) + f" | {found[method]['cpu_seconds']['run']:.0f} |")


def picture(report: dict) -> None:
    columns = min(3, len(report))
    rows = -(-len(report) // columns)
    figure, axes = plt.subplots(rows, columns, figsize=(2.9 * columns, 2.6 * rows), squeeze=False)
    for ax in axes.flat[len(report) :]:
        ax.remove()
    for ax, (name, found) in zip(axes.flat, report.items(), strict=False):
        for method, color in zip(METHODS, ("C0", "C1"), strict=True):
            if method in found:
                mean, low, high = np.array([row(x) for x in np.transpose(found[method]["trials"])]).T
                ax.errorbar(
                    np.arange(1, TRIALS + 1), mean, [mean - low, high - mean], color=color, marker="o", label=method
                )
        if found.get("best") is not None:
            ax.axhline(found["best"], color="k", ls="--", lw=0.8, label="best, all known")
        if found.get("best first") is not None:
            ax.plot([0.8, 1.2], [found["best first"]] * 2, "k", lw=1.5, label="best search")
        ax.set(title=name, xlabel="trial", xticks=range(1, TRIALS + 1))
        ax.set_ylim(0, None)
    axes[0, 0].set_ylabel("return of a trial")
    axes[0, 0].legend(frameon=False, fontsize=7, loc="lower right")
    figure.tight_layout()
    figure.savefig(FILE.with_suffix(".png"), dpi=110)


def main() -> None:
    names = list(tasks())
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=names, choices=names)
    parser.add_argument("--methods", nargs="+", default=METHODS, choices=METHODS + BY_CELL)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--again", action="store_true", help="also what adapting.json has")
    args = parser.parse_args()
    for name in args.only:
        for method in args.methods:
            report = json.loads(FILE.read_text()) if FILE.exists() else {}
            if method in report.get(name, {}) and not args.again:
                continue
            found = {
                **measure(name, method, args.seeds),
                "date": time.strftime("%Y-%m-%d"),
                "where": environment_of_run(),
            }
            task = tasks()[name]
            report = json.loads(FILE.read_text()) if FILE.exists() else {}  # again: another process may have added
            bests = report.get(name, {})
            if "best" not in bests or args.again:
                bests = {"best": best(task), "best first": best_first(task)}
            report[name] = {**report.get(name, {}), **bests, method: found}
            FILE.write_text(json.dumps({x: report[x] for x in names if x in report}) + "\n")
    report = json.loads(FILE.read_text())
    table(report)
    picture(report)


if __name__ == "__main__":
    main()
