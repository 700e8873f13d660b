"""Does a recurrent policy learn to learn in rule worlds? RL^2 against a feed-forward policy, on rulesets held out.

    python experiments/rl2/worlds.py [--methods RL^2 feed-forward] [--steps 1843200] [--trials 4] [--trial-steps 15]

XLand-MiniGrid, one room of 5 x 5 cells, walls included; of `trivial-1m` the rulesets whose goal is to hold one of the
four things that lie about, all of different shapes. The goal is nowhere said. A task is a series of trials with one
ruleset; things and agent are put to new places in each. Training draws from the benchmark's first part; what is judged
lies in the other. Writes into results.json and worlds.png beside this file and prints the table of README.md.
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

from jaxrl.algos import ppo, ppo_rnn
from jaxrl.algos.meta import rl2
from jaxrl.envs.grid.rule_world.benchmarks import Benchmark, benchmark
from jaxrl.envs.grid.rule_world.rule_world import Level, RuleWorld
from jaxrl.envs.grid.rule_world.rules import COLORS, HOLD, SHAPES
from jaxrl.host.run.run_folder import environment_of_run
from jaxrl.host.statistics import bootstrap_interval
from jaxrl.spaces import Box, Dict
from jaxrl.wrappers import FrameStack, TrialParams, Trials
from jaxrl.wrappers.base import Wrapper

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

HERE = Path(__file__).parent
RESULTS = HERE / "results.json"
SHAPE: Any = {"num_envs": 128, "num_steps": 60, "num_epochs": 3, "num_minibatches": 4}


@dataclasses.dataclass(frozen=True)
class Worlds(Wrapper):
    """Rule worlds whose tasks are the rulesets that are stacked in a level.

    Shapes and colours are seen as 25 zeros and ones a cell: their numbers have no order.
    """

    @property
    def default_params(self):
        level = self.env.default_params
        return level.replace(ruleset=jax.tree.map(lambda x: x[None], level.ruleset))

    def generate(self, key, params):
        i = jax.random.randint(key, (), 0, params.ruleset.goal.shape[0])
        return params.replace(ruleset=jax.tree.map(lambda x: x[i], params.ruleset))

    def observe(self, key, state, params):
        obs = self.env.observe(key, state, params)
        shape, color = obs["image"][..., 0, None], obs["image"][..., 1, None]
        tiles = jnp.concatenate([shape == np.arange(len(SHAPES)), color == np.arange(len(COLORS))], -1)
        return {**obs, "image": tiles.reshape(-1).astype(jnp.uint8)}

    def observation_space(self, params):
        spaces = self.env.observation_space(params).spaces
        rows, columns, _ = spaces["image"].shape
        return Dict({**spaces, "image": Box(0, 1, (rows * columns * (len(SHAPES) + len(COLORS)),), jnp.uint8)})


def rulesets_to_hold(of: Benchmark, most: int):
    """Those of a benchmark's first `40 * most` rulesets whose goal is to hold one of four shapes; at most so many."""
    found = jax.jit(jax.vmap(of.ruleset))(jnp.arange(min(len(of), 40 * most)))
    shapes = np.sort(np.asarray(found.objects)[..., 0], -1)[:, -4:]  # after the row that a second goal tile would have
    good = (np.asarray(found.goal[:, 0]) == HOLD) & (np.diff(shapes, axis=-1) > 0).all(-1)
    return jax.tree.map(lambda x: x[np.flatnonzero(good)[:most]], found)


def wanted(level):
    """What the critic is told: the shape and the colour to hold."""
    shape, color = level.ruleset.goal[1], level.ruleset.goal[2]
    return jnp.concatenate([jax.nn.one_hot(shape, len(SHAPES)), jax.nn.one_hot(color, len(COLORS))])


def row(values: np.ndarray) -> list[float]:
    """Mean and 95 % interval."""
    return [float(values.mean()), *map(float, bootstrap_interval(values, np.mean))]


def learnt(name: str, args: argparse.Namespace, train, test) -> dict:
    """Train a method, and what it earns in each trial on rulesets held out, some times on the way."""
    hyper: Any = {"learning_rate": args.learning_rate, "gamma": 0.95, "gae_lambda": 0.9, "ent_coef": args.entropy}
    env = Worlds(RuleWorld(layout="R1", size=args.size, view_size=args.view, meta=False, params_are_level=True))
    trials = Trials(env, args.trials, reveal=wanted)
    # What paid is not seen after it has: the next observation is of the next trial. Two at a time show both.
    trials = FrameStack(trials, args.frames) if args.frames > 1 else trials
    if name == "RL^2":
        algo = ppo_rnn.make(trials, ppo_rnn.Config(**SHAPE, hidden=(48,), rnn_size=48))
        settings = ppo_rnn.Hyper(**hyper)
    else:
        algo = ppo.make(trials, ppo.Config(**SHAPE))
        settings = ppo.Hyper(**hyper)
    limit = jnp.int32(args.trial_steps)

    def params_of(rulesets):
        return TrialParams(Level(limit, limit, rulesets), jnp.int32(args.trials))

    def some(state):
        state, metrics = jax.lax.scan(lambda s, _: algo.update(s), state, length=args.chunk)
        return state, jax.tree.map(jnp.mean, metrics)

    def judge(policy, key):
        def one(key, ruleset):
            params = params_of(jax.tree.map(lambda x: x[None], ruleset))
            return rl2.play(algo, policy, key, params, args.plays, args.trials, args.trials * args.trial_steps)

        return jax.vmap(one)(jax.random.split(key, len(test.goal)), test)

    advance, judge = jax.jit(some), jax.jit(judge)
    state = jax.jit(algo.init)(jax.random.key(args.seed), settings, params_of(train))
    chunk = args.chunk * algo.steps_per_update
    found: dict[str, Any] = {"curve": [], "judged": []}
    begin = time.perf_counter()
    for i in range(1, args.steps // chunk + 1):
        state, metrics = advance(state)
        said = {k: float(metrics[k]) for k in ("episode_return", "entropy", "approx_kl", "explained_variance")}
        found["curve"].append([i * chunk, said["episode_return"]])
        print(i * chunk, f"{time.perf_counter() - begin:.0f} {time.process_time():.0f}", said, flush=True)
        if i % args.judge_every == 0 or i == args.steps // chunk:
            played = judge(algo.policy(state), jax.random.key(1))
            returns = np.asarray(played.returns)  # (rulesets, plays, trials)
            of_ruleset = returns.mean(1)
            apart = of_ruleset[:, -1] - of_ruleset[:, 0]
            found["judged"].append(
                {
                    "steps": i * chunk,
                    "return": [row(of_ruleset[:, k]) for k in range(args.trials)],
                    "success": [row((returns > 0).mean(1)[:, k]) for k in range(args.trials)],
                    "last - first": row(apart),
                    "all": row(of_ruleset.mean(1)),
                }
            )
            found["of rulesets"] = of_ruleset.mean(1).round(4).tolist()
            print(name, {k: np.round(v, 3).tolist() for k, v in found["judged"][-1].items()}, flush=True)
    found["seconds"] = time.perf_counter() - begin
    return found


def report(results: dict) -> None:
    """The table of README.md and the picture."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4))
    for name, found in results.items():
        last = found["judged"][-1]
        mean, low, high = np.array(last["return"]).T
        left.errorbar(np.arange(1, len(mean) + 1), mean, [mean - low, high - mean], marker="o", capsize=3, label=name)
        steps, curve = np.array(found["curve"]).T
        right.plot(steps / 1e6, curve / len(mean), label=name)
        cells = " | ".join(f"{m:.3f} ({a:.3f} to {b:.3f})" for m, a, b in last["return"])
        print(
            "| {} | {} | {:+.3f} ({:+.3f} to {:+.3f}) | {:.0f} |".format(
                name, cells, *last["last - first"], found["seconds"]
            )
        )
    for seen in (1, 2):
        both = [results.get(f"{name}, {seen} seen", {}).get("of rulesets") for name in ("RL^2", "feed-forward")]
        if all(both):
            print("RL^2 has {:+.3f} ({:+.3f} to {:+.3f}) more, paired by ruleset".format(*row(np.subtract(*both))))
    left.set(xlabel="trial", ylabel="return", title="rulesets held out", ylim=(0, 0.9), xticks=(1, 2, 3, 4))
    right.set(xlabel="steps trained [million]", ylabel="return a trial", title="rulesets learnt on")
    for ax in (left, right):
        ax.legend(frameon=False, fontsize=7)
    figure.tight_layout()
    figure.savefig(HERE / "worlds.png", dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", default=["RL^2", "feed-forward"])
    parser.add_argument("--steps", type=int, default=1_843_200)
    parser.add_argument("--size", type=int, default=5)
    parser.add_argument("--view", type=int, default=3)
    parser.add_argument("--trials", type=int, default=4)
    parser.add_argument("--trial-steps", type=int, default=15)
    parser.add_argument("--frames", type=int, default=2, help="observations seen at a time")
    parser.add_argument("--rulesets", type=int, default=2048, help="trained on")
    parser.add_argument("--held-out", type=int, default=512)
    parser.add_argument("--plays", type=int, default=4, help="of each ruleset held out")
    parser.add_argument("--chunk", type=int, default=10, help="updates at a time")
    parser.add_argument("--judge-every", type=int, default=8, help="chunks")
    parser.add_argument("--learning-rate", type=float, default=2e-3)
    parser.add_argument("--entropy", type=float, default=0.04, help="its coefficient")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    train, test = benchmark("trivial-1m").split(0.8)
    train, test = rulesets_to_hold(train, args.rulesets), rulesets_to_hold(test, args.held_out)
    print(f"rulesets: {len(train.goal)} to learn on, {len(test.goal)} held out", flush=True)
    for name in args.methods:
        found = learnt(name, args, train, test)
        where = {"settings": vars(args), "date": time.strftime("%Y-%m-%d"), "where": environment_of_run()}
        results = json.loads(RESULTS.read_text())
        label = f"{name}, {args.frames} seen"
        results["rule worlds"] = {**results.get("rule worlds", {}), label: {**found, **where}}
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    report(json.loads(RESULTS.read_text())["rule worlds"])


if __name__ == "__main__":
    main()
