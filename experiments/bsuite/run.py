"""Train DQN on the behaviour suite and score it: every run of an experiment at once, one program for equal shapes.

    python experiments/bsuite/run.py --steps 20000 [--experiments catch deep_sea] [--out experiments/bsuite/results]

Writes `<out>.json` (scores of experiments and tags, settings, versions, seconds) and `<out>.png`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from importlib.metadata import version
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import jaxrl
from jaxrl.algos import dqn
from jaxrl.envs.bsuite import scoring
from jaxrl.envs.bsuite.logged import Results, logged, results
from jaxrl.envs.bsuite.sweep import EXPERIMENTS, sweep

# The settings of the package's own DQN agent, as far as ours has them.
CONFIG = dqn.Config(num_envs=1, batch_size=32, buffer_size=10_000, hidden=(50, 50), double=False)
HYPER = dqn.Hyper(
    learning_rate=1e-3, epsilon_start=0.05, epsilon_end=0.05, learning_starts=100, target_period=4, max_grad_norm=1e9
)


def run(experiment: str, steps: int, seed: int) -> Results:
    """All runs of an experiment for `steps` steps each; an unfinished run is scored by what it has logged."""
    parts = []
    for env, tasks in itertools.groupby(sweep(experiment), key=lambda task: task.env):
        tasks = list(tasks)
        params = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(task.params for task in tasks))
        algo = dqn.make(logged(env, CONFIG.num_envs, tasks[0].num_episodes), CONFIG)

        def train(key, params, algo=algo):
            return jaxrl.train(algo, key, steps, HYPER, params)[0].env_state

        keys = jax.random.split(jax.random.key(seed), len(tasks))
        parts.append(results(jax.jit(jax.vmap(train))(keys, params)))
    points = parts[0].episode
    return Results(points, *(np.concatenate(columns) for columns in zip(*(part[1:] for part in parts), strict=True)))


def plot(scores: dict[str, float], tags: dict[str, float], path: Path) -> None:
    """Bars of experiments, coloured by their first tag, and a radar of the tags."""
    import matplotlib.pyplot as plt

    figure = plt.figure(figsize=(13, 5))
    bars, radar = figure.add_subplot(1, 3, (1, 2)), figure.add_subplot(1, 3, 3, projection="polar")
    kinds = list(dict.fromkeys(row.tags[0] for row in EXPERIMENTS.values()))
    for i, kind in enumerate(kinds):
        names = [name for name in scores if EXPERIMENTS[name].tags[0] == kind]
        bars.bar(names, [scores[name] for name in names], color=f"C{i}", label=kind)
    bars.tick_params("x", rotation=60)
    bars.set(ylim=(0, 1), ylabel="score")
    bars.legend(fontsize="small")
    angles = np.linspace(0, 2 * np.pi, len(tags), endpoint=False)
    radar.fill(angles, list(tags.values()), alpha=0.3)
    radar.plot([*angles, angles[0]], [*tags.values(), next(iter(tags.values()))])
    radar.set_xticks(angles, list(tags))
    radar.set_ylim(0, 1)
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--experiments", nargs="+", default=list(EXPERIMENTS), choices=list(EXPERIMENTS))
    parser.add_argument("--steps", type=int, default=20_000, help="of each run")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("experiments/bsuite/results"))
    args = parser.parse_args()
    scores, seconds = {}, {}
    for name in args.experiments:
        start = time.perf_counter()
        log = run(name, args.steps, args.seed)
        scores[name], seconds[name] = scoring.score(name, log), time.perf_counter() - start
        done = log.episode[~np.isnan(log.raw_return).all(0)][-1]
        print(f"{name:22} {scores[name]:.3f}  {done:6} episodes  {seconds[name]:6.1f} s", flush=True)
    tags = scoring.by_tag(scores)
    versions = {package: version(package) for package in ("jax", "numpy")}
    table = {"scores": scores, "tags": tags, "seconds": seconds, "steps": args.steps, "seed": args.seed}
    args.out.with_suffix(".json").write_text(json.dumps(table | {"versions": versions}, indent=1) + "\n")
    plot(scores, tags, args.out.with_suffix(".png"))


if __name__ == "__main__":
    main()
