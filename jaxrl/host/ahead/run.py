"""The program of a training run, compiled ahead of time: in this process, or in one that a limit of time can end.

`python -m jaxrl.host.ahead` is that process: it reads a job (JSON: `recipe`, `seeds`, `target`, `mesh`) and
writes the answer.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from jaxrl.host.ahead.compilation import DoesNotFitError, Report, compile_for
from jaxrl.host.ahead.hlo import Loop
from jaxrl.host.ahead.targets import MissingPluginError, topology_devices


@dataclasses.dataclass(frozen=True)
class RunReport:
    """What a compiler says of the program that `fit` calls: a loop of as many updates as the host asks for."""

    report: Report
    steps: int  # of environments in an update, all seeds and devices

    @property
    def update(self) -> Loop:
        """The loop of updates."""
        return max((x for x in self.report.unknown_loops if x.depth == 0), key=lambda loop: loop.kernels)

    @property
    def seconds(self) -> float | None:
        """An update, estimated; None where the compiler gives no figures."""
        return self.report.seconds_of(self.update)

    @property
    def waits(self) -> tuple[Loop, ...]:
        """Loops of unknown length inside an update."""
        return tuple(loop for loop in self.report.unknown_loops if loop is not self.update)


def compile_run(recipe: dict[str, Any], seeds: int, target: str, mesh: str | None = None) -> RunReport:
    """Compile what `jaxrl train` would run of a recipe on a mesh of the target's devices, from shapes alone.

    Args:
        mesh: as in "seeds=4,envs=2", of all devices of the target; default: that of `jaxrl train --distributed` there.

    Raises ValueError, MissingPluginError and DoesNotFitError as `compile_for`, and ValueError for a mesh of another
    number of devices, or one that does not divide the seeds and the environments.
    """
    from jaxrl.host.run.recipe import build
    from jaxrl.host.run.sharding import default_sizes, make_mesh, sizes_of
    from jaxrl.host.run.training_program import abstract_update

    devices = topology_devices(target)
    sizes = default_sizes(len(devices), seeds) if mesh is None else sizes_of(mesh)
    need = math.prod(sizes.values())
    if need != len(devices):
        raise ValueError(f"--mesh {mesh}: it is of {need} devices, and {target} has {len(devices)}.")
    algo, hyper, _, params = build(recipe)
    jitted, shapes = abstract_update(algo, make_mesh(sizes, devices), seeds, hyper, params)
    return RunReport(compile_for(jitted, shapes, target), algo.steps_per_update * seeds)


def within(seconds: int | float, recipe: dict[str, Any], seeds: int, target: str, mesh: str | None = None) -> RunReport:
    """`compile_run` in a process of its own, which is ended after so many seconds.

    Raises what `compile_run` raises, TimeoutError, and ChildProcessError where the compiler itself broke.
    """
    job = json.dumps({"recipe": recipe, "seeds": seeds, "target": target, "mesh": mesh})
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    command, env = [sys.executable, "-m", "jaxrl.host.ahead"], {**os.environ, "JAX_PLATFORMS": "cpu"}
    with subprocess.Popen(command, env=env, start_new_session=True, **pipes) as process:
        try:
            out, err = process.communicate(job, timeout=seconds)
        except subprocess.TimeoutExpired:
            raise TimeoutError(
                f"{target}: the compiler was not done after {seconds:g} s and was ended (--limit): give it longer, or "
                "ask for a smaller program."
            ) from None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)  # with the assemblers that it may have started
    if process.returncode < 0:
        name = signal.Signals(-process.returncode).name
        failed = [line.partition("Check failed: ")[2] for line in err.splitlines() if "Check failed: " in line]
        why = "the memory of this machine may be too small" if name == "SIGKILL" else "it does not say why"
        why = f"it says: {failed[0].strip()[:200]}" if failed else why
        raise ChildProcessError(f"{target}: the compiler was ended by {name}; {why}.")
    try:
        answer = json.loads(out.splitlines()[-1])
    except (IndexError, ValueError):
        raise ChildProcessError(f"{target}: the compiler broke:\n{err.strip()[-2000:]}") from None
    if "report" in answer:
        return RunReport(Report.from_json(answer["report"]), answer["steps"])
    if answer["error"] == "DoesNotFitError":
        raise DoesNotFitError(target, answer["needed"], answer["available"])
    raise _ERRORS[answer["error"]](answer["message"])


_ERRORS = {cls.__name__: cls for cls in (MissingPluginError, ValueError, TypeError, NotImplementedError, OSError)}


def main() -> int:
    """Answer the job on stdin: one line of JSON, the report or a user's error; others leave a traceback."""
    job = json.load(sys.stdin)
    try:
        run = compile_run(job["recipe"], job["seeds"], job["target"], job["mesh"])
        answer = {"report": run.report.to_json(), "steps": run.steps}
    except DoesNotFitError as error:
        answer = {"error": "DoesNotFitError", "needed": error.needed, "available": error.available}
    except tuple(_ERRORS.values()) as error:
        name = next(name for name, cls in _ERRORS.items() if isinstance(error, cls))
        answer = {"error": name, "message": str(error)}
    print(json.dumps(answer))
    return 0


def largest(
    attempt: Callable[[int], RunReport],
    start: int,
    say: Callable[[str], None] = lambda text: None,
    multiple: int = 1,
) -> tuple[int, RunReport]:
    """The largest count that fits, to within an eighth of a power of two, and its report.

    Powers of two first: from that at or below `start`, up by as many doublings as the memory left would hold if all of
    it grew with the count, or down by one, until one fits and its double does not; then three halvings between them.
    Where counts must be multiples of a number (a mesh divides them), all this is of how many times that is.

    Raises DoesNotFitError where not even one fits, and ValueError where memory does not grow with the count.
    """
    best: dict[int, RunReport] = {}
    failed = math.inf

    def fits(times: int) -> bool:
        nonlocal failed
        count = times * multiple
        try:
            best[times] = attempt(count)
        except DoesNotFitError as error:
            failed = min(failed, times)
            say(f"{count:,}: {error.needed / error.available:.0%} of the memory, too much")
            if times == 1:
                raise
            return False
        memory = best[times].report.memory
        say(f"{count:,}: {memory.needed / memory.available:.0%} of the memory")
        return True

    times = 2 ** int(math.log2(max(1, start // multiple)))
    while not fits(times):
        times //= 2
    while 2 * times < failed:
        memory = best[times].report.memory
        doublings = max(1, int(math.log2(memory.available / memory.needed)))
        while not fits(times << doublings):
            doublings -= 1
            if not doublings:
                break
        if doublings and best[times << doublings].report.memory.needed <= memory.needed:
            more = (times << doublings) * multiple
            raise ValueError(
                f"--largest: memory does not grow with it: {more:,} need no more than {times * multiple:,}."
            )
        times <<= doublings
    low, high = times, 2 * times
    while high - low > max(1, times // 8):
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low * multiple, best[low]
