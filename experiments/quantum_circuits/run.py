"""Does a moving threshold find shorter circuits? Double DQN places gates until hydrogen is chemically accurate.

    python experiments/quantum_circuits/run.py [--only H2-2] [--table]

Goes on where it stopped: a molecule and an arm are a row of results.json beside this file.
"""

import argparse
import functools
import json
import time
from pathlib import Path

import jax
import numpy as np
from circuit_learners import at_random, episode, learner

import jaxrl
from jaxrl.algos import dqn
from jaxrl.host.run.run_folder import environment_of_run

HERE, SEEDS, LOOKS = Path(__file__).parent, 10, 20
TASKS = {"H2-2": (12, 10, 10_000), "H2-4": (12, 5, 60_000)}  # places of a circuit, gradient steps in a step, steps
ARMS = ("random", "fixed", "moving")


def measure(name, arm):
    """Success and gates (seeds, LOOKS) of greedy circuits in the course of training; of random ones (seeds, 100)."""
    places, inside, steps = TASKS[name]
    env, params = jaxrl.make(f"CircuitDesign-{name}-v0", max_gates=places, num_gradient_steps=inside)
    keys = jax.random.split(jax.random.key(0), SEEDS)
    if arm == "random":
        many = jax.jit(jax.vmap(lambda key: jax.lax.map(
            lambda k: episode(env, params, at_random, k), jax.random.split(key, 100), batch_size=100)))  # fmt: skip
        return many(keys)
    algo = learner(env, params, arm)
    hyper = dqn.Hyper(gamma=0.9, learning_rate=1e-3, exploration_steps=steps // 2, learning_starts=500)

    def train(key):
        init_key, look_key = jax.random.split(key)

        def look(state, key):
            state, _ = jax.lax.scan(lambda s, _: algo.update(s), state, length=steps // LOOKS // algo.steps_per_update)
            policy = algo.policy(state)
            act = functools.partial(algo.act, policy, greedy=True)
            return state, episode(env, params, lambda key, obs: act(key, obs, algo.initial_carry(()))[0], key)

        return jax.lax.scan(look, algo.init(init_key, hyper, params), jax.random.split(look_key, LOOKS))[1]

    return jax.jit(jax.vmap(train))(keys)


def table(rows):
    for name, row in rows.items():
        success, gates = np.array(row["success"]), np.array(row["gates"], float)
        if name.endswith("random"):
            share, mean = success.mean(), gates[success].mean()
            print(f"| {name.replace('/', ' | ')} | {share:.0%} of circuits | {mean:.1f} | | |")
            continue
        ends, first = success[:, -1], np.where(success.any(1), success.argmax(1) + 1, np.inf)
        every = TASKS[name.split("/")[0]][2] // LOOKS
        best = [row[there].min() for row, there in zip(gates, success, strict=True) if there.any()]
        mean = f"{gates[ends, -1].mean():.1f}" if ends.any() else "-"
        ever = f"{len(best)} of {SEEDS}" + (f", {np.mean(best):.1f}" if best else "")
        steps = f"{np.median(first) * every:,.0f}" if np.isfinite(np.median(first)) else "never"
        name = name.replace("/", " | ")
        print(f"| {name} | {ends.sum()} of {SEEDS} | {mean} | {ever} | {steps} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="")
    parser.add_argument("--table", action="store_true")
    args = parser.parse_args()
    file = HERE / "results.json"
    results = json.loads(file.read_text()) if file.exists() else {"rows": {}}
    for key in [f"{name}/{arm}" for name in TASKS for arm in ARMS] if not args.table else []:
        if key in results["rows"] or args.only not in key:
            continue
        began = time.process_time()
        success, gates = map(np.asarray, measure(*key.split("/")))
        row = {"success": success.tolist(), "gates": gates.tolist(), "cpu_seconds": time.process_time() - began}
        results = {"rows": {**results["rows"], key: row}, **environment_of_run()}
        file.write_text(json.dumps(results) + "\n")
        table({key: row})
    table(results["rows"])


if __name__ == "__main__":
    main()
