"""How many runs fit into memory at once, from what the compiler says that two programs of different sizes need."""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

from jaxrl.algorithm import Algorithm
from jaxrl.host.run.options import default_log_every

SHARE = 0.8
"""Of the memory, what may be planned with."""

SIZES = 16, 32
"""Runs a device in the two programs; in between and beyond, memory is taken as linear."""

FEWEST_METRICS = 4 * 4
"""Bytes of the metrics of an update that every algorithm has: loss, episode_return, episode_length, episodes."""

UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}


def bytes_in(words: str) -> int:
    """`8GB`, `512MiB` or a number of bytes. Raises ValueError for other words."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?I?)B?", words.strip().upper())
    if found is None or found[2] not in UNITS or float(found[1]) == 0:
        raise ValueError(f"memory={words!r}: it is written as 8GB or 512MiB.")
    return int(float(found[1]) * UNITS[found[2]])


def resident() -> int:
    """Bytes of memory that this process has now; 0 where the system does not say."""
    statm = Path("/proc/self/statm")
    return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if statm.exists() else 0


def free_memory() -> int:
    """Bytes that a device has left; for a CPU what the system, or the container, would still give."""
    device = jax.local_devices()[0]
    if device.platform != "cpu":
        stats = device.memory_stats() or {}
        if "bytes_limit" in stats:
            return stats["bytes_limit"] - stats.get("bytes_in_use", 0)
    free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    meminfo, group = Path("/proc/meminfo"), Path("/sys/fs/cgroup")
    if meminfo.exists():
        free = next(int(line.split()[1]) << 10 for line in meminfo.read_text().splitlines() if "MemAvailable" in line)
    try:
        used = int((group / "memory.current").read_text())
        kept = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        used -= int(kept.get("inactive_file", 0))  # files that the system holds as long as nobody needs the memory
        free = min(free, int((group / "memory.max").read_text()) - used)
    except (OSError, ValueError):
        pass  # no container, or one without a limit
    return free


def left_of(memory: int | None) -> int:
    """Bytes for programs, of what this process may have in all (of a CPU's memory) or a device (of an accelerator's).

    None: of what is free.
    """
    if memory is None:
        return free_memory()
    return memory - (resident() if jax.local_devices()[0].platform == "cpu" else 0)


def bytes_a_run(algo: Algorithm, hyper: Any = None, env_params: Any = None) -> int:
    """A rough estimate of the memory one run needs while training, without compiling: its state and its rollout,
    thrice each. What is compiled needs up to a few times as much where runs are tiny.

    The state is held before and after a call and while one seed of many may have diverged; losses and their gradients
    hold a few values for each number of a rollout.
    """
    state = jax.eval_shape(lambda: algo.init(jax.random.key(0), hyper, env_params))
    rollout = jax.eval_shape(algo.collect, state)[1]
    return 3 * sum(math.prod(x.shape) * x.dtype.itemsize for x in jax.tree.leaves((state, rollout)))


def size_of(shapes: Any) -> int:
    """Bytes of a pytree of shapes."""
    return sum(math.prod(x.shape) * x.dtype.itemsize for x in jax.tree.leaves(shapes))


def least(
    algo: Algorithm, hyper: Any, env_params: Any, num_seeds: int | None, updates: int, episodes: int
) -> dict[str, int]:
    """Bytes that a run cannot do without, by what they are for. Nothing is compiled, and nothing made.

    The states and rollouts of all seeds, the metrics of one compiled call and of the run's rows, and the environments
    of `episodes` that are evaluated at once. What is compiled needs more, for gradients and copies.
    """
    from jaxrl.host.run.training_program import MAX_UPDATES_PER_CALL

    seeds = num_seeds or 1
    state = jax.eval_shape(lambda: algo.init(jax.random.key(0), hyper, env_params))
    state, rollout = jax.eval_shape(algo.collect, state)
    slots = episode_size(algo.venv.env, algo.venv.env.default_params)
    rows = min(MAX_UPDATES_PER_CALL, updates)
    rows += 2 * (updates // default_log_every(updates, num_seeds))  # of float64
    copies = 1 if num_seeds is None else 2  # beside the new states the old ones, for a seed that diverges
    return {
        "the states": copies * seeds * size_of(state),
        "the rollouts": seeds * size_of(rollout),
        "the metrics": seeds * rows * FEWEST_METRICS,
        "the evaluations": seeds * episodes * slots,
    }


def episode_size(env: Any, params: Any) -> int:
    """Bytes of one environment's state and observation."""
    return size_of(jax.eval_shape(env.reset, jax.random.key(0), params))


def require_room(parts: dict[str, int], what: str, remedy: str, memory: int | None = None, devices: int = 1) -> None:
    """Raise ValueError for what needs more memory than there is: so many bytes for its `parts`, over all `devices`.

    `memory` is what was stated, see `left_of`; None: what is free. On a CPU, devices share their memory.
    """
    needed, there = sum(parts.values()), left_of(memory)
    shared = 1 if jax.local_devices()[0].platform == "cpu" else devices
    if needed / shared > there:
        largest = max(parts, key=lambda name: parts[name])
        whose = "this machine has" if memory is None else "of what was stated there is"
        raise ValueError(
            f"{what} needs at least {_amount(needed / shared)} of memory, {_amount(parts[largest] / shared)} of it for "
            f"{largest}, and {whose} {_amount(max(there, 0))} left: {remedy}."
        )


def _amount(size: int | float) -> str:
    return f"{size / 2**30:,.3g} GiB" if size < 2**50 else f"{size / 2**40:,.3g} TiB"


def footprint(program: Any, evaluator: Any = None) -> int:
    """Bytes a device that a training program needs, and the evaluation between its calls, as they are compiled.

    Beside them the state once more: for what is written to a checkpoint, or repeated when a seed diverged. On a CPU,
    whose devices share their memory, bytes of all of them.
    """
    carry = program.shapes()
    devices = 1 if program.mesh is None else program.mesh.size
    needs = [_bytes(program.jitted.lower(carry, 0, 1))]
    state = sum(math.prod(x.shape) * x.dtype.itemsize for x in jax.tree.leaves(carry[0])) // devices
    if evaluator is not None:
        needs.append(_bytes(evaluator.of_task.lower(carry[0], evaluator.keys(0))))
    return (max(needs) + state) * (devices if jax.local_devices()[0].platform == "cpu" else 1)


def logged(program: Any, updates: int, log_every: int | None = None) -> int:
    """Bytes of what a run of so many updates logs, which is held until its end, and once more when it is handed over.

    `log_every` is that of `fit`. In the host's memory: on an accelerator nothing.
    """
    if jax.local_devices()[0].platform != "cpu":
        return 0
    rows = updates // (log_every or default_log_every(updates, program.num_seeds))
    metrics = jax.eval_shape(program.algo.update, jax.eval_shape(program.algo.init, jax.random.key(0)))[1]
    return 2 * 8 * rows * len(metrics) * (program.num_seeds or 1)


def _bytes(lowered: Any) -> int:
    said = lowered.compile().memory_analysis()
    inputs, outputs = said.argument_size_in_bytes, said.output_size_in_bytes - said.alias_size_in_bytes
    return inputs + outputs + said.temp_size_in_bytes


def runs_at_once(
    runs: int, estimate: int, needs: Callable[[int], int], memory: int | None = None, parts: int = 1
) -> int:
    """As many as fit, in programs of about equal size, each a multiple of `parts`, into which `runs` divide.

    Args:
        estimate: bytes a run, roughly; where a sixteenth of the memory holds all, nothing is compiled.
        needs: bytes of a program of so many runs.
        memory: bytes, see `left_of`.

    Raises ValueError where not even `parts` runs fit.
    """
    usable = int(SHARE * left_of(memory))
    if runs * estimate < usable / 16:
        return runs
    small, large = (min(size * parts, runs) for size in SIZES)
    if small == large:
        fixed, each = 0.0, needs(runs) / runs
    else:
        low, high = needs(small), needs(large)
        each = max((high - low) / (large - small), 1.0)
        fixed = max(low - small * each, 0.0)
    fit_in = int((usable - fixed) / each) // parts * parts
    if fit_in < 1:
        raise ValueError(
            f"{_runs(parts)} about {(fixed + each * parts) / 2**30:.2g} GiB and {max(usable, 0) / 2**30:.2g} GiB can "
            "be planned with: make the replay or the rollout smaller (at_once=1 tries it all the same)."
        )
    programs = -(-runs // fit_in)
    size = -(-runs // (programs * parts)) * parts
    if programs > 1:
        print(
            f"{runs} runs in {programs} programs of {size}: {each / 2**20:.3g} MiB each, {usable / 2**30:.3g} GiB to "
            "plan with",
            file=sys.stderr,
        )
    return size


def _runs(count: int) -> str:
    return "One run needs" if count == 1 else f"{count} runs, one a device, need"
