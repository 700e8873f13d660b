"""What a test file compiles, counted: a price that does not depend on the machine's mood. A report, not a gate.

Compiling is most of the suite's time, and seconds on shared machines are noise; the number of programs is not. Through
`jax.monitoring` each file's own programs and traces are counted. What jax compiles for single operations outside of
`jit` is left out, since a worker keeps those from one file to the next. `tests/compile_budget.json` holds each quick
file's allowance, and a file that makes far more than it (`tolerated`) is listed; no run fails by that:

    pytest --light -m "not slow" --compile-budget warn     lists the files far above their allowance (`make test`)
    pytest --light -m "not slow" --compile-budget report   also prints the twenty dearest files (`make test-budget`)
    pytest --light -m "not slow" --compile-budget write    writes the table anew: measured, a fifth and ten more

The few quick tests that may not be light are not counted.
"""

from __future__ import annotations

import collections
import json
import os
import re
import time
from pathlib import Path
from typing import Any

import pytest

TABLE = Path(__file__).with_suffix(".json")
COUNTS = ("programs", "traces")
SECONDS = ("tracing", "compiling", "in all", "CPU")
EVENTS = {
    "/jax/core/compile/jaxpr_trace_duration": ("traces", "tracing"),
    "/jax/core/compile/jaxpr_to_mlir_module_duration": (None, "compiling"),
    "/jax/core/compile/backend_compile_duration": ("programs", "compiling"),
}

Row = collections.Counter  # of COUNTS and SECONDS


def allowance(count: float) -> int:
    """What a file that was measured at `count` may have: it varies a little with what a worker has from other files."""
    return int(count * 1.2) + 10


def tolerated(allowed: int) -> int:
    """The most that a file with this allowance may make unlisted: twice as much, and twenty for a small or new file."""
    return 2 * allowed + 20


class CompileBudget:
    """A pytest plug-in; with pytest-xdist it counts in the workers, which need `--dist loadfile`, and sums up here."""

    def __init__(self, mode: str) -> None:
        self.mode = mode
        self.files: dict[str, Row] = collections.defaultdict(Row)
        self.current: Row | None = None
        self.listening = False
        self.single: set[str] = set()

    def listen(self) -> None:
        import jax

        self.listening = True
        modules = (jax.numpy, jax.lax, jax.random, jax.nn, jax.scipy.special)
        self.single = {name for module in modules for name in dir(module)}
        jax.monitoring.register_event_duration_secs_listener(self.heard)

    def heard(self, event: str, seconds: float, **about: Any) -> None:
        if self.current is None or event not in EVENTS:
            return
        count, second = EVENTS[event]
        self.current[second] += seconds
        name = re.sub(r"^jit\((.*)\)$", r"\1", str(about.get("fun_name", "")))
        if count and name not in self.single and not name.startswith("_"):
            self.current[count] += 1

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item):
        if not self.listening:
            self.listen()
        self.current = self.files[item.nodeid.split("::")[0]]
        start, used = time.perf_counter(), sum(os.times()[:4])
        yield
        self.current["in all"] += time.perf_counter() - start
        self.current["CPU"] += sum(os.times()[:4]) - used
        self.current = None

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output["compile_budget"] = {file: dict(row) for file, row in self.files.items()}

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        for file, row in getattr(node, "workeroutput", {}).get("compile_budget", {}).items():
            self.files[file].update(row)

    def over(self) -> list[str]:
        """A line for each file that makes far more than its allowance, or than none."""
        table = json.loads(TABLE.read_text()) if TABLE.exists() else {}
        lines = []
        for file, row in sorted(self.files.items()):
            allowed = table.get(file, dict.fromkeys(COUNTS, 0))
            if any(row[count] > tolerated(allowed[count]) for count in COUNTS):
                lines.append(f"{file}: makes {_counts(row)}; its allowance is {_counts(allowed)}.")
        return lines

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if not self.files:
            return
        if self.mode == "write":
            table = json.loads(TABLE.read_text()) if TABLE.exists() else {}
            table |= {f: {count: allowance(row[count]) for count in COUNTS} for f, row in self.files.items()}
            table = {file: row for file, row in sorted(table.items()) if Path(file).exists()}
            rows = ",\n".join(f"  {json.dumps(file)}: {json.dumps(row)}" for file, row in table.items())
            TABLE.write_text(f"{{\n{rows}\n}}\n")
        if self.mode in ("report", "write"):
            total: Row = Row()
            for row in self.files.values():
                total.update(row)
            terminalreporter.section("compile budget: the twenty dearest files")
            dearest = sorted(self.files.items(), key=lambda item: -item[1]["CPU"])[:20]
            terminalreporter.write_line(" ".join(f"{name:>9}" for name in (*COUNTS, *SECONDS)) + "  file")
            for file, row in [*dearest, (f"{len(self.files)} files", total)]:
                numbers = [f"{row[name]:9d}" for name in COUNTS] + [f"{row[name]:9.1f}" for name in SECONDS]
                terminalreporter.write_line(" ".join(numbers) + f"  {file}")
        if self.mode != "write" and (lines := self.over()):
            terminalreporter.section("compile budget: far above the allowance, which fails nothing")
            for line in lines:
                terminalreporter.write_line(line, yellow=True)
            terminalreporter.write_line(
                "Make the file cheaper, mark tests slow, or write a new allowance: see tests/compile_budget.py."
            )


def _counts(row: Any) -> str:
    return " and ".join(f"{int(row[name])} {name}" for name in COUNTS)
