"""Steps per second of quadcopters: bare dynamics, whole environment; beside gym-pybullet-drones and crazyflow.

Bare dynamics: a scan of `dynamics.step` over many drones from random states under constant commands, nothing else, one
call timed. Derivatives: evaluations of the equations of motion. `l2f 13` is the definition of learning-to-fly's own
benchmark (zero action, 13 numbers, no motors, RK4 at 100 Hz; ours also renormalises the quaternion).

Whole environment: `Quadcopter-Hover-v0` as it is registered (motor lag, disturbances, noise, 146 numbers observed,
reward, auto-reset) under random actions drawn in the program. `stored`: the program's output is observation, reward and
ends of every step, as for a learner; else their sum.

Two rates: steps per second of wall time (median of the calls), and per second of processor time (the best call), which
other users of the machine disturb less: with `--cores 1`, what one core does. On a GPU only the first means anything.
Times to trace and compile are of the processor too.

Peers run in environments of their own, in processes that alternate with ours; medians over the rounds.

Run: `python benchmarks/quadcopter.py --crazyflow PYTHON --gpd PYTHON --gpd-source CHECKOUT`; without
peers what is left; on a GPU `--platform cuda`.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

from common import alternate, batched_action, print_table, run_driver, save

PHYSICS = ("l2f 13", "l2f", "gpd", "crazyflow euler", "crazyflow rk4")
DRONES = {"cpu": (1, 16, 256, 2048, 8192, 65536), "cuda": (1, 256, 8192, 65536, 1 << 20, 1 << 22)}
ENVS = {"cpu": (2048, 8192), "cuda": (8192, 65536, 1 << 19)}


def bare(name: str, n: int, steps: int) -> tuple[Callable, tuple, float, int]:
    """`(program, arguments, seconds a step, derivatives a step)` of `steps` steps of `n` drones."""
    import jax
    import jax.numpy as jnp

    from jaxrl.environment import strongly_typed
    from jaxrl.envs.quadcopter import dynamics, models

    crazyflow = dynamics.CRAZYFLOW_0_4
    model, physics, dt, derivatives = {
        "l2f 13": (models.CRAZYFLIE, dynamics.L2F.replace(motors="instant"), 0.01, 4),
        "l2f": (models.CRAZYFLIE, dynamics.L2F, 0.01, 4),
        "gpd": (models.CF2X, dynamics.GPD_DYN, 1 / 240, 1),
        "crazyflow euler": (models.CRAZYFLOW_0_4["cf21B_500"], crazyflow, 0.002, 1),
        "crazyflow rk4": (models.CRAZYFLOW_0_4["cf21B_500"], crazyflow.replace(integrator="exponential_rk4"), 0.002, 4),
    }[name]
    model = strongly_typed(model)
    x = jax.random.uniform(jax.random.key(0), (17, n), minval=-1.0, maxval=1.0)
    rows = [x[i] for i in range(17)]
    turn = tuple(q / jnp.linalg.norm(x[3:7], axis=0) for q in rows[3:7])
    drone = dynamics.Drone(
        (rows[0], rows[1], 5 + rows[2]),
        turn,
        tuple(rows[7:10]),
        tuple(0.1 * w for w in rows[10:13]),
        tuple(0.5 * model.max_rpm * (1 + 0.1 * w) for w in rows[13:]),
    )
    command, around = drone.rpm, dynamics.CALM
    if name.startswith("l2f"):  # the zero action for all
        command = (0.5 * model.max_rpm,) * 4
    if name == "l2f 13":
        drone = drone._replace(rpm=command)
    if name.startswith("crazyflow"):
        # As its simulator has it: a disturbance for every drone.
        around = dynamics.Surroundings(*(tuple(jnp.zeros(n) for _ in range(3)) for _ in range(2)))

    def run(model, drone, command, around):
        def body(drone, _):
            return dynamics.step(model, drone, command, dt, physics, around), None

        return jax.lax.scan(body, drone, None, length=steps)[0]

    return run, (model, drone, command, around), dt, derivatives


def full(n: int, steps: int, stored: bool, **settings: Any) -> tuple[Callable, tuple]:
    """`(program, arguments)` of `steps` steps of `n` environments: `(state, what is stored)`."""
    import jax
    import jax.numpy as jnp

    import jaxrl
    from jaxrl.envs.quadcopter.tasks.hover import Hover

    env = Hover(**settings)
    params = env.default_params
    venv = jaxrl.vectorize(env, n)
    space = env.action_space(params)

    def run(key, state, params):
        def body(carry, key):
            state, total = carry
            act_key, step_key = jax.random.split(key)
            obs, state, reward, terminated, truncated, _ = venv.step(
                step_key, state, batched_action(act_key, space, n), params
            )
            if stored:
                return (state, total), (obs, reward, terminated, truncated)
            seen = sum(jnp.sum(x) for x in jax.tree.leaves(obs)) + reward.sum() + (terminated | truncated).sum()
            return (state, total + seen), None

        return jax.lax.scan(body, (state, jnp.float32(0)), jax.random.split(key, steps))

    def start(key):
        state = venv.reset(key, params)[1]
        # Clocks spread over an episode, so that a few end at every step.
        time = jax.random.randint(key, (n,), 0, params.max_steps)
        return state.replace(env=state.env.replace(time=time))

    state = jax.jit(start)(jax.random.key(0))
    return run, (jax.random.key(1), state, params)


def timed(run: Callable, arguments: tuple, repeats: int) -> tuple[float, float, float]:
    """Of a call: median seconds, least seconds of processor time; and such seconds to trace and compile."""
    import jax

    start = time.process_time()
    compiled = jax.jit(run).lower(*arguments).compile()
    compile_s = time.process_time() - start
    jax.block_until_ready(compiled(*arguments))
    seconds, processor = [], []
    for _ in range(repeats):
        start, before = time.perf_counter(), time.process_time()
        out = jax.block_until_ready(compiled(*arguments))
        seconds.append(time.perf_counter() - start)
        processor.append(time.process_time() - before)
        del out
    return statistics.median(seconds), min(processor), compile_s


def steps_of(n: int, budget: int) -> int:
    """Steps of `n` drones in a timed call: `budget` drone-steps in all, between 20 and 20,000."""
    return max(20, min(20_000, budget // n))


def measure_bare(name: str, n: int, budget: int, repeats: int) -> dict[str, float]:
    steps = steps_of(n, budget)
    run, arguments, dt, derivatives = bare(name, n, steps)
    seconds, processor, compile_s = timed(run, arguments, repeats)
    rate = n * steps / seconds
    return {
        "steps": rate,
        "per core": n * steps / processor,
        "seconds": rate * dt,
        "derivatives": rate * derivatives,
        "compile_s": compile_s,
    }


def measure_full(n: int, stored: int, budget: int, repeats: int, **settings: Any) -> dict[str, float]:
    """`stored`: so many steps are stored; 0: none, and more are taken."""
    steps = stored or steps_of(n, budget)
    run, arguments = full(n, steps, bool(stored), **settings)
    seconds, processor, compile_s = timed(run, arguments, repeats)
    rate = n * steps / seconds
    return {"steps": rate, "per core": n * steps / processor, "seconds": 0.01 * rate, "compile_s": compile_s}


def measure_compile(**settings: Any) -> dict[str, float]:
    """Seconds of processor time to trace and compile reset and step of one environment."""
    import jax
    import jax.numpy as jnp

    from jaxrl.envs.quadcopter.tasks.hover import Hover

    env = Hover(**settings)
    params = env.default_params
    key, action = jax.random.key(0), jnp.zeros(4)
    start = time.process_time()
    jax.jit(env.reset).lower(key, params).compile()
    middle = time.process_time()
    state = jax.eval_shape(env.reset, key, params)[1]
    jax.jit(env.step).lower(key, state, action, params).compile()
    return {"reset_s": middle - start, "step_s": time.process_time() - middle}


def alone(args: argparse.Namespace) -> dict[str, float]:
    """What one of our processes measures beside a peer."""
    result = {}
    if args.alone == "full":
        for stored in (args.stored, 0):
            rates = measure_full(args.envs[-1], stored, args.budget // 20, args.repeats)
            result.update({f"{'stored' if stored else 'summed'} {field}": value for field, value in rates.items()})
        return result
    for n in args.compare:
        for name in args.physics:
            for field, value in measure_bare(name, n, args.budget, args.repeats).items():
                result[f"{name} {n} {field}"] = value
    return result


def report_bare(args: argparse.Namespace) -> dict[str, Any]:
    results: dict[str, Any] = {name: {} for name in args.physics}
    for name in args.physics:
        for n in args.drones:
            results[name][str(n)] = measure_bare(name, n, args.budget, args.repeats)
    fields = {
        "steps": "M drone-steps/s",
        "per core": "M drone-steps a second of one core",
        "seconds": "thousand simulated seconds/s",
        "derivatives": "M derivatives/s",
    }
    for field, title in fields.items():
        unit = 1e3 if field == "seconds" else 1e6
        rows = [[name, *(f"{r[field] / unit:.3g}" for r in by_n.values())] for name, by_n in results.items()]
        print_table(f"Bare dynamics, {title}", ["", *(f"{n:,}" for n in args.drones)], rows)
    return results


def report_full(args: argparse.Namespace) -> dict[str, Any]:
    results, rows = {}, []
    for n in args.envs:
        for privileged in (False, True):
            for stored in (0, args.stored):
                r = measure_full(n, stored, args.budget // 20, args.repeats, privileged=privileged)
                what = ", ".join(["observation"] + ["privileged"] * privileged + [f"{stored} stored"] * bool(stored))
                results[f"{n} {what}"] = r
                rates = (f"{r['steps'] / 1e6:.2f}", f"{r['per core'] / 1e6:.2f}", f"{r['seconds']:,.0f}")
                rows.append([f"{n:,}", what, *rates, f"{r['compile_s']:.1f}"])
    head = ["environments", "", "M drone-steps/s", "of one core", "simulated s/s", "compile s"]
    print_table("Whole environment", head, rows)
    for privileged in (False, True):
        name = "reset and step, privileged" if privileged else "reset and step"
        r = results[name] = measure_compile(privileged=privileged)
        print(f"{name}: trace and compile {r['reset_s']:.1f} s and {r['step_s']:.1f} s")
    return results


def report_crazyflow(args: argparse.Namespace) -> dict[str, Any]:
    steps = [str(steps_of(n, args.budget // 10)) for n in args.compare]
    options = ("--worlds", *map(str, args.compare), "--steps", *steps, "--platform", args.platform)
    sides = {
        "crazyflow": functools.partial(run_driver, args.crazyflow, "peer_crazyflow.py", *options),
        "jaxrl": own_process(args, "bare", "--physics", "crazyflow euler", "crazyflow rk4"),
    }
    results = alternate(sides, args.rounds)
    rows = []
    for n in args.compare:
        for kind in ("euler", "rk4"):
            theirs, ours = results["crazyflow"], results["jaxrl"]
            pairs = [(theirs[f"{kind} {n} {f}"], ours[f"crazyflow {kind} {n} {f}"]) for f in ("steps", "per core")]
            rates = [x for a, b in pairs for x in (f"{a / 1e6:.3g}", f"{b / 1e6:.3g}", f"{b / a:.2f}")]
            compiles = (theirs[f"{kind} {n} compile_s"], ours[f"crazyflow {kind} {n} compile_s"])
            rows.append([f"{n:,}", kind, *rates, *(f"{c:.1f}" for c in compiles)])
    head = [
        "drones",
        "integrator",
        "crazyflow, M steps/s",
        "jaxrl",
        "ratio",
        "crazyflow, of one core",
        "jaxrl",
        "ratio",
    ]
    head += ["crazyflow, compile s", "jaxrl"]
    print_table("First-principles physics at 500 Hz, against crazyflow", head, rows)
    return results


def report_gpd(args: argparse.Namespace) -> dict[str, Any]:
    sides = {
        "gpd": functools.partial(run_driver, args.gpd, "peer_gpd.py", "--source", args.gpd_source),
        "bare": own_process(args, "bare", "--physics", "gpd", "l2f 13", "l2f"),
        "full": own_process(args, "full"),
    }
    results = alternate(sides, args.rounds)
    gpd, n = results["gpd"], args.compare[-1]
    rows = []
    for name in dict.fromkeys(key.rsplit(":", 1)[0] for key in gpd):
        if name.startswith("task"):
            pairs = {"Quadcopter-Hover-v0, stored": ("full", "stored")}
        else:
            pairs = {what: ("bare", f"{what} {n}") for what in ("gpd", "l2f 13", "l2f")}
        for ours, (side, key) in pairs.items():
            cells = [name, ours]
            for field in ("steps", "per core"):
                a, b = gpd[f"{name}:{field}"], results[side][f"{key} {field}"]
                cells += [f"{a:,.0f}", f"{b / 1e6:.3g} M", f"{b / a:,.0f}"]
            rows.append(cells)
    head = ["gym-pybullet-drones", "jaxrl", "its steps/s", "ours", "ratio", "its, of one core", "ours", "ratio"]
    print_table(f"Against gym-pybullet-drones; ours {n:,} drones, {args.envs[-1]:,} environments", head, rows)
    return results


def own_process(args: argparse.Namespace, what: str, *options: str) -> Callable[[], dict[str, Any]]:
    common = ["--platform", args.platform, "--budget", args.budget, "--stored", args.stored, "--repeats", args.repeats]
    sizes = ["--compare", *args.compare, "--envs", args.envs[-1]]
    words = [str(word) for word in ("--alone", what, *common, *sizes, *options)]
    return functools.partial(run_driver, sys.executable, "quadcopter.py", *words)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--platform", default="cpu", choices=list(DRONES))
    parser.add_argument("--parts", nargs="+", default=["bare", "full", "crazyflow", "gpd"])
    parser.add_argument("--physics", nargs="+", choices=PHYSICS)
    parser.add_argument("--drones", nargs="+", type=int, help="of the bare dynamics")
    parser.add_argument("--envs", nargs="+", type=int, help="of the whole environment")
    parser.add_argument(
        "--compare", nargs="+", type=int, default=[1, 8192], help="drones beside crazyflow; the last: gpd"
    )
    parser.add_argument("--budget", type=int, default=20_000_000, help="drone-steps of one timed call of the dynamics")
    parser.add_argument("--stored", type=int, default=20, help="steps that the whole environment stores")
    parser.add_argument("--repeats", type=int, default=5, help="timed calls in a process")
    parser.add_argument("--rounds", type=int, default=3, help="alternating processes")
    parser.add_argument("--cores", type=int, help="that all processes together may use; all when left out")
    parser.add_argument("--crazyflow", help="python with crazyflow 0.4.0")
    parser.add_argument("--gpd", help="python with pybullet and gymnasium")
    parser.add_argument("--gpd-source", help="checkout of gym-pybullet-drones")
    parser.add_argument("--alone", choices=["bare", "full"], help=argparse.SUPPRESS)
    parser.add_argument("--out", default="quadcopter.json")
    args = parser.parse_args()
    if args.cores:  # the peers' processes inherit it
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-args.cores :])
    os.environ.setdefault("JAX_PLATFORMS", args.platform)
    os.environ.setdefault("JAX_ENABLE_COMPILATION_CACHE", "false")
    args.physics = args.physics or PHYSICS
    args.drones = args.drones or DRONES[args.platform]
    args.envs = args.envs or ENVS[args.platform]
    if args.alone:
        print(json.dumps(alone(args)))
        return
    results: dict[str, Any] = {}
    if "bare" in args.parts:
        results["bare"] = report_bare(args)
    if "full" in args.parts:
        results["full"] = report_full(args)
    if "crazyflow" in args.parts and args.crazyflow:
        results["crazyflow"] = report_crazyflow(args)
    if "gpd" in args.parts and args.gpd:
        results["gpd"] = report_gpd(args)
    save(args.out, {"cores used": len(os.sched_getaffinity(0)), "results": results})


if __name__ == "__main__":
    main()
