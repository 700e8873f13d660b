"""Is a policy gradient worth its time to MAP-Elites? PGA-MAP-Elites on Pendulum, beside it at as many evaluations, and
at as many seconds, about.

    python experiments/quality_diversity/gradients.py [--generations 80] [--seeds 10]

Writes gradients.json beside this file and prints the table of README.md.
"""

import argparse
import json
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import jaxrl
from jaxrl.algos import map_elites, pga_me
from jaxrl.evaluation import evaluate
from jaxrl.host.run.run_folder import environment_of_run
from jaxrl.host.statistics import bootstrap_interval, iqm
from jaxrl.nn.actor_critic import Actor
from jaxrl.quality_diversity.behaviour import policy_of

SHAPE = {"population_size": 16, "num_episodes": 4, "hidden": (32, 32), "cells": (10,), "summary": "mean"}
SHAPE |= {"descriptor": ("theta [rad]", "theta_dot [rad/s]")}
SHAPE |= {"descriptor_low": (-3.2, -8.0), "descriptor_high": (3.2, 8.0)}
LEARNERS = {
    "MAP-Elites": (map_elites, {}, 1),
    "MAP-Elites, 20 times the generations": (map_elites, {}, 20),
    "PGA-MAP-Elites": (pga_me, {"num_critic_updates": 200, "num_policy_updates": 50}, 1),
}
"""Modules, settings beside `SHAPE`, and multiples of the generations."""
LEAST = -1800.0  # below every return of Pendulum's 200 steps


def program(name: str, generations: int):
    """key -> (return of the best cell's policy over 128 episodes, best fitness, QD score, coverage)."""
    env, params = jaxrl.make("Pendulum-v1")
    module, settings, times = LEARNERS[name]
    actor = Actor(env.observation_space(params), env.action_space(params), SHAPE["hidden"], "tanh", out_scale=1.0)
    algo = module.make(env, module.Config(**SHAPE, **settings), network=actor)

    def run(key):
        train_key, eval_key = jax.random.split(key)
        state, _ = jaxrl.train(algo, train_key, times * generations * algo.steps_per_update)
        archive = state.archive
        best = policy_of(state, jnp.argmax(archive.fitness))
        stats = evaluate(algo, best, eval_key, env, params, num_episodes=128, greedy=True)
        return stats.returns.mean(), archive.fitness.max(), archive.qd_score(LEAST), archive.coverage

    return jax.jit(run).lower(jax.random.key(0)).compile()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--generations", type=int, default=80)
    parser.add_argument("--seeds", type=int, default=10)
    args = parser.parse_args()
    found = {}
    print("| learner | return of its best | best fitness | QD score | coverage | CPU s a seed |\n|" + "---|" * 6)
    for name in LEARNERS:
        run, begin = program(name, args.generations), time.process_time()
        rows = np.array([run(key) for key in jax.random.split(jax.random.key(0), args.seeds)], float)
        seconds = round((time.process_time() - begin) / args.seeds, 1)
        names = ("return", "best_fitness", "qd_score", "coverage")
        found[name] = {n: np.round(x, 3).tolist() for n, x in zip(names, rows.T, strict=True)} | {"seconds": seconds}
        intervals = [(iqm(x), *bootstrap_interval(x)) for x in rows.T]
        told = [f"{a:,.0f} ({b:,.0f} to {c:,.0f})" for a, b, c in intervals[:3]]
        told.append("{:.2f} ({:.2f} to {:.2f})".format(*intervals[3]))
        print(f"| {name} | {' | '.join(told)} | {seconds} |", flush=True)
    out = {"budget": [args.generations, args.seeds], "learners": found, "where": environment_of_run()}
    Path(__file__).with_name("gradients.json").write_text(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__":
    main()
