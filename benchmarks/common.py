"""What the benchmarks share: tables, result files with the machine they ran on, and peers in alternating processes."""

from __future__ import annotations

import json
import math
import os
import pathlib
import platform
import statistics
import subprocess
import time
from collections.abc import Sequence
from typing import Any


def batched_action(key: Any, space: Any, n: int) -> Any:
    """Uniform actions of `n` environments from one draw; the same function serves all libraries."""
    import jax
    import jax.numpy as jnp

    from jaxrl.math import light_key

    if hasattr(space, "n"):
        # Bias below space.n / 2**16, and half the random words of `randint`.
        return (jax.random.bits(light_key(key), (n,), jnp.uint16) % space.n).astype(jnp.int32)
    u = jax.random.uniform(light_key(key), (n, *space.shape))
    return space.low + u * (space.high - space.low)


def geometric_mean(values: Sequence[float]) -> float:
    """exp(mean(log x)) of positive numbers."""
    return math.exp(statistics.fmean(map(math.log, values)))


def print_table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A Markdown table, ready for `docs/benchmarks.md`."""
    print(f"\n{title}\n\n| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for row in rows:
        print(f"| {' | '.join(row)} |")


def machine() -> dict[str, Any]:
    """What a number means nothing without."""
    import jax
    import jaxlib

    model = platform.processor() or platform.machine()
    cpuinfo = pathlib.Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = (s for s in cpuinfo.read_text().splitlines() if s.startswith("model name"))
        model = next((s.split(":")[1].strip() for s in lines), model)
    return {
        "date": time.strftime("%Y-%m-%d"),
        "cpu": model,
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
        "device": f"{jax.devices()[0]}, {jax.devices()[0].device_kind}",
        "python": platform.python_version(),
        "jax": jax.__version__,
        "jaxlib": jaxlib.__version__,
    }


def save(path: str, results: dict[str, Any]) -> None:
    """Results with the machine, as JSON."""
    pathlib.Path(path).write_text(json.dumps({"machine": machine(), **results}, indent=1) + "\n")
    print(f"\nwritten: {path}")


def run_driver(python: str, driver: str, *options: str, env: dict[str, str] | None = None) -> dict[str, Any]:
    """Run `driver` (a file of this folder) in a fresh process of `python`; its last line of output is a JSON result.

    Raises RuntimeError with the end of the error output when it fails.
    """
    script = pathlib.Path(__file__).with_name(driver)
    # No compilation cache: compile time is part of what is measured.
    full = {**os.environ, "JAX_ENABLE_COMPILATION_CACHE": "false", **(env or {})}
    done = subprocess.run([python, str(script), *options], capture_output=True, text=True, env=full, check=False)
    if done.returncode:
        raise RuntimeError(f"{python} {driver} {' '.join(options)} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def alternate(sides: dict[str, Any], repeats: int) -> dict[str, dict[str, float]]:
    """Call each side's function in turn, `repeats` rounds; medians of every number they return."""
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in sides}
    for _ in range(repeats):
        for name, call in sides.items():
            runs[name].append(call())
    return {name: {k: statistics.median(r[k] for r in rs) for k in rs[0]} for name, rs in runs.items()}


def time_program(function: Any, *args: Any, repeats: int) -> dict[str, Any]:
    """Seconds to trace and compile `function(*args)`, and the median of its runs after one that is not counted."""
    import jax

    start = time.perf_counter()
    compiled = jax.jit(function).lower(*args).compile()
    compile_s = time.perf_counter() - start
    jax.block_until_ready(compiled(*args))
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready(compiled(*args))
        seconds.append(time.perf_counter() - start)
    return {"compile_s": compile_s, "run_s": statistics.median(seconds)}


def time_seeds(train: Any, evaluate: Any, seeds: Sequence[int]) -> dict[str, Any]:
    """Seconds to trace and compile `train(key)`, the median of its runs, and `evaluate(train(key))` of each seed.

    Of each also the processor's seconds, `_cpu_s`, which other programs of the machine stretch less. Evaluating is a
    program of its own, outside of all times.
    """
    import jax

    def timed(call: Any) -> tuple[Any, float, float]:
        start = time.perf_counter(), time.process_time()
        result = call()
        return result, time.perf_counter() - start[0], time.process_time() - start[1]

    compiled, compile_s, compile_cpu_s = timed(lambda: jax.jit(train).lower(jax.random.key(0)).compile())
    runs = [timed(lambda seed=seed: jax.block_until_ready(compiled(jax.random.key(seed)))) for seed in seeds]
    return {
        "compile_s": compile_s,
        "compile_cpu_s": compile_cpu_s,
        "run_s": statistics.median(run[1] for run in runs),
        "run_cpu_s": statistics.median(run[2] for run in runs),
        "returns": [float(jax.jit(evaluate)(run[0])) for run in runs],
    }
