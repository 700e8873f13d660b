"""Trained on contexts that a method chooses, how good is a policy on 100 that nobody trained on?

    python experiments/contexts/run.py [--only cartpole/dr ...] [--seeds 10]

Writes results.json and results.png beside this file and prints the table of README.md. All seeds of a method are one
program.
"""

import argparse
import json
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from picture import picture, table
from tasks import TASKS, Contexts

import jaxrl
from jaxrl.algos import ppo
from jaxrl.algos.curricula import accel, alp_gmm, dr, mbtl, plr, sfl
from jaxrl.curriculum import attach
from jaxrl.curriculum.scores import positive_value_loss
from jaxrl.evaluation import evaluate
from jaxrl.host.run.run_folder import environment_of_run

FILE = Path(__file__).with_name("results.json")
HELD_OUT, CANDIDATES, BUFFER, LOOKS = 100, 32, 256, 4
METHODS = ("default", "dr", "alp_gmm", "plr", "robust_plr", "accel", "sfl", "mbtl")
PAIRS = [f"{task}/{method}" for task in TASKS for method in METHODS if method != "sfl" or TASKS[task].look_steps]


def curriculum(name, contexts):
    task = contexts.task
    low, high = task.low * task.reward, task.high * task.reward
    if name == "dr":
        return dr.make(contexts.draw)
    if name == "alp_gmm":
        return alp_gmm.make(contexts.level, alp_gmm.Config(contexts.dimensions, history=2000), alp_gmm.Hyper(low, high))
    if name == "accel":
        config = accel.Config(BUFFER, num_edits=1)
        return accel.make(contexts.draw, contexts.mutate, config, score=positive_value_loss)
    if name == "sfl":
        every = task.steps // (task.config.num_envs * task.config.num_steps) // LOOKS
        looks = sfl.Config(16, task.plain_levels, task.look_steps, task.plain_levels, every)
        return sfl.make(contexts.draw, looks)
    return plr.make(contexts.draw, plr.Config(BUFFER, robust=name == "robust_plr"), score=positive_value_loss)


def tests(algo, policy, contexts, levels, key):
    """Mean returns of a policy on each level, in the rewards of the task."""

    def on(level, key):
        return evaluate(
            algo, policy, key, contexts.plain, level, num_episodes=contexts.task.episodes, greedy=True
        ).returns.mean()

    return jax.vmap(on)(levels, jax.random.split(key, len(jax.tree.leaves(levels)[0])))


def chosen_sources(student, contexts, key, held_out):
    """MBTL: as many policies as `sources`, each with its share of the steps, on contexts of 32 in the box; the GP and
    the acquisition of `mbtl.py` with Euclidean distances, of which 100 are a side. Each held-out context is served by
    the source that did best on it in episodes other than those reported."""
    task, n = contexts.task, contexts.task.sources
    hyper = task.hyper.replace(anneal_steps=task.steps // n)
    x = jax.random.uniform(jax.random.key(1), (CANDIDATES, contexts.dimensions))
    levels = jax.vmap(contexts.level, (None, 0))(contexts.params, x)
    away = 100 * jnp.linalg.norm(x[:, None] - x, axis=-1)
    start = mbtl.init(CANDIDATES)
    length, variance = (a.ravel() for a in jnp.meshgrid(jnp.logspace(2, 0, 9), jnp.logspace(-3, 3, 13), indexing="ij"))
    covariance = variance[:, None, None] * jnp.exp(-jnp.square(away / length[:, None, None]) / 2)
    process = mbtl.Process(jnp.zeros((len(length), CANDIDATES)), covariance, jnp.zeros(len(length)))
    middle = jnp.argmin(jnp.linalg.norm(x - 0.5, axis=-1))

    def source(carry, key):
        process, covered, trained, k = carry
        mean, deviation = mbtl.likeliest(process)
        hope = mean + jnp.sqrt(jnp.log(k + 1.0)) * deviation
        gain = jnp.maximum(hope[:, None] - start.hyper.slope * away - covered, 0).mean(1)
        i = jnp.where(k > 0, jnp.argmax(jnp.where(trained, -jnp.inf, gain)), middle)
        train_key, *keys = jax.random.split(key, 4)
        level = jax.tree.map(lambda leaf: leaf[i], levels)
        policy = student.policy(jaxrl.train(student, train_key, task.steps // n, hyper, level)[0])
        row = mbtl.normalised(tests(student, policy, contexts, levels, keys[0]), task.low, task.high)
        process = mbtl.observe(process, i, row[i], start.hyper.noise)
        carry = process, jnp.maximum(covered, row), trained.at[i].set(True), k + 1
        return carry, tuple(tests(student, policy, contexts, held_out, key) for key in keys[1:])

    carry = process, jnp.full(CANDIDATES, -jnp.inf), jnp.zeros(CANDIDATES, bool), 0
    choosing, judging = jax.lax.scan(source, carry, jax.random.split(key, n))[1]
    return jnp.take_along_axis(judging, choosing.argmax(0)[None], 0)[0]


def program(method, contexts):
    """key -> mean returns (100,) on the held-out contexts."""
    task = contexts.task
    hyper = task.hyper.replace(anneal_steps=task.steps)
    x = jax.random.uniform(jax.random.key(2), (HELD_OUT, contexts.dimensions))
    held_out = jax.vmap(contexts.level, (None, 0))(contexts.params, x)
    steps = task.steps - (LOOKS * task.plain_levels * task.look_steps if method == "sfl" else 0)

    student = ppo.make(contexts.env, task.config)
    learner = student
    if method not in ("default", "mbtl"):
        venv = jaxrl.vectorize(contexts.env, task.config.num_envs, batched_params=True)
        passed = task.passed * task.reward
        learner = attach(ppo.make(venv, task.config), curriculum(method, contexts), success_above=passed)

    def run(key):
        train_key, test_key = jax.random.split(key)
        if method == "mbtl":
            return chosen_sources(student, contexts, key, held_out)
        state, _ = jaxrl.train(learner, train_key, steps, hyper, contexts.params)
        return tests(learner, learner.policy(state), contexts, held_out, test_key)

    return run


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=PAIRS, choices=PAIRS)
    parser.add_argument("--seeds", type=int, default=10)
    args = parser.parse_args()
    for pair in args.only:
        name, method = pair.split("/")
        run, begin = program(method, Contexts(TASKS[name])), time.process_time()
        keys = jax.random.split(jax.random.key(0), args.seeds)
        compiled = jax.jit(jax.vmap(run)).lower(keys).compile()
        ready = time.process_time()
        returns = np.asarray(compiled(keys), float)
        seconds = {"compile": round(ready - begin, 1), "run": round(time.process_time() - ready, 1)}
        print(pair, returns.mean().round(1), returns.mean(1).std().round(1), seconds, flush=True)
        report = json.loads(FILE.read_text()) if FILE.exists() else {}
        where = environment_of_run()
        report[pair] = {"returns": returns.round(1).tolist(), "cpu_seconds": seconds, "where": where}
        FILE.write_text(json.dumps({p: report[p] for p in PAIRS if p in report}) + "\n")
    report = json.loads(FILE.read_text())
    table(report)
    picture(report, FILE.with_suffix(".png"))


if __name__ == "__main__":
    main()
