"""Steps a second of Brax's and Playground's environments: through this library, and under their own training wrappers.

    python benchmarks/peer_brax.py [--tasks hopper/spring playground/CheetahRun ...] [--envs 256]

Both are compiled loops over random actions with observations, rewards, time limit and reset; their wrappers copy each
slot's first state, where ours starts anew. The two sides take turns; wall-clock medians of `--repeats` runs after one
that is not counted. Seconds of compiling are of a program without a cache. Writes results/peer_brax.json.
"""

import argparse
import json
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from brax.envs.wrappers import training

import jaxrl
from jaxrl.envs.physics import playground_task
from jaxrl.envs.physics.brax_task import BraxTask, load
from jaxrl.host.run.run_folder import environment_of_run

OUT = Path(__file__).parent / "results" / "peer_brax.json"
TASKS = ("inverted_pendulum/spring", "hopper/spring", "halfcheetah/generalized", "ant/positional", "hopper/mjx")
"""Those of Playground, `playground/NAME`, are to be named: it is not installed with this library."""


def ours(task, num_envs, length):
    name, other = task.split("/")
    env = playground_task.PlaygroundTask(other) if name == "playground" else BraxTask(name, other, id=f"Brax-{name}")
    params, venv = env.default_params, jaxrl.vectorize(env, num_envs)
    space = env.action_space(params)

    def step(state, key):
        ts = venv.step(key, state, jax.random.uniform(key, (num_envs, *space.shape), minval=-1.0), params)
        return ts.state, jnp.sum(ts.reward) + jnp.sum(ts.obs)

    start = jax.jit(lambda key: venv.reset(key, params)[1])(jax.random.key(0))
    return jax.jit(lambda state: jax.lax.scan(step, state, jax.random.split(jax.random.key(1), length))), start


def theirs(task, num_envs, length):
    name, other = task.split("/")
    if name == "playground":
        from mujoco_playground import wrapper

        env = wrapper.wrap_for_brax_training(playground_task.load(other))
    else:
        env = training.wrap(load(name, other))

    def step(state, key):
        state = env.step(state, jax.random.uniform(key, (num_envs, env.action_size), minval=-1.0))
        return state, jnp.sum(state.reward) + jnp.sum(state.obs)

    start = jax.jit(env.reset)(jax.random.split(jax.random.PRNGKey(0), num_envs))  # its wrappers want raw keys
    return jax.jit(lambda state: jax.lax.scan(step, state, jax.random.split(jax.random.key(1), length))), start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="*", default=TASKS)
    parser.add_argument("--envs", type=int, default=256)
    parser.add_argument("--length", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    report = json.loads(OUT.read_text()) if OUT.exists() else {}
    head = ("task", "its own wrappers, steps/s", "through jaxrl", "ratio", "compile, s: its own", "jaxrl")
    print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for task in args.tasks:
        sides, compiled = {}, {}
        for label, make in (("its own", theirs), ("jaxrl", ours)):
            function, start = make(task, args.envs, args.length)
            begin = time.perf_counter()
            sides[label] = (function.lower(start).compile(), start)
            compiled[label] = time.perf_counter() - begin
        seconds = {label: [] for label in sides}
        for _ in range(args.repeats + 1):
            for label, (program, start) in sides.items():
                begin = time.perf_counter()
                jax.block_until_ready(program(start))
                seconds[label].append(time.perf_counter() - begin)
        rates = {label: args.envs * args.length / float(np.median(x[1:])) for label, x in seconds.items()}
        report[f"{task}/{args.envs}"] = {**rates, "compile": compiled}
        ratio = rates["jaxrl"] / rates["its own"]
        report["where"] = environment_of_run()
        OUT.write_text(json.dumps(report, indent=1) + "\n")
        print(
            f"| {task} | {rates['its own']:,.0f} | {rates['jaxrl']:,.0f} | {ratio:.2f} "
            f"| {compiled['its own']:.1f} | {compiled['jaxrl']:.1f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
