"""Which score of a level tells the regret of the student on it, which on mazes is known exactly?

    python experiments/mazes/scores.py [--seeds 5]

A student trains by domain randomisation. At each stage it acts, without learning, on new random mazes; each score is
computed of that one rollout, as in training, learnability of `LOOK` episodes, as it needs several, and the regret is
the maze's optimal return minus the mean return of `EPISODES` further ones. Writes scores.json and scores.png:
Spearman's rank correlations.
"""

import argparse
import json
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np
from methods import ENV, STUDENT, algorithm
from scipy.stats import spearmanr

from jaxrl import curriculum
from jaxrl.environment import strongly_typed
from jaxrl.envs.grid.maze import kit as maze_kit
from jaxrl.evaluation import evaluate
from jaxrl.host.plotting import COLORS
from jaxrl.host.run.run_folder import environment_of_run

FILE = Path(__file__).with_name("scores.json")
STAGES, BATCHES, EPISODES, LOOK = (0, 20, 40, 80, 160, 320), 16, 16, 8
SCORES = {
    "MaxMC": curriculum.max_mc,
    "positive value loss": curriculum.positive_value_loss,
    "L1 value loss": curriculum.l1_value_loss,
}
NAMES = (*SCORES, "learnability")


def stages(seeds):
    """Of each stage `(optimal, mean return, success, {score: value})`, (seeds, levels) each."""
    algo, hyper, params = algorithm("dr_rollout", STUDENT, STAGES[-1])
    task, hyper = ENV.as_levels(), strongly_typed(hyper)

    def look(state, key):
        def batch(state, _):
            state, rollout = algo.collect(state)
            seen = [curriculum.outcomes_of(rollout.student, rollout.batch, score, hyper) for score in SCORES.values()]
            return state, (rollout.batch.params, [s.score for s in seen])

        _, (levels, scores) = jax.lax.scan(batch, state, length=BATCHES)
        levels, scores = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), (levels, scores))
        policy = algo.policy(state)

        def episodes(level, key):
            return evaluate(algo, policy, key, task, level, num_episodes=EPISODES + LOOK).returns

        returns = jax.vmap(episodes)(levels, jax.random.split(key, len(scores[0])))
        success = (returns[:, EPISODES:] > 0).mean(1)
        scores = dict(zip(NAMES, [*scores, success * (1 - success)], strict=True))
        return jax.vmap(maze_kit.optimal_value)(levels), returns[:, :EPISODES].mean(1), success, scores

    @jax.jit
    @jax.vmap
    def advance(state):
        return jax.lax.scan(lambda s, _: (algo.update(s)[0], None), state, length=20)[0]

    init_keys, *look_keys = jax.random.split(jax.random.key(1), (1 + len(STAGES), seeds))
    state, done = jax.jit(jax.vmap(lambda key: algo.init(key, hyper, params)))(init_keys), 0
    looked = jax.jit(jax.vmap(look))
    for stage, keys in zip(STAGES, look_keys, strict=True):
        while done < stage:
            state, done = advance(state), done + 20
        yield stage, jax.tree.map(np.asarray, looked(state, keys))


def correlations(optimal, returns, success, scores):
    """score -> Spearman's rho with the regret, and with the success rate, of each seed, None where one of the two
    is constant; levels never finished last."""
    out = {}
    for name, value in scores.items():
        value = np.where(np.isfinite(value), value, -1e9)
        pairs = [
            (spearmanr(v, o - r).statistic, spearmanr(v, s).statistic)
            for v, o, r, s in zip(value, optimal, returns, success, strict=True)
        ]
        out[name] = [[None if np.isnan(r) else round(float(r), 3) for r in pair] for pair in pairs]
    return out


def picture(report, scatter, out):
    """Left: correlations at each stage. Others: each score against the regret at one stage of one seed."""
    figure, axes = plt.subplots(1, 1 + len(NAMES), figsize=(15, 3.2), layout="constrained")
    for name, color in zip(NAMES, COLORS, strict=False):
        rho = np.array([report["correlations"][str(s)][name] for s in STAGES], float)[..., 0]  # stages, seeds
        axes[0].plot(range(len(STAGES)), rho.mean(1), color=color, label=name, linewidth=1.8)
        axes[0].fill_between(range(len(STAGES)), rho.min(1), rho.max(1), color=color, alpha=0.2, linewidth=0)
    axes[0].axhline(0, color="black", linewidth=0.8)
    axes[0].set_xticks(range(len(STAGES)), [str(s) for s in STAGES])
    axes[0].set(xlabel="updates of the student", ylabel="rank correlation with the regret")
    axes[0].legend(frameon=False, fontsize=8)
    optimal, returns, _, scores = scatter
    for axis, (name, color) in zip(axes[1:], zip(NAMES, COLORS, strict=False), strict=True):
        known = np.isfinite(scores[name][0])
        regret = (optimal - returns)[0]
        axis.scatter(scores[name][0][known], regret[known], s=8, color=color, alpha=0.5, linewidth=0)
        axis.set(xlabel=name, ylabel="exact regret")
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(out, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    args = parser.parse_args()
    report = {"correlations": {}, "returns": {}, "where": environment_of_run()}
    for stage, seen in stages(args.seeds):
        rho = report["correlations"][str(stage)] = correlations(*seen)
        report["returns"][str(stage)] = np.round(seen[1].mean(1), 3).tolist()
        if stage == 80:
            scatter = seen
        means = {name: np.mean(np.array(pairs, float), 0).round(2) for name, pairs in rho.items()}
        print(stage, report["returns"][str(stage)], means)
    FILE.write_text(json.dumps(report) + "\n")
    picture(report, scatter, FILE.with_suffix(".png"))


if __name__ == "__main__":
    main()
