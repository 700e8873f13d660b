"""Steps per second of Cont-CC-PMSM-v0, beside gym-electric-motor and exciting-environments; compile times of all ids.

`batch`: 2,048 environments under random actions drawn in the program, with the default references (random walks),
constraints and auto-reset; observation, reward and ends of every step are the program's output. `one`: a single
environment with auto-reset in a scan. `loop`: a single environment stepped from Python, a jitted call a step, its
parameters compiled in.

Beside exciting-environments (one machine, in dq axes, references that stand still, no auto-reset): ours with
`dq_actions`, the same solver, Euler, and constant references; auto-reset and all 16 numbers observed remain.

Peers run in environments of their own, in processes that alternate with ours; medians over the rounds.

Run: `python benchmarks/motor.py --gem PYTHON --exciting PYTHON`; without peers what is left.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import sys
import time
from typing import Any

from common import alternate, batched_action, print_table, run_driver, save, time_program

ID = "Cont-CC-PMSM-v0"


def rollout(n: int, steps: int, still: bool = False, **settings: Any) -> tuple[Any, Any]:
    """`(program, arguments)` of `steps` steps of `n` environments, stored; with references that are `still`."""
    import jax

    import jaxrl
    from jaxrl.environment import strongly_typed
    from jaxrl.envs.motor.references import Constant

    env, params = jaxrl.make(ID, **settings)
    if still:
        params = strongly_typed(params.replace(references=(Constant(-0.4), Constant(0.2))))
    venv, space = jaxrl.vectorize(env, n), env.action_space(params)

    def run(key, vstate, params):
        def body(vstate, key):
            act_key, step_key = jax.random.split(key)
            ts = venv.step(step_key, vstate, batched_action(act_key, space, n), params)
            return ts.state, (ts.obs, ts.reward, ts.terminated, ts.truncated)

        return jax.lax.scan(body, vstate, jax.random.split(key, steps))

    _, vstate = jax.jit(venv.reset)(jax.random.key(0), params)
    return run, (jax.random.key(1), vstate, params)


def measure(args: argparse.Namespace) -> dict[str, float]:
    """What one of our processes says."""
    import jax
    import numpy as np

    import jaxrl

    result = {}
    for name, n, steps, settings in (
        ("batch", args.envs, args.steps, {}),
        ("dq euler", args.envs, args.steps, {"still": True, "dq_actions": True, "solver": "euler"}),
        ("one", 1, 50_000, {}),
    ):
        run, arguments = rollout(n, steps, **settings)
        timed = time_program(run, *arguments, repeats=args.repeats)
        result[f"{name} steps"] = n * steps / timed["run_s"]
        result[f"{name} compile_s"] = timed["compile_s"]
    env, params = jaxrl.make(ID)
    step = jax.jit(lambda key, state, action: env.step(key, state, action, params))
    _, state = jax.jit(env.reset)(jax.random.key(0), params)
    key, actions = jax.random.key(1), np.zeros((2000, *env.action_space(params).shape), np.float32)
    for timing in (False, True):  # the first pass compiles
        start = time.perf_counter()
        for action in actions:
            ts = step(key, state, action)
            state = ts.state
        jax.block_until_ready(state)
        if timing:
            result["loop steps"] = len(actions) / (time.perf_counter() - start)
    return result


def compile_times() -> dict[str, float]:
    """Seconds to trace and compile reset and step of every id of the family."""
    import jax

    import jaxrl
    from jaxrl.envs.motor import tasks

    seconds = {}
    for id in (*tasks.IDS, *tasks.MORE_IDS):
        env, params = jaxrl.make(id)
        key = jax.random.key(0)
        start = time.perf_counter()
        jax.jit(env.reset).lower(key, params).compile()
        state = jax.eval_shape(env.reset, key, params)[1]
        action = jax.eval_shape(env.action_space(params).sample, key)
        jax.jit(env.step).lower(key, state, action, params).compile()
        seconds[id] = time.perf_counter() - start
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--platform", default="cpu")
    parser.add_argument("--envs", type=int, default=2048)
    parser.add_argument("--steps", type=int, default=200, help="of one timed call of the batch")
    parser.add_argument("--repeats", type=int, default=5, help="timed calls in a process")
    parser.add_argument("--rounds", type=int, default=3, help="alternating processes")
    parser.add_argument("--gem", help="python with gym-electric-motor 3.0.3")
    parser.add_argument("--exciting", help="python with exciting-environments 0.3.1")
    parser.add_argument("--no-compile", action="store_true", help="leave out the compile times of all ids")
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--out", default="motor.json")
    args = parser.parse_args()
    os.environ.setdefault("JAX_PLATFORMS", args.platform)
    os.environ.setdefault("JAX_ENABLE_COMPILATION_CACHE", "false")
    if args.alone:
        print(json.dumps(measure(args)))
        return
    sizes = ("--envs", str(args.envs), "--steps", str(args.steps), "--repeats", str(args.repeats))
    sides: dict[str, Any] = {
        "jaxrl": functools.partial(
            run_driver, sys.executable, "motor.py", "--alone", "--platform", args.platform, *sizes
        )
    }
    if args.gem:
        sides["gem"] = functools.partial(run_driver, args.gem, "peer_gem.py")
    if args.exciting:
        sides["exciting"] = functools.partial(run_driver, args.exciting, "peer_exciting.py", *sizes)
    results = alternate(sides, args.rounds)
    ours, rows = results["jaxrl"], []
    for name in ("batch", "one", "loop"):
        row = [name, f"{ours[f'{name} steps']:,.0f}"]
        if "gem" in results:
            row += [
                f"{results['gem']['zero steps']:,.0f}",
                f"{ours[f'{name} steps'] / results['gem']['zero steps']:,.1f}",
            ]
        rows.append(row)
    print_table(f"{ID}, {args.envs:,} environments", ["", "jaxrl, steps/s", "gym-electric-motor", "ratio"], rows)
    if "exciting" in results:
        theirs = results["exciting"]["stored steps"]
        row = [f"{ours['dq euler steps']:,.0f}", f"{theirs:,.0f}", f"{ours['dq euler steps'] / theirs:.2f}"]
        print_table("dq actions, Euler, stored", ["jaxrl, steps/s", "exciting-environments", "ratio"], [row])
    if not args.no_compile:
        seconds = compile_times()
        slowest = sorted(seconds, key=lambda id: -seconds[id])
        shown = [[id, f"{seconds[id]:.1f}"] for id in (*slowest[:5], slowest[len(slowest) // 2])]
        print_table("Trace and compile reset and step: slowest five and the median", ["id", "seconds"], shown)
        results["compile"] = seconds
    save(args.out, {"id": ID, "results": results})


if __name__ == "__main__":
    main()
