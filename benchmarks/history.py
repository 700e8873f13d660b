"""What must not become slower: a few ratios, their history, and what has lost a tenth.

Steps a processor second of vectorised environments and learners are told in those of the loop of C (`cartpole_loop.c`,
one environment after another), seconds to compile in those of a fixed program of plain JAX, both measured in the same
run: so that rows of different days and machines can be read together. More is faster in all of them.

    python benchmarks/history.py                       measures, appends a row to results/history.jsonl, draws the page
    python benchmarks/history.py --against CHECKOUT    beside another checkout of this repository, in turns, no row
    python benchmarks/history.py --only "steps*"       these alone, no row

Each measurement is a process of its own on one core, without compilation cache; medians of `--rounds`. A ratio that is
a tenth below the median of the last five rows of the same processor (or below the other checkout's) is named, and the
exit status is 1. Needs `cc` and `taskset`.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from typing import Any

from common import machine, print_table

HERE = pathlib.Path(__file__).resolve()
HISTORY = HERE.parent / "results/history.jsonl"
PAGE = HERE.parents[1] / "docs/benchmark_history.md"
SLOWER = 0.9
"""The share of what a ratio was at which it is named."""
IDS = (
    "CartPole-v1",
    "Acrobot-v1",
    "MountainCar-v0",
    "Pendulum-v1",
    "Breakout-MinAtar",
    "MiniGrid-DoorKey-8x8-v0",
    "Quadcopter-Hover-v0",
    "Cont-CC-PMSM-v0",
    "Hopper-v5",
)
LEARNERS = {"ppo": "CartPole-v1", "dqn": "CartPole-v1", "sac": "Pendulum-v1"}


# ---- measurements, each in a process of its own


def median_seconds(run: Callable[[], Any], repeats: int = 5) -> float:
    """Of the processor, of a call after one that is not counted."""
    import jax

    jax.block_until_ready(run())
    seconds = []
    for _ in range(repeats):
        begin = time.process_time()
        jax.block_until_ready(run())
        seconds.append(time.process_time() - begin)
    return statistics.median(seconds)


def steps(id: str, num_envs: int = 2048) -> float:
    """Steps a processor second: random actions, auto-reset, everything summed."""
    import jax
    import jax.numpy as jnp

    import jaxrl
    from jaxrl.math import fast_key

    env, params = jaxrl.make(id)
    venv, space = jaxrl.vectorize(env, num_envs), env.action_space(params)
    count = max(1, int(200 * (0.05 if id.startswith("Hopper") else 1)))

    def body(carry, key):
        vstate, total = carry
        act_key, step_key = jax.random.split(fast_key(key))
        bits = jax.random.bits(fast_key(act_key), (num_envs, *space.shape), jnp.uint16)
        if hasattr(space, "n"):
            action = (bits % space.n).astype(jnp.int32)
        else:
            action = space.low + (space.high - space.low) * bits.astype(jnp.float32) * 2.0**-16
        ts = venv.step(step_key, vstate, action, params)
        seen = sum(jnp.sum(x, dtype=jnp.float32) for x in jax.tree.leaves(ts.obs))
        return (ts.state, total + seen + ts.reward.sum() + (ts.terminated | ts.truncated).sum()), None

    run = jax.jit(lambda key, vstate: jax.lax.scan(body, (vstate, jnp.float32(0)), jax.random.split(key, count))[0])
    _, vstate = jax.jit(venv.reset)(jax.random.key(0), params)
    vstate, _ = run(jax.random.key(1), vstate)
    return num_envs * count / median_seconds(lambda: run(jax.random.key(2), vstate))


def compiling(id: str) -> float:
    """Seconds of the processor to trace and compile a vectorised reset and step of 1,024 environments."""
    import jax

    import jaxrl

    env, params = jaxrl.make(id)
    venv, key = jaxrl.vectorize(env, 1024), jax.random.key(0)
    _, vstate = jax.eval_shape(venv.reset, key, params)
    action = jax.eval_shape(jax.vmap(env.action_space(params).sample), jax.random.split(key, 1024))
    begin = time.process_time()
    jax.jit(venv.reset).lower(key, params).compile()
    jax.jit(venv.step).lower(key, vstate, action, params).compile()
    return time.process_time() - begin


def learning(name: str) -> float:
    """Steps a processor second of a learner at its default settings."""
    import jax

    import jaxrl

    env, params = jaxrl.make(LEARNERS[name])
    module = jaxrl.get_algo(name)
    algo = module.make(env, module.Config())
    hyper = module.Hyper() if name == "ppo" else module.Hyper(learning_starts=200)
    count = max(1, 4000 // algo.steps_per_update) if name != "ppo" else 20
    run = jax.jit(lambda state: jax.lax.scan(lambda s, _: (algo.update(s)[0], ()), state, None, length=count)[0])
    state = run(jax.jit(algo.init)(jax.random.key(0), hyper, params))
    return count * algo.steps_per_update / median_seconds(lambda: run(state), 3)


def plain_compiling() -> float:
    """The yardstick of compile times: a gradient step of a small network in a scan, without this library."""
    import jax
    import jax.numpy as jnp

    def loss(weights, x):
        for w in weights:
            x = jnp.tanh(x @ w)
        return jnp.mean(x**2)

    def train(weights, key):
        def step(weights, key):
            slope = jax.grad(loss)(weights, jax.random.normal(key, (32, 16)))
            return jax.tree.map(lambda w, g: w - 0.01 * g, weights, slope), ()

        return jax.lax.scan(step, weights, jax.random.split(key, 100))[0]

    weights = [jax.ShapeDtypeStruct((16, 16), jnp.float32)] * 4
    key = jax.eval_shape(lambda: jax.random.key(0))
    begin = time.process_time()
    jax.jit(train).lower(weights, key).compile()
    return time.process_time() - begin


MEASURES: dict[str, tuple[Callable[..., float], tuple[str, ...]]] = {
    **{f"steps {id}": (steps, (id,)) for id in IDS},
    **{f"steps {name} on {id}": (learning, (name,)) for name, id in LEARNERS.items()},
    **{f"compile {id}": (compiling, (id,)) for id in ("CartPole-v1", "MiniGrid-DoorKey-8x8-v0", "Hopper-v5")},
    "plain compile": (plain_compiling, ()),
}


# ---- rounds


def measured(root: pathlib.Path, name: str) -> float:
    """One measurement of a checkout."""
    full = {**os.environ, "PYTHONPATH": str(root), "JAX_ENABLE_COMPILATION_CACHE": "false", "JAX_PLATFORMS": "cpu"}
    command = ["taskset", "-c", "0", sys.executable, str(HERE), "--here", name]
    done = subprocess.run(command, cwd=root, env=full, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{name} of {root.name}: {done.stderr[-2000:]}")
    return float(done.stdout.split()[-1])


def ratios(roots: list[pathlib.Path], names: Iterable[str], rounds: int) -> dict[pathlib.Path, dict[str, float]]:
    """Of each checkout by name, each measured in turns with the yardsticks."""
    found: dict[Any, dict[str, list[float]]] = {root: {} for root in roots}
    yardsticks: dict[str, list[float]] = {"C": [], "plain": []}
    with tempfile.TemporaryDirectory() as folder:
        program = f"{folder}/cartpole"
        flags = ["-O3", "-march=native", "-ffast-math"]
        subprocess.run(["cc", *flags, "-o", program, str(HERE.with_name("cartpole_loop.c"))], check=True)
        for turn in range(rounds):
            done = subprocess.run(["taskset", "-c", "0", program, "1000000"], capture_output=True, check=True)
            yardsticks["C"].append(json.loads(done.stdout)["one"])
            yardsticks["plain"].append(measured(roots[0], "plain compile"))
            for name in names:
                for root in roots[:: -1 if turn % 2 else 1]:
                    found[root].setdefault(name, []).append(measured(root, name))
    C, plain = (statistics.median(x) for x in yardsticks.values())
    return {
        root: {
            name: plain / statistics.median(x) if name.startswith("compile") else statistics.median(x) / C
            for name, x in of_root.items()
        }
        for root, of_root in found.items()
    }


def slower(now: dict[str, float], before: dict[str, float]) -> list[str]:
    """A line for each ratio that has lost a tenth."""
    return [
        f"{name}: {now[name]:.3g}, which was {before[name]:.3g} ({now[name] / before[name]:.2f} of it)."
        for name in now
        if name in before and now[name] < SLOWER * before[name]
    ]


def usual(rows: list[dict[str, Any]], cpu: str) -> dict[str, float]:
    """Medians of the last five rows of that processor."""
    alike = [row["ratios"] for row in rows if row["machine"]["cpu"] == cpu][-5:]
    names = {name for row in alike for name in row}
    return {name: statistics.median(row[name] for row in alike if name in row) for name in names}


def history() -> list[dict[str, Any]]:
    return [json.loads(line) for line in HISTORY.read_text().splitlines()] if HISTORY.exists() else []


# ---- the page


def page(rows: list[dict[str, Any]]) -> str:
    """`docs/benchmark_history.md`."""
    last = rows[-1]
    lines = [
        "# Benchmarks over time",
        "",
        "Written by `make bench-all`. Steps a processor second are told in those of a loop of C of CartPole, one",
        "environment after another; seconds to compile in those of a small program of plain JAX. More is faster. The",
        "command names a ratio that lost a tenth; so does the nightly workflow, beside the commit of the day before.",
        "",
        "![Ratios over time](media/benchmark_history.png)",
        "",
        f"The last row: {last['machine']['date']}, commit {last['commit']}, {last['machine']['cpu']}, jax "
        f"{last['machine']['jax']}, load {last['machine']['load']:.1f}.",
        "",
        "| what | ratio | first | rows |",
        "|---|---|---|---|",
    ]
    for name, ratio in last["ratios"].items():
        known = [row["ratios"][name] for row in rows if name in row["ratios"]]
        lines.append(f"| {name} | {ratio:.3g} | {known[0]:.3g} | {len(known)} |")
    return "\n".join([*lines, ""])


def draw(rows: list[dict[str, Any]], path: pathlib.Path) -> None:
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    names = list(rows[-1]["ratios"])
    columns = 3
    height = -(-len(names) // columns)
    figure, axes = pyplot.subplots(height, columns, figsize=(10, 1.9 * height), squeeze=False)
    for name, at in zip(names, axes.flat, strict=False):
        points = [(i, row["ratios"][name]) for i, row in enumerate(rows) if name in row["ratios"]]
        at.plot(*zip(*points, strict=True), marker="o", markersize=3)
        at.set_title(name, fontsize=8)
        at.set_ylim(0, 1.25 * max(y for _, y in points))
        at.set_xlim(-0.5, len(rows) - 0.5)
        at.set_xticks(range(len(rows)), [row["machine"]["date"][5:] for row in rows], fontsize=6, rotation=45)
        at.tick_params(axis="y", labelsize=7)
    for at in axes.flat[len(names) :]:
        at.axis("off")
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", type=pathlib.Path, metavar="CHECKOUT")
    parser.add_argument("--only", nargs="+", default=["*"], metavar="PATTERN")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--here", help="internal: one measurement of the checkout in the present folder")
    args = parser.parse_args()
    if args.here:
        # An editable install would be found before the folder that PYTHONPATH names.
        sys.meta_path = [x for x in sys.meta_path if "__editable__" not in getattr(x, "__module__", "")]
        function, words = MEASURES[args.here]
        print(function(*words))
        return 0
    names = [n for n in MEASURES if n != "plain compile" and any(fnmatch.fnmatchcase(n, p) for p in args.only)]
    root = HERE.parents[1]
    roots = [root] if args.against is None else [root, args.against.resolve()]
    load, found = os.getloadavg()[0], ratios(roots, names, args.rounds)
    rows = history()
    about = {**machine(), "load": load}
    before = usual(rows, about["cpu"]) if args.against is None else found[roots[1]]
    table = [[name, f"{x:.3g}", f"{before[name]:.3g}" if name in before else ""] for name, x in found[root].items()]
    print_table("ratios", ["", "now", "before"], table)
    if args.against is None and args.only == ["*"]:
        commit = subprocess.check_output(["git", "rev-parse", "--short", "HEAD"], cwd=root, text=True).strip()
        row = {"commit": commit, "machine": about, "ratios": {n: float(f"{x:.4g}") for n, x in found[root].items()}}
        HISTORY.write_text("".join(json.dumps(r) + "\n" for r in [*rows, row]))
        PAGE.write_text(page([*rows, row]))
        draw([*rows, row], PAGE.parent / "media/benchmark_history.png")
    worse = slower(found[root], before)
    for line in worse:
        # GitHub shows such a line on the run's first page.
        print(f"::warning::{line}" if "GITHUB_ACTIONS" in os.environ else f"slower: {line}")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
