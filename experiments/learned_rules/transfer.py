"""Agents taught by learned rules on tasks that these were not learned on, beside A2C's.

    python experiments/learned_rules/transfer.py --rules lpg-cpu-1 [folders of runs] [--tasks CartPole-v1 ...]

Every rule's learning rates are chosen anew on every task, of ten pairs, on other seeds and levels than it is judged on.
What results.json has already is not run again. Writes its part of it and transfer.png.
"""

import argparse
import dataclasses
import functools
import json
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
from run import RESULTS, save

import jaxrl
from jaxrl.algos.meta import lpg
from jaxrl.algos.rule_learners import gradients
from jaxrl.envs.grid.grid_world.grid_world import optimal_value
from jaxrl.host.statistics import bootstrap_interval, iqm
from jaxrl.meta.agent import AgentConfig, AgentHyper, agent
from jaxrl.meta.lives import lived
from jaxrl.meta.rule import fresh_weights

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

AGENTS = 10
"""Judged on a task, with levels and seeds of their own."""
TABLES = AgentConfig()  # SGD
NETWORKS = AgentConfig(num_envs=32, hidden=(64, 64), optimizer="adam")
ROUNDS = {TABLES: 3, NETWORKS: 1}
"""Of tuning: an agent by each pair of learning rates on a level of its own, the same one for all pairs."""
USUAL = {TABLES: (40.0, 4.0), NETWORKS: (5e-4, 5e-4)}
"""Learning rates of actor and critic in GROOVE's code."""
FACTORS = {
    TABLES: [(a, b) for a in (0.1, 0.3, 1.0, 3.0, 10.0) for b in (0.1, 1.0)],
    NETWORKS: [(a, b) for a in (0.3, 1.0, 3.0, 10.0, 30.0) for b in (1.0, 10.0)],
}
UPDATES = 100
"""Of a life, as GROOVE's on bsuite; there it is 250 to 2,500 on these grids, 1,000 on control, 100,000 on MinAtar."""


class Task(NamedTuple):
    id: str
    config: AgentConfig
    settings: dict[str, Any] = {}  # of the environment
    cap: int | None = None  # steps of an episode, for a task without a limit of its own


LPG_SIZES = {"max_grid": 13, "max_objects": 5, "num_types": 3}
"""That hold all of LPG's own levels and the mazes, so that they share a program."""
OF_LPG = ("dense", "sparse", "mazes", "long", "longer", "long_dense")
GRIDS = {
    **{f: Task("GridWorld-v0", TABLES, {"family": f, "observation": "index"}) for f in ("small", "medium")},
    **{f: Task("GridWorld-v0", TABLES, {"family": f, "observation": "index", **LPG_SIZES}) for f in OF_LPG},
}
CONTROL = ("CartPole-v1", "Acrobot-v1", "MountainCar-v0")
BSUITE = ("Catch-bsuite", "DeepSea-bsuite", "DiscountingChain-bsuite")
TASKS = {
    **{f"GridWorld-{name}": task for name, task in GRIDS.items()},
    **{i: Task(i, NETWORKS) for i in (*BSUITE, *CONTROL)},
    **{i: Task(i, NETWORKS, cap=1000) for i in ("Breakout-MinAtar", "SpaceInvaders-MinAtar")},
}


@functools.cache
def program(rule: Any, env: Any, config: AgentConfig) -> Any:
    """Final returns of agents, one by each pair of learning rates, on a level and with a key of its own."""
    algo = agent(rule, env, config)

    @jax.jit
    def returns(weights, rates, levels, keys, lifetime):
        def one(rates, level, key):
            hyper = AgentHyper(rule=weights, learning_rate=rates[0], critic_learning_rate=rates[1], lifetime=lifetime)
            return lived(algo, jax.random.split(key), hyper, level)

        return jax.vmap(one)(rates, levels, keys)

    return returns


def world(name: str) -> tuple[Any, Any]:
    """A task's environment, and the function that draws so many of its levels."""
    task = TASKS[name]
    env, params = jaxrl.make(task.id, **task.settings)
    if task.cap is not None:
        params = params.replace(max_steps=jnp.int32(task.cap))
    if not task.settings:
        return env, lambda seed: jax.tree.map(lambda x: jnp.broadcast_to(x, (AGENTS, *x.shape)), params)
    draw = jax.jit(jax.vmap(env.generate, (0, None)))
    return env, lambda seed: draw(jax.random.split(jax.random.key(seed), AGENTS), env.distribution)


def best_pair(rates: Any, scores: Any, usual: Any) -> Any:
    """The pair of the highest score; of several the one whose factors are nearest to the usual pair."""
    scores = np.nan_to_num(scores, nan=-np.inf)
    away = np.abs(np.log(rates / usual)).sum(1)
    return rates[np.argmin(np.where(scores == scores.max(), away, np.inf))]


def taught(rule: Any, weights: Any, name: str) -> dict[str, Any]:
    """What ten agents get at the end of their lives, and what they got before, with the rates that tuning chose."""
    task, (env, levels) = TASKS[name], world(name)
    # The object is the key of the programs: that of a family's levels and not of its name, which nothing reads.
    env = dataclasses.replace(env, family="tabular") if "max_grid" in task.settings else env
    returns = program(rule, env, task.config)
    rates = np.array(FACTORS[task.config]) * USUAL[task.config]
    pairs, lifetime = jnp.asarray(rates, jnp.float32), jnp.int32(UPDATES)
    tuning, tried = levels(1_000_001), []
    for i in range(ROUNDS[task.config]):
        level = jax.tree.map(lambda x, i=i: jnp.broadcast_to(x[i], x.shape), tuning)
        keys = jnp.broadcast_to(jax.random.key(1_000_000 + i), AGENTS)
        tried.append(np.asarray(returns(weights, pairs, level, keys, lifetime)))
    pair = best_pair(rates, np.mean(tried, 0), USUAL[task.config])
    chosen = jnp.broadcast_to(jnp.asarray(pair, jnp.float32), (AGENTS, 2))
    judging, keys = levels(2_000_000), jax.random.split(jax.random.key(2_000_001), AGENTS)
    after, before = (
        np.asarray(returns(weights, chosen, judging, keys, updates)).round(4).tolist()
        for updates in (lifetime, jnp.int32(0))
    )
    return {"returns": after, "before": before, "learning_rates": pair.round(6).tolist()}


def interval(a: Any, b: Any = None) -> tuple[float, float, float]:
    """IQM of returns, or the difference of two IQMs, agents redrawn in pairs; and its interval."""
    a, b = np.asarray(a), None if b is None else np.asarray(b)

    def of(rows: np.ndarray) -> float:
        rows = rows.ravel().astype(int)
        return iqm(a[rows]) - (0.0 if b is None else iqm(b[rows]))

    return of(np.arange(len(a))), *bootstrap_interval(np.arange(len(a)), of)


def ordered(found: dict[str, Any]) -> dict[str, Any]:
    """Rows as TASKS has them, whatever was run first."""
    return {name: found["tasks"][name] for name in TASKS if name in found["tasks"]}


def table(found: dict[str, Any]) -> None:
    """The README's."""
    for name, row in ordered(found).items():
        base = row["rules"]["a2c"]
        cells = [name, f"{iqm(base['before']):.2f}"]
        cells += [f"{iqm(row['best']):.2f}" if "best" in row else ""]
        cells += ["{:.2f} ({:.2f} to {:.2f})".format(*interval(base["returns"]))]
        for rule, got in row["rules"].items():
            if rule != "a2c":
                cells += [f"{iqm(got['returns']):.2f}"]
                cells += ["{:+.2f} ({:+.2f} to {:+.2f})".format(*interval(got["returns"], base["returns"]))]
        print("| " + " | ".join(cells) + " |")


def draw(found: dict[str, Any]) -> None:
    """Each task's IQMs with their intervals, and what agents got before they learned."""
    figure, axes = plt.subplots(4, 4, figsize=(10, 8.5))
    for ax, (name, row) in zip(axes.ravel(), ordered(found).items(), strict=False):
        for i, got in enumerate(row["rules"].values()):
            middle, low, high = interval(got["returns"])
            ax.errorbar(i, middle, [[middle - low], [high - middle]], fmt="o", capsize=3, color=f"C{i}")
        ax.axhline(iqm(row["rules"]["a2c"]["before"]), color="k", ls=":", lw=0.8)
        ax.set_title(name, fontsize=9)
        ax.set_xticks(range(len(row["rules"])), [Path(rule).name for rule in row["rules"]], fontsize=7, rotation=20)
        ax.margins(x=0.2)
    for ax in axes.ravel()[len(found["tasks"]) :]:
        ax.axis("off")
    figure.tight_layout()
    figure.savefig(Path(__file__).parent / "transfer.png", dpi=100)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rules", nargs="+", default=["lpg-cpu-1"], help="names, files or folders of runs")
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=list(TASKS))
    args = parser.parse_args()
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    found = results.get("transfer", {"agents": AGENTS, "updates": UPDATES, "tasks": {}})
    for name in args.tasks:
        task = TASKS[name]
        row = found["tasks"].setdefault(name, {"rules": {}})
        for given in ["a2c", *args.rules]:
            label = Path(given).name
            if label in row["rules"]:
                continue
            begin = time.process_time()
            if given == "a2c":
                rule = gradients.baseline()
                weights = fresh_weights(rule, jax.random.key(0))
            else:
                stored = gradients.load(given)
                # Not stored.rule: rules of equal networks are one object, and so share their programs.
                mine = isinstance(stored.config, lpg.RuleConfig)
                rule, weights = lpg.rule(stored.config) if mine else stored.rule, stored.weights
            got = row["rules"][label] = taught(rule, weights, name)
            got["cpu_seconds"] = round(time.process_time() - begin, 1)
            if task.settings and "best" not in row:
                row["best"] = np.asarray(jax.jit(jax.vmap(optimal_value))(world(name)[1](2_000_000))).tolist()
            print(name, label, "{:.2f} ({:.2f} to {:.2f})".format(*interval(got["returns"])), got, flush=True)
            save("transfer", found)
    table(found)
    draw(found)


if __name__ == "__main__":
    main()
